"""Whether a running job should change its plan: what that saves, what it costs, and hysteresis.

    offer = offered(market, current, conditions, correction)
    verdict, patience = decided(offer, patience, now_s, rules)

Every plan is priced under the conditions of now and corrected by the step times seen. The saving is

    horizon x (1 - cautious ratio),   ln(cautious ratio) = ln(new / old) + z x spread

so that what is not known of a plan that never ran counts against it. A plan that was changed not
long ago is expected to last no longer than it has so far: the horizon is cut to that, which keeps
two plans near break-even from taking turns. Nothing here has a clock, a sensor or a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from trimtab.arrays import Array
from trimtab.llm.cost.crowded import STATE_B, checkpoint_s, crowded_cost
from trimtab.llm.cost.intervals import memory_spread, p_fit
from trimtab.llm.nouns import Question
from trimtab.llm.plan.legal import case_rows, legal_plans
from trimtab.llm.plan.planner import HOUR_S, layout_words, score
from trimtab.llm.spec.specs import parameters
from trimtab.llm.watch.conditions import Conditions
from trimtab.llm.watch.correction import SAME, Correction, same
from trimtab.llm.world.world import RESTART_S
from trimtab.units import seconds

URGENT = 0.5  # chance to fit below which the running plan is given up at once
STICKY = 0.01  # of ln(objective): a plan offered before stays unless another is better by more


@dataclass(frozen=True)
class Rules:
    """When a change of plan is worth it."""

    horizon_s: float = 6 * HOUR_S  # for which conditions are taken to last and the job to run
    margin: float = 1.5  # saving / cost of the change, at least
    patience: int = 3  # readings in a row that must agree
    dwell_s: float = 1800.0  # after a change, until the next
    sure: float = 0.7  # chance with which the saving is reached
    restart_s: float = RESTART_S  # processes, communicators, compilation
    smooth_s: float = 600.0  # over which load of hosts and links is averaged before it counts


class Market(NamedTuple):
    """What a job may run: the question, and a CASE row for each legal plan."""

    question: Question
    rows: Array


class Offer(NamedTuple):
    """The best other plan at one reading, beside the one that runs."""

    current: Any  # of CASE
    conditions: Conditions
    old_s: float  # expected step of the current plan, corrected
    p_fit: float  # of the current plan, now
    horizon_s: float
    settled: bool = True  # False = the last step times are unlike what is believed
    plan: Any = None  # of CASE; None = no other plan fits
    new_s: float = 0.0
    new_p_fit: float = 0.0
    saving_s: float = 0.0  # over the horizon, cautious; may be negative
    cost_s: float = 0.0  # of the change

    @property
    def urgent(self) -> bool:
        """Whether the running plan is likely to run out of memory."""
        return self.p_fit < URGENT


class Patience(NamedTuple):
    """What hysteresis remembers from reading to reading."""

    agreed: int = 0  # readings in a row in which a change was worth it
    changed_s: float = -math.inf  # time of the last change
    offered: tuple[int, ...] = ()  # the plan offered last, by SAME


FRESH = Patience()


class Verdict(NamedTuple):
    action: str  # keep, wait (worth it, not long enough) or propose
    reason: str


def market(question: Question) -> Market:
    """All that may be run for a question."""
    return Market(question, case_rows(question, legal_plans(question)))


def predicted_s(row: Any, conditions: Conditions) -> float:
    """Step time of one plan by the cost model under these conditions, uncorrected."""
    one = np.asarray(row).reshape(1)
    return float(crowded_cost(one, conditions.cpu_load, conditions.free_link)["step_s"][0])


def smoothed(last: Conditions | None, now: Conditions, smooth_s: float) -> Conditions:
    """Load of hosts and links averaged over time; memory as it is, which runs out in a moment."""
    if last is None:
        return now
    keep = math.exp(-max(now.time_s - last.time_s, 0.0) / smooth_s)
    return now._replace(
        cpu_load=keep * last.cpu_load + (1.0 - keep) * now.cpu_load,
        free_link=keep * last.free_link + (1.0 - keep) * now.free_link,
    )


def offered(
    market: Market,
    current: Any,
    conditions: Conditions,
    correction: Correction,
    rules: Rules,
    *,
    proven_b: float | None = None,
    patience: Patience = FRESH,
) -> Offer:
    """The best plan but the current one, which has run beside neighbours with `proven_b` bytes."""
    mine = np.asarray(current).reshape(1)
    rows = np.concatenate([mine, market.rows[~same(market.rows, current)]])
    costs = crowded_cost(rows, conditions.cpu_load, conditions.free_link)
    roomy_b = float(costs["capacity_b"][0])
    costs["capacity_b"] = np.maximum(costs["capacity_b"] - conditions.taken_b, 1.0)
    chance = p_fit(costs, rows)
    step_s = costs["step_s"] * np.exp(correction.expected(rows).mean)
    made = Offer(
        current=current,
        conditions=conditions,
        old_s=float(step_s[0]),
        p_fit=_running_p_fit(costs[:1], mine, roomy_b, proven_b, float(chance[0])),
        horizon_s=min(rules.horizon_s, max(conditions.time_s - patience.changed_s, 0.0)),
        settled=not correction.far,
    )
    fits = (chance >= market.question.least_p_fit) & (np.arange(len(rows)) > 0)
    if not fits.any():
        return made
    wary = _wary_ratio(market.question, rows, costs, correction, rules.sure)
    best = int(np.where(fits, wary - STICKY * _is_offered(rows, patience), np.inf).argmin())
    change_s = rules.restart_s + _moved_s(market.question, current, rows[best], conditions)
    return made._replace(
        plan=rows[best],
        new_s=float(step_s[best]),
        saving_s=made.horizon_s * (1.0 - math.exp(wary[best])),
        # a plan that does not fit after all costs the way back as well
        cost_s=change_s * (2.0 - float(chance[best])),
        new_p_fit=float(chance[best]),
    )


def _wary_ratio(
    question: Question, rows: Array, costs: Array, correction: Correction, sure: float
) -> Array:
    """ln(objective of each plan / of the first) that is not exceeded with that chance: (rows,)."""
    scores = score(question, rows, costs)
    # cost and energy of a step follow its time, so one correction holds for all objectives
    apart = correction.against(rows, rows[0])
    return np.asarray(scores - scores[0] + apart.mean + float(ndtri(sure)) * apart.spread)


def _is_offered(rows: Array, patience: Patience) -> Array:
    """Which rows were offered at the last reading."""
    if not patience.offered:
        return np.zeros(len(rows), bool)
    return same(rows, dict(zip(SAME, patience.offered)))


def _running_p_fit(
    cost: Array, row: Array, roomy_b: float, proven_b: float | None, chance: float
) -> float:
    """Chance that the running plan goes on to fit, knowing what it has fitted beside already."""
    if proven_b is None:
        return chance
    proven = np.log(max(roomy_b - proven_b, 1.0) / cost["memory_b"]) / memory_spread(row)
    return min(chance / max(float(ndtr(proven)[0]), 1e-9), 1.0)


def _moved_s(question: Question, old: Any, new: Any, conditions: Conditions) -> float:
    """Seconds in which the checkpoint goes out and in."""
    state_b = STATE_B * parameters(question.model)
    link_bps = question.node_link_bps * conditions.free_link
    return float(checkpoint_s(state_b, old["gpus"], new["gpus"], link_bps))


def decided(
    offer: Offer, patience: Patience, now_s: float, rules: Rules
) -> tuple[Verdict, Patience]:
    """What to do about an offer, and what to remember of it."""
    if offer.plan is None:
        return Verdict("keep", _nothing(offer)), patience._replace(agreed=0, offered=())
    named = tuple(int(offer.plan[name]) for name in SAME)
    words = layout_words(offer.plan)
    if offer.urgent:
        reason = (
            f"P(fit) {offer.p_fit:.2f} now ({_taken(offer)}); {words} has {offer.new_p_fit:.2f}"
        )
        return Verdict("propose", reason), patience._replace(offered=named)
    sums = f"{words} would save {span(offer.saving_s)} in {span(offer.horizon_s)}"
    sums += f" and cost {span(offer.cost_s)}"
    if offer.saving_s <= rules.margin * offer.cost_s:
        if offer.saving_s <= 0:
            sums = f"no other plan is surely better; {words} comes nearest"
        return Verdict("keep", sums), patience._replace(agreed=0, offered=())
    if not offer.settled:
        return Verdict("wait", f"{sums}; the last steps were unlike that"), patience
    patience = patience._replace(agreed=patience.agreed + 1, offered=named)
    since_s = now_s - patience.changed_s
    if since_s < rules.dwell_s:
        return Verdict("wait", f"{sums}; the plan changed {span(since_s)} ago"), patience
    if patience.agreed < rules.patience:
        turn = f"reading {patience.agreed} of {rules.patience}"
        return Verdict("wait", f"{sums}; {turn} that says so"), patience
    return Verdict("propose", sums), patience


def changed(patience: Patience, now_s: float) -> Patience:
    """Hysteresis after a change of plan."""
    return patience._replace(agreed=0, changed_s=now_s, offered=())


def _nothing(offer: Offer) -> str:
    risk = f"; the running one has P(fit) {offer.p_fit:.2f}" if offer.p_fit < URGENT else ""
    return f"no other plan fits ({_taken(offer)}){risk}"


def _taken(offer: Offer) -> str:
    return f"{offer.conditions.taken_b / 1e9:.0f} GB a GPU held by others"


def span(value_s: float) -> str:
    """A time as people say it."""
    if value_s < 120:
        return seconds(value_s)
    return f"{value_s / 60:.0f} min" if value_s < 2 * HOUR_S else f"{value_s / HOUR_S:.3g} h"
