"""What a real Slurm did with jobs, and the same jobs for the simulator: not a test."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.slurm_daemon import Node, Slurm, wait_for

from trimtab.build import workload
from trimtab.core import Cluster, Event, Snapshot, What, Workload
from trimtab.policies.slurm.policy import SlurmPolicy
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.site import GATE, PARTITION, QOS, USER, Quotas, Site, labelled
from trimtab.traces.dumps.slurm import from_slurm

RESOURCES = ("cpu", "mem_gb", "gpu")


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
    reservation: str = ""
    exclusive: bool = False

    def options(self) -> list[str]:
        given = [f"--time={self.minutes}", f"--partition={self.partition}", f"-c{self.cpus}"]
        given += [f"--nodes={self.nodes}", "--ntasks-per-node=1", "--mem-per-cpu=100"]
        kind = f"{self.gpu_kind}:" if self.gpu_kind else ""
        given += [f"--gres=gpu:{kind}{self.gpus}"] if self.gpus else []
        given += [f"--constraint={self.constraint}"] if self.constraint else []
        given += [f"--qos={self.qos}"] if self.qos else []
        given += [f"--reservation={self.reservation}"] if self.reservation else []
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
        if number == first:
            wait_for(lambda: slurm.out("squeue", "-h", "-t", "R"), 10.0, "the first jobs")
            time.sleep(1.1)
        ids.append(slurm.submit(*job.options(), sleep_s=job.sleep_s, name=job.name))
    wait_for(lambda: not slurm.out("squeue", "-h"), most_s, "the jobs to end")
    found = [_record(slurm, job_id) for job_id in ids]
    for record in found[:first]:  # how long they waited for the daemons to wake tells nothing
        record["SubmitTime"] = record["StartTime"]
    zero_s = min(record["SubmitTime"] for record in found)
    return Run(
        *(
            tuple(record[name] - zero_s for record in found)
            for name in ("SubmitTime", "StartTime", "EndTime")
        ),
        tuple(tuple(record["nodes"]) for record in found),
        tuple(record["state"] == "PREEMPTED" for record in found),
        zero_s,
    )


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


def simulated(
    slurm: Slurm,
    jobs: Sequence[Job],
    seen: Run,
    quotas: Mapping[str, Mapping[str, float]] | None = None,
) -> Run:
    """The same jobs, each as long as it really ran, under the policy on the cluster as Slurm itself
    tells of it. `quotas`: of all jobs of a QOS together.
    """
    made = told_cluster(slurm, seen.zero_s)
    by_name = {node.name: node for node in slurm.nodes}  # Slurm has them in an order of its own
    nodes = [by_name[made.name(node)] for node in range(len(made))]
    work = scene_jobs(nodes, made.site, jobs, seen, quotas or {})
    backend = SimBackend(work, made, models=Models())
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


def told_cluster(slurm: Slurm, zero_s: float) -> Cluster:
    """The cluster from Slurm's dumps, with every node of a kind of its own."""
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
    made = from_slurm(paths).cluster
    nodes = made.nodes.copy()
    nodes["kind"] = np.arange(len(nodes))
    assert made.site is not None and made.names is not None
    gates = np.zeros(len(made.site.reservations), GATE)
    for gate, reservation in zip(gates, made.site.reservations, strict=True):
        gate["from_s"], gate["to_s"] = reservation.start_s - zero_s, reservation.end_s - zero_s
        gate["kinds"] = bits([name in reservation.nodes for name in made.names])
    return replace(made, nodes=nodes, kinds=tuple(made.names.tolist()), gates=gates)


def bits(chosen: Sequence[bool]) -> int:
    return sum(1 << row for row, yes in enumerate(chosen) if yes)


def scene_jobs(
    nodes: Sequence[Node], site: Site, jobs: Sequence[Job], seen: Run,
    quotas: Mapping[str, Mapping[str, float]],
) -> Workload:  # fmt: skip
    """The jobs by submission, with the kinds of node that partition, GPUs and features allow."""
    order = np.argsort(seen.submit_s, kind="stable").tolist()
    ordered = [jobs[row] for row in order]
    part_nodes = {part.name: part.nodes for part in site.partitions}
    allowed = []
    for job in ordered:
        names = {name for part in job.partition.split(",") for name in part_nodes[part]}
        allowed.append(bits([
            node.name in names and node.gpus >= job.gpus
            and (not job.gpu_kind or node.gpu_kind == job.gpu_kind)
            and (not job.constraint or job.constraint in node.features.split(","))
            and (not job.reservation or any(node.name in r.nodes for r in site.reservations))
            for node in nodes
        ]))  # fmt: skip
    cpus = [whole_node(nodes, part_nodes, job) for job in ordered]
    made = workload(
        [seen.submit_s[row] for row in order],
        [
            jobs[row].sleep_s
            if seen.stopped[row]
            else max(seen.end_s[row] - seen.start_s[row], 0.5)
            for row in order
        ],
        [[cpu, 0.1 * job.cpus * 1000 / 1024, job.gpus] for cpu, job in zip(cpus, ordered)],
        resources=RESOURCES,
        request_s=[60.0 * job.minutes for job in ordered],
        instances=[job.nodes for job in ordered],
        gpus=[job.gpus for job in ordered],
        node_kinds=np.array(allowed, np.uint64),
        labels={
            PARTITION: labelled([job.partition for job in ordered]),
            QOS: labelled([job.qos for job in ordered]),
            USER: labelled(["root"] * len(ordered)),
        },
    )
    reserved = np.array([0 if job.reservation else -1 for job in ordered])
    return replace(made, quotas=scene_quotas(ordered, quotas), reserved=reserved)


def whole_node(nodes: Sequence[Node], parts: Mapping[str, Sequence[str]], job: Job) -> int:
    if not job.exclusive:
        return job.cpus
    return max(node.cpus for node in nodes if node.name in parts[job.partition])


def scene_quotas(jobs: Sequence[Job], quotas: Mapping[str, Mapping[str, float]]) -> Quotas | None:
    if not quotas:
        return None
    counted = (*RESOURCES, "jobs", "nodes")
    names = list(quotas)
    cap = np.array([[quotas[name].get(what, np.inf) for what in counted] for name in names])
    inside = [[row for row, name in enumerate(names) if name == job.qos] for job in jobs]
    return Quotas(
        tuple(names), cap, np.cumsum([0, *map(len, inside)]),
        np.array([row for rows in inside for row in rows], np.int64),
        np.array([float(job.nodes) for job in jobs]),
    )  # fmt: skip
