"""Tables 1 and 2 of hierarchy-hmarl: the hierarchy, its seven peers, every rule and its ablations.

The paper says nothing of loads, seeds or how its metrics are measured, and none of harm to the
services that its trace has. Here services are lent from at stated loads, machines fail, and all
are set beside each other where they harm services as much: the order of the methods and the gains
between them can be compared, the figures cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.claims import as_rows
from trimtab.errors import UnknownName
from trimtab.reproduce.frontier import (
    Point,
    at_harm,
    beside,
    best_of,
    cost_row,
    points,
    sweeps,
    swept,
)
from trimtab.reproduce.hierarchy import alignment, coupling, figures, foresight, managers
from trimtab.reproduce.hierarchy.claims import BOUND, WORST, claims
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row, mean_row, ratio_row
from trimtab.reproduce.trials import Trial

ORDER = "smallest-area+greedy+"
OURS = "hierarchy+encoder"
ORACLE = f"{ORDER}swift+oracle"
RULES = (
    *("swift+now", "swift+deviation", "swift+p95", "swift+peak", "swift+trend"),
    *("swift+peak+relieve@40", "swift+p95+relieve@40"),
)
LEARNED = ("swift+forecast",)
# method of Table 1: our name for it, and UTI, AWT, LDI and TSR there
PEERS: dict[str, tuple[str, tuple[float, float, float, float]]] = {
    "Mao et al. (DeepRM)": ("deeprm+peak", (72.84, 43.21, 0.214, 91.36)),
    "Rjoub et al.": ("rjoub+peak", (75.62, 38.47, 0.197, 92.84)),
    "Islam et al.": ("islam+peak", (77.15, 34.92, 0.185, 93.41)),
    "Cheng et al.": ("cheng+peak", (78.03, 33.58, 0.179, 93.96)),
    "Zhang et al. (RLScheduler)": ("rlscheduler+peak", (79.44, 31.76, 0.171, 94.52)),
    "Belgacem et al.": ("belgacem+peak", (80.18, 30.94, 0.166, 95.07)),
    "Ghasemi et al.": ("ghasemi+peak", (81.36, 29.87, 0.158, 95.64)),
}
THEIRS = (84.92, 24.36, 0.121, 97.48)
# row of Table 2: the same
ABLATIONS: dict[str, tuple[str, tuple[float, float, float, float]]] = {
    "w/o load encoding": ("hierarchy-no-encoder+peak", (81.47, 28.91, 0.149, 95.86)),
    "w/o manager": ("hierarchy-no-manager+encoder", (80.93, 30.24, 0.156, 95.31)),
    "w/o compatibility": ("hierarchy-no-compatibility+encoder", (82.18, 27.63, 0.142, 96.22)),
}
METRICS = {"uti": ("UTI %", 100.0), "awt_s": ("AWT s", 1.0), "ldi": ("LDI", 1.0),
           "tsr": ("TSR %", 100.0)}  # fmt: skip
LOADS = (0.6, 0.9, 1.1)
# closer together where learned estimates and the oracle come to the harms that are shown
LIMITS = (0.6, 0.7, 0.78, 0.83, 0.87, 0.9, 0.93, 0.945, 0.96)
MACHINES, QUICK = "machines=48", "machines=24,regions=3,span_s=900"
MTBF_S = 100_000.0  # of a machine: one of 48 fails every 35 minutes
FIRST_SEED = 1000
HARMS = (0.003, 0.01, 0.03)
MANAGERS = "managers="  # in `data`
SHOWN_AT = 0.01  # of harm, for the paper's tables
# the parts that are no load
FIGURES, ALIGNMENT, FORECAST, MANAGER = "figures", "alignment", "forecast", "manager"
FIGURE_LOAD, SMALL = 0.9, "machines=24,regions=3"
TITLE = "Hierarchical orchestration: the paper's tables beside ours"
NOTES = {
    "equal-harm": (
        "cost: geometric mean of waiting + 1 s, imbalance, completion time of whole jobs and tasks "
        "not in time + 0.5 %, as a ratio to the best rule, paired by seed: below 1 is better. "
        "Limits are swept on these very scenes for everybody; machines fail. The oracle is told "
        "the services' peak while a job runs: no policy can know it."
    ),
    "paper": (
        "At 1 % of added harm. The paper names no load, seeds or intervals: compare the order of "
        "the methods and the gains between them, not the figures."
    ),
    "metrics": "At 1 % of added harm; in brackets the same of the paper's own figures.",
    "hierarchy": "Cost of the hierarchy as a ratio to each of the others: below 1 is ahead.",
    "preparation": (
        "Standard deviation of the difference between neighbouring points. Averaged: as recorded, "
        "dirt and all, over the windows of the prepared series; what is below that is cleaning."
    ),
    "alignment": (
        "Goals drawn at random for each region and look, told by a softmax from what its workers "
        "did until the next look, on scenes of other days than those fitted to. In nats."
    ),
    "forecast": (
        "In points of a node's capacity, means over scenes of test days. Every estimate is floored "
        "at the last reading and capped at what services reserve. 90th percentile: the encoder has "
        "one; ridge and deviation add 1.28 of their deviations; the others stand as they are."
    ),
    "forecast-ratios": "Scene by scene: below 1 the encoder errs less.",
    "forecast-rises": (
        "A node rose by 5 points or more within a minute; a minute later half of that has gone, or "
        "not. AUC: how often the further rise foreseen within 120 s is larger where it has not; "
        "0.5 = chance."
    ),
    "manager": (
        "Change of the log of the cost, in %, on scenes of test days with loads, regions and "
        "failures drawn: below 0 is better. At equal harm: less that of the same orders at the "
        "limit that harms as much. Foresight: at each look every region follows the goal whose "
        "play-out on a copy of the world came out best, two looks followed and 480 s watched, "
        "measured on the whole run. Unchecked: follows what promises anything; else what "
        "validation days left of it."
    ),
    "coupling": (
        "Correlation of the quick part of two series over all runs, at the lag at which it is "
        "largest, with 95 % intervals; a peak within chance says nothing. A - never moves: the "
        "manager that ships leaves limits alone."
    ),
}


@dataclass(frozen=True)
class Setup(Options):
    """10 seeds at three loads, 2 of small scenes at one where it shall be quick. `parts` are loads
    such as 0.9, figures, alignment, forecast and - only where it is named, for its searches take
    longer than all the rest - manager; `data` are settings of the scene: own=FILE,daily=FILE,
    work=FOLDER, and managers=FOLDER of what was trained, evolution-60 and so on.
    """

    data: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*map(str, LOADS), FIGURES, ALIGNMENT, FORECAST, MANAGER)
        for part in self.parts or ():
            if part not in known:
                raise UnknownName(f"part {part!r} is no load of this; {', '.join(known)}")

    @property
    def scene(self) -> str:
        """What of `data` says how scenes are laid out."""
        parts = [part for part in self.data.split(",") if part]
        return ",".join(part for part in parts if not part.strip().startswith(MANAGERS))

    def scenes(self) -> dict[str, str]:
        """Load: its trace."""
        loads = [load for load in LOADS if not self.parts or str(load) in self.parts]
        if self.quick and not self.parts:
            loads = [0.9]
        size = QUICK if self.quick else MACHINES
        more = f",{self.scene}" if self.scene else ""
        return {f"load {load:g}": f"colocated:load={load:g},{size}{more}" for load in loads}

    def limits(self) -> tuple[float, ...]:
        """At which each policy is played."""
        return LIMITS[::2] if self.quick else LIMITS

    def figure_trials(self) -> list[Trial]:
        """The runs of Figure 3, a seed each."""
        return [
            Trial(coupling.RUNS, {"trace": trace, "seed": seed, "mtbf_s": MTBF_S})
            for trace in self.figure_trace()
            for seed in self.of_seeds()
        ]

    def alignment_trials(self) -> list[Trial]:
        """Scenes under goals at random."""
        if self.parts and ALIGNMENT not in self.parts:
            return []
        trace = f"colocated:{self.scene}" if self.scene else "colocated"
        scenes, held, machines = (4, 2, 24) if self.quick else (8, 4, 48)
        settings = {"trace": trace, "scenes": scenes, "held": held, "machines": machines}
        return [Trial(alignment.CALL, settings)]

    def forecast_trials(self) -> list[Trial]:
        """Scenes whose use the estimates foresee, a seed each; nothing is scheduled."""
        if self.parts and FORECAST not in self.parts:
            return []
        trace = f"colocated:{self.scene}" if self.scene else "colocated"
        machines = 24 if self.quick else 72
        return [
            Trial(foresight.CALL, {"trace": trace, "seed": seed, "machines": machines})
            for seed in self.of_seeds()
        ]

    def manager_trials(self) -> list[Trial]:
        """Those who choose goals."""
        if MANAGER not in (self.parts or ()):
            return []
        trace = f"colocated:{self.scene}" if self.scene else "colocated"
        folders = [one.strip() for one in self.data.split(",") if one.strip().startswith(MANAGERS)]
        folder = folders[0].removeprefix(MANAGERS) if folders else ""
        return managers.planned(trace, self.of_seeds()[: self.seeds or managers.SCENES], folder)

    def figure_trace(self) -> list[str]:
        """What those run; nothing where other parts are asked for."""
        if self.parts and FIGURES not in self.parts:
            return []
        size = SMALL if self.quick else MACHINES
        more = f",{self.scene}" if self.scene else ""
        return [f"colocated:load={FIGURE_LOAD:g},{size}{more}"]

    def traces(self) -> list[str]:
        """All that is run."""
        apart = [*self.alignment_trials(), *self.forecast_trials(), *self.manager_trials()]
        others = [str(trial.settings["trace"]) for trial in apart]
        return list(dict.fromkeys([*self.scenes().values(), *self.figure_trace(), *others]))

    def names(self) -> list[str]:
        if self.policies is not None:
            return list(self.policies)
        peers = [name for name, _ in PEERS.values()]
        rules = [f"{ORDER}{name}" for name in (*RULES, *LEARNED)]
        if self.quick:
            rules = [name for name in rules if "peak" in name]
        parts = [name for name, _ in ABLATIONS.values()]
        return [OURS, *parts, *peers, *rules, ORACLE]

    def of_seeds(self) -> list[int]:
        return [FIRST_SEED + n for n in range(self.seeds or (2 if self.quick else 10))]


def planned(setup: Setup) -> list[Trial]:
    """Every policy at every limit, load by load."""
    return [
        trial
        for trace in setup.scenes().values()
        for trial in sweeps(
            trace, setup.names(), setup.of_seeds(), mtbf_s=MTBF_S, limits=setup.limits()
        )
    ] + [
        *setup.figure_trials(), *setup.alignment_trials(), *setup.forecast_trials(),
        *setup.manager_trials(),
    ]  # fmt: skip


def outcome(setup: Setup, found: Mapping[str, Any]) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    rows: list[Row] = []
    paper: list[Row] = []
    pairs: list[Row] = []
    singly: list[Row] = []
    for scene, trace in setup.scenes().items():
        tried_at = {
            name: points(
                found,
                trace,
                name,
                setup.of_seeds(),
                names=swept(name, setup.limits()),
                mtbf_s=MTBF_S,
            )
            for name in setup.names()
        }
        for target in HARMS:
            reached = {
                name: point for name, of in tried_at.items() if (point := at_harm(of, target))
            }
            where = {"scene": scene, "harm": target}
            title = f"{scene}, {100 * target:g} % harm"
            short = {name.removeprefix(ORDER): point for name, point in reached.items()}
            rows += beside(short, at_harm=title, **where)
            pairs += _pairs(reached, **where)
            if target == SHOWN_AT:
                paper += _paper(reached, scene)
                singly += _singly(reached, scene)
    tables = [
        {"name": "equal-harm", "rows": rows},
        {"name": "hierarchy", "rows": pairs},
        {"name": "paper", "rows": paper},
        {"name": "metrics", "rows": singly},
    ]
    told = claims(tables)
    drawn: dict[str, Any] = {}
    runs = [found[trial.key] for trial in setup.figure_trials()]
    if runs:
        first = figures.prepared(setup.scene, runs[0])
        third = figures.Coupled(runs[0], coupling.couplings(runs))
        tables += [
            {"name": "preparation", "rows": figures.rows_of_prepared(first)},
            {"name": "coupling", "rows": figures.rows_of_coupled(third)},
        ]
        told += figures.claims_of(first, third)
        drawn = {"figures": {"figure-1": first, "figure-3": third}}
    for trial in setup.alignment_trials():
        tables.append({"name": "alignment", "rows": alignment.rows_of(found[trial.key])})
        told.append(alignment.claim_of(found[trial.key]))
    scenes = [found[trial.key] for trial in setup.forecast_trials()]
    if scenes:
        foreseen = foresight.tables_of(scenes)
        tables += foreseen
        told += foresight.claims_of(foreseen)
    searched = setup.manager_trials()
    if searched:
        rows = managers.rows_of(searched, found)
        tables.append({"name": "manager", "rows": rows})
        told.append(managers.claim_of(rows))
    return {
        "tables": tables,
        "claims": as_rows(told),
        "trace": " | ".join(setup.traces()),
        "seeds": setup.of_seeds(),
        **drawn,
    }


def _pairs(reached: Mapping[str, Point], **where: Any) -> list[Row]:
    """The hierarchy beside each of the others: a peer, a rule, an ablation, the oracle."""
    if OURS not in reached:
        return []
    kinds = {name: "peer" for name, _ in PEERS.values()}
    kinds |= {name: "ablation" for name, _ in ABLATIONS.values()}
    kinds |= {ORACLE: "oracle"} | {f"{ORDER}{name}": "learned" for name in LEARNED}
    best = best_of(reached)
    return [
        cost_row(
            name.removeprefix(ORDER), reached[OURS], point, kind=kinds.get(name, "rule"),
            best=name == best, **where,
        )
        for name, point in reached.items()
        if name != OURS
    ]  # fmt: skip


def _paper(reached: Mapping[str, Point], scene: str) -> list[Row]:
    """Both tables: what is claimed, what we measure."""
    listed = [*PEERS.items(), *ABLATIONS.items(), ("hierarchy (ours)", (OURS, THEIRS))]
    return [
        mean_row(told, title, [size * one[metric] for one in reached[name].by_seed.values()],
                 paper=claimed, arm=scene)
        for told, (name, figures) in listed
        if name in reached
        for (metric, (title, size)), claimed in zip(METRICS.items(), figures)
    ]  # fmt: skip


def _singly(reached: Mapping[str, Point], scene: str) -> list[Row]:
    """Each metric of ours over each peer's, and the oracle's over DeepRM's: no policy can know more
    of the services' use.
    """
    if OURS not in reached:
        return []
    mine = reached[OURS].by_seed.values()
    rows = [
        ratio_row(
            told, title, [one[metric] for one in mine],
            [one[metric] for one in reached[name].by_seed.values()], arm=scene,
            paper=round(ours / claimed, 3),
        )
        for told, (name, figures) in PEERS.items()
        if name in reached
        for (metric, (title, _)), claimed, ours in zip(METRICS.items(), figures, THEIRS)
    ]  # fmt: skip
    worst = PEERS[WORST][0]
    if ORACLE in reached and worst in reached:
        most, least = (reached[name].by_seed.values() for name in (ORACLE, worst))
        rows += [
            ratio_row(BOUND, title, [one[metric] for one in most], [one[metric] for one in least],
                      arm=scene)
            for metric, (title, _) in METRICS.items()
        ]  # fmt: skip
    return rows
