"""Slim Scheduler: the paper's tables beside ours, and routers that have an objective to hold.

setup = Setup(seeds=5)
found = {trial.key: outcome for trial, outcome in finished(planned(setup))}
outcome(setup, found)               {"tables": [...], "claims": [...], "trace", "seeds"}

Fleets are simulated with a measured profile and the shipped network's measured accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.claims import as_rows
from trimtab.errors import UnknownName
from trimtab.reproduce.options import Options
from trimtab.reproduce.slim.claims import BESIDE, HEURISTICS, LEARNED, OURS, SATURATED, claims
from trimtab.reproduce.slim.trials import BOUND, FIXED, router
from trimtab.reproduce.tables import Row, Table, mean_row, row
from trimtab.reproduce.trials import Trial
from trimtab.serving.net.serve_profile import load as load_profile
from trimtab.serving.net.serve_profile import tuple_s
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.net.slim_weights import SHIPPED
from trimtab.serving.net.slim_weights import load as load_weights
from trimtab.serving.nouns import WIDTHS

IN_TIME = "trimtab.reproduce.slim.trials:in_time"
WITHOUT = "trimtab.reproduce.slim.trials:without_objective"
FIRST_SEED = 5000  # tuning and training drew from others
LOADS = (0.7, 1.5, 3.0)
SHAPES = ("poisson", "bursty")
RECORDED = "recorded"
CALM = 0.9  # random routing keeps up with it
RULES = (*FIXED, *HEURISTICS, OURS, LEARNED)
# beside each of the paper's routers the simple rule that comes nearest to it; ours has no objective
# to hold there
IN_TABLES = ("random", "light", "slimmest", "balanced", "fixed 0.75")
# Tables I and II: widths, share of images right
ACCURACY = {
    (0, 0, 0, 0): 0.7030, (1, 1, 1, 1): 0.7299, (2, 2, 2, 2): 0.7493, (3, 3, 3, 3): 0.7643,
    (3, 2, 1, 0): 0.7135, (2, 3, 0, 1): 0.7233, (1, 0, 3, 2): 0.7453, (0, 1, 2, 3): 0.7533,
}  # fmt: skip
# Tables III to V; "imbalance" is the paper's GPU variance
PAPER = {
    "random": {
        "accuracy": 0.7443, "latency_s": 8.979, "latency_s sd": 7.302, "energy_j": 1967.94,
        "energy_j sd": 1629.53, "imbalance": 0.0433,
    },
    "light": {
        "accuracy": 0.7030, "latency_s": 0.318, "latency_s sd": 0.755, "energy_j": 52.85,
        "energy_j sd": 131.46, "imbalance": 0.0633,
    },
    "balanced": {
        "accuracy": 0.7526, "latency_s": 6.100, "latency_s sd": 11.673, "energy_j": 1085.41,
        "energy_j sd": 2125.62, "imbalance": 0.0815,
    },
}  # fmt: skip
NOTES = {
    "slim-accuracy": "Of the shipped network on the 10,000 test pictures of CIFAR-100.",
    "slim-random": (
        f"Simulated, three servers of speeds 1 : 1 : .45, Poisson arrivals at {CALM:g} and "
        f"{SATURATED:g} times the capacity at full width; with the latter random routing cannot "
        "keep up, as it cannot in the paper, and its latency grows with the run. energy_j is "
        "counted as in the paper (mean power x latency); charged_j charges busy time once. The "
        "paper's machines are others, so changes against random routing are what to compare."
    ),
    "slim-change": "Of the router to random routing, seed by seed.",
    "slim-good": (
        "Accuracy of the answers within 100 ms over all requests, in percent. No router passes the "
        "bound. fixed, max_batch, slack_fit and rate know the same queue and the same profile."
    ),
    "slim-in-time": "Percent of the requests that are answered within 100 ms.",
    "slim-profile": "A batch through all segments on one worker; energy at the profile's watts.",
}


@dataclass(frozen=True)
class Setup(Options):
    """5 seeds of 6,000 requests, 2 of 1,500 where it shall be quick.

    `parts` are names of PARTS; a file of Azure's LLM requests among them adds its arrivals to the
    shapes. `profile` says what batches cost: a shipped one by name, or a file.
    """

    profile: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        costs = load_profile(self.profile)
        for part in self.parts or ():
            if part not in PARTS and not Path(part).is_file():
                raise UnknownName(
                    f"part {part!r} is unknown; known: {', '.join(PARTS)}, or a file of Azure's "
                    "LLM requests"
                )
        for name in self.policies or ():
            router(name, costs)

    def wanted(self) -> list[str]:
        return [part for part in self.parts or () if part in PARTS] or list(PARTS)

    def recorded(self) -> str:
        """The file of a recorded trace, or "" where none is given."""
        return next((part for part in self.parts or () if part not in PARTS), "")

    def shapes(self) -> tuple[str, ...]:
        return (*SHAPES, RECORDED) if self.recorded() else SHAPES

    def names(self) -> list[str]:
        return list(self.policies or RULES)

    def of_seeds(self) -> list[int]:
        return [FIRST_SEED + n for n in range(self.seeds or (2 if self.quick else 5))]

    def requests(self) -> int:
        return self.jobs or (1500 if self.quick else 6000)


Outcomes = Mapping[str, Any]  # key of a trial: its outcome


def planned(setup: Setup) -> list[Trial]:
    """Everything that has to run, each once."""
    return [trial for name in setup.wanted() for trial in PARTS[name][0](setup)]


def outcome(setup: Setup, found: Outcomes) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    tables = [table for name in setup.wanted() for table in PARTS[name][1](setup, found)]
    return {
        "tables": tables,
        "claims": as_rows(claims(tables)),
        "trace": f"{'|'.join(setup.shapes())}, {setup.requests():,} requests a run",
        "seeds": setup.of_seeds(),
    }


def _none(setup: Setup) -> list[Trial]:
    return []


def _accuracy_tables(setup: Setup, found: Outcomes) -> list[Table]:
    measured = load_weights(SHIPPED).accuracy
    rows = [
        row(
            "-".join(f"{WIDTHS[width]:g}" for width in widths),
            "accuracy",
            float(measured[row_of(widths)]),
            paper=paper,
            table="I" if len(set(widths)) == 1 else "II",
        )
        for widths, paper in ACCURACY.items()
    ]
    return [{"name": "slim-accuracy", "rows": rows}]


def _random_trials(setup: Setup) -> list[Trial]:
    return [trial for load in (CALM, SATURATED) for trial in _random_at(setup, load)]


def _random_at(setup: Setup, load: float) -> list[Trial]:
    given = {"load": load, "requests": setup.requests(), "names": list(IN_TABLES)}
    given["profile"] = setup.profile
    return [Trial(WITHOUT, {**given, "seed": seed}) for seed in setup.of_seeds()]


def _random_tables(setup: Setup, found: Outcomes) -> list[Table]:
    means: list[Row] = []
    changes: list[Row] = []
    for load in (CALM, SATURATED):
        runs = [found[trial.key] for trial in _random_at(setup, load)]
        for name in IN_TABLES:
            for metric in runs[0][name]:
                paper = PAPER.get(name, {}).get(metric)
                values = [run[name][metric] for run in runs]
                means.append(mean_row(name, metric, values, paper=paper, load=load))
                if name == "random":
                    continue
                values = [run[name][metric] / run["random"][metric] - 1 for run in runs]
                before = PAPER["random"].get(metric)
                change = paper / before - 1 if paper is not None and before else None
                changes.append(mean_row(name, metric, values, paper=change, load=load))
    return [{"name": "slim-random", "rows": means}, {"name": "slim-change", "rows": changes}]


def _cell_trials(setup: Setup) -> list[Trial]:
    return [trial for trials in _cells(setup).values() for trial in trials]


def _cells(setup: Setup) -> dict[tuple[str, float], list[Trial]]:
    given = {"requests": setup.requests(), "names": setup.names(), "profile": setup.profile}
    return {
        (shape, load): [
            Trial(IN_TIME, {**given, "shape": shape, "load": load, "seed": seed, "trace": trace})
            for seed in setup.of_seeds()
        ]
        for shape in setup.shapes()
        for trace in [setup.recorded() if shape == RECORDED else ""]
        for load in LOADS
    }


def _cell_tables(setup: Setup, found: Outcomes) -> list[Table]:
    good: list[Row] = []
    shares: list[Row] = []
    beside: list[Row] = []
    for (shape, load), trials in _cells(setup).items():
        where = {"arm": shape, "load": load}
        runs = [found[trial.key] for trial in trials]
        for name in (*setup.names(), BOUND):
            for rows, metric in ((good, "good"), (shares, "in_time")):
                values = [100 * run[name][metric] for run in runs]
                rows.append(mean_row(name, metric, values, **where))
        beside += _beside(runs, where)
    return [
        {"name": "slim-good", "rows": good},
        {"name": "slim-in-time", "rows": shares},
        {"name": "slim-beside", "rows": beside},
    ]


def _beside(runs: Sequence[Any], where: Mapping[str, Any]) -> list[Row]:
    """Our router less the best of others, seed by seed, and its share of the way to the bound."""
    ours = np.array([run[OURS]["good"] for run in runs]) if OURS in runs[0] else None
    if ours is None:
        return []
    rows = []
    for label, names in BESIDE.items():
        known = [name for name in names if name in runs[0]]
        if known:
            # best on the mean: nobody can pick the best of every seed beforehand
            values = {name: np.array([run[name]["good"] for run in runs]) for name in known}
            best = max(known, key=lambda name: float(values[name].mean()))
            less = (100 * (ours - values[best])).tolist()
            rows.append(mean_row(best, f"{OURS} less {label}", less, **where))
            if label == "the best heuristic":
                gap = np.array([run[BOUND]["good"] for run in runs]) - values[best]
                share = float((ours - values[best]).mean() / max(gap.mean(), 1e-12))
                rows.append(row(best, "share of the way to the bound", share, **where))
    return rows


def _profile_tables(setup: Setup, found: Outcomes) -> list[Table]:
    profile, rows = load_profile(setup.profile), []
    for count in profile.buckets:
        time_s = tuple_s(profile, count)
        for width, ratio in enumerate(WIDTHS):
            spent_s, where = float(time_s[85 * width]), {"width": ratio, "batch": count}
            name = f"{ratio:g}"
            rows.append(row(name, "latency_s", spent_s, **where))
            rows.append(row(name, "images_per_s", count / spent_s, **where))
            rows.append(row(name, "energy_j", profile.busy_w * spent_s / count, **where))
    return [{"name": "slim-profile", "rows": rows}]


PARTS: dict[str, tuple[Callable[..., list[Trial]], Callable[..., list[Table]]]] = {
    "accuracy": (_none, _accuracy_tables),
    "random": (_random_trials, _random_tables),
    "objective": (_cell_trials, _cell_tables),
    "profile": (_none, _profile_tables),
}
