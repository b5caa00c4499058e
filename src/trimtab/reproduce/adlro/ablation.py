"""What each part of ADLRO's DQN is worth: the same training with one part more, or one less.

Every variant has the same budget of decisions; rules and the shipped policy stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.claims import Claim, as_rows
from trimtab.errors import TrimtabError, UnknownName
from trimtab.policies import named
from trimtab.reproduce.adlro.claims import row_text
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row, Table, mean_row, ratio_row, rows_of
from trimtab.reproduce.trials import Trial

TRAINED = "trimtab.policies.dqn.training:tested"
BY_NAME = f"{__name__}:beside"
BESIDE = ("fcfs", "fcfs+affinity", "sjf+fastest", "mct", "gavel", "adlro")
TEACHER = "sjf+fastest"  # whose decisions are imitated
STRONGEST = "mct"  # of those that, like the DQN, never stop a job
PLAIN = dict(trunk="cnn", double=False, dueling=False, n_step=1, prioritised=False)
ALL = dict(trunk="cnn", double=True, dueling=True, n_step=5, prioritised=True)
SET = ALL | {"trunk": "set"}
SHUFFLED = "all+shuffled"
VARIANTS: dict[str, dict[str, Any]] = {
    "paper-state": PLAIN | {"mode": "paper"},
    "plain": PLAIN,
    "plain+double": PLAIN | {"double": True},
    "plain+dueling": PLAIN | {"dueling": True},
    "plain+n-step": PLAIN | {"n_step": 5},
    "plain+prioritised": PLAIN | {"prioritised": True},
    "all": ALL,
    SHUFFLED: ALL,  # trained and tested with the GPUs in an order of its own
    "all+set": SET,
    "all+imitation": ALL | {"imitate": TEACHER},
    "all+set+imitation": SET | {"imitate": TEACHER},
}
QUICK = ("paper-state", "plain", "all+set+imitation")
NOTES = {
    "ablation": "Mean completion time on 8 test windows of 500 jobs, 16 GPUs, load 0.9, exact "
    "estimates, start-up 30 s; the interval of a trained DQN is over trainings, of all else over "
    "windows. Permuted: the same network where the GPUs stand in other orders.",
}


@dataclass(frozen=True)
class Setup(Options):
    """3 seeds of 60,000 decisions, 1 of 10,000 where it shall be quick."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None or self.parts:
            raise TrimtabError("--ablation has no --jobs and no --only; leave them out")
        for name in self.policies or ():
            if name not in VARIANTS:
                known = "; ".join(VARIANTS)
                raise UnknownName(f"{name!r} is unknown with --ablation; known: {known}")

    def names(self) -> tuple[str, ...]:
        return tuple(self.policies or (QUICK if self.quick else VARIANTS))

    def of_seeds(self) -> list[int]:
        return list(range(self.seeds or (1 if self.quick else 3)))

    def steps(self) -> int:
        return 10_000 if self.quick else 60_000


def planned(setup: Setup) -> list[Trial]:
    trials = [_trial(setup, name, seed) for seed in setup.of_seeds() for name in setup.names()]
    return [*trials, *(Trial(BY_NAME, {"policy": name}) for name in BESIDE)]


def _trial(setup: Setup, name: str, seed: int) -> Trial:
    steps = setup.steps()
    settings = VARIANTS[name] | {"steps": steps, "explore_steps": steps // 2}
    more = {"shuffle": True} if name == SHUFFLED else {}
    return Trial(TRAINED, {"policy": name, "settings": settings, "seed": seed, **more})


def beside(policy: str, windows: int = 8, window_jobs: int = 500) -> list[float]:
    """(windows,) mean completion times of a policy by its name, on the windows of the trainings."""
    from trimtab.policies.dqn.training import TEST_SEED, adlro_windows, scene  # costs torch

    test = adlro_windows(TEST_SEED, scene(), windows, window_jobs)
    return [float(one) for one in test.by_policy(lambda: named(policy))]


def outcome(setup: Setup, found: Mapping[str, Any]) -> dict[str, Any]:
    rows: list[Row] = []
    for name in BESIDE:
        windows_s = found[Trial(BY_NAME, {"policy": name}).key]
        rows.append(mean_row(name, "jct_s", windows_s))
        if name == STRONGEST:
            least_s = sum(windows_s) / len(windows_s)
    for name in setup.names():
        runs = [found[_trial(setup, name, seed).key] for seed in setup.of_seeds()]
        of = {metric: [run[metric] for run in runs] for metric in runs[0]}
        rows += [mean_row(name, metric, values) for metric, values in of.items()]
        rows.append(ratio_row(name, f"jct / {STRONGEST}", of["jct_s"], [least_s] * len(runs)))
        rows.append(ratio_row(name, "permuted / not", of["permuted_s"], of["jct_s"]))
    tables = [{"name": "ablation", "rows": rows}]
    return {
        "tables": tables,
        "claims": as_rows(claims(tables)),
        "trace": f"adlro:load=0.9; {setup.steps():,} decisions a training",
        "seeds": setup.of_seeds(),
    }


def claims(tables: Sequence[Table]) -> list[Claim]:
    """What we would say about the paper's network, each sentence checked."""
    return [
        _sided("a DQN of the paper's kind does better than first come, first served", True,
               _ratio_to(tables, "fcfs", "paper-state")),
        _sided(f"a DQN with a trunk that knows no order is below {STRONGEST}, the strongest "
               "here that never stops a job", True,
               rows_of(tables, "ablation", metric=f"jct / {STRONGEST}", policy="all+set")),
        _sided("the CNN hangs on the order of the GPUs: permuted, it does worse", False,
               rows_of(tables, "ablation", metric="permuted / not", policy="all")),
        _sided("a trunk that knows no order does better than the CNN", True,
               _ratio_to(tables, "all", "all+set")),
    ]  # fmt: skip


def _ratio_to(tables: Sequence[Table], other: str, policy: str) -> list[Row]:
    """Of two means, with the interval of the first alone."""
    mine = rows_of(tables, "ablation", metric="jct_s", policy=policy)
    theirs = rows_of(tables, "ablation", metric="jct_s", policy=other)
    if not mine or not theirs:
        return []
    by = theirs[0]["ours"]
    ends = {end: mine[0][end] and mine[0][end] / by for end in ("ours", "low", "high")}
    return [mine[0] | ends | {"metric": f"jct / {other}"}]


def _sided(claim: str, below: bool, rows: Sequence[Row]) -> Claim:
    """Whether the whole interval of the ratio lies on that side of 1; None where it contains 1."""
    if not rows:
        return Claim(claim)
    low, high = rows[0]["low"], rows[0]["high"]
    sure = low is not None and not low <= 1 <= high
    holds = bool((high < 1) == below) if sure else None
    return Claim(claim, holds, f"{rows[0]['metric']}: {row_text(rows[0])}")
