"""Slim Scheduler live beside simulated: the same arrivals, routers and servers, in both.

A fleet is `trimtab serve` on this machine: three server processes that each take a share of a core
(they wait after every batch), one front, and the load generator as its client over HTTP. Before it
is measured, a fleet tells what the simulation needs to know of this machine: how fast its servers
are against the profile, and what a request costs beside its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.claims import Claim, as_rows
from trimtab.reproduce.options import Options
from trimtab.reproduce.slim.trials import router
from trimtab.reproduce.tables import Row, mean_row
from trimtab.reproduce.trials import Trial
from trimtab.serving.net.serve_profile import load as load_profile

ONE = "trimtab.reproduce.slim.fleet:live_and_simulated"
WORKERS = 1  # one fleet at a time: two would measure each other
FIRST_SEED = 6000
LOADS = (0.5, 0.8)
GPU_LOADS = (0.1, 0.2)  # more than that one client cannot ask
SHAPES = ("poisson", "bursty")
ROUTERS = ("fixed 0.5", "max_batch", "priced", "random", "light", "balanced")
KINDS = ("live", "simulated")
METRICS = ("p50_ms", "p95_ms", "p99_ms", "in_time", "good")
NEAR = 0.15
KEEPS_UP = 95.0  # percent in time; where a queue grows without end, latency says how long it ran
NOTES = {
    "slim-live": (
        "Latency in ms as the client sees it, percent answered within 100 ms, and percent accuracy "
        "of those in time, by the width that each answer says it used. Loads are shares of the "
        "capacity at full width of three servers of 0.4, 0.4 and 0.18 of a core, or of a GPU."
    ),
    "slim-live-ratio": "Live over simulated, seed by seed.",
}


@dataclass(frozen=True)
class Setup(Options):
    """3 seeds of 20 s a run, 1 of 5 s where it shall be quick; `jobs` = requests a run.

    `profile` says what batches cost, and so on which device servers run: a shipped one by name, or
    a file.
    """

    profile: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        costs = load_profile(self.profile)
        for name in self.policies or ():
            router(name, costs)

    def of_seeds(self) -> list[int]:
        return [FIRST_SEED + n for n in range(self.seeds or (1 if self.quick else 3))]

    def cells(self) -> list[dict[str, Any]]:
        on_cpu = load_profile(self.profile).machine["device"] == "cpu"
        shapes: Sequence[str] = SHAPES
        loads: Sequence[float] = LOADS if on_cpu else GPU_LOADS
        if self.quick:
            shapes, loads = shapes[:1], loads[:1]
        names: Sequence[str] = self.policies or (ROUTERS[:2] if self.quick else ROUTERS)
        return [
            {"policy": name, "shape": shape, "load": load}
            for name in names
            for shape in shapes
            for load in loads
        ]


def planned(setup: Setup) -> list[Trial]:
    """Every run, each once."""
    return [trial for cell in setup.cells() for trial in _of(setup, cell)]


def _of(setup: Setup, cell: Mapping[str, Any]) -> list[Trial]:
    more: dict[str, Any] = {"seconds": 5.0 if setup.quick else 20.0, "requests": setup.jobs}
    more["profile"] = setup.profile
    return [Trial(ONE, {**cell, **more, "seed": seed}) for seed in setup.of_seeds()]


def outcome(setup: Setup, found: Mapping[str, Any]) -> dict[str, Any]:
    """Live and simulated figures, their ratios, and whether they are near each other."""
    figures: list[Row] = []
    ratios: list[Row] = []
    steady: list[Row] = []
    for cell in setup.cells():
        runs = [found[trial.key] for trial in _of(setup, cell)]
        where = {"arm": cell["shape"], "load": cell["load"]}
        for metric in METRICS:
            for kind in KINDS:
                name = f"{cell['policy']}, {kind}"
                values = [run[kind][metric] for run in runs]
                figures.append(mean_row(name, metric, values, **where))
            values = [run["live"][metric] / max(run["simulated"][metric], 1e-9) for run in runs]
            ratios.append(mean_row(cell["policy"], metric, values, **where))
            if min(run[kind]["in_time"] for run in runs for kind in KINDS) >= KEEPS_UP:
                steady.append(ratios[-1])
    tables = [{"name": "slim-live", "rows": figures}, {"name": "slim-live-ratio", "rows": ratios}]
    return {
        "tables": tables,
        "claims": as_rows(_near(steady, metric) for metric in ("p50_ms", "p99_ms")),
        "trace": f"{'|'.join(SHAPES)} arrivals, live on this machine and simulated",
        "seeds": setup.of_seeds(),
    }


def _near(ratios: Sequence[Row], metric: str) -> Claim:
    rows = [one for one in ratios if one["metric"] == metric]
    far = [one for one in rows if abs(one["ours"] - 1) > NEAR]
    worst = sorted(rows, key=lambda one: -abs(one["ours"] - 1))[:4]
    texts = [f"{one['policy']} {one['arm']} {one['load']}: {one['ours']:.2f}" for one in worst]
    claim = (
        f"live and simulated {metric} differ by at most {NEAR:.0%} in every cell in which both "
        f"answer {KEEPS_UP:g} % in time"
    )
    return Claim(claim, not far if rows else None, "; ".join(texts))
