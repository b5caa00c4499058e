"""Watch a running job: read conditions and step times, correct the cost model, offer a better plan.

    watch(Watched(market(question), Rules(), sensors, log), state, emit=print, save=..., ...)

Nothing is run unless `apply` is given, and its success alone makes a new plan the current one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from trimtab.llm.cost.crowded import link_use_s
from trimtab.llm.plan.plan_rows import plan_row, rounded
from trimtab.llm.plan.planner import layout_words
from trimtab.llm.watch.conditions import Conditions, Sensors
from trimtab.llm.watch.replan import (
    Market,
    Offer,
    Rules,
    Verdict,
    changed,
    decided,
    offered,
    predicted_s,
    smoothed,
    span,
)
from trimtab.llm.watch.step_log import StepLog, Work
from trimtab.llm.watch.watch_state import State, answer_of

ENOUGH = 3  # steps: the median of fewer would follow a single checkpoint or a first compilation
SETTLE_S = 1.0  # between the first two readings, of which rates are the difference
FIRST_RETRY_S, LAST_RETRY_S = 60.0, 3600.0  # after a command that failed, doubled each time


@dataclass(frozen=True)
class Watched:
    """A job and how it is watched."""

    market: Market
    rules: Rules
    sensors: Sensors
    log: StepLog | None = None
    apply: Callable[[Offer], int] | None = None  # exit code; None = a dry run


def watch(
    watched: Watched,
    state: State,
    *,
    every_s: float,
    emit: Callable[[dict[str, Any], Offer], None],
    save: Callable[[State], None],
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    rounds: int = 0,
) -> None:
    """One reading every `every_s`, `rounds` of them, 0 = until interrupted.

    The state is saved after each reading, so an interruption leaves that of the last whole one.
    """
    watched.sensors.prime(clock())
    sleep(min(every_s, SETTLE_S))
    beat_s, done = clock(), 0
    while True:
        record, offer = reading(watched, state, clock)
        done += 1
        save(state)
        emit({"reading": done, **record}, offer)
        if done == rounds:
            return
        # a beat that was slept through is left out, and a clock set back delays by one at most
        beat_s += every_s * max(1, math.ceil((clock() - beat_s) / every_s))
        sleep(min(max(beat_s - clock(), 0.0), every_s))


def reading(
    watched: Watched, state: State, clock: Callable[[], float]
) -> tuple[dict[str, Any], Offer]:
    """Read, learn and decide once; the record of it, and the offer behind it."""
    now_s, row = clock(), state.current
    conditions = watched.sensors.conditions(now_s, own_link(row, state.recent_s))
    steps = watched.log.new(work_of(row)) if watched.log else []
    model_s = predicted_s(row, conditions)
    seen_s = typical_s(state, steps)
    if seen_s is not None:
        state.correction.observe(row, seen_s, model_s, now_s)
    if steps and state.conditions is not None:
        # it ran beside what neighbours held both before and after these steps
        held_b = min(state.conditions.taken_b, conditions.taken_b)
        state.proven_b = max(state.proven_b or 0.0, held_b)
    state.conditions = smoothed(state.conditions, conditions, watched.rules.smooth_s)
    offer = offered(
        watched.market,
        row,
        state.conditions,
        state.correction,
        watched.rules,
        proven_b=state.proven_b,
        patience=state.patience,
    )
    verdict, state.patience = decided(offer, state.patience, now_s, watched.rules)
    if verdict.action == "propose" and watched.apply is not None:
        verdict = applied(watched, state, offer, verdict, clock)
    state.read = watched.log.position if watched.log else None
    record = record_of(watched.market, conditions, offer, verdict) | {"sure": watched.rules.sure}
    record |= {"steps": len(steps), "step_s": seen_s and rounded(seen_s)}
    record |= {"model_s": rounded(model_s), "factor": rounded(factor(state, row))}
    return record, offer


def own_link(row: Any, recent_s: list[float]) -> float:
    """Share of a node's cards that the plan itself uses, as the cost model counts its bytes."""
    busy_s = float(link_use_s(np.asarray(row).reshape(1))[1][0])
    step_s = median(recent_s) if recent_s else predicted_s(row, Conditions(0.0))
    return min(busy_s / step_s, 1.0)


def work_of(row: Any) -> Work:
    """What a step of the plan does."""
    samples = int(row["global_batch"])
    return Work(samples, samples * int(row["seq"]), int(row["gpus"]))


def typical_s(state: State, steps: list[float]) -> float | None:
    """The median of the new steps and, where they are few, of some before; None for no new one."""
    if not steps:
        return None
    pool = [*state.recent_s, *steps][-max(ENOUGH, len(steps)) :]
    state.recent_s = pool[-ENOUGH:]
    return median(pool) if len(pool) >= ENOUGH else None


def applied(
    watched: Watched, state: State, offer: Offer, verdict: Verdict, clock: Callable[[], float]
) -> Verdict:
    """Run the command that changes the plan, unless it failed not long ago."""
    assert watched.apply is not None
    wait_s = state.retry_s - clock()
    if wait_s > 0:
        words = f"the command failed {state.failures} times; next try in {span(wait_s)}"
        return Verdict("wait", f"{verdict.reason}; {words}")
    code = watched.apply(offer)
    if code:
        state.failures += 1
        wait_s = min(FIRST_RETRY_S * 2.0 ** (state.failures - 1), LAST_RETRY_S)
        state.retry_s = clock() + wait_s
        words = f"the command ended with {code}, the plan stays; next try in {span(wait_s)}"
        return Verdict("failed", f"{verdict.reason}; {words}")
    state.changed(offer.plan, changed(state.patience, clock()))
    if watched.log:
        watched.log.skip()
    return Verdict("applied", verdict.reason)


def factor(state: State, row: Any) -> float:
    """Expected step / the cost model's, as learned."""
    return math.exp(float(state.correction.expected(np.asarray(row).reshape(1)).mean[0]))


def record_of(
    market: Market, conditions: Conditions, offer: Offer, verdict: Verdict
) -> dict[str, Any]:
    """A reading for people and machines: numbers or null, never NaN."""
    better = verdict.action in ("propose", "applied", "failed")
    return {
        "time_s": round(conditions.time_s, 3),
        "action": verdict.action,
        "reason": verdict.reason,
        "urgent": offer.plan is not None and offer.urgent,
        "plan": layout_words(offer.current),
        "other_plan": None if offer.plan is None else layout_words(offer.plan),
        "expected_s": rounded(offer.old_s),
        "p_fit": rounded(offer.p_fit),
        "cpu_load": rounded(conditions.cpu_load),
        "free_link": rounded(conditions.free_link),
        "taken_b": rounded(conditions.taken_b),
        "gpu_load": _known(conditions.gpu_load),
        "host_memory": _known(conditions.host_memory),
        "horizon_s": rounded(offer.horizon_s),
        "saving_s": rounded(offer.saving_s),
        "cost_s": rounded(offer.cost_s),
        "proposal": proposal(market, offer) if better else None,
    }


def proposal(market: Market, offer: Offer) -> dict[str, Any]:
    """The plan that is offered, with what is expected of it now."""
    row = plan_row(answer_of(market.question, offer.plan), 0)
    return {**row, "expected_s": rounded(offer.new_s), "p_fit_now": rounded(offer.new_p_fit)}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else rounded(value)
