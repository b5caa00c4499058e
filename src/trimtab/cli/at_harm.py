"""`trimtab compare --at-harm`: policies at equal harm to services, each at its own limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.cli.reproduce.reproduce import run_trials, show, write_page
from trimtab.cli.shown import command_line, say, write_json
from trimtab.comparison import Question
from trimtab.errors import TrimtabError

# of a Question, what a sweep of limits knows; another option has to keep its default
KNOWN = ("policies", "trace", "seeds", "first_seed", "load", "at_harm", "tune_on", "log")
Row = dict[str, Any]
NOTES = {
    "equal-harm": (
        "cost: geometric mean of waiting + 1 s, imbalance, completion time and tasks not in time "
        "+ 0.5 %, as a ratio to the best rule that was not learned and is told nothing, paired by "
        "seed: below 1 is better. Shares in %; harm is added to what services do to themselves."
    )
}


def compare_at_harm(question: Question, json_file: str | None, report: Path | None) -> None:
    """Sweep each policy's limit, on the scenes of `tune_on` where given, and show the tables."""
    from trimtab.compare import check_names

    targets = shares(str(question.at_harm))
    for one in dataclasses.fields(Question):
        if one.name not in KNOWN and getattr(question, one.name) != one.default:
            option = one.metadata.get("option", f"--{one.name.replace('_', '-')}")
            raise TrimtabError(f"--at-harm: {option} does not go with it; leave one of them out")
    check_names(question)
    rows, drawn = (tuned if question.tune_on else at_own)(question, targets)
    measured = {
        "tables": [{"name": "equal-harm", "rows": rows}, {"name": "curves", "rows": drawn}],
        "claims": [],
        "trace": question.trace,
        "seeds": seeds_of(question),
        "command": command_line(),
    }
    if json_file:
        write_json(json_file, measured)
    if json_file != "-":
        show(measured, NOTES)
    if report is not None:
        write_page(report, "Policies at equal harm", measured, NOTES)
        say(f"report: {report}")


def shares(text: str) -> list[float]:
    """`0.3,1,3`, in per cent, as shares."""
    found = []
    for part in text.split(","):
        try:
            percent = float(part)
        except ValueError:
            percent = -1.0
        if not 0 < percent <= 100:
            raise TrimtabError(
                f"--at-harm {text}: {part!r} is not a share in per cent, above 0 and at most 100; "
                "give some between commas, such as 0.3,1,3"
            )
        found.append(percent / 100)
    return sorted(set(found))


def seeds_of(question: Question) -> list[int]:
    return list(range(question.first_seed, question.first_seed + question.seeds))


def at_own(question: Question, targets: Sequence[float]) -> tuple[list[Row], list[Row]]:
    """Each policy at the limit at which it adds the harm on these very scenes; and all limits."""
    from trimtab.reproduce import frontier

    at = sweep(question, question.trace)
    rows: list[Row] = []
    for target in targets:
        there = {name: frontier.at_harm(points, target) for name, points in at.items()}
        tell_missing(there, target)
        reached = {name: point for name, point in there.items() if point is not None}
        rows += frontier.beside(reached, at_harm=f"{100 * target:g} %")
    return rows, frontier.curve(at, scene=question.trace)


def sweep(question: Question, trace: str) -> dict[str, list[Any]]:
    """Policy: its points on this trace."""
    from trimtab.reproduce import frontier

    seeds, load = seeds_of(question), question.load
    found = run_trials(frontier.sweeps(trace, question.policies, seeds, load), None, None)
    return {name: frontier.points(found, trace, name, seeds, load) for name in question.policies}


def tell_missing(there: Mapping[str, Any], target: float) -> None:
    for name, point in there.items():
        if point is None:
            say(f"{name}: no limit tried ends all jobs at {100 * target:g} % of harm: left out")


def tuned(question: Question, targets: Sequence[float]) -> tuple[list[Row], list[Row]]:
    """Each policy at the limit that added the harm on other scenes, whatever it adds on these; and
    all limits there.
    """
    from trimtab.reproduce import frontier
    from trimtab.rules.names import at_limit, turned

    at = sweep(question, str(question.tune_on))
    seeds, load, trace = seeds_of(question), question.load, question.trace
    names: dict[float, dict[str, dict[str, float]]] = {}  # target: policy: name there: its limit
    for target in targets:
        there = {name: frontier.at_harm(points, target) for name, points in at.items()}
        tell_missing(there, target)
        names[target] = {
            policy: {at_limit(policy, limit) if turned(policy) else policy: limit}
            for policy, limit in (
                (policy, round(point.limit, 4)) for policy, point in there.items() if point
            )
        }
    trials = [
        frontier.tried(trace, policy, [name], seed, load)
        for seed in seeds
        for policy, name in dict.fromkeys(
            (policy, *name) for of in names.values() for policy, name in of.items()
        )
    ]
    found = run_trials(trials, None, None)
    rows: list[Row] = []
    for target, of in names.items():
        reached = {
            policy: point
            for policy, name in of.items()
            for point in frontier.points(found, trace, policy, seeds, load, name)
        }
        rows += frontier.beside(reached, at_harm=f"{100 * target:g} % on {question.tune_on}")
    return rows, frontier.curve(at, scene=question.tune_on)
