"""Where forecasts matter: rules that borrow what services leave, at equal harm to the services.

No paper: the question is whether the world that hierarchy-hmarl assumes leaves anything to learn.
An oracle of the services' peak stands beside the rules; scenes with little swing, or in which
little is reserved, are there to show where it is worth nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.claims import as_rows
from trimtab.errors import UnknownName
from trimtab.reproduce.colocated.claims import claims
from trimtab.reproduce.frontier import (
    Point,
    at_harm,
    beside,
    best_of,
    cost_row,
    curve,
    points,
    sweeps,
)
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row
from trimtab.reproduce.trials import Trial

ORDER = "smallest-area+greedy+"
ORACLE = f"{ORDER}swift+oracle"
FORECAST = f"{ORDER}swift+forecast"
# who sees services as they are now places first, best, worst or by the dot product; the rest place
# where load is least, half of it foreseen and half as it is, and `swift` where a job runs fast too
PLACED = ("swift+native", "first+now", "best+now", "worst+now", "dot+now")
STRONG = (
    *("swift+now", "swift+deviation", "swift+p95", "swift+peak", "swift+trend"),
    *("swift+forecast", "swift+oracle"),
)
MORE = ("calm+now", "calm+p95", "calm+peak", "swift+p95+feedback", "swift+peak+feedback")
# scene: its trace, and whether all policies run there
SCENES = {
    "load 0.6": ("colocated:machines=72", True),
    "load 0.4": ("colocated:load=0.4,machines=72", False),
    "load 0.9": ("colocated:load=0.9,machines=72", False),
    "regions in phase": ("colocated:phase=0,machines=72", False),
    "little swing": ("colocated-calm:machines=72", False),
    "little reserved": ("colocated-spare:machines=72", False),
}
QUICK = ",machines=24,regions=3,span_s=900"
FIRST_SEED = 1000
HARMS = (0.003, 0.01, 0.03)
TITLE = "Batch jobs beside services, at equal harm"
NOTES = {
    "equal-harm": (
        "cost: geometric mean of waiting + 1 s, imbalance, completion time of whole jobs and tasks "
        "not in time + 0.5 %, as a ratio to the best rule, paired by seed: below 1 is better. "
        "Limits are swept on these very scenes for everybody. Harm is added to what services do to "
        f"themselves. All rules begin with {ORDER.rstrip('+')}. The oracle is told the services' "
        "peak while a job runs: no policy can know it."
    ),
    "learned": "Cost of the learned estimate, as a ratio to the best rule of each scene.",
    "oracle": "Cost of the oracle of the peak, as a ratio to the best rule of each scene.",
}


@dataclass(frozen=True)
class Setup(Options):
    """10 seeds, 2 of small scenes where it shall be quick; `parts` are names of SCENES."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.parts or ():
            if part not in SCENES:
                raise UnknownName(f"part {part!r} is unknown; known: {', '.join(SCENES)}")

    def scenes(self) -> dict[str, str]:
        """Scene: its trace."""
        names = self.parts or (list(SCENES)[::4] if self.quick else list(SCENES))
        return {name: _small(SCENES[name][0]) if self.quick else SCENES[name][0] for name in names}

    def names(self, scene: str) -> list[str]:
        if self.policies is not None:
            return list(self.policies)
        chosen: Sequence[str] = STRONG
        if self.quick:
            chosen = ("swift+native", "first+now", "swift+p95", "swift+forecast", "swift+oracle")
        elif SCENES[scene][1]:
            chosen = (*PLACED, *STRONG, *MORE)
        return [f"{ORDER}{name}" for name in chosen]

    def of_seeds(self) -> list[int]:
        return [FIRST_SEED + n for n in range(self.seeds or (2 if self.quick else 10))]


def _small(trace: str) -> str:
    name, _, settings = trace.partition(":")
    kept = [part for part in settings.split(",") if part and not part.startswith("machines")]
    return f"{name}:{','.join([*kept, QUICK.lstrip(',')])}"


def planned(setup: Setup) -> list[Trial]:
    """Every policy at every limit, scene by scene."""
    return [
        trial
        for scene, trace in setup.scenes().items()
        for trial in sweeps(trace, setup.names(scene), setup.of_seeds())
    ]


def outcome(setup: Setup, found: Mapping[str, Any]) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    rows: list[Row] = []
    worth: list[Row] = []
    foretold: list[Row] = []
    pairs: list[Row] = []
    drawn: list[Row] = []
    for scene, trace in setup.scenes().items():
        swept = {name: points(found, trace, name, setup.of_seeds()) for name in setup.names(scene)}
        drawn += curve(swept, scene=scene)
        for target in HARMS:
            reached = {name: point for name, of in swept.items() if (point := at_harm(of, target))}
            where = {"scene": scene, "harm": target}
            title = f"{scene}, {100 * target:g} % harm"
            rows += beside(reached, at_harm=title, **where)
            worth += _beside_best("oracle", ORACLE, reached, **where)
            foretold += _beside_best("forecast", FORECAST, reached, **where)
            pairs += _pairs(reached, **where)
    tables = [
        {"name": "equal-harm", "rows": rows},
        {"name": "oracle", "rows": worth},
        {"name": "learned", "rows": foretold},
        {"name": "pairs", "rows": pairs},
        {"name": "curves", "rows": drawn},
    ]
    return {
        "tables": tables,
        "claims": as_rows(claims(tables)),
        "trace": " | ".join(setup.scenes().values()),
        "seeds": setup.of_seeds(),
    }


def _beside_best(told: str, name: str, reached: Mapping[str, Point], **where: Any) -> list[Row]:
    """One policy beside the best rule, which rows name."""
    best = best_of(reached)
    if not best or name not in reached:
        return []
    short = best.removeprefix(ORDER)
    return [cost_row(told, reached[name], reached[best], beside=short, **where)]


def _pairs(reached: Mapping[str, Point], **where: Any) -> list[Row]:
    """Rules that differ in one thing."""
    return [
        cost_row(f"{mine} / {other}", reached[ORDER + mine], reached[ORDER + other], **where)
        for mine, other in PAIRS
        if ORDER + mine in reached and ORDER + other in reached
    ]


PAIRS: Sequence[tuple[str, str]] = (
    ("swift+now", "calm+now"),
    ("swift+p95", "calm+p95"),
    ("swift+peak", "calm+peak"),
    ("swift+p95+feedback", "swift+p95"),
    ("swift+peak+feedback", "swift+peak"),
    ("swift+native", "swift+p95"),
    ("first+now", "swift+now"),
)
