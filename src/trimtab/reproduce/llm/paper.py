"""Which parallelism on how many GPUs: tabular learners beside rules and the exact optimum.

setup = Setup(seeds=10)
found = {trial.key: outcome for trial, outcome in finished(planned(setup))}
outcome(setup, found)               {"tables": [...], "claims": [...], "trace", "seeds"}

Only the paper's abstract exists, so its table stands beside a world that we built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.claims import as_rows
from trimtab.errors import UnknownName
from trimtab.llm.world.cpu_traces import MEASURED
from trimtab.reproduce.llm.claims import MYOPIC, OTHERS, REPLANNER, Q, claims
from trimtab.reproduce.llm.trials import OPTIMUM, POLICIES
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row, mean_row
from trimtab.reproduce.trials import Trial

RUN = "trimtab.reproduce.llm.trials:measured"
FIRST_SEED = 7000  # settings were chosen with others
MODES = ("paper", "full", "wrong")
SOURCES = tuple(MEASURED)
METRICS = (
    "accuracy", "precision_macro", "precision_weighted", "f1_macro", "f1_weighted", "near",
    "accuracy_own", "greedy", "online", "regret", "step_s", "power_w",
)  # fmt: skip
# The abstract's figures; whether its precision and F1 are macro or weighted it does not say.
PAPER = {
    "q": {"accuracy": 0.85, "precision": 0.83, "f1": 0.84, "greedy": 26.7},
    "sarsa": {"accuracy": 0.79, "precision": 0.76, "f1": 0.77, "greedy": 22.4},
    "fixed": {"accuracy": 0.74, "precision": 0.71, "f1": 0.72, "greedy": 19.6},
}
NOTES = {
    "llm": (
        "Agreement with the optimum at the states that the optimum visits (accuracy_own: at those "
        "that the policy visits), precision and F1 as plain means over actions and by their size. "
        "near: the share that loses less than 1 % of the optimal value. greedy: undiscounted "
        "reward of held-out windows of four hours; online: the same while it learns (learners: "
        "over their whole run; others: over the re-planner's 28 days); regret: of greedy. Reward "
        "has another scale than in the paper, which does not state its own. planned: value "
        "iteration on the cost model."
    ),
    "llm-beside": "Paired by seed; over: relative.",
    "llm-world": (
        "What a world must have to deserve learning: actions that the optimum takes, the share of "
        "the commonest, and what the best constant and the myopic planner lose."
    ),
}


class Arm(NamedTuple):
    source: str
    mode: str  # paper or full
    wrong: bool

    @property
    def name(self) -> str:
        """Such as "full mode, planetlab, wrong model"."""
        source = self.source if self.source in SOURCES else Path(self.source).name
        return f"{self.mode} mode, {source}" + (", wrong model" if self.wrong else "")

    @property
    def where(self) -> dict[str, Any]:
        return {"arm": self.name, "mode": self.mode, "wrong": self.wrong}


@dataclass(frozen=True)
class Setup(Options):
    """10 seeds of 4,000,000 learning epochs, 4 of 2,000,000 where it shall be quick.

    `parts` are names of MODES and of SOURCES (generated traces that look like the published ones);
    a file or folder of recorded CPU use stands for those. `jobs` are epochs of learning.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.parts or ():
            if part not in (*MODES, *SOURCES) and not Path(part).exists():
                raise UnknownName(
                    f"part {part!r} is unknown; known: {', '.join((*MODES, *SOURCES))}, or a file "
                    "of recorded CPU use"
                )
        for name in self.policies or ():
            if name not in POLICIES:
                raise UnknownName(f"policy {name!r} is unknown; known: {', '.join(POLICIES)}")

    def of_seeds(self) -> list[int]:
        return [FIRST_SEED + n for n in range(self.seeds or (4 if self.quick else 10))]

    def epochs(self) -> int:
        return self.jobs or (2_000_000 if self.quick else 4_000_000)

    def windows(self) -> int:
        return 60 if self.quick else 200

    def sources(self) -> list[str]:
        named = [part for part in self.parts or () if part not in MODES]
        return named or list(SOURCES[:1] if self.quick else SOURCES)

    def arms(self) -> list[Arm]:
        modes = [part for part in self.parts or () if part in MODES] or list(MODES)
        right = [
            Arm(source, mode, False)
            for mode in ("paper", "full")
            if mode in modes
            for source in self.sources()
        ]
        # an error of the model is the same error with every trace: one is enough
        kinds = ("full",) if self.quick else ("full", "paper")
        wrong = [Arm(self.sources()[0], mode, True) for mode in kinds if "wrong" in modes]
        return right + wrong


Outcomes = Mapping[str, Any]  # key of a trial: its outcome


def planned(setup: Setup) -> list[Trial]:
    """Everything that has to run, each once."""
    return [trial for arm in setup.arms() for trial in trials(setup, arm)]


def trials(setup: Setup, arm: Arm) -> list[Trial]:
    given = {
        "source": arm.source,
        "mode": arm.mode,
        "wrong": arm.wrong,
        "steps": setup.epochs(),
        "windows": setup.windows(),
        "names": list(setup.policies or POLICIES),
    }
    return [Trial(RUN, {**given, "seed": seed}) for seed in setup.of_seeds()]


def outcome(setup: Setup, found: Outcomes) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    rows: list[Row] = []
    beside: list[Row] = []
    worlds: list[Row] = []
    for arm in setup.arms():
        runs = [found[trial.key] for trial in trials(setup, arm)]
        rows += _policy_rows(runs, arm)
        beside += _beside(runs, arm)
        worlds += _world(runs, arm)
    tables = [
        {"name": "llm", "rows": rows},
        {"name": "llm-beside", "rows": beside},
        {"name": "llm-world", "rows": worlds},
    ]
    return {
        "tables": tables,
        "claims": as_rows(claims(tables)),
        "trace": f"{', '.join(setup.sources())}; {setup.epochs():,} epochs of learning",
        "seeds": setup.of_seeds(),
    }


def _values(runs: list[Any], policy: str, metric: str) -> list[float]:
    return [run["policies"][policy][metric] for run in runs]


def _policy_rows(runs: list[Any], arm: Arm) -> list[Row]:
    rows = []
    for policy in runs[0]["policies"]:
        for metric in METRICS:
            paper = None
            if arm.mode == "paper" and not arm.wrong:
                paper = PAPER.get(policy, {}).get(metric.partition("_")[0])
            if metric == "accuracy_own":
                paper = None
            values = _values(runs, policy, metric)
            rows.append(mean_row(policy, metric, values, paper=paper, **arm.where))
    return rows


def _beside(runs: list[Any], arm: Arm) -> list[Row]:
    """Q-learning less the paper's others, and the re-planner over the planner, seed by seed."""
    rows, known = [], runs[0]["policies"]
    for other in OTHERS:
        for metric in ("greedy", "accuracy", "step_s", "power_w"):
            if Q in known and other in known:
                mine, theirs = _values(runs, Q, metric), _values(runs, other, metric)
                less = [a - b for a, b in zip(mine, theirs)]
                rows.append(mean_row(Q, f"{metric} less {other}", less, **arm.where))
    for metric in ("greedy", "online"):
        if REPLANNER in known and MYOPIC in known:
            mine, theirs = _values(runs, REPLANNER, metric), _values(runs, MYOPIC, metric)
            over = [a / b - 1.0 for a, b in zip(mine, theirs)]
            rows.append(mean_row(REPLANNER, f"{metric} over {MYOPIC}", over, **arm.where))
    return rows


def _world(runs: list[Any], arm: Arm) -> list[Row]:
    rows = [
        mean_row(OPTIMUM, metric, [run["world"][metric] for run in runs], **arm.where)
        for metric in ("actions", "commonest")
    ]
    for policy in ("constant", MYOPIC):
        if policy in runs[0]["policies"]:
            values = _values(runs, policy, "regret")
            rows.append(mean_row(policy, f"{policy} regret", values, **arm.where))
    return rows
