"""ADLRO: the paper's table beside ours, with the baselines that an honest one needs.

setup = Setup(seeds=10)
found = {trial.key: outcome for trial, outcome in finished(planned(setup))}
outcome(setup, found)               {"tables": [...], "claims": [...], "trace", "seeds"}

A part is one entry of PARTS: what it runs, and the tables it makes of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from typing import Any

from trimtab.claims import as_rows
from trimtab.errors import TrimtabError, UnknownName
from trimtab.metrics import scores
from trimtab.policies import check
from trimtab.reproduce.adlro import small_cases
from trimtab.reproduce.adlro.claims import (
    BASELINES,
    LEARNED,
    OF_PAPER,
    RULE_ALONE,
    SATURATED,
    claims,
)
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row, Table, column, mean_row, ratio_row, row, score_rows
from trimtab.reproduce.trials import Trial

RUNS = "trimtab.reproduce.adlro.scenes:measured"
CASES = "trimtab.reproduce.adlro.small_cases:measured"
MEMORY = "trimtab.reproduce.adlro.runtime_memory:measured"
POLICIES = (LEARNED, RULE_ALONE, *BASELINES)
QUICK_POLICIES = (LEARNED, *OF_PAPER, "sjf+fastest", "srtf+fastest", "fluid")
STRONG = (LEARNED, "srtf+fastest", "mct", "fluid", "gavel")  # where all would take too long
IN_CASES = (LEARNED, "sjf+fastest", "mct", "fluid", "gavel")
FIRST_SEED = 1000  # training draws from others
ARMS = ("oracle", "noisy", "unknown")
LOADS = (0.5, 0.7, 0.9, 0.95)
AT = 0.9  # the load that the paper's completion times are set beside
# metric of a table: metric of a run
METRICS = {
    "jct_mean_s": "jct_mean_s",
    "jct_p95_s": "jct_p95_s",
    "throughput_per_h": "arriving_throughput_per_h",
    "useful_utilization": "arriving_useful_utilization",
    "utilization": "utilization",
    "energy_j": "energy_j",
}
# Table 1: seconds, jobs an hour, utilisation
PAPER = {
    "fcfs": {"jct_mean_s": 25.8, "throughput_per_h": 6.2, "utilization": 0.581},
    "fcfs+affinity": {"jct_mean_s": 22.1, "throughput_per_h": 7.5, "utilization": 0.654},
    LEARNED: {"jct_mean_s": 19.5, "throughput_per_h": 9.1, "utilization": 0.798},
}
# scene: cluster, settings of the trace; what no network was trained on alone
ELSEWHERE = {
    "8 GPUs: 2 Volta, 4 Turing, 2 Radeon": ("adlro:volta=2,turing=4,radeon=2", ""),
    "32 GPUs: 8 Volta, 8 Turing, 16 Radeon": ("adlro:volta=8,turing=8,radeon=16", ""),
    "64 GPUs: 32 Volta, 16 Turing, 16 Radeon": ("adlro:volta=32,turing=16,radeon=16", ""),
    "job mix 0.6/0.2/0.2": (None, ",mix=0.6/0.2/0.2"),
    "job mix 0.1/0.8/0.1": (None, ",mix=0.1/0.8/0.1"),
    "sizes of Philly": (None, ",sizes=philly"),
    "sizes of PAI": (None, ",sizes=pai"),
}
ELSEWHERE_LOADS, ELSEWHERE_ARM, ELSEWHERE_SEEDS = (0.7, 0.9), "noisy", 5
NOTES = {
    "loads": (
        "Start-ups and moves take 30 s. Throughput and useful utilisation count from the first to "
        "the last arrival; utilisation and energy until the last job ends. First come, first "
        "served cannot keep up above a load of 0.855."
    ),
    "ratios": f"Of {LEARNED} to the policy, seed by seed.",
    "hyperscore": (
        "V is the geometric mean of the ratios to fcfs in completion time, throughput, useful "
        "utilisation and energy; HyperScore is a rising curve of V."
    ),
    "paper": (
        f"Completion times at load {AT:g}, throughput and utilisation at saturation. Ratios are "
        "what to compare: the paper's figures contradict each other (6.2 jobs an hour of 25.8 s "
        "each keep 0.044 GPUs busy, 0.3 % of 16), and its jobs, speeds and load are not given."
    ),
    "small-cases": (
        f"Total completion time over the optimum without preemption; {small_cases.JOBS} jobs on "
        "4 GPUs. A policy that stops and moves jobs may be below 1, none below the bound."
    ),
    "generalisation": f"Mean completion time where clusters, jobs or sizes differ; "
    f"{ELSEWHERE_ARM} estimates.",
    "runtime-memory": "Error of the logarithm of a job's speed on a GPU after so many runs.",
}


@cache
def _problem(name: str) -> str:
    """Why the policy cannot be made here, as where its network is not trained yet; "" = it can."""
    try:
        check(name)
    except TrimtabError as problem:
        return str(problem)
    return ""


@dataclass(frozen=True)
class Setup(Options):
    """10 seeds of 600 jobs, 3 of 400 where it shall be quick; `parts` are names of PARTS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.parts or ():
            if part not in PARTS:
                raise UnknownName(f"part {part!r} is unknown; known: {', '.join(PARTS)}")

    def among(self, names: Sequence[str]) -> list[str]:
        """Those of the names that are measured."""
        return [name for name in names if name in self.names()]

    def names(self) -> tuple[str, ...]:
        if self.policies is not None:
            return tuple(self.policies)
        wanted = QUICK_POLICIES if self.quick else POLICIES
        return tuple(name for name in wanted if not _problem(name))

    def left_out(self) -> list[str]:
        wanted = POLICIES if self.policies is None else self.policies
        return [f"{name} is left out: {_problem(name)}" for name in wanted if _problem(name)]

    def arms(self) -> tuple[str, ...]:
        return ARMS[:2] if self.quick else ARMS

    def of_seeds(self, most: int | None = None) -> list[int]:
        count = self.seeds or (3 if self.quick else 10)
        return [FIRST_SEED + n for n in range(count if most is None else min(count, most))]

    def loads(self) -> tuple[float, ...]:
        return (0.7, AT, SATURATED) if self.quick else (*LOADS, SATURATED)

    def trace(self, arm: str, load: float, more: str = "") -> str:
        jobs = self.jobs or (400 if self.quick else 600)
        return f"adlro:load={load:g},estimate={arm},jobs={jobs}{more}"

    def elsewhere(self) -> dict[str, tuple[str | None, str]]:
        names = list(ELSEWHERE)
        chosen = (names[0], names[5]) if self.quick else names
        return {name: ELSEWHERE[name] for name in chosen}

    def elsewhere_loads(self) -> tuple[float, ...]:
        return (AT,) if self.quick else ELSEWHERE_LOADS


Outcomes = Mapping[str, Any]  # key of a trial: its outcome


def planned(setup: Setup) -> list[Trial]:
    """Everything that has to run, each once."""
    # the last part has the longest trial: begun first, it keeps no processor waiting at the end
    names = list(setup.parts or PARTS)[::-1]
    trials = [trial for name in names for trial in PARTS[name][0](setup)]
    return list({trial.key: trial for trial in trials}.values())


def outcome(setup: Setup, found: Outcomes) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    tables = [table for name in setup.parts or PARTS for table in PARTS[name][1](setup, found)]
    return {
        "tables": tables,
        "claims": as_rows(claims(tables)),
        "trace": setup.trace("|".join(setup.arms()), AT).replace(
            f"={AT:g}", "=" + _listed(setup.loads())
        ),
        "seeds": setup.of_seeds(),
    }


def _listed(numbers: Sequence[float]) -> str:
    return "|".join(f"{number:g}" for number in numbers)


def _trial(policy: str, trace: str, cluster: str | None, seed: int) -> Trial:
    return Trial(RUNS, {"policy": policy, "trace": trace, "cluster": cluster, "seed": seed})


def _by_seed(
    found: Outcomes, policy: str, trace: str, cluster: str | None, seeds: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Metrics under the names of the tables."""
    runs = {seed: found[_trial(policy, trace, cluster, seed).key] for seed in seeds}
    return {
        seed: {name: run[measured] for name, measured in METRICS.items()}
        | {"unfinished": run["jobs"] - run["finished"]}
        for seed, run in runs.items()
    }


def _load_trials(setup: Setup) -> list[Trial]:
    return [
        _trial(policy, setup.trace(arm, load), None, seed)
        for seed in setup.of_seeds()
        for arm in setup.arms()
        for load in setup.loads()
        for policy in setup.names()
    ]


def _load_tables(setup: Setup, found: Outcomes) -> list[Table]:
    means: list[Row] = []
    ratios: list[Row] = []
    scored: list[Row] = []
    for arm in setup.arms():
        for load in setup.loads():
            where = {"arm": arm, "load": load}
            trace = setup.trace(arm, load)
            runs = {
                policy: _by_seed(found, policy, trace, None, setup.of_seeds())
                for policy in setup.names()
            }
            means += [
                mean_row(policy, metric, column(by_seed, metric), **where)
                for policy, by_seed in runs.items()
                for metric in (*METRICS, "unfinished")
            ]
            ratios += _ratios(runs, where)
            scored += _scores(runs, where)
    return [
        {"name": "loads", "rows": means},
        {"name": "ratios", "rows": ratios},
        {"name": "hyperscore", "rows": scored},
        {"name": "paper", "rows": _beside_paper(setup, found)},
    ]


Runs = Mapping[str, Mapping[int, Mapping[str, float]]]  # policy: seed: metric: value


def _ratios(runs: Runs, where: Mapping[str, Any]) -> list[Row]:
    if LEARNED not in runs:
        return []
    return [
        ratio_row(policy, metric, column(runs[LEARNED], metric), column(by_seed, metric), **where)
        for policy, by_seed in runs.items()
        if policy != LEARNED
        for metric in METRICS
    ]


def _scores(runs: Runs, where: Mapping[str, Any]) -> list[Row]:
    """V and HyperScore against fcfs, and the ratio of V of the learned policy to each other."""
    if "fcfs" not in runs:
        return []
    v = scores(runs, "fcfs").v
    rows = [one for policy in v for one in score_rows(policy, list(v[policy].values()), **where)]
    if LEARNED in v:
        mine = list(v[LEARNED].values())
        rows += [
            ratio_row(policy, "v_ratio", mine, list(v[policy].values()), **where)
            for policy in v
            if policy != LEARNED
        ]
    return rows


def _beside_paper(setup: Setup, found: Outcomes) -> list[Row]:
    """Table 1, and its ratios, which do not hang on a scale that the paper leaves open."""
    rows = []
    for arm in setup.arms():
        for metric in ("jct_mean_s", "throughput_per_h", "utilization"):
            load = AT if metric == "jct_mean_s" else SATURATED
            ours = "useful_utilization" if metric == "utilization" else metric
            where = {"arm": arm, "load": load}
            values = {}
            for policy in setup.among(list(PAPER)):
                runs = _by_seed(found, policy, setup.trace(arm, load), None, setup.of_seeds())
                values[policy] = column(runs, ours)
                paper = PAPER[policy][metric]
                rows.append(mean_row(policy, ours, values[policy], paper=paper, **where))
            for policy, other in combinations(reversed(PAPER), 2):
                if policy in values and other in values:
                    paper = PAPER[policy][metric] / PAPER[other][metric]
                    name = f"{ours} / {other}"
                    rows.append(
                        ratio_row(policy, name, values[policy], values[other], paper=paper, **where)
                    )
    return rows


def _case_seeds(setup: Setup) -> list[tuple[int, bool]]:
    return [(FIRST_SEED + n, n % 2 == 0) for n in range(4 if setup.quick else 20)]


def _case_trials(setup: Setup) -> list[Trial]:
    names = setup.among(IN_CASES)
    return [
        Trial(CASES, {"policies": names, "seed": seed, "together": together})
        for seed, together in _case_seeds(setup)
    ]


def _case_tables(setup: Setup, found: Outcomes) -> list[Table]:
    cases = [
        (together, found[trial.key])
        for (_, together), trial in zip(_case_seeds(setup), _case_trials(setup))
    ]
    rows = []
    for release, chosen in (
        ("all", [case for _, case in cases]),
        ("together", [case for together, case in cases if together]),
        ("over time", [case for together, case in cases if not together]),
    ):
        optimum_s = [case["optimum_s"] for case in chosen]
        where: dict[str, Any] = {"release": release, "cases": len(chosen)}
        for policy in setup.among(IN_CASES):
            total_s = [case["total_s"][policy] for case in chosen]
            worst = max(mine / best for mine, best in zip(total_s, optimum_s))
            rows.append(ratio_row(policy, "total / optimum", total_s, optimum_s, **where))
            rows.append(row(policy, "largest total / optimum", worst, **where))
        bound_s = [case["bound_s"] for case in chosen]
        rows.append(ratio_row("preemptive bound", "total / optimum", bound_s, optimum_s, **where))
        proved = sum(case["optimal"] for case in chosen) / len(chosen)
        rows.append(row("optimum", "share proved", proved, **where))
    return [{"name": "small-cases", "rows": rows}]


def _elsewhere_trials(setup: Setup) -> list[Trial]:
    return [
        _trial(policy, setup.trace(ELSEWHERE_ARM, load, more), cluster, seed)
        for seed in setup.of_seeds(ELSEWHERE_SEEDS)
        for cluster, more in setup.elsewhere().values()
        for load in setup.elsewhere_loads()
        for policy in setup.among(STRONG)
    ]


def _elsewhere_tables(setup: Setup, found: Outcomes) -> list[Table]:
    rows: list[Row] = []
    for scene, (cluster, more) in setup.elsewhere().items():
        for load in setup.elsewhere_loads():
            where = {"scene": scene, "load": load, "arm": ELSEWHERE_ARM}
            trace, seeds = setup.trace(ELSEWHERE_ARM, load, more), setup.of_seeds(ELSEWHERE_SEEDS)
            values = {
                policy: column(_by_seed(found, policy, trace, cluster, seeds), "jct_mean_s")
                for policy in setup.among(STRONG)
            }
            rows += [mean_row(policy, "jct_mean_s", of, **where) for policy, of in values.items()]
            rows += [
                ratio_row(policy, "jct_ratio", values[LEARNED], of, **where)
                for policy, of in values.items()
                if LEARNED in values and policy != LEARNED
            ]
    return [{"name": "generalisation", "rows": rows}]


def _memory_trials(setup: Setup) -> list[Trial]:
    # its rivals are scikit-learn's, which only those who develop have installed
    there = all(find_spec(name) for name in ("sklearn", "torchhd"))
    return [Trial(MEMORY, {"quick": setup.quick})] if there else []


def _memory_tables(setup: Setup, found: Outcomes) -> list[Table]:
    rows: list[Row] = []
    for one in (one for trial in _memory_trials(setup) for one in found[trial.key]):
        name, where = one["method"], {"observations": one["observations"], "scene": one["scene"]}
        rows.append(row(name, "error", one["error"], one["low"], one["high"], **where))
        if name != "hyperdimensional":
            ends = one["change_low"], one["change_high"]
            rows.append(row(name, "hyperdimensional less this", one["change"], *ends, **where))
    return [{"name": "runtime-memory", "rows": rows}]


PARTS: dict[str, tuple[Callable[..., list[Trial]], Callable[..., list[Table]]]] = {
    "loads": (_load_trials, _load_tables),
    "small-cases": (_case_trials, _case_tables),
    "generalisation": (_elsewhere_trials, _elsewhere_tables),
    "runtime-memory": (_memory_trials, _memory_tables),
}
