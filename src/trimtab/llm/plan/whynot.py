"""Why the neighbours of the best plan are not better: one sentence each, with numbers.

A neighbour differs in one field, and data parallel takes up what that frees or needs. It is
impossible, does not fit, or takes longer; the sentence says which, and by how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import FRAMEWORKS, RECOMPUTES, fault
from trimtab.llm.nouns import Question
from trimtab.llm.plan.legal import ABILITIES, MOST_CHUNKS, tensor_fault
from trimtab.llm.plan.planner import EQUAL, Answer

# What a part of the step is called where it explains a difference.
PARTS = {
    "compute_s": "compute of the slowest stage",
    "again_s": "recomputation",
    "tp_s": "all-reduces of tensor parallel",
    "cp_s": "the ring of context parallel",
    "ep_s": "all-to-alls of the experts",
    "pp_s": "messages between stages",
    "bubble_s": "the pipeline's bubble",
    "dp_s": "collectives of data parallel",
    "optimiser_s": "the optimiser",
    "overhead_s": "the host",
}


class Reason(NamedTuple):
    """One rejected direction."""

    name: str  # of what was changed, such as "TP 16"
    why: str
    gain: float  # step time / that of the best plan; inf = it cannot run


def why_not(answer: Answer, most: int = 10) -> list[Reason]:
    """The nearest rejected directions first: those that miss by least, then what cannot run."""
    best, question = answer.cases[0], answer.question
    tried = list(_neighbours(question, best))
    out = [_impossible(question, name, row) for name, row in tried]
    legal = [i for i, reason in enumerate(out) if reason is None]
    if legal:
        rows = np.concatenate([tried[i][1] for i in legal])
        costs = training.cost(rows)
        chance = intervals.p_fit(costs, rows)
        for place, i in enumerate(legal):
            out[i] = _priced(answer, tried[i][0], rows[place], costs[place], float(chance[place]))
    found = [reason for reason in out if reason is not None]
    found.sort(key=lambda reason: reason.gain)
    # one of each kind before a second: TP 16 should not hide behind two kinds of recomputation
    kinds = [_kind(reason.name, question.per_node) for reason in found]
    firsts = [reason for i, reason in enumerate(found) if kinds[i] not in kinds[:i]]
    others = [reason for reason in found if reason not in firsts]
    return sorted((firsts + others)[:most], key=lambda reason: reason.gain)


def _kind(name: str, per_node: int) -> str:
    """What sort of change a name stands for."""
    word, _, rest = name.partition(" ")
    if word == "TP" and int(rest) > per_node:
        return "TP over nodes"
    return word if word.isupper() or word == "micro-batch" else name.split()[-1]


def _neighbours(question: Question, best: Array) -> Iterator[tuple[str, Array]]:
    """Name and row of every change worth a sentence."""
    for field, word in (("tp", "TP"), ("pp", "PP"), ("cp", "CP"), ("ep", "EP")):
        value = int(best[field])
        widths = {value * 2, value // 2} - {0}
        if field == "tp":  # the first width that leaves the node is what people ask about
            widths.add(2 * question.per_node)
        for width in sorted(widths):
            useful = {"cp": best["cp"] > 1 or question.seq >= 8192, "ep": best["experts"] > 0}
            if width != value and useful.get(field, True):
                yield f"{word} {width}", _changed(best, **{field: width})
    size = int(best["micro_batch"])
    yield f"micro-batch {2 * size}", _changed(best, micro_batch=2 * size)
    if size > 1:
        yield f"micro-batch {size // 2}", _changed(best, micro_batch=size // 2)
    dp = int(best["dp"])
    if best["tp"] * best["pp"] * best["cp"] > 1:
        stage = max(ABILITIES[FRAMEWORKS[int(best["framework"])]].zero)
        name = f"DP {best['gpus']:g} alone with ZeRO-{stage}"
        yield name, _changed(best, tp=1, pp=1, cp=1, zero=stage)
    if best["tp"] > 1 or best["pp"] > 1:
        both = {"micro_batch": max(size, 2), "dp": 2 * dp}
        field = "tp" if best["tp"] > 1 else "pp"
        name = f"DP {2 * dp} with micro-batch {both['micro_batch']}"
        yield name, _changed(best, **both, **{field: best[field] // 2})
    yield from _lighter(question, best)


def _lighter(question: Question, best: Array) -> Iterator[tuple[str, Array]]:
    """Changes that leave the layout as it is: recomputation, ZeRO, interleaving."""
    for code, word in enumerate(RECOMPUTES):
        same = code == 1 and best["flash"] and best["framework"] < FRAMEWORKS.index("fsdp")
        if code != best["recompute"] and not same:
            name = "no recompute" if word == "none" else f"{word} recompute"
            yield name, _changed(best, recompute=code)
    able = ABILITIES[FRAMEWORKS[int(best["framework"])]]
    stages = able.zero if best["pp"] == 1 else able.zero_piped
    if best["dp"] * best["cp"] > 1:
        for stage in stages:
            if stage != best["zero"]:
                yield f"ZeRO-{stage}" if stage else "no ZeRO", _changed(best, zero=stage)
    if best["pp"] > 1 and able.chunks:
        chunks = int(best["interleave"])
        for count in {2 * chunks, 1} - {chunks}:
            if count <= MOST_CHUNKS:
                name = f"{count} chunks a stage" if count > 1 else "no chunks of a stage"
                yield name, _changed(best, interleave=count)


def _changed(best: Array, **fields: Any) -> Array:
    """One row like the best plan with other fields; data parallel takes what is left."""
    row = np.array([best])
    for name, value in fields.items():
        row[name] = value
    if "dp" not in fields:
        # a wider group that leaves no GPU for data parallel takes from the pipeline first
        for other in [name for name in ("pp", "cp") if name not in fields]:
            while row["tp"] * row["pp"] * row["cp"] > row["gpus"] and row[other][0] % 2 == 0:
                row[other] /= 2
        row["dp"] = np.floor(row["gpus"] / (row["tp"] * row["pp"] * row["cp"]))
    if row["pp"][0] == 1:
        row["interleave"] = 1
    row["sequence_parallel"] = row["tp"] > 1
    if row["dp"][0] * row["cp"][0] == 1:
        row["zero"] = 0
    return row


def _impossible(question: Question, name: str, row: Array) -> Reason | None:
    """Why the neighbour cannot be launched, None where it can."""
    plan = row[0]
    batch, dp, size = (int(plan[field]) for field in ("global_batch", "dp", "micro_batch"))
    why = ""
    if plan["gpus"] != plan["tp"] * plan["pp"] * plan["dp"] * plan["cp"]:
        why = f"{plan['gpus']:g} GPUs do not divide into such groups"
    elif tensor_fault(question.model, int(plan["tp"])):
        why = tensor_fault(question.model, int(plan["tp"]))
    elif batch % (dp * size):
        why = f"DP {dp} x micro-batch {size} needs a multiple of {dp * size} as batch, got {batch}"
    elif plan["interleave"] > 1 and plan["layers"] % (plan["pp"] * plan["interleave"]):
        parts = plan["pp"] * plan["interleave"]
        why = f"{plan['layers']:g} layers do not divide into {parts:g} chunks"
    elif plan["interleave"] > 1 and batch // (dp * size) % int(plan["pp"]):
        why = f"{batch // (dp * size)} micro-batches are no multiple of PP {plan['pp']:g}"
    elif fault(plan):
        why = fault(plan).split(";")[0]
    return Reason(name, why, float("inf")) if why else None


def _priced(answer: Answer, name: str, row: Array, cost: Array, chance: float) -> Reason | None:
    """Why a neighbour that can be launched is not chosen."""
    best, best_cost, question = answer.cases[0], answer.costs[0], answer.question
    ratio = float(cost["step_s"] / best_cost["step_s"])
    if chance < question.least_p_fit:
        need_gb, have_gb = cost["memory_b"] / 1e9, row["memory_b"] / 1e9
        why = f"needs {need_gb:,.0f} GB of {have_gb:,.0f} GB, P(fit) {chance:.2f}"
        return Reason(name, f"{why}{_would_be(ratio)}", ratio if chance > 0.01 else 100.0 + ratio)
    if row["tp"] > row["per_node"] and row["tp"] > best["tp"] > 1:
        slower = _each(row, cost) / _each(best, best_cost)
        why = f"crosses nodes of {row['per_node']:g}: all-reduce {slower:.1f}x slower"
        return Reason(name, f"{why}, step {_longer(ratio)}", ratio)
    if ratio < 1.0 + EQUAL:
        return _other_reason(answer, name, cost, ratio)
    part = max(PARTS, key=lambda part: float(cost[part] - best_cost[part]))
    more_s = float(cost[part] - best_cost[part])
    why = f"step {_longer(ratio)}: {PARTS[part]} {more_s:+.3g} s"
    return Reason(name, why, ratio)


def _other_reason(answer: Answer, name: str, cost: Array, ratio: float) -> Reason | None:
    """For a neighbour about as fast or faster: what else the objective weighs."""
    energy = float(cost["energy_j"] / answer.costs["energy_j"][0])
    if "energy" in answer.question.objective and energy > 1.0 + EQUAL:
        return Reason(name, f"takes {100 * (energy - 1):.0f} % more energy", ratio)
    used, best = cost["memory_b"] / 1e9, answer.costs["memory_b"][0] / 1e9
    if used > best + 0.5:
        return Reason(
            name, f"as fast within 0.5 %, needs {used:.0f} GB instead of {best:.0f}", ratio
        )
    return None


def _each(row: Array, cost: Array) -> float:
    """Seconds of tensor parallel a micro-batch."""
    steps = row["global_batch"] / (row["dp"] * row["micro_batch"])
    return max(float(cost["tp_s"] / steps), 1e-12)


def _longer(ratio: float) -> str:
    return f"{100 * (ratio - 1):.0f} % longer" if ratio < 2 else f"{ratio:.1f}x as long"


def _would_be(ratio: float) -> str:
    if ratio < 1.0 - EQUAL:
        return f" (a step would be {100 * (1 - ratio):.0f} % shorter)"
    return ""
