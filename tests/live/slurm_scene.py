"""What a real Slurm did with jobs, and the same jobs for the simulator: not a test."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tests.slurm_daemon import Slurm, wait_for

from trimtab.build import uniform_profile, workload
from trimtab.core import Cluster, Event, Snapshot, What, Workload
from trimtab.policies.slurm.policy import SlurmPolicy
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.site import CONSTRAINT, EXCLUSIVE, GPU_KIND, PARTITION, QOS, USER, labelled
from trimtab.traces.dumps.slurm import from_slurm
from trimtab.traces.scenes.match import matched


@dataclass(frozen=True)
class Job:
    """A job as sbatch is asked for it, and as long as it sleeps."""

    name: str
    sleep_s: float
    minutes: int
    partition: str
    cpus: int = 1
    nodes: int = 1  # a task on each
    gpus: int = 0  # a node
    gpu_kind: str = ""
    constraint: str = ""
    qos: str = ""
    exclusive: bool = False

    def options(self) -> list[str]:
        given = [f"--time={self.minutes}", f"--partition={self.partition}", f"-c{self.cpus}"]
        given += [f"--nodes={self.nodes}", "--ntasks-per-node=1", "--mem-per-cpu=100"]
        kind = f"{self.gpu_kind}:" if self.gpu_kind else ""
        given += [f"--gres=gpu:{kind}{self.gpus}"] if self.gpus else []
        given += [f"--constraint={self.constraint}"] if self.constraint else []
        given += [f"--qos={self.qos}"] if self.qos else []
        return given + (["--exclusive"] if self.exclusive else [])


@dataclass(frozen=True)
class Run:
    """When and where each job ran, in seconds since the first was submitted."""

    submit_s: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    nodes: tuple[tuple[str, ...], ...]
    stopped: tuple[bool, ...]  # by a job that preempted it
    zero_s: float = 0.0  # of this clock, since 1970

    def order(self, names: Sequence[str]) -> list[str]:
        return [names[i] for i in np.lexsort((np.arange(len(names)), self.start_s)).tolist()]


def ran(slurm: Slurm, jobs: Sequence[Job], first: int = 1, most_s: float = 120.0) -> Run:
    """Submit the jobs, wait for their ends, and read what became of them. The first `first` run
    before the others come.
    """
    ids = []
    for number, job in enumerate(jobs):
        ids.append(slurm.submit(*job.options(), sleep_s=job.sleep_s, name=job.name))
        if number < first:  # one after the other, or Slurm has them in the order of their priority
            wait_for(partial(runs, slurm, ids[-1]), 10.0, f"{job.name} to start")
        if number == first - 1:
            time.sleep(1.1)
    wait_for(lambda: not slurm.out("squeue", "-h"), most_s, "the jobs to end")
    found = [_record(slurm, job_id) for job_id in ids]
    for record in found[:first]:  # how long they waited for the daemons to wake tells nothing
        record["SubmitTime"] = record["StartTime"]
    for number, record in enumerate(found):
        record["SubmitTime"] += 0.01 * number  # Slurm's are whole seconds
    zero_s = float(int(min(record["SubmitTime"] for record in found)))
    return Run(
        *(
            tuple(record[name] - zero_s for record in found)
            for name in ("SubmitTime", "StartTime", "EndTime")
        ),
        tuple(tuple(record["nodes"]) for record in found),
        tuple(record["state"] == "PREEMPTED" for record in found),
        zero_s,
    )


def runs(slurm: Slurm, job_id: str) -> bool:
    return bool(slurm.out("squeue", "-h", "-t", "R", "-j", job_id).strip())


def _record(slurm: Slurm, job_id: str) -> dict:
    text = slurm.out("scontrol", "show", "job", job_id)
    field = dict(re.findall(r"(\w+)=(\S*)", text))
    made: dict = {
        name: float(calendar.timegm(time.strptime(field[name], "%Y-%m-%dT%H:%M:%S")))
        for name in ("SubmitTime", "StartTime", "EndTime")
    }
    made["state"] = field["JobState"]
    made["nodes"] = slurm.out("scontrol", "show", "hostnames", field["NodeList"]).split()
    return made


def simulated(slurm: Slurm, jobs: Sequence[Job], seen: Run) -> Run:
    """The same jobs, each as long as it really ran, under the policy on the cluster as Slurm itself
    tells of it.
    """
    read, asked = told_cluster(slurm), scene_jobs(jobs, seen)
    profile = uniform_profile(len(asked.kinds), len(read.kinds))
    work, made, profile = matched(asked, read, profile)
    backend = SimBackend(work, made, profile, Models())
    placed: dict[int, tuple[int, ...]] = {}

    def note(event: Event, snapshot: Snapshot) -> None:
        if event.what == What.STARTED:
            placed[event.job] = event.nodes

    run(backend, SlurmPolicy(), [note])
    state = backend.world.state[0]
    order = np.argsort(np.argsort(seen.submit_s, kind="stable"), kind="stable")
    return Run(
        seen.submit_s,
        tuple(state["start_s"][order].tolist()),
        tuple(state["end_s"][order].tolist()),
        tuple(tuple(sorted(made.name(n) for n in placed[row])) for row in order.tolist()),
        tuple(bool(stops) for stops in state["stops"][order]),
    )


def told_cluster(slurm: Slurm) -> Cluster:
    """The cluster from Slurm's dumps."""
    dumps = {
        name: slurm.out("scontrol", "show", name)
        for name in ("node", "partition", "reservation", "config")
    }
    dumps["qos"] = slurm.out("sacctmgr", "show", "qos", "-P")
    dumps["assoc"] = slurm.out("sacctmgr", "show", "assoc", "tree", "-P")
    paths = []
    for name, text in dumps.items():
        if text.strip() and "No reservations" not in text:
            paths.append(slurm.folder / f"dump-{name}")
            paths[-1].write_text(text)
    return from_slurm(paths).cluster


def scene_jobs(jobs: Sequence[Job], seen: Run) -> Workload:
    """The jobs by submission, with what they name."""
    order = np.argsort(seen.submit_s, kind="stable").tolist()
    ordered = [jobs[row] for row in order]
    ran_s = [
        jobs[row].sleep_s if seen.stopped[row] else max(seen.end_s[row] - seen.start_s[row], 0.5)
        for row in order
    ]
    return workload(
        [seen.submit_s[row] for row in order],
        ran_s,
        [[job.cpus, 0.1 * job.cpus * 1000 / 1024, job.gpus] for job in ordered],
        resources=("cpu", "mem_gb", "gpu"),
        request_s=[60.0 * job.minutes for job in ordered],
        instances=[job.nodes for job in ordered],
        gpus=[job.gpus for job in ordered],
        labels={
            PARTITION: labelled([job.partition for job in ordered]),
            GPU_KIND: labelled([job.gpu_kind for job in ordered]),
            CONSTRAINT: labelled([job.constraint for job in ordered]),
            QOS: labelled([job.qos for job in ordered]),
            EXCLUSIVE: labelled(["yes" if job.exclusive else "" for job in ordered]),
            USER: labelled(["root"] * len(ordered)),
        },
        meta={"epoch_s": seen.zero_s},
    )
