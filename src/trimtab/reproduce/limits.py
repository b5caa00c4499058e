"""Limits that a log does not name, read off its first part and judged on the rest.

Jobs of a log often waited while as many processors as they asked for were free. `evidence` says how
much of that waiting could be a ceiling of jobs or processors at once, or a stretch in which nothing
started. `usable` is what is left: the share of the machine on which the rule would have let the
jobs of the first part wait as they did, as if the other processors had been lost, or held by work
that is not in the log. `judged` applies it to the rest, which it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trimtab import site
from trimtab.arrays import Array
from trimtab.core import Workload
from trimtab.metrics import Result
from trimtab.play import play
from trimtab.policies import named
from trimtab.recorded import WEEK_S, capacity, has_record, held
from trimtab.traces.scenes.scene import Scene

LOOKS = 20  # instants of a job's wait at which we look at what ran
SHORT_S = 60.0  # shorter waits are those of a scheduler's own pace
QUIET_S = 3600.0  # nothing started for so long: maintenance, or a scheduler that stood still
STEP, LEAST = 1 / 80, 0.5  # shares of the machine that are tried, from all of it down
PATIENCE = 4  # shares that are tried beyond the best
WEEK_JOBS = 20  # a week with fewer says little
ALIKE_S = 600.0  # mean waits of a week that are far below this count as alike
GROUPS = {"user": site.USER, "group": site.ACCOUNT, "queue": site.PARTITION}


class Running(NamedTuple):
    """How much the jobs of each group held at once."""

    key: Array  # group x span_s + time, ascending
    level: Array
    span_s: float

    def at(self, group: Array, time_s: Array) -> Array:
        found = np.searchsorted(self.key, group * self.span_s + time_s, "right") - 1
        return np.where(found >= 0, self.level[np.maximum(found, 0)], 0.0)


def running(group: Array, start_s: Array, end_s: Array, amount: Array) -> Running:
    """The sum of the amounts of what runs, group by group; what ends goes before what starts."""
    span_s = float(end_s.max()) + 1.0
    key = np.concatenate((group, group)) * span_s + np.concatenate((start_s, end_s))
    change = np.concatenate((amount, -amount))
    turn = np.lexsort((change, key))
    return Running(key[turn], np.cumsum(change[turn]), span_s)


def evidence(recorded: Result, before_s: float) -> dict[str, float]:
    """Shares of the waiting of jobs that started before an instant; they overlap.

    `free`: as many processors as the job asked for were free. Of the same waiting, always while
    they were free, `user jobs` and so on: its user, group or queue would have gone beyond the most
    jobs, processors or processor-hours asked for that it ever held. `quiet`: nothing started.
    """
    work = recorded.workload
    submit_s, start_s = work.jobs["submit_s"], recorded.state["start_s"]
    end_s, amount = recorded.state["end_s"], held(work)[0]
    seen = start_s < before_s
    waited = np.flatnonzero(seen & (start_s - submit_s > SHORT_S))
    if not len(waited):
        return {}
    job = np.repeat(waited, LOOKS)
    part = np.tile((np.arange(LOOKS) + 0.5) / LOOKS, len(waited))
    wait_s = start_s[job] - submit_s[job]
    time_s, total_s = submit_s[job] + wait_s * part, float(wait_s.sum())
    all_of = np.zeros(len(work), np.int64)
    used = running(all_of, start_s, end_s, amount).at(all_of[job], time_s)
    free = used + amount[job] <= capacity(work, recorded.cluster)
    found = {"free": float(wait_s[free].sum()) / total_s}
    asked = {"jobs": np.ones(len(work)), "processors": amount,
             "processor-hours": amount * work.jobs["request_s"]}  # fmt: skip
    for name, label in GROUPS.items():
        if label not in work.labels or len(np.unique(work.labels[label].row)) < 2:
            continue
        group = work.labels[label].row
        for what, much in asked.items():
            now = running(group, start_s, end_s, much)
            most = np.zeros(int(group.max()) + 1)
            np.maximum.at(most, group[seen], now.at(group[seen], start_s[seen]))
            over = free & (now.at(group[job], time_s) + much[job] > most[group[job]])
            found[f"{name} {what}"] = float(wait_s[over].sum()) / total_s
    starts = np.concatenate(([-np.inf], np.sort(start_s), [np.inf]))
    after = np.searchsorted(starts, time_s, "right")
    quiet = free & (starts[after] - starts[after - 1] >= QUIET_S)
    found["quiet"] = float(wait_s[quiet].sum()) / total_s
    return found


def is_one_pool(scene: Scene) -> bool:
    """Whether a share of the machine is a number of interchangeable units."""
    return scene.cluster.capacity.shape == (1, 1) and scene.workload.quotas is None


def with_share(scene: Scene, share: float) -> Scene:
    """So much of its pool. Jobs that ask for more run on all that is left."""
    units = float(np.floor(share * scene.cluster.capacity[0, 0]))
    work = replace(scene.workload, demand=np.minimum(scene.workload.demand, units))
    return scene._replace(
        workload=work, cluster=replace(scene.cluster, capacity=np.array([[units]]))
    )


def machine_text(scene: Scene, share: float) -> str:
    """The option that makes the log's machine so small."""
    units, work = with_share(scene, share).cluster.capacity[0, 0], scene.workload
    if work.resources != ("node",):
        return f"procs={units:.0f}"
    each = work.meta.get("max_procs", 1) / work.meta.get("max_nodes", 1)
    return f"nodes={units:.0f},procs={units * each:.0f}"


def waits_of(scene: Scene, rule: str) -> Array:
    """(J,) simulated waits under a rule."""
    done = play(named(rule, 0), scene, label=rule)
    return np.asarray(done.state["start_s"] - scene.workload.jobs["submit_s"])


def usable(waits_at: Callable[[float], Array], wait_s: Array, submit_s: Array) -> float | None:
    """The share of the machine at which simulated waits are nearest to the recorded ones.

    How far is the mean over weeks of the size of the logarithm of their mean waits' ratio: one
    crowded week, or one user's queue, does not outweigh the others. None where no week has enough
    jobs.
    """
    week = ((submit_s - submit_s.min()) // WEEK_S).astype(np.int64)
    jobs = np.bincount(week)
    full = jobs >= WEEK_JOBS

    def means(waited_s: Array) -> Array:
        return np.bincount(week, waited_s)[full] / jobs[full] + ALIKE_S

    if not full.any():
        return None
    truth, best, least = means(wait_s), 1.0, np.inf
    for share in np.arange(1.0, LEAST - STEP / 2, -STEP):
        if share < best - (PATIENCE + 0.5) * STEP:
            break
        off = float(np.abs(np.log(means(waits_at(float(share))) / truth)).mean())
        if off < least:
            best, least = float(share), off
    return best


def judged(scene: Scene, recorded: Result, rule: str, first_part: float) -> dict[str, Any] | None:
    """Waits of later jobs, recorded, under the rule, and on the share that the first ones had.

    None where jobs need more than a number of units of one pool, or too few weeks are known.
    """
    work = scene.workload
    submit_s, known = work.jobs["submit_s"], has_record(work)
    half = int(first_part * len(work))
    if not half or not is_one_pool(scene) or not known[half:].any():
        return None
    cut_s = float(submit_s[half])
    start_s = np.asarray(work.meta["recorded"]["start_s"])
    first = known[:half] & (start_s[:half] < cut_s)  # what was known at that instant
    begun = scene._replace(workload=work.window(0, half))
    share = first.any() and usable(
        lambda share: waits_of(with_share(begun, share), rule)[first],
        (start_s - submit_s)[:half][first],
        submit_s[:half][first],
    )
    if not share:
        return None
    rest = known & (np.arange(len(work)) >= half)
    truth = (start_s - submit_s)[rest]
    plain, ours = (waits_of(with_share(scene, part), rule)[rest] for part in (1.0, share))
    return {
        "jobs": int(rest.sum()),
        "share": share,
        "machine": machine_text(scene, share),
        "wider": int((with_share(scene, share).workload.demand < work.demand).sum()),
        "wait_mean_s": _beside(np.mean, truth, plain, ours),
        "wait_p95_s": _beside(_p95, truth, plain, ours),
        "evidence": evidence(recorded, cut_s),
        "users": most_waiting(work, start_s - submit_s, first, rest),
    }


def most_waiting(work: Workload, wait_s: Array, *parts: Array) -> list[list[float]]:
    """Of each part's user who waited most, the share of the waiting of every part."""
    names = work.labels.get(site.USER)
    user = work.jobs["tenant"] if names is None else names.row
    sums = []
    for part in parts:
        rows = np.flatnonzero(part)  # the first part knows of none that come later
        much = np.bincount(user[rows], wait_s[rows], minlength=int(user.max()) + 1)
        sums.append(much / max(float(much.sum()), 1.0))
    return [[float(much[int(one.argmax())]) for much in sums] for one in sums]


def _beside(of: Any, truth: Array, plain: Array, ours: Array) -> dict[str, float]:
    recorded, simulated = float(of(truth)), float(of(ours))
    gap = simulated / recorded - 1 if recorded > 0 else 0.0
    return {"recorded": recorded, "plain": float(of(plain)), "simulated": simulated, "gap": gap}


def _p95(wait_s: Array) -> float:
    return float(np.percentile(wait_s, 95))


def evidence_text(found: dict[str, float]) -> str:
    """One sentence of what the waiting of the first part says of limits."""
    told = (
        f"{found['free']:.0%} of the waiting of the first part was while as many processors as "
        f"asked for were free, {found['quiet']:.0%} while also nothing started for an hour"
    )
    ceilings = {name: share for name, share in found.items() if name not in ("free", "quiet")}
    if not ceilings:
        return told
    most = max(ceilings, key=lambda name: ceilings[name])
    groups = " or ".join(dict.fromkeys(name.partition(" ")[0] for name in ceilings))
    return (
        f"{told}; ceilings at the most jobs, processors or processor-hours that a {groups} ever "
        f"held explain {ceilings[most]:.1%} at best ({most})"
    )
