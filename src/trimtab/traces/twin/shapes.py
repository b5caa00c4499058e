"""A library of job shapes: the tasks of a job, their names and which waits for which.

Jobs of a twin draw their shape from the library, evenly. Sizes, chains and independent tasks are
dealt by quota, so that every library, whatever its seed, has the published shares.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.random import Generator

SHAPES = 4000
# Share of the jobs with 1, 2, 3 ... 23 tasks; the rest have 24 to 91, ever fewer.
SIZE_SHARE = (
    *(0.35, 0.21, 0.13, 0.055, 0.065, 0.045, 0.035, 0.025, 0.016, 0.012, 0.009, 0.007),
    *(0.0053, 0.0045, 0.0040, 0.0035, 0.0031, 0.0027, 0.0024, 0.0020, 0.0017, 0.0014, 0.0010),
)
LARGEST_SIZE = 91
LARGE_DECAY = 6.0  # tasks a job by which the shares of sizes over 23 fall to 1/e, and a floor
MEAN_TASKS = 3.69  # of the shares above
# Of the jobs with 1, 2, 3 ... tasks: all independent, named task_...; and one chain (the last
# number is for all larger ones).
INDEPENDENT_SHARE = (0.80, 0.10, 0.46, 0.10, 0.05, 0.0)
CHAIN_SHARE = (0.0, 0.90, 0.50, 0.58, 0.42, 0.26, 0.15, 0.10, 0.04)
PARENTS_SHARE = (0.69, 0.20, 0.07, 0.03, 0.01)  # of 1, 2, 3 ... parents, where there are so many


class Shapes(NamedTuple):
    """All shapes one after another; S shapes, K tasks in all, E dependencies in all."""

    first: np.ndarray  # (S + 1,) first task of each shape
    word: np.ndarray  # (K,) name of the task in words; -1: independent, named at random
    first_parent: np.ndarray  # (K + 1,)
    parent: np.ndarray  # (E,) place within the shape, always before the child's
    words: pa.Array  # distinct names


def made(rng: Generator) -> Shapes:
    """Draw the library."""
    first, first_parent = [0], [0]
    word: list[int] = []
    parents: list[int] = []
    number: dict[str, int] = {}
    for size, kind in _quotas():
        for own in _parents(size, kind, rng):
            place = len(word) - first[-1]
            name = None if kind == "independent" else _name(place, own)
            word.append(-1 if name is None else number.setdefault(name, len(number)))
            parents += own
            first_parent.append(len(parents))
        first.append(len(word))
    return Shapes(
        np.array(first),
        np.array(word),
        np.array(first_parent),
        np.array(parents, dtype=np.int64),
        pa.array(list(number), pa.string()),
    )


def _quotas() -> list[tuple[int, str]]:
    """Size and kind of every shape, SHAPES of them, as near to the shares as whole numbers go."""
    sizes = np.arange(1, LARGEST_SIZE + 1)
    share = np.zeros(LARGEST_SIZE)
    share[: len(SIZE_SHARE)] = SIZE_SHARE
    large = np.arange(LARGEST_SIZE - len(SIZE_SHARE))
    tail = np.exp(-large / LARGE_DECAY) + 0.01
    share[len(SIZE_SHARE) :] = (1 - sum(SIZE_SHARE)) * tail / tail.sum()
    ends = np.rint(np.cumsum(share) * SHAPES).astype(int)
    quotas = []
    for size, count in zip(sizes.tolist(), np.diff(ends, prepend=0).tolist()):
        alone = round(count * INDEPENDENT_SHARE[min(size, len(INDEPENDENT_SHARE)) - 1])
        chains = round(count * CHAIN_SHARE[min(size, len(CHAIN_SHARE)) - 1])
        quotas += [(size, "independent")] * alone + [(size, "chain")] * chains
        quotas += [(size, "mesh")] * (count - alone - chains)
    return quotas


def _parents(size: int, kind: str, rng: Generator) -> list[list[int]]:
    """The parents of every task of one shape, in an order that runs parents first."""
    if kind == "independent" or size == 1:
        return [[] for _ in range(size)]
    if kind == "chain":
        return [[place - 1] if place else [] for place in range(size)]
    level = _levels(size, rng)
    parents: list[list[int]] = []
    for place in range(size):
        above = np.flatnonzero(level[:place] == level[place] - 1)
        own: set[int] = set()
        if above.size:
            # one parent on the level above makes the level true, others come from any before
            own.add(int(rng.choice(above)))
            more = int(rng.choice(len(PARENTS_SHARE), p=PARENTS_SHARE))
            earlier = np.flatnonzero(level[:place] < level[place])
            own.update(rng.choice(earlier, min(more, earlier.size), replace=False).tolist())
        parents.append(sorted(own))
    return parents


def _levels(size: int, rng: Generator) -> np.ndarray:
    """Level of every task, rising, each level used, fewer levels than tasks (no chain)."""
    expected = 1.0 + 1.3 * (size - 1) ** 0.54
    depth = int(np.clip(np.rint(rng.normal(expected, 0.3 * expected**0.75)), 1, size - 1))
    if size > 3:
        depth = max(depth, 2)
    # early levels are the wide ones: a job reads in parallel and joins later
    spare = np.minimum(rng.geometric(0.35, size - depth) - 1, depth - 1)
    return np.sort(np.concatenate((np.arange(depth), spare)))


def _name(place: int, parents: list[int]) -> str:
    """M reads, R has one parent, J joins several; then its number and those of its parents."""
    letter = "M" if not parents else "R" if len(parents) == 1 else "J"
    return "_".join((f"{letter}{place + 1}", *(str(parent + 1) for parent in parents)))
