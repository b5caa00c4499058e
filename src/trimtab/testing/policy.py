"""Whether a policy keeps the protocol."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from trimtab.core import Decision, Event, Limit, Policy, Snapshot, Status, Wait, What
from trimtab.policies import named
from trimtab.run import MOST_ROUNDS, run
from trimtab.sim.backend import SimBackend
from trimtab.testing.cases import MOST_INSTANTS, small_cases
from trimtab.testing.look import copied, difference, first_difference, listed, rows


def check_policy(policy: Policy | Callable[[int], Policy] | str) -> None:
    """Drive a policy from an empty queue to an overloaded cluster: itself, its name, or what makes
    one from a seed.

    Rules: it returns Decisions alone, on jobs and nodes that exist; what it decides at once fits at
    once; it changes nothing it is shown; it decides the same again; it leaves no job waiting.
    """
    name = policy if isinstance(policy, str) else ""
    make = _maker(partial(named, name) if name else policy)
    name = name or getattr(policy, "name", getattr(policy, "__name__", type(policy).__name__))
    for case, backend in small_cases():
        _drive_policy(f"policy {name}, {case}", make(), make(), backend)
    for case, backend in small_cases():
        run(backend, make())
        ended = backend.snapshot().state["status"] >= Status.FINISHED
        assert ended.all(), f"policy {name}, {case}: run() ended before jobs {rows(~ended)} did"


def _maker(policy: Any) -> Callable[[], Policy]:
    if hasattr(policy, "decide"):
        return lambda: copy.deepcopy(policy)  # each check starts from the policy as it was given
    assert callable(policy), f"{policy!r} has no decide(snapshot) and makes no policy from a seed"
    made = policy(0)
    assert hasattr(made, "decide"), f"{policy!r} made {made!r}, which has no decide(snapshot)"
    return lambda: policy(0)


def _drive_policy(where: str, policy: Policy, twin: Policy, backend: SimBackend) -> None:
    _decide(where, policy, twin, backend)  # before anything was submitted
    for _ in range(MOST_INSTANTS):
        if backend.wait() is None:
            break
        for _ in range(MOST_ROUNDS):
            decisions = _decide(where, policy, twin, backend)
            again = Wait(backend.snapshot().now_s)  # as the loop takes it: not the backend's
            acts = [decision for decision in decisions if decision != again]
            answers = [_accepted(where, acts, i, backend) for i in range(len(acts))]
            stopped = any(answer.what == What.STOPPED for answer in answers)
            if again not in decisions and not stopped:
                break
        else:
            raise AssertionError(f"{where}: stops and starts jobs for ever at one instant")
    else:
        raise AssertionError(f"{where}: still not done after {MOST_INSTANTS} instants")
    left = backend.snapshot().queue
    assert not len(left), f"{where}: leaves jobs {left.tolist()} waiting while nothing will happen"


def _decide(where: str, policy: Policy, twin: Policy, backend: SimBackend) -> list[Decision]:
    snapshot = backend.snapshot()
    where = f"{where}, second {snapshot.now_s:g}"
    before, shown = copied(snapshot), copied(snapshot)  # a copy it can spoil
    decisions = listed(where, policy.decide(shown))
    changed = difference(before, shown)
    assert not changed, (
        f"{where}: changes the snapshot it is shown ({changed}); copy what you book in"
    )
    again = listed(where, twin.decide(snapshot))
    assert decisions == again, (
        f"{where}: decides differently the second time ({first_difference(decisions, again)}); "
        f"take randomness from a seed"
    )
    for decision in decisions:
        _names_what_exists(where, decision, snapshot)
    return decisions


def _names_what_exists(where: str, decision: Decision, snapshot: Snapshot) -> None:
    if isinstance(decision, Limit | Wait):
        return
    submitted = snapshot.jobs["instances"] > 0
    assert 0 <= decision.job < len(submitted) and submitted[decision.job], (
        f"{where}: {decision} names a job that does not exist; name those of the snapshot's queue "
        f"and runs"
    )
    for node in getattr(decision, "nodes", ()):
        assert 0 <= node < len(snapshot.nodes), (
            f"{where}: {decision} names a node that does not exist; there are {len(snapshot.nodes)}"
        )


def _accepted(where: str, decisions: list[Decision], i: int, backend: SimBackend) -> Event:
    now_s = backend.snapshot().now_s
    answer = backend.apply(decisions[i])
    assert answer.what != What.REFUSED, (
        f"{where}, second {now_s:g}: overbooks: {decisions[i]} is refused ({answer.reason}) as "
        f"number {i + 1} of {len(decisions)} decided at once; account for your earlier decisions"
    )
    return answer
