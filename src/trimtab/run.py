"""The loop: wait, look, decide, apply. The same for a simulator, a fake and a real cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.core import (
    Backend,
    Decision,
    Event,
    Limit,
    Move,
    Policy,
    Reject,
    Resize,
    Sink,
    Snapshot,
    Start,
    Status,
    Stop,
    Wait,
    What,
)
from trimtab.errors import PolicyError, TrimtabError, raised_at

KINDS = (Start, Stop, Move, Resize, Reject, Limit, Wait)
ANSWERED = (What.PLACED, What.REFUSED)  # the rest is reported by the next wait() too
MOST_ROUNDS = 1000  # of decisions at one instant
MOST_IDLE = 10_000  # alarms in a row while nothing runs


def run(backend: Backend, policy: Policy, sinks: Sequence[Sink] = ()) -> int:
    """Drive the backend by the policy until nothing can happen; returns the decisions applied."""
    applied = idle = 0
    while (events := backend.wait()) is not None:
        snapshot = backend.snapshot()
        idle = 0 if events or len(snapshot.running) else idle + 1
        if idle > MOST_IDLE:
            raise PolicyError(
                f"{name_of(policy)} waited {MOST_IDLE} times while nothing runs and nothing "
                f"happens; start or reject the {len(snapshot.queue)} jobs that wait"
            )
        tell(sinks, events, snapshot)
        for _ in range(MOST_ROUNDS):
            decisions = ask(policy, snapshot)
            again = Wait(snapshot.now_s) in decisions  # one decision at a time
            answers = [backend.apply(d) for d in decisions if d != Wait(snapshot.now_s)]
            applied += len(answers)
            snapshot = backend.snapshot()
            tell(sinks, [answer for answer in answers if answer.what in ANSWERED], snapshot)
            if not again and not any(answer.what == What.STOPPED for answer in answers):
                break  # what was stopped is back in the queue: only then look again at once
        else:
            raise PolicyError(
                f"{name_of(policy)} decided {MOST_ROUNDS} times at second {snapshot.now_s:g}; "
                f"a policy must not stop and start the same jobs for ever"
            )
    end = backend.snapshot().state["status"]
    left = np.flatnonzero((end == Status.QUEUED) | (end == Status.BLOCKED))
    if len(left):
        raise PolicyError(
            f"{name_of(policy)} left {len(left)} jobs waiting (first: row {left[0]}) while "
            f"nothing runs and nothing will happen; start, reject or stop them"
        )
    return applied


def ask(policy: Policy, snapshot: Snapshot) -> list[Decision]:
    """The policy's decisions, or a PolicyError that names it."""
    try:
        decisions = policy.decide(snapshot)
        answer = list(decisions)
    except TrimtabError:
        raise
    except Exception as problem:
        code = getattr(policy.decide, "__code__", None)
        place = raised_at(problem, code.co_filename) if code else ""
        raise PolicyError(
            f"{name_of(policy)} raised {type(problem).__name__} at second {snapshot.now_s:g}: "
            f"{problem}{place and f' ({place})'}"
        ) from problem
    for decision in answer:
        if not isinstance(decision, KINDS):
            raise PolicyError(
                f"{name_of(policy)} returned {decision!r}, which is not a decision; "
                f"return Start, Stop, Move, Resize, Reject, Limit or Wait"
            )
    return answer


def tell(sinks: Sequence[Sink], events: Iterable[Event], snapshot: Snapshot) -> None:
    for event in events:
        for sink in sinks:
            sink(event, snapshot)


def name_of(policy: Policy) -> str:
    return f"policy {getattr(policy, 'name', type(policy).__name__)}"
