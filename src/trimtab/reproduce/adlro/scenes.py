"""One policy on one scene: what a trial of a paper's table measures.

Start-ups and moves take 30 s: containers and checkpoints are not free, and a policy that stops and
moves jobs pays for it.
"""

from __future__ import annotations

import numpy as np

from trimtab.core import Cluster, Profile, Status, Workload
from trimtab.metrics import Result, measure, useful_utilization
from trimtab.play import play
from trimtab.policies import named
from trimtab.sim.world import Models
from trimtab.traces.scenes.scene import Scene, open_scene

STARTUP_S = MOVE_S = 30.0
KEPT = (
    *("jct_mean_s", "jct_p95_s", "throughput_per_h", "useful_utilization", "utilization"),
    *("energy_j", "preemptions", "finished"),
)


def measured(policy: str, trace: str, cluster: str | None, seed: int) -> dict[str, float]:
    """The metrics of a policy on a scene as `trimtab compare --trace --cluster` names it.

    `arriving_*` are taken from the first to the last arrival: what is done while jobs still come,
    which is what counts where more come than can be done.
    """
    scene = open_scene(trace, cluster, seed=seed)
    result = result_of(scene.workload, scene.cluster, scene.profile, policy, seed)
    found = measure(result)
    kept = {name: found[name] for name in KEPT}
    return kept | {"jobs": float(len(result.workload))} | while_arriving(result)


def while_arriving(result: Result) -> dict[str, float]:
    submit_s = result.workload.jobs["submit_s"]
    span_s = float(submit_s.max() - submit_s.min())
    done = (result.state["status"] == Status.FINISHED) & (result.state["end_s"] <= submit_s.max())
    return {
        "arriving_throughput_per_h": 3600.0 * float(np.sum(done)) / span_s if span_s > 0 else 0.0,
        "arriving_useful_utilization": useful_utilization(result, span_s, done),
    }


def result_of(work: Workload, machine: Cluster, profile: Profile, policy: str, seed: int) -> Result:
    """A policy by its name on these jobs, with start-ups and moves as above."""
    models = Models(startup_s=STARTUP_S, move_s=MOVE_S)
    scene = Scene(work, machine, profile, work.source, False)
    return play(named(policy, seed), scene, models, seed=seed, label=policy)
