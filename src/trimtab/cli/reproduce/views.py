"""The tables of a reproduction as text: what the terminal and the page show of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trimtab.cli.reproduce.cells import CELLS, Row


class View(NamedTuple):
    """How a table of rows is spread out: a line each `down`, a column each `across`."""

    table: str
    title: str
    down: tuple[str, ...]
    across: tuple[str, ...]
    metrics: tuple[str, ...]
    each: str | None = None  # one view a value of this key
    loads: tuple[float, ...] | None = None  # only these; None = all
    cell: str = "plain"  # a name of CELLS


class Shown(NamedTuple):
    title: str
    table: str  # whose rows these are
    head: list[str]
    lines: list[list[str]]


VIEWS = (
    View(
        "loads",
        "mean completion time in s by load",
        ("policy",),
        ("load",),
        ("jct_mean_s",),
        each="arm",
    ),
    View(
        "ratios",
        "completion time of adlro / policy by load",
        ("policy",),
        ("load",),
        ("jct_mean_s",),
        each="arm",
        cell="ratio",
    ),
    View(
        "loads",
        "where more jobs arrive than can be done (load 1.5)",
        ("policy",),
        ("metric",),
        ("throughput_per_h", "useful_utilization", "utilization", "energy_j"),
        each="arm",
        loads=(1.5,),
    ),
    View(
        "hyperscore",
        "HyperScore (V) against fcfs by load",
        ("policy",),
        ("load",),
        ("hyperscore", "v"),
        each="arm",
        cell="score",
    ),
    View(
        "paper",
        "the paper's Table 1 | ours, or ours alone",
        ("policy", "metric"),
        ("arm",),
        (),
        cell="beside",
    ),
    View(
        "small-cases",
        "total completion time / optimum",
        ("policy",),
        ("release",),
        ("total / optimum",),
        cell="ratio",
    ),
    View(
        "equal-harm",
        "at equal harm",
        ("policy",),
        ("metric",),
        (),
        each="at_harm",
        cell="standing",
    ),
    View(
        "learned",
        "cost of the learned estimate / the best rule by share of harm",
        ("scene",),
        ("harm",),
        ("cost",),
        cell="ratio",
    ),
    View(
        "oracle",
        "cost of the oracle / the best rule by share of harm",
        ("scene",),
        ("harm",),
        ("cost",),
        cell="ratio",
    ),
    View(
        "pairs",
        "cost of rules that differ in one thing by share of harm",
        ("scene", "policy"),
        ("harm",),
        ("cost",),
        cell="ratio",
    ),
    View(
        "generalisation",
        "mean completion time in s elsewhere",
        ("scene", "load"),
        ("policy",),
        ("jct_mean_s",),
    ),
    View(
        "generalisation",
        "completion time of adlro / policy elsewhere",
        ("scene", "load"),
        ("policy",),
        ("jct_ratio",),
        cell="ratio",
    ),
    View(
        "runtime-memory",
        "error of guessed speeds by observations",
        ("policy",),
        ("observations",),
        ("error",),
        each="scene",
        cell="ratio",
    ),
    View(
        "ablation",
        "what each part of the DQN is worth",
        ("policy",),
        ("metric",),
        (),
    ),
    View(
        "drift",
        "mean completion time in s before and after a change",
        ("scenario", "policy"),
        ("metric",),
        ("jct_before_s", "jct_after_s"),
        each="arm",
    ),
    View(
        "drift-ratios",
        "completion time after the change of the policy / adlro",
        ("policy",),
        ("scenario", "arm"),
        ("jct_after / adlro",),
        cell="ratio",
    ),
    View(
        "drift-detection",
        "what was noticed and done",
        ("scenario", "arm", "policy"),
        ("metric",),
        (),
        cell="number",
    ),
    View(
        "detectors",
        "detectors by the spread of run times",
        ("policy", "spread"),
        ("metric",),
        (),
        cell="number",
    ),
    View(
        "llm",
        "agreement with the optimum (the paper's)",
        ("policy",),
        ("metric",),
        (
            "accuracy", "precision_macro", "precision_weighted", "f1_macro", "f1_weighted", "near",
            "accuracy_own",
        ),
        each="arm",
        cell="and_paper",
    ),
    View(
        "llm",
        "reward of a window (the paper's), what of the optimum's is lost, step time and power",
        ("policy",),
        ("metric",),
        ("greedy", "online", "regret", "step_s", "power_w"),
        each="arm",
        cell="and_paper",
    ),
    View(
        "llm-beside",
        "Q-learning less the paper's others, the re-planner over the myopic planner",
        ("arm", "policy"),
        ("metric",),
        (
            "greedy less sarsa", "accuracy less sarsa", "greedy less fixed",
            "accuracy less fixed", "greedy over myopic", "online over myopic",
        ),
        cell="ratio",
    ),
    View(
        "llm-world",
        "does the world deserve learning",
        ("arm",),
        ("metric",),
        (),
        cell="number",
    ),
    View("hierarchy", "cost over others'", ("policy",), ("harm",), (), "scene", None, "ratio"),
    View(
        "preparation",
        "figure 1: jumps before and after preparation",
        ("policy",),
        ("metric",),
        (),
        each="arm",
        cell="number",
    ),
    View("metrics", "ours / theirs", ("policy",), ("metric",), (), "arm", None, "and_paper"),
    View("alignment", "goals read off workers' acts", ("policy",), ("metric",), (), cell="number"),
    View(
        "forecast",
        "what services will use",
        ("policy",),
        ("metric",),
        (),
        each="arm",
        cell="points",
    ),
    View(
        "forecast-ratios",
        "the encoder / ridge regression",
        ("policy",),
        ("metric",),
        (),
        cell="ratio",
    ),
    View(
        "forecast-rises",
        "spikes told from rises that last",
        ("policy",),
        ("metric",),
        (),
        cell="ends",
    ),
    View("manager", "who chooses goals", ("policy",), ("metric",), (), cell="ends"),
    View("coupling", "figure 3: load, what answers", ("policy",), ("metric",), (), cell="ends"),
    View(
        "openb",
        "GPU allocation in % when 130 % have arrived (published)",
        ("arm",),
        ("policy",),
        ("gpu_allocation",),
        cell="and_paper",
    ),
    View(
        "openb-beside",
        "points of packer less the others",
        ("arm",),
        ("metric",),
        (),
        each="policy",
        cell="points",
    ),
    View(
        "openb-loads",
        "GPU allocation in % by arrivals",
        ("policy",),
        ("load",),
        ("gpu_allocation",),
        each="arm",
        cell="points",
    ),
    View(
        "rollout-sequences",
        "average bounded slow-down: the paper's | ours, or ours alone",
        ("log", "arm"),
        ("policy",),
        (),
        cell="beside",
    ),
    View(
        "rollout-ratios",
        "rollout over the rule that was best on these sequences",
        ("log", "arm", "policy"),
        ("metric",),
        (),
        cell="ratio",
    ),
    View(
        "rollout-budget",
        "under a budget in ms",
        ("budget",),
        ("metric",),
        (),
        cell="number",
    ),
    View(
        "rollout-weeks",
        "bounded slow-down of a typical week",
        ("log", "arm"),
        ("policy",),
        (),
        cell="number",
    ),
    View(
        "rollout-week-ratios",
        "rollout over the rule that was best in these weeks",
        ("log", "arm", "policy"),
        ("metric",),
        (),
        cell="ratio",
    ),
    View(
        "slim-accuracy",
        "tables I and II, share right: the paper's | ours, or ours alone",
        ("policy",),
        ("metric",),
        (),
        cell="beside",
    ),
    View(
        "slim-random",
        "tables III to V: the paper's | ours, or ours alone",
        ("load", "metric"),
        ("policy",),
        (),
        cell="beside",
    ),
    View(
        "slim-change",
        "change against random routing: the paper's | ours, or ours alone",
        ("load", "metric"),
        ("policy",),
        (),
        cell="beside",
    ),
    View(
        "slim-good",
        "accuracy in time, %, by load",
        ("policy",),
        ("load",),
        ("good",),
        each="arm",
        cell="points",
    ),
    View(
        "slim-in-time",
        "answered in time, %, by load",
        ("policy",),
        ("load",),
        ("in_time",),
        each="arm",
        cell="points",
    ),
    View(
        "slim-beside",
        "priced beside the best of others",
        ("arm", "load"),
        ("metric",),
        (),
        cell="points",
    ),
    View(
        "slim-live",
        "latency in ms and shares in %, live and simulated",
        ("arm", "load", "policy"),
        ("metric",),
        (),
        cell="points",
    ),
    View(
        "slim-live-ratio",
        "live over simulated",
        ("arm", "load", "policy"),
        ("metric",),
        (),
        cell="points",
    ),
    View(
        "slim-profile",
        "figures 1 to 3: batch and width",
        ("width", "batch"),
        ("metric",),
        (),
        cell="number",
    ),
)  # fmt: skip


def views(tables: Sequence[Mapping[str, Any]], chosen: Sequence[View] = VIEWS) -> list[Shown]:
    """Each view that has rows, split by its `each`."""
    rows_of = {table["name"]: table["rows"] for table in tables}
    found = []
    for view in chosen:
        rows = [row for row in rows_of.get(view.table, ()) if _wanted(row, view)]
        values = dict.fromkeys(row.get(view.each) for row in rows) if view.each else [None]
        for value in values:
            part = [row for row in rows if not view.each or row.get(view.each) == value]
            title = f"{view.title}: {value}" if view.each else view.title
            if part:
                found.append(spread(part, view, title))
    return found


def _wanted(row: Row, view: View) -> bool:
    if view.loads is not None and row.get("load") not in view.loads:
        return False
    return not view.metrics or row["metric"] in view.metrics


def spread(rows: Sequence[Row], view: View, title: str) -> Shown:
    """The rows as a grid of text; an empty cell where there is none."""
    downs = list(dict.fromkeys(tuple(str(row[key]) for key in view.down) for row in rows))
    across = list(dict.fromkeys(tuple(str(row[key]) for key in view.across) for row in rows))
    held: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Row]] = {}
    for row in rows:
        place = tuple(str(row[key]) for key in view.down), tuple(str(row[k]) for k in view.across)
        held.setdefault(place, []).append(row)
    text = CELLS[view.cell]
    lines = [
        [*down, *(text(held[down, over]) if (down, over) in held else "" for over in across)]
        for down in downs
    ]
    # spaces, so that a terminal may break a long name
    heads = [" ".join(over).replace("_", " ") for over in across]
    return Shown(title, view.table, [*view.down, *heads], lines)


def frontiers(
    tables: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Scene: policy: (added harm in %, cost), limit by limit."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for table in tables:
        for row in table["rows"] if table["name"] == "curves" else ():
            lines = found.setdefault(row["scene"], {})
            lines.setdefault(row["policy"], []).append((100 * row["harm"], row["ours"]))
    return found


def curves(tables: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Arm: policy: (load, mean completion time in s), for loads that can be kept up with."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for table in tables:
        for row in table["rows"] if table["name"] == "loads" else ():
            if row["metric"] == "jct_mean_s" and row["load"] < 1 and row["ours"]:
                lines = found.setdefault(row["arm"], {})
                lines.setdefault(row["policy"], []).append((row["load"], row["ours"]))
    return found
