"""ADLRO where the cluster changes (its future work): noticed, corrected, tuned, or reverted?

measured(seeds=5)                   {"tables": [...], "claims": [...], "trace", "seeds"}

Scenarios are in reproduce.drifting. Every policy is shown the told speeds; `adlro+told` is the
bound: it is told the true ones the second that they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.claims import Claim, as_rows
from trimtab.core import Policy, Snapshot
from trimtab.errors import TrimtabError, UnknownName
from trimtab.policies import named
from trimtab.policies.adlro.drift import DriftPolicy, Stream
from trimtab.policies.adlro.policy import AdlroPolicy
from trimtab.policies.adlro.stretches import revised
from trimtab.reproduce.adlro.drifting import SCENARIOS, SLOWER, DriftingBackend, Scenario, scenario
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row, Table, mean_row, measured_text, ratio_row, row, rows_of
from trimtab.reproduce.trials import Trial, finished
from trimtab.run import run
from trimtab.sim.world import Models

STALE, MEMORY, TUNED, BOUND = "adlro", "adlro+memory", "adlro+memory+tuning", "adlro+told"
RUN_TIMES = "adlro+run-times"  # the memory, but no progress of stopped and moved jobs
POLICIES = (STALE, MEMORY, RUN_TIMES, TUNED, BOUND, "srtf+fastest", "gavel")
QUICK = (STALE, MEMORY, BOUND)
WATCHING = (MEMORY, RUN_TIMES, TUNED)
ARMS = ("oracle", "noisy")
LOAD = 0.85
FIRST_SEED = 1000
MODELS = Models(startup_s=30.0, move_s=30.0)
RIGHT = {"turing": ("gpu-kind", 1), "radeon": ("gpu-kind", 2), "new-class": ("new-kind", 3)}
SPREADS = (0.0, 0.2, 0.7)  # of the logarithm of a run time against its expectation
BEFORE, AFTER = 120, 300  # runs of a stream before and after the change
DETECTORS = ("page-hinkley", "adwin")
NEAR = 1.03  # of the bound
NOTES = {
    "drift": f"Half of the jobs before the change, half after; load {LOAD:g} by the true speeds, "
    "start-ups and moves take 30 s.",
    "drift-ratios": f"Of the policy to {STALE}, jobs submitted after the change, seed by seed.",
    "drift-detection": "Delay in jobs submitted between the change and the first alarm that names "
    "what changed; false alarms are those before a change, or where there is none.",
    "detectors": f"Runs until a slow-down to {SLOWER:g} is noticed, {BEFORE} runs after the "
    "beginning; both detectors see values in units of their spread.",
}


@dataclass(frozen=True)
class Setup(Options):
    """5 seeds of 800 jobs, 2 of 400 where it shall be quick; `parts` are names of SCENARIOS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None and self.jobs < 100:
            raise TrimtabError(f"--jobs {self.jobs} is too short to see a change; give 100 or more")
        for name, known in (*((p, POLICIES) for p in self.policies or ()),
                            *((p, tuple(SCENARIOS)) for p in self.parts or ())):  # fmt: skip
            if name not in known:
                raise UnknownName(f"{name!r} is unknown with --drift; known: {', '.join(known)}")

    def names(self) -> tuple[str, ...]:
        return tuple(self.policies or (QUICK if self.quick else POLICIES))

    def scenarios(self) -> tuple[str, ...]:
        return tuple(self.parts or (("none", "new-class") if self.quick else SCENARIOS))

    def arms(self) -> tuple[str, ...]:
        return ARMS[1:] if self.quick else ARMS

    def of_seeds(self) -> list[int]:
        count = self.seeds or (2 if self.quick else 5)
        return [FIRST_SEED + n for n in range(count)]

    def length(self) -> int:
        return self.jobs or (400 if self.quick else 800)


def measured(
    seeds: int | None = None,
    jobs: int | None = None,
    quick: bool = False,
    ended: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run all of it in this process; `ended` hears the name of each trial as it ends."""
    setup = Setup(seeds, jobs, quick)
    found = {}
    for trial, got in finished(planned(setup), workers=1):
        found[trial.key] = got
        if ended is not None:
            ended(trial.name)
    return outcome(setup, found)


def planned(setup: Setup) -> list[Trial]:
    trials = [
        _trial(setup, policy, name, arm, seed)
        for seed in setup.of_seeds()
        for name in setup.scenarios()
        for arm in setup.arms()
        for policy in setup.names()
    ]
    return [*trials, _detector_trial(setup)]


def _trial(setup: Setup, policy: str, name: str, arm: str, seed: int) -> Trial:
    settings = {"policy": policy, "name": name, "arm": arm, "seed": seed, "jobs": setup.length()}
    return Trial(f"{__name__}:played", settings)


def _detector_trial(setup: Setup) -> Trial:
    return Trial(
        f"{__name__}:detectors", {"seed": FIRST_SEED, "repeats": 10 if setup.quick else 40}
    )


class TrueSpeeds:
    """Shows a policy the true speeds from the second of the change on."""

    def __init__(self, policy: Policy, of: Scenario) -> None:
        self.name, self.policy, self.of = BOUND, policy, of

    def decide(self, snapshot: Snapshot) -> Sequence[Any]:
        changed = snapshot.now_s >= self.of.change_s
        rate = self.of.true.rate if changed else snapshot.profile.rate
        return self.policy.decide(revised(snapshot, rate))


def policy_of(name: str, of: Scenario, seed: int) -> Policy:
    if name == TUNED:
        from trimtab.policies.adlro.adapt import at_once  # costs torch

        return DriftPolicy(tuner=at_once(of.cluster, MODELS), seed=seed)
    if name in (MEMORY, RUN_TIMES):
        return DriftPolicy(progress=name == MEMORY, seed=seed)
    return TrueSpeeds(AdlroPolicy(), of) if name == BOUND else named(name, seed)


def played(policy: str, name: str, arm: str, seed: int, jobs: int) -> dict[str, Any]:
    """Mean completion times before and after the change, and what the policy noticed and did."""
    of = scenario(name, seed=seed, jobs=jobs, load=LOAD, estimate=arm)
    chosen = policy_of(policy, of, seed)
    backend = DriftingBackend(of.workload, of.cluster, of.told, of.true, of.change_s, MODELS)
    run(backend, chosen)
    completion_s = backend.world.state[0]["end_s"] - of.workload.jobs["submit_s"]
    return {
        "jct_before_s": float(completion_s[: of.change_job].mean()),
        "jct_after_s": float(completion_s[of.change_job :].mean()),
        "change_job": of.change_job,
        "alarms": [[a.what, a.kind, a.submitted] for a in getattr(chosen, "alarms", ())],
        "changes": [
            [c.what, c.ratio] for c in getattr(chosen, "changes", ()) if c.ratio == c.ratio
        ],
        "rolled_back": sum(c.what == "rolled back" for c in getattr(chosen, "changes", ())),
    }


def detectors(seed: int, repeats: int) -> list[dict[str, Any]]:
    """Both of river's detectors on normal noise that shifts as a slow-down would shift it."""
    found = []
    for spread in SPREADS:
        for name in DETECTORS:
            rng = np.random.default_rng(seed)
            delays, false = [], 0
            for _ in range(repeats):
                test = _Adwin() if name == "adwin" else Stream()
                false += sum(test.changed(x) for x in rng.normal(0.0, spread, BEFORE).tolist())
                after = rng.normal(-np.log(SLOWER), spread, AFTER).tolist()
                at = next((i for i, x in enumerate(after) if test.changed(x)), None)
                delays += [] if at is None else [at + 1]
            share = len(delays) / repeats
            a_1000 = 1000 * false / (repeats * BEFORE)
            delay = float(np.median(delays)) if delays else None
            found.append({"detector": name, "spread": spread, "delay_runs": delay,
                          "noticed": share, "false_a_1000_runs": a_1000})  # fmt: skip
    return found


class _Adwin(Stream):
    """The same stream with ADWIN in place of Page-Hinkley, at its own default odds."""

    def _fresh(self) -> Any:
        from river.drift import ADWIN

        return ADWIN(clock=1)


def outcome(setup: Setup, found: Mapping[str, Any]) -> dict[str, Any]:
    means, ratios, seen = [], [], []
    for name in setup.scenarios():
        for arm in setup.arms():
            where = {"scenario": name, "arm": arm, "load": LOAD}
            runs = {
                policy: [found[_trial(setup, policy, name, arm, seed).key]
                         for seed in setup.of_seeds()]
                for policy in setup.names()
            }  # fmt: skip
            means += [
                mean_row(policy, metric, [one[metric] for one in of], **where)
                for policy, of in runs.items()
                for metric in ("jct_before_s", "jct_after_s")
            ]
            ratios += _ratios(runs, where)
            seen += _noticed(runs, where, setup.length())
    tables = [
        {"name": "drift", "rows": means},
        {"name": "drift-ratios", "rows": ratios},
        {"name": "drift-detection", "rows": seen},
        {"name": "detectors", "rows": _detector_rows(found[_detector_trial(setup).key])},
    ]
    about = f"scenarios {', '.join(setup.scenarios())}; {setup.length()} jobs at load {LOAD:g}"
    seeds = setup.of_seeds()
    checked = as_rows(claims(tables))
    return {"tables": tables, "claims": checked, "trace": f"adlro: {about}", "seeds": seeds}


Runs = Mapping[str, Sequence[Mapping[str, Any]]]  # policy: a run a seed


def _ratios(runs: Runs, where: Mapping[str, Any]) -> list[Row]:
    after = {policy: [one["jct_after_s"] for one in of] for policy, of in runs.items()}
    wanted = [(policy, STALE) for policy in after if policy != STALE]
    wanted += [(MEMORY, BOUND), (TUNED, MEMORY), (MEMORY, "srtf+fastest"), (MEMORY, "gavel")]
    return [
        ratio_row(mine, f"jct_after / {other}", after[mine], after[other], **where)
        for mine, other in wanted
        if mine in after and other in after
    ]


def _noticed(runs: Runs, where: Mapping[str, Any], jobs: int) -> list[Row]:
    rows = []
    right = RIGHT.get(where["scenario"])
    for policy in (policy for policy in WATCHING if policy in runs):
        delays, false, others = [], [], []
        for one in runs[policy]:
            change = one["change_job"] if right else jobs
            late = [alarm for alarm in one["alarms"] if alarm[2] > change]
            hits = [at - change for what, kind, at in late if (what, kind) == right]
            delays += hits[:1]
            false.append(float(len(one["alarms"]) - len(late)))
            others.append(float(len(late) - len(hits)))
        if right:
            rows.append(row(policy, "noticed", len(delays) / len(runs[policy]), **where))
            rows += [mean_row(policy, "delay_jobs", delays, **where)] if delays else []
            rows.append(mean_row(policy, "other_alarms", others, **where))
        rows.append(mean_row(policy, "false_alarms", false, **where))
        if policy == TUNED:
            rows += _tunings(runs[policy], where)
    return rows


def _tunings(runs: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> list[Row]:
    """How often a tuned network was taken or taken back, and how it did on held-out windows."""
    found = []
    for name in ("adopted", "not better"):
        count = [float(sum(what == name for what, _ in one["changes"])) for one in runs]
        found.append(mean_row(TUNED, name.replace(" ", "_"), count, **where))
    count = [float(one["rolled_back"]) for one in runs]
    found.append(mean_row(TUNED, "rolled_back", count, **where))
    ratios = [ratio for one in runs for _, ratio in one["changes"]]
    return found + ([mean_row(TUNED, "tuned / old", ratios, **where)] if ratios else [])


def _detector_rows(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [
        row(one["detector"], metric, one[metric], spread=one["spread"])
        for one in found
        for metric in ("delay_runs", "noticed", "false_a_1000_runs")
    ]


def claims(tables: Sequence[Table]) -> list[Claim]:
    """What we would say about drift, each sentence checked."""
    return [
        *_noticed_claims(tables),
        _quiet_claim(tables),
        _better("correcting speeds at once helps beyond chance where a new kind of job comes",
                _against(tables, MEMORY, STALE, "new-class")),
        _better("correcting speeds at once helps beyond chance where a GPU kind gets 30 % slower",
                _against(tables, MEMORY, STALE, "turing", "radeon")),
        _near_claim(tables),
        _better("fine-tuning the network adds to it beyond chance",
                _against(tables, TUNED, MEMORY, "turing", "radeon", "new-class")),
        _better("after every change it is ahead of srtf+fastest and gavel with stale speeds",
                [*_against(tables, MEMORY, "srtf+fastest", *RIGHT),
                 *_against(tables, MEMORY, "gavel", *RIGHT)]),
    ]  # fmt: skip


def _against(tables: Sequence[Table], policy: str, other: str, *scenarios: str) -> list[Row]:
    metric = f"jct_after / {other}"
    return [
        one
        for name in scenarios
        for one in rows_of(tables, "drift-ratios", policy=policy, metric=metric, scenario=name)
    ]


def _row_text(one: Row) -> str:
    metric = one["metric"].removeprefix("jct_after ")
    return f"{one['scenario']}, {one['arm']} {metric} {measured_text(one)}"


def _better(claim: str, ratios: Sequence[Row]) -> Claim:
    """Whether the whole interval of every ratio is below 1."""
    if not ratios:
        return Claim(claim)
    sure = all(one["high"] is not None for one in ratios)
    holds = all(one["high"] < 1 for one in ratios) if sure else None
    return Claim(claim, holds, "; ".join(map(_row_text, ratios)))


def _near_claim(tables: Sequence[Table]) -> Claim:
    claim = f"with corrected speeds it is within {NEAR - 1:.0%} of one that is told the true ones"
    ratios = _against(tables, MEMORY, BOUND, *RIGHT)
    if not ratios or any(one["high"] is None for one in ratios):
        return Claim(claim)
    holds = all(one["high"] <= NEAR for one in ratios)
    return Claim(claim, holds, "; ".join(map(_row_text, ratios)))


def _noticed_claims(tables: Sequence[Table]) -> list[Claim]:
    """With the progress of stopped and moved jobs, and without it."""
    found = []
    for policy, how in ((MEMORY, "where stops and moves tell progress"),
                        (RUN_TIMES, "from run times and requests alone")):  # fmt: skip
        claim = f"every change is noticed in every run {how}"
        rows = rows_of(tables, "drift-detection", policy=policy, metric="noticed")
        if not rows:
            found.append(Claim(claim))
            continue
        delays = rows_of(tables, "drift-detection", policy=policy, metric="delay_jobs")
        said = [f"{one['scenario']} {one['arm']} {one['ours']:.0%}" for one in rows]
        said += [f"{one['scenario']} {one['arm']} after {one['ours']:.0f} jobs" for one in delays]
        holds = all(one["ours"] == 1.0 for one in rows)
        found.append(Claim(claim, holds, "; ".join(said)))
    return found


def _quiet_claim(tables: Sequence[Table]) -> Claim:
    claim = "where nothing changes and stops and moves tell progress there is no alarm"
    rows = rows_of(tables, "drift-detection", metric="false_alarms", scenario="none")
    own = [one for one in rows if one["policy"] != RUN_TIMES]
    if not own:
        return Claim(claim)
    said = [f"{one['policy']} {one['arm']}: {one['ours']:g} a run" for one in rows]
    holds = not any(one["ours"] for one in own)
    return Claim(claim, holds, "; ".join(said))
