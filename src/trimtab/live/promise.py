"""What a cluster says of a job, what we promised it, and when the one confirms the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Event, Move, Reject, Resize, Start, Status, Stop, What
from trimtab.live.mirror import Held

UNKNOWN = -1


class Fact(NamedTuple):
    """A job as the cluster had it at the report's version."""

    job: int
    state: Array  # () STATE; its `run` is ours to fill
    held: tuple[Held, ...] = ()  # its runs, oldest first
    ask: tuple[Array, Array] | None = None  # () JOB and (R,) demand; None = not submitted yet
    heard: int = UNKNOWN  # our last decision about it that the cluster took up; 0 = none


class Report(NamedTuple):
    """Word from the cluster. Only the newest version of a job counts, whenever it arrives."""

    version: int  # grows with everything the cluster does
    event: Event | None = None  # what happened; None = just how things stand
    facts: tuple[Fact, ...] = ()
    nodes: Array | None = None  # (N,) NODE_STATE, as measured
    ahead: Array | None = None  # (N, H) as in Snapshot, where the cluster lends
    said: Array | None = None  # (N, 2 H) the same
    whole: bool = False  # a listing: every job there is
    answers: int = 0  # the number of the decision that a REFUSED event refuses


@dataclass(frozen=True, slots=True)
class Promise:
    """A decision that we sent and the cluster has not confirmed."""

    number: int
    decision: Start | Stop | Move | Resize | Reject
    made_s: float
    held: tuple[Held, ...] = ()  # the runs it will make
    left: int = 0  # instances that then remain to start
    frees: tuple[int, ...] = ()  # nodes on which it lets go of something
    sent_s: float = np.inf  # inf = not yet: it waits for room


def refused(made: Promise, now_s: float, why: str) -> Event:
    decision = made.decision
    nodes = tuple(getattr(decision, "nodes", ()))
    return Event(now_s, What.REFUSED, decision.job, nodes, int(getattr(decision, "shape", 0)), why)


def confirmed(fact: Fact, pending: list[Promise]) -> int:
    """How many promises, oldest first, the fact settles: it shows them, or the job is over."""
    if fact.state["status"] >= Status.FINISHED:
        return len(pending)
    if fact.heard != UNKNOWN:
        return sum(made.number <= fact.heard for made in pending)
    for i in range(len(pending), 0, -1):
        if shows(fact, pending[i - 1], alone=i == 1):
            return i
    return 0


def shows(fact: Fact, made: Promise, *, alone: bool) -> bool:
    """Whether a fact that does not say what the cluster heard can only be so if it did this.

    Decisions arrive in order, so a start shows by a run that is younger than the promise. Where it
    does not show although it was done (an array's instance that has ended), patience settles it.
    `alone`: no older promise is open, which could be what we see.
    """
    decision = made.decision
    young = any(run.start_s >= made.sent_s for run in fact.held)
    if isinstance(decision, Start):
        return young and int(fact.state["left"]) <= made.left
    if isinstance(decision, Stop):
        return alone and (young or not fact.held)
    if isinstance(decision, Move):
        return any(sorted(run.nodes) == sorted(decision.nodes) for run in fact.held)
    return isinstance(decision, Resize) and any(run.shape == decision.shape for run in fact.held)


def carried_out(
    made: Promise, state: Array, held: tuple[Held, ...]
) -> tuple[Array, tuple[Held, ...]]:
    """A job's state and runs as they will be once the cluster does what we promised."""
    decision, now_s = made.decision, made.made_s
    if isinstance(decision, Start):
        count = len(decision.nodes)
        state["left"] = max(int(state["left"]) - count, 0)
        state["active"] += count
        if np.isnan(state["start_s"]):
            state["start_s"] = now_s
        if state["left"] == 0 and state["status"] == Status.QUEUED:
            state["status"] = Status.RUNNING
            state["waited_s"] += now_s - state["queued_s"]
        return state, held + made.held
    if isinstance(decision, Stop):
        if held:
            state["attained_s"] += sum((now_s - run.start_s) * len(run.nodes) for run in held)
            state["status"], state["queued_s"] = Status.QUEUED, now_s
            state["left"], state["active"] = state["left"] + state["active"], 0
        return state, ()
    if isinstance(decision, Reject):
        state["status"], state["end_s"] = Status.REJECTED, now_s
        return state, held
    return state, made.held if held else ()
