"""Cases small enough for the optimum: 8 jobs on 4 GPUs, with exact estimates.

The optimum runs every job to its end where it started, and knows all arrivals beforehand. A policy
that stops and moves jobs may pass it; `preemptive_bound_s` is what not even such a one passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.policies.baselines.milp import optimum, preemptive_bound_s
from trimtab.reproduce.adlro.scenes import STARTUP_S, result_of
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

GPUS = {"volta": 2, "turing": 1, "radeon": 1}
JOBS = 8
LOAD = 1.5  # of the cases with arrivals: below it few of 8 jobs ever wait
TIME_LIMIT_S = 120.0  # of the mixed-integer programme: some seconds are usual


def measured(policies: Sequence[str], seed: int, together: bool) -> dict[str, Any]:
    """Total completion time of each policy, of the optimum and of the bound, in seconds."""
    machine, profile = preset("adlro", **GPUS)
    work = generate("adlro", seed=seed, jobs=JOBS, load=LOAD, cluster=machine, profile=profile)
    if together:
        work.jobs["submit_s"] = 0.0
    plan = optimum(work, machine, profile, STARTUP_S, TIME_LIMIT_S)
    total_s = {}
    for policy in policies:
        result = result_of(work, machine, profile, policy, seed)
        total_s[policy] = float((result.state["end_s"] - work.jobs["submit_s"]).sum())
    return {
        "total_s": total_s,
        "optimum_s": plan.total_completion_s,
        "optimal": plan.optimal,
        "bound_s": preemptive_bound_s(work, machine, profile, STARTUP_S),
    }
