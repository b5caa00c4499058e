"""One policy on one scene: what a trial of a paper's table measures.

Start-ups and moves take 30 s: containers and checkpoints are not free, and a policy that stops and
moves jobs pays for it.
"""

from __future__ import annotations

from trimtab.core import Cluster, Profile, Workload
from trimtab.metrics import Result, measure
from trimtab.play import play
from trimtab.policies import named
from trimtab.sim.world import Models
from trimtab.traces.scenes.scene import Scene, open_scene

STARTUP_S = MOVE_S = 30.0
KEPT = (
    *("jct_mean_s", "jct_p95_s", "throughput_per_h", "useful_utilization", "utilization"),
    *("energy_j", "preemptions", "finished"),
    *("arriving_throughput_per_h", "arriving_useful_utilization"),
)


def measured(policy: str, trace: str, cluster: str | None, seed: int) -> dict[str, float]:
    """The metrics of a policy on a scene as `trimtab compare --trace --cluster` names it.

    `arriving_*` are what counts where more jobs come than can be done.
    """
    scene = open_scene(trace, cluster, seed=seed)
    result = result_of(scene.workload, scene.cluster, scene.profile, policy, seed)
    found = measure(result)
    kept = {name: found.get(name, 0.0) for name in KEPT}
    return kept | {"jobs": float(len(result.workload))}


def result_of(work: Workload, machine: Cluster, profile: Profile, policy: str, seed: int) -> Result:
    """A policy by its name on these jobs, with start-ups and moves as above."""
    models = Models(startup_s=STARTUP_S, move_s=MOVE_S)
    scene = Scene(work, machine, profile, work.source, False)
    return play(named(policy, seed), scene, models, seed=seed, label=policy)
