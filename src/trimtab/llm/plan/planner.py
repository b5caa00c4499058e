"""The best plans for a question: every legal plan is priced, those that fit are ranked.

    answer = planned(question_of(model("llama-3-70b"), gpu("H100"), 64))
    answer.costs["step_s"][0], answer.p_fit[0]

Ranks follow the weighted logarithms of time, cost and energy, so that a mix has no unit; plans
within half a percent count as equal, and the one more likely to fit goes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import RECOMPUTES
from trimtab.llm.nouns import Question
from trimtab.llm.plan.legal import case_rows, divisors, legal_plans, refuse
from trimtab.llm.plan.question import idle_power

CHUNK = 1 << 16  # rows priced at a time: 24 MB of cases
EQUAL = 0.005  # difference of ln(objective) that the model does not claim to see
GROUPED = ("gpus", "framework", "tp", "pp", "dp", "cp", "ep")  # a plan's layout
HOUR_S = 3600.0

PRICED = np.dtype(
    [(name, "f8") for name in ("step_s", "energy_j", "memory_b", "capacity_b", "p_fit")]
)


@dataclass(frozen=True)
class Answer:
    """Plans in order of preference, with what each takes and how sure that is."""

    question: Question
    cases: Array  # (plans,) of CASE
    costs: Array  # (plans,) of COST
    low_s: Array  # (plans,) of the step time
    high_s: Array
    p_fit: Array
    legal: int  # plans that were priced
    fitting: int  # of those, plans that are likely enough to fit


def planned(question: Question, top: int = 5) -> Answer:
    """The best `top` layouts of those that fit with the chance that the question asks for."""
    plans = legal_plans(question)
    if not len(plans):
        refuse_all(question)
    priced = price(question, plans)
    fits = np.flatnonzero(priced["p_fit"] >= question.least_p_fit)
    if not len(fits):
        raise PlanError(misfit(question, plans, priced))
    order = fits[ranked(score(question, plans[fits], priced[fits]), plans[fits], priced[fits])]
    chosen = order[distinct(plans[order], top)]
    return answered(question, plans[chosen], len(plans), len(fits))


def answered(question: Question, plans: Array, legal: int, fitting: int) -> Answer:
    """The answer that lists these plans."""
    rows = case_rows(question, plans)
    costs = training.cost(rows)
    low_s, high_s = intervals.interval(costs, rows)
    chance = intervals.p_fit(costs, rows)
    return Answer(question, rows, costs, low_s, high_s, chance, legal, fitting)


def price(question: Question, plans: Array) -> Array:
    """What ranking needs of each plan: (plans,) of PRICED."""
    out = np.zeros(len(plans), PRICED)
    for start in range(0, len(plans), CHUNK):
        part = slice(start, start + CHUNK)
        rows = case_rows(question, plans[part])
        costs = training.cost(rows)
        for name in ("step_s", "energy_j", "memory_b", "capacity_b"):
            out[name][part] = costs[name]
        out["p_fit"][part] = intervals.p_fit(costs, rows)
    return out


def score(question: Question, plans: Array, priced: Array) -> Array:
    """What the objective makes of each plan, as a logarithm: (plans,), less is better."""
    total = np.zeros(len(plans))
    for name, weight in question.objective.items():
        total += weight * np.log(amount(question, name, plans["gpus"], priced))
    return total


def amount(question: Question, objective: str, gpus: Array, costs: Array) -> Array:
    """Seconds, money (or GPU seconds) or joules of a step: one number a plan."""
    if objective == "time":
        return costs["step_s"]
    # GPUs that were asked for and not taken are still held, unless they may be given back
    held = gpus if question.up_to else np.full(len(gpus), question.gpus)
    if objective == "cost":
        return held * costs["step_s"] * (question.price_hour / HOUR_S or 1.0)
    idle_w = (held - gpus) * idle_power(question.gpu) * question.gpu.tdp_w
    return costs["energy_j"] + idle_w * costs["step_s"]


def ranked(scores: Array, plans: Array, priced: Array) -> Array:
    """Order of preference: the objective, then the chance to fit, then the simpler plan."""
    band = np.floor((scores - scores.min()) / EQUAL)
    sure = -np.floor(20.0 * priced["p_fit"])  # finer steps are not known that well
    plain = plans["interleave"] + plans["zero"] + plans["recompute"]
    return np.lexsort((scores, plain, sure, band))


def distinct(plans: Array, top: int) -> Array:
    """Places of the first plan of each layout, at most `top` of them."""
    _, first = np.unique(plans[list(GROUPED)], return_index=True)
    return np.sort(first)[:top]


def misfit(question: Question, plans: Array, priced: Array) -> str:
    """The sentence for a model that fits nowhere: the leanest plan and the fewest GPUs."""
    lean = int(np.argmax(np.log(priced["capacity_b"] / priced["memory_b"])))
    plan, need_gb = plans[lean], priced["memory_b"][lean] / 1e9
    have_gb = question.gpu.memory_b / 1e9
    head = (
        f"{question.model.name} does not fit on {question.gpus}x{question.gpu.name}: the leanest"
        f" plan ({layout_words(plan)}) needs {need_gb:,.0f} GB of {have_gb:,.0f} GB a GPU,"
        f" P(fit) {priced['p_fit'][lean]:.2f}"
    )
    risk = np.floor(10 * priced["p_fit"][lean]) / 10
    if risk >= 0.5:
        return f"{head}; take --p-fit {risk:.1f} to risk it, or more GPUs"
    return f"{head}; {remedy(question)}"


def refuse_all(question: Question) -> None:
    """Raise for a question without plans: a wish that cannot be met, or too little memory."""
    roomy = replace(question, gpu=replace(question.gpu, memory_b=1e18))
    plans = legal_plans(roomy)
    if not len(plans):
        refuse(question)
    raise PlanError(misfit(question, plans, price(question, plans)))


def remedy(question: Question) -> str:
    """What would help: the fewest GPUs of this kind that fit."""
    count = fewest(question)
    if count:
        return f"{count} GPUs of this kind are the fewest that would, with this batch and sequence"
    return "no count of these GPUs would: take a shorter --seq, a larger --batch or another GPU"


def fewest(question: Question) -> int:
    """The smallest count of GPUs on which a plan fits; 0 = none of those that were tried."""
    node = question.per_node
    counts = divisors(node) + [node * n for n in range(2, 65)] + [node * 2**n for n in range(7, 12)]
    # the leanest way is all that matters here
    lean = {"recompute": 2, "micro_batch": 1, "interleave": 1, **question.fixed}
    lean_question = replace(question, fixed=lean)
    for part in (counts[:8], counts[8:24], counts[24:]):
        plans = legal_plans(lean_question, part)
        fits = price(lean_question, plans)["p_fit"] >= question.least_p_fit
        if fits.any():
            return int(plans["gpus"][fits].min())
    return 0


def layout_words(plan: Any) -> str:
    """A plan in a few words: `TP 8, PP 4, DP 2, micro-batch 1, full recompute`."""
    words = [f"TP {plan['tp']:g}", f"PP {plan['pp']:g}", f"DP {plan['dp']:g}"]
    words += [f"{name.upper()} {plan[name]:g}" for name in ("cp", "ep") if plan[name] > 1]
    if plan["interleave"] > 1:
        words.append(f"{plan['interleave']:g} chunks a stage")
    if plan["zero"] > 0:
        words.append(f"ZeRO-{plan['zero']:g}")
    words.append(f"micro-batch {plan['micro_batch']:g}")
    words.append(f"{RECOMPUTES[int(plan['recompute'])]} recompute")
    return ", ".join(words).replace("none recompute", "no recompute")
