"""What a learner remembers of many clusters: a NumPy ring of steps, drawn evenly or by surprise.

All clusters step together, so a row of the ring is one step of all of them and the next row is what
followed: no observation is stored twice, and several steps are joined when they are drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array

HALF = np.float16  # observations lie in -1 .. 1: a run time keeps its first 1 % exact


class Batch(NamedTuple):
    """Steps drawn, each joined with those after it."""

    seen: Array  # (B, size)
    mask: Array  # (B, actions)
    action: Array  # (B,)
    reward: Array  # (B,) of all joined steps, discounted
    carry: Array  # (B,) discount of what comes after them; 0 = the episode ended
    later: Array  # (B, size)
    later_mask: Array  # (B, actions)
    weight: Array  # (B,) against the bias of drawing by surprise; 1 = none
    place: Array  # (B,) where each step lies, for `Replay.surprised`


class Replay:
    """The last `rows` steps of `clusters` clusters.

    Call `show` with what a policy sees, then `pay` with what came of its actions; `draw` between
    the two. `alpha` 0 draws evenly, 1 in proportion to the error last seen (Schaul et al., 2016).
    """

    def __init__(
        self, rows: int, clusters: int, size: int, actions: int, *, alpha: float = 0.0
    ) -> None:
        self.rows, self.clusters, self.alpha = rows, clusters, alpha
        self.paid = 0  # steps since the beginning; row `paid` is shown and not paid
        self._seen = np.zeros((rows, clusters, size), HALF)
        self._mask = np.zeros((rows, clusters, actions), np.int8)
        self._action = np.zeros((rows, clusters), np.int64)
        self._reward = np.zeros((rows, clusters), np.float32)
        self._carry = np.zeros((rows, clusters), np.float32)
        self._tree = SumTree(rows * clusters) if alpha else None
        self._most = 1.0

    def show(self, seen: Array, mask: Array) -> None:
        """Keep what all clusters see now."""
        slot = self.paid % self.rows
        self._seen[slot], self._mask[slot] = seen, mask
        if self._tree:
            self._tree.put(self._places(slot), np.zeros(self.clusters))

    def pay(self, action: Array, reward: Array, carry: Array, joined: int) -> None:
        """Keep what came of actions; carry is the step's discount, 0 where the episode ended."""
        slot = self.paid % self.rows
        self._action[slot], self._reward[slot], self._carry[slot] = action, reward, carry
        self.paid += 1
        if self._tree and self.paid >= joined:  # the oldest that now has all its followers
            fresh = np.full(self.clusters, self._most)
            self._tree.put(self._places((self.paid - joined) % self.rows), fresh)

    def ready(self, joined: int) -> int:
        """How many steps can be drawn."""
        return max(self.paid - joined + 1 - self._oldest(), 0) * self.clusters

    def draw(self, count: int, joined: int, rng: Generator, beta: float = 1.0) -> Batch:
        """`count` steps, each joined with the `joined` - 1 after it, as far as the episode goes."""
        if self._tree:
            place, chance = self._tree.draw(count, rng)
            slot, cluster = np.divmod(place, self.clusters)
            weight = (chance * self.ready(joined)) ** -beta
            weight /= weight.max()
        else:
            step = rng.integers(self._oldest(), self.paid - joined + 1, count)
            slot, cluster = step % self.rows, rng.integers(0, self.clusters, count)
            place, weight = slot * self.clusters + cluster, np.ones(count)
        reward, carry = np.zeros(count, np.float32), np.ones(count, np.float32)
        for k in range(joined):
            at = (slot + k) % self.rows
            reward += carry * self._reward[at, cluster]
            carry *= self._carry[at, cluster]
        later = (slot + joined) % self.rows
        return Batch(
            seen=self._seen[slot, cluster].astype(np.float32),
            mask=self._mask[slot, cluster],
            action=self._action[slot, cluster],
            reward=reward,
            carry=carry,
            later=self._seen[later, cluster].astype(np.float32),
            later_mask=self._mask[later, cluster],
            weight=weight.astype(np.float32),
            place=place,
        )

    def surprised(self, place: Array, error: Array) -> None:
        """Draw steps with larger errors more often from now on."""
        if self._tree:
            rank = (np.abs(error) + 1e-3) ** self.alpha
            self._most = max(self._most, float(rank.max()))
            self._tree.put(place, rank)

    def _oldest(self) -> int:
        return max(self.paid - self.rows + 1, 0)

    def _places(self, slot: int) -> Array:
        return np.arange(slot * self.clusters, (slot + 1) * self.clusters)


class SumTree:
    """Weights of `count` places in a binary tree of sums: set or drawn from many at a time."""

    def __init__(self, count: int) -> None:
        self.leaves = 1 << max(count - 1, 1).bit_length()
        self.sums = np.zeros(2 * self.leaves)  # node i has children 2 i and 2 i + 1; 1 is the root

    def put(self, place: Array, weight: Array) -> None:
        at = place + self.leaves
        self.sums[at] = weight
        while at[0] > 1:
            at = at >> 1  # two children of one parent write the same sum twice
            self.sums[at] = self.sums[2 * at] + self.sums[2 * at + 1]

    def draw(self, count: int, rng: Generator) -> tuple[Array, Array]:
        """(count,) places and the chance of each; one from every `count`-th part of the sum."""
        left = (np.arange(count) + rng.random(count)) * (self.sums[1] / count)
        at = np.ones(count, np.int64)
        while at[0] < self.leaves:
            at = 2 * at
            right = (left >= self.sums[at]) & (self.sums[at + 1] > 0)
            left = left - np.where(right, self.sums[at], 0.0)
            at = at + right
        return at - self.leaves, self.sums[at] / self.sums[1]
