"""What a peer decides by, what is kept of its decisions, and how one of several rows is chosen."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import inner
from trimtab.rules.place import mixed

# the peers, as compiled code branches on them
DEEPRM, RJOUB, ISLAM, CHENG, RLSCHEDULER, BELGACEM, GHASEMI = range(7)
# how it chooses: the best row, one by its share of e^score, or any one with probability `rate`
BEST, DRAWN, ANY = range(3)
NOWHERE = -np.inf


class Mind(NamedTuple):
    """A peer's weights, how it chooses, and what it remembers from decision to decision."""

    theta: Array  # (weights,) of the network or table
    sizes: Array  # (layers + 1,) widths
    how: int
    rate: float
    seed: int
    memory: Array  # (2, K, D) the last decisions, newest last, and as they stood before this pass
    asked: Array  # (2,) how many decisions so far, and before this pass


class Tape(NamedTuple):
    """Decisions in order, as far as there is room: their rows behind each other."""

    rows: Array  # (R, F)
    more: Array  # (T, K x D) what was remembered at each
    ptr: Array  # (T + 1,) where the rows of each begin
    act: Array  # (T,) the row chosen, from its first
    job: Array  # (T,)
    time_s: Array  # (T,)
    length: Array  # (2,) decisions, and as it stood before this pass


def tape(decisions: int, rows: int, features: int, more: int) -> Tape:
    """Room for so many; 0 keeps none."""
    return Tape(
        np.zeros((rows, features), np.float32), np.zeros((decisions, more), np.float32),
        np.zeros(decisions + 1, np.int64), np.zeros(decisions, np.int64),
        np.zeros(decisions, np.int64), np.zeros(decisions), np.zeros(2, np.int64),
    )  # fmt: skip


@inner
def keep_place(mind: Mind, tape: Tape) -> None:
    """Note where a pass began."""
    mind.asked[1], tape.length[1] = mind.asked[0], tape.length[0]
    mind.memory[1] = mind.memory[0]


@inner
def take_back(mind: Mind, tape: Tape) -> None:
    """The pass will be planned anew: forget what it decided."""
    mind.asked[0], tape.length[0] = mind.asked[1], tape.length[1]
    mind.memory[0] = mind.memory[1]


@inner
def choose(mind: Mind, score: Array, count: int) -> int:
    """The row to take of the first `count`; scores of -inf are never taken where another is."""
    best = 0
    for i in range(1, count):
        if score[i] > score[best]:
            best = i
    asked = mind.asked[0]
    mind.asked[0] = asked + 1
    if mind.how == BEST or score[best] == NOWHERE:
        return best
    drawn = mixed(mind.seed, asked, 0)
    if mind.how == DRAWN:
        total = 0.0
        for i in range(count):
            total += math.exp(score[i] - score[best])
        drawn *= total
        for i in range(count):
            drawn -= math.exp(score[i] - score[best])
            if drawn < 0.0:
                return i
        return best
    if drawn >= mind.rate:
        return best
    return min(int(mixed(mind.seed, asked, 1) * count), count - 1)


@inner
def remember(mind: Mind, step: Array) -> None:
    """Put a decision behind those before it."""
    steps = mind.memory.shape[1]
    for k in range(steps - 1):
        mind.memory[0, k] = mind.memory[0, k + 1]
    mind.memory[0, steps - 1] = step


@inner
def write(
    mind: Mind, tape: Tape, rows: Array, count: int, act: int, job: int, now_s: float
) -> None:
    """Put a decision on the tape, where there is room."""
    at = tape.length[0]
    if at >= tape.act.shape[0]:
        return
    first = tape.ptr[at]
    if first + count > tape.rows.shape[0]:
        return
    for i in range(count):
        for f in range(tape.rows.shape[1]):
            tape.rows[first + i, f] = rows[i, f]
    steps, width = mind.memory.shape[1], mind.memory.shape[2]
    for k in range(steps):
        for d in range(width):
            tape.more[at, k * width + d] = mind.memory[0, k, d]
    tape.act[at], tape.job[at], tape.time_s[at] = act, job, now_s
    tape.ptr[at + 1] = first + count
    tape.length[0] = at + 1
