"""Recorded beside simulated: the waits of a log, and those under the rule that its site ran."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.play import play
from trimtab.policies import named
from trimtab.recorded import as_recorded, doubts, has_record
from trimtab.reproduce.limits import judged
from trimtab.traces.scenes.scene import open_scene

NEAR = 0.2  # of the recorded wait
USUAL = ("fcfs+easy", "nothing says what the site ran: EASY backfilling is taken, as is usual")
SITES = (  # what the header says of the installation, the rule, and where that is from
    ("Cornell Theory Center", "fcfs+easy", "the header: uses the EASY scheduler"),
    ("SDSC", "fcfs+easy", "an IBM SP2 under LoadLeveler: EASY is taken, the header is silent"),
    ("HPC2N", "fcfs+easy", "the header: Maui, which backfills behind reserved jobs"),
    ("UNILU", "fcfs+conservative", "the header: OAR, which plans a time for every job"),
)


def rule_of(header: dict[str, str]) -> tuple[str, str]:
    """The rule that a site ran as far as it is known, and how we know."""
    for name, rule, why in SITES:
        if name in header.get("Installation", ""):
            return rule, why
    return USUAL


def beside(
    trace: str, policy: str | None = None, *, first: float = 0.5, **options: Any
) -> dict[str, Any]:
    """Mean and 95th percentile of the recorded and the simulated waits, of the same jobs.

    `policy` replaces the site's rule; off the `first` share of the jobs limits are read that are
    judged on the others: `later`. `options` are those of `open_scene`. TraceError for a log
    that has no starts.
    """
    if not 0 < first < 1:
        raise TraceError(f"--first {first}: is no part of the jobs; give a share such as 0.5")
    scene = open_scene(trace, **options)
    work = scene.workload
    recorded = as_recorded(work, scene.cluster)
    if recorded is None:
        raise TraceError(f"{trace}: the log has no recorded starts to hold a simulation against")
    rule, why = rule_of(work.meta.get("header", {}))
    if policy is not None:
        rule, why = policy, f"--policy {policy}"
    done = play(named(rule, 0), scene, label=rule)
    wait_s = (done.state["start_s"] - work.jobs["submit_s"])[has_record(work)]
    found: dict[str, Any] = {
        "trace": scene.name, "policy": rule, "because": why, "jobs": len(wait_s),
        "notes": list(work.meta.get("notes", ())),
    }  # fmt: skip
    near = True
    for name, of in (("wait_mean_s", np.mean), ("wait_p95_s", _p95)):
        happened = float(of(recorded.state["waited_s"]))
        ours = float(of(wait_s))
        gap = ours / happened - 1 if happened > 0 else 0.0
        near = near and abs(gap) <= NEAR
        found[name] = {"recorded": happened, "simulated": ours, "gap": gap}
    later = judged(scene, recorded, rule, first)
    return found | {"near": near, "reasons": doubts(recorded), "later": later}


def _p95(wait_s: Array) -> float:
    return float(np.percentile(wait_s, 95))
