"""Rollouts in RLScheduler's setting and on weeks of other logs, beside rules.

setup = Setup(logs=["logs/"])
found = {trial.key: outcome for trial, outcome in finished(planned(setup))}
outcome(setup, found)               {"tables": [...], "claims": [...], "trace", "seeds"}

Published values: Zhang et al., RLScheduler, SC'20, average bounded slow-down of ten sequences of
1,024 jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.claims import Claim, as_rows
from trimtab.errors import TrimtabError, UnknownName
from trimtab.metrics import interval
from trimtab.reproduce.options import Options
from trimtab.reproduce.rollout.trials import SEQUENCES
from trimtab.reproduce.tables import Row, Table, mean_row, measured_text, row, rows_of
from trimtab.reproduce.trials import Trial

IN_SEQUENCES = "trimtab.reproduce.rollout.trials:sequences"
IN_WEEKS = "trimtab.reproduce.rollout.trials:weeks"
LEARNED = "learned"
RULES = ("fcfs", "sjf", "smallest", "f1", "wfp3", "unicep", "wfp3-published", "unicep-published")
WEEK_RULES = ("fcfs", "sjf", "smallest", "smallest-area", "f1", "wfp3", "unicep")
# what is measured has no budget, so that it is the same on every machine
OURS = "rollout:budget_ms=inf"
BUDGETS_MS = (0.2, 1.0, 5.0)
# how the file of a log begins: its name in the paper
LOGS = {
    "lublin_256_new2": "Lublin-2",
    "lublin_256": "Lublin-1",
    "SDSC-SP2": "SDSC-SP2",
    "HPC2N": "HPC2N",
}
NAMES = ("fcfs", "wfp3-published", "unicep-published", "sjf", "f1", LEARNED)
PUBLISHED = {  # (log, backfill): a value a name
    ("Lublin-1", "none"): (7273.77, 19753.53, 22274.74, 277.35, 258.37, 254.67),
    ("Lublin-1", "easy"): (235.82, 133.87, 307.23, 73.31, 75.07, 58.64),
    ("SDSC-SP2", "none"): (1727.54, 3000.88, 1848.45, 2680.55, 1232.06, 466.44),
    ("SDSC-SP2", "easy"): (1595.12, 1083.12, 548.01, 2167.84, 1098.22, 397.82),
    ("Lublin-2", "none"): (None, None, None, None, None, 724.51),
    ("HPC2N", "none"): (None, None, None, None, None, 117.01),
}
ARMS = ("none", "easy")
ENDS = (".swf", ".swf.xz", ".swf.gz", ".swf.bz2", "_new2")
NOTES = {
    "rollout-sequences": (
        "Average bounded slow-down under RLScheduler's semantics. Beside rollout stands what the "
        "paper's learned policy reached. wfp3 and unicep are the corrected forms."
    ),
    "rollout-ratios": (
        "Geometric mean of rollout / rule, sequence by sequence; the best rule is the one with "
        "the lowest mean, known only afterwards."
    ),
    "rollout-weeks": "Geometric mean over weeks of the mean bounded slow-down, on the engine.",
    "rollout-week-ratios": (
        "Geometric mean of rollout / the rule that was best over these weeks, week by week."
    ),
    "rollout-budget": "Timing of this machine. Everything else here has no budget.",
}


@dataclass(frozen=True)
class Setup(Options):
    """10 sequences of 1,024 jobs and 10 weeks a log, 3 of each where it shall be quick.

    `logs` are files or folders of logs; those of the paper are known by name, the others go by
    weeks. `parts` are names of PARTS.
    """

    logs: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policies:
            raise TrimtabError("--policies: rollout stands beside rules of its own choice alone")
        for part in self.parts or ():
            if part not in PARTS:
                raise UnknownName(f"part {part!r} is unknown; known: {', '.join(PARTS)}")
        for log in self.logs:
            if not Path(log).exists():
                raise TrimtabError(f"--logs {log}: no such file or folder")
        if not self.files():
            raise TrimtabError(
                "rollout wants logs in the standard workload format: give a file or a folder of "
                "them as --logs PATH; docs/reproduce.md says which"
            )

    def files(self) -> list[Path]:
        found: list[Path] = []
        for log in map(Path, self.logs):
            inside = sorted(log.iterdir()) if log.is_dir() else [log]
            found += [path for path in inside if path.name.endswith(ENDS)]
        return list(dict.fromkeys(found))

    def published(self) -> dict[str, str]:
        """Name in the paper: file."""
        paths = {known_as(path): str(path) for path in self.files() if known_as(path)}
        return {name: paths[name] for name in LOGS.values() if name in paths}

    def others(self) -> dict[str, str]:
        return {path.name.partition(".")[0]: str(path) for path in self.files()
                if not known_as(path)}  # fmt: skip

    def count(self) -> int:
        return self.seeds or (3 if self.quick else 10)

    def length(self, week: bool = False) -> int:
        """Jobs of a sequence, and at most of a week."""
        return self.jobs or (400 if self.quick else 2_000 if week else 1_024)

    def wanted(self) -> list[str]:
        return list(self.parts or PARTS)

    def left_out(self) -> list[str]:
        missing = [name for name in LOGS.values() if name not in self.published()]
        return [f"{', '.join(missing)}: no such log in --logs, left out"] if missing else []


def known_as(path: Path) -> str:
    """The name of a log in the paper, "" for others."""
    return next((name for start, name in LOGS.items() if path.name.startswith(start)), "")


Outcomes = Mapping[str, Any]  # key of a trial: its outcome


def ours(arm: str) -> str:
    return _with(OURS, arm)


def _with(policy: str, arm: str) -> str:
    base, colon, rest = policy.partition(":")
    return base + ("" if arm == "none" else f"+{arm}") + colon + rest


def planned(setup: Setup) -> list[Trial]:
    """Everything that has to run, each once; what takes longest first."""
    return [trial for name in reversed(setup.wanted()) for trial in PARTS[name][0](setup)]


def outcome(setup: Setup, found: Outcomes) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    tables = [table for name in setup.wanted() for table in PARTS[name][1](setup, found)]
    logs = [*setup.published(), *setup.others()]
    return {
        "tables": tables,
        "claims": as_rows(claims(setup, tables)),
        "trace": f"{', '.join(logs)}; {setup.count()} sequences of {setup.length():,} jobs and as "
        f"many weeks a log, of {setup.length(week=True):,} jobs at most",
        "seeds": list(range(setup.count())),
    }


def _sequence(setup: Setup, log: str, policy: str) -> Trial:
    count = min(setup.count(), len(SEQUENCES))
    given = {"log": log, "policy": policy, "count": count, "jobs": setup.length()}
    return Trial(IN_SEQUENCES, given)


def _sequence_trials(setup: Setup) -> list[Trial]:
    return [
        _sequence(setup, log, _with(policy, arm))
        for log in setup.published().values()
        for arm in ARMS
        for policy in (OURS, *RULES)
    ]


def _sequence_tables(setup: Setup, found: Outcomes) -> list[Table]:
    means: list[Row] = []
    ratios: list[Row] = []
    for name, log in setup.published().items():
        for arm in ARMS:
            paper = dict(zip(NAMES, PUBLISHED.get((name, arm), ())))
            values = {
                policy: found[_sequence(setup, log, _with(policy, arm)).key]["bsld"]
                for policy in (OURS, *RULES)
            }
            for policy, bsld in values.items():
                shown, known = ("rollout", LEARNED) if policy == OURS else (policy, policy)
                means.append(
                    mean_row(shown, "bsld_mean", bsld, paper=paper.get(known), log=name, arm=arm)
                )
            best = min(RULES, key=lambda rule: sum(values[rule]))
            ratios.append(_ratio(best, values[OURS], values[best], log=name, arm=arm))
    return [
        {"name": "rollout-sequences", "rows": means},
        {"name": "rollout-ratios", "rows": ratios},
    ]


def _ratio(policy: str, mine: Sequence[float], theirs: Sequence[float], **where: Any) -> Row:
    """Geometric mean of mine over theirs, pair by pair, with its interval."""
    middle, half = interval([math.log(a / b) for a, b in zip(mine, theirs)])
    ends = (None, None) if half is None else (math.exp(middle - half), math.exp(middle + half))
    return row(policy, "rollout / best rule", math.exp(middle), *ends, **where)


def _week(setup: Setup, log: str, policy: str) -> Trial:
    given = {"log": log, "policy": policy, "count": setup.count()}
    return Trial(IN_WEEKS, {**given, "jobs": setup.length(week=True)})


def _week_trials(setup: Setup) -> list[Trial]:
    return [
        _week(setup, log, _with(policy, arm))
        for policy in (OURS, *WEEK_RULES)
        for log in setup.others().values()
        for arm in ARMS
    ]


def _week_tables(setup: Setup, found: Outcomes) -> list[Table]:
    means: list[Row] = []
    ratios: list[Row] = []
    for name, log in setup.others().items():
        for arm in ARMS:
            values = {
                policy: found[_week(setup, log, _with(policy, arm)).key]["bsld"]
                for policy in (OURS, *WEEK_RULES)
            }
            where: dict[str, Any] = {"log": name, "arm": arm, "weeks": len(values[OURS])}
            if not values[OURS]:
                continue
            typical = {policy: _geometric(bsld) for policy, bsld in values.items()}
            for policy, value in typical.items():
                shown = "rollout" if policy == OURS else policy
                means.append(row(shown, "bsld_mean", value, **where))
            best = min(WEEK_RULES, key=typical.__getitem__)
            ratios.append(_ratio(best, values[OURS], values[best], **where))
    return [
        {"name": "rollout-weeks", "rows": means},
        {"name": "rollout-week-ratios", "rows": ratios},
    ]


def _geometric(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _budget_trials(setup: Setup) -> list[Trial]:
    log = next(iter(setup.published().values()), None)
    if log is None:
        return []
    return [
        _sequence(setup, log, f"rollout+easy:budget_ms={budget_ms:g}")
        for budget_ms in (*BUDGETS_MS, math.inf)
    ]


def _budget_tables(setup: Setup, found: Outcomes) -> list[Table]:
    rows: list[Row] = []
    for trial in _budget_trials(setup):
        measured = found[trial.key]
        counted = measured["counters"]
        where: dict[str, Any] = {"budget": trial.settings["policy"].partition("=")[2]}
        hits = 100 * counted["budget_hits"] / max(counted["decisions"], 1.0)
        rows.append(mean_row("rollout+easy", "bsld_mean", measured["bsld"], **where))
        rows.append(row("rollout+easy", "hits, %", hits, **where))
    return [{"name": "rollout-budget", "rows": rows}]


def claims(setup: Setup, tables: Sequence[Table]) -> list[Claim]:
    """What we would say of rollouts."""
    said = []
    for (name, arm), values in PUBLISHED.items():
        text = f"{name}, {_told(arm)}: below the published learned value, {values[-1]:g}"
        rows = rows_of(tables, "rollout-sequences", policy="rollout", log=name, arm=arm)
        whole = setup.count() >= len(SEQUENCES) and setup.length() == 1024
        holds = rows[0]["ours"] < values[-1] if rows and whole else None
        evidence = measured_text(rows[0]) if rows else "not measured in this run"
        more = "" if whole or not rows else "; fewer or shorter sequences than the published"
        said.append(Claim(text, holds, evidence + more))
    for one in rows_of(tables, "rollout-week-ratios"):
        text = f"{one['log']}, {_told(one['arm'])}: at least level with the best rule by weeks"
        level = one["ours"] <= 1
        holds = True if level else None if one["low"] is None or one["low"] <= 1 else False
        evidence = f"{measured_text(one)} of {one['policy']} over {one['weeks']} weeks"
        said.append(Claim(text, holds, evidence))
    return said


def _told(arm: str) -> str:
    return "with backfilling" if arm == "easy" else "without backfilling"


PARTS: dict[str, tuple[Callable[..., list[Trial]], Callable[..., list[Table]]]] = {
    "sequences": (_sequence_trials, _sequence_tables),
    "budget": (_budget_trials, _budget_tables),
    "weeks": (_week_trials, _week_tables),
}
