"""The peers by name: how each is laid out, what it may be run with, and who teaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import UnknownName, suggestion
from trimtab.policies.peers import belgacem, cheng, deeprm, ghasemi, islam, rjoub, rlscheduler
from trimtab.policies.peers.mind import (
    ANY,
    BELGACEM,
    BEST,
    CHENG,
    DEEPRM,
    DRAWN,
    GHASEMI,
    ISLAM,
    RJOUB,
    RLSCHEDULER,
    Mind,
)
from trimtab.policies.peers.nets import count, count_lstm
from trimtab.policies.peers.played import Played

REINFORCE, PPO, DQN, TABLE = "reinforce", "ppo", "dqn", "table"
ORDER_CHOOSERS = (("fcfs", "swift"), ("fcfs", "first"))
NODE_CHOOSERS = (("fcfs", "calm"), ("sjf", "calm"), ("smallest-area", "calm"))


class Peer(NamedTuple):
    """One of the methods."""

    number: int
    learner: str
    features: int  # of a row
    sizes: tuple[int, ...]  # of the network; of a table, its cells
    ways: tuple[tuple[str, str], ...]  # orders and places of which validation takes the best
    worth: Callable[[Played], Array]  # rewards a decision, or what follows from each on
    gamma: float = 0.0  # what the next decision's worth counts
    masked: int = 0  # numbers behind the features of a row: which actions there are
    memory: tuple[int, int] = (0, 0)  # steps and numbers a step
    units: int = 0  # of the memory
    start: float = 0.0  # of a table's cells

    @property
    def weights(self) -> int:
        if self.learner == TABLE:
            return self.sizes[0]
        more = count_lstm(self.memory[1], self.units) if self.units else 0
        return count(np.array(self.sizes)) + more

    @property
    def explores(self) -> int:
        return DRAWN if self.learner in (REINFORCE, PPO) else ANY

    def mind(self, theta: Array, how: int = BEST, rate: float = 0.0, seed: int = 0) -> Mind:
        steps, numbers = self.memory
        return Mind(
            np.ascontiguousarray(theta, np.float64), np.array(self.sizes), how, rate, seed,
            np.zeros((2, steps, numbers)), np.zeros(2, np.int64),
        )  # fmt: skip


_islam = Peer(
    ISLAM, DQN, islam.FEATURES, (islam.FEATURES, islam.HIDDEN, islam.HIDDEN, 1), NODE_CHOOSERS,
    islam.rewards,
)  # fmt: skip
BY_NAME: dict[str, Peer] = {
    "deeprm": Peer(
        DEEPRM, REINFORCE, deeprm.FEATURES, (deeprm.FEATURES, deeprm.HIDDEN, deeprm.ACTIONS),
        ORDER_CHOOSERS, deeprm.returns, masked=deeprm.JOBS,
    ),
    "rjoub": Peer(
        RJOUB, DQN, rjoub.FEATURES, (rjoub.UNITS + rjoub.FEATURES, rjoub.HIDDEN, 1), NODE_CHOOSERS,
        rjoub.rewards, 0.5, memory=(rjoub.STEPS, rjoub.INPUTS), units=rjoub.UNITS,
    ),
    "islam-dqn": _islam,
    "islam-reinforce": _islam._replace(learner=REINFORCE),
    "cheng": Peer(
        CHENG, DQN, cheng.FEATURES, (cheng.FEATURES, cheng.HIDDEN, cheng.HIDDEN, 1), NODE_CHOOSERS,
        cheng.rewards, 0.5,
    ),
    "rlscheduler": Peer(
        RLSCHEDULER, PPO, rlscheduler.FEATURES, (rlscheduler.FEATURES, *rlscheduler.HIDDEN, 1),
        ORDER_CHOOSERS, rlscheduler.returns,
    ),
    "belgacem": Peer(
        BELGACEM, TABLE, belgacem.FEATURES, (belgacem.CELLS,), NODE_CHOOSERS, belgacem.rewards, 0.3,
    ),
    "ghasemi": Peer(
        GHASEMI, TABLE, ghasemi.FEATURES, (ghasemi.CELLS,), NODE_CHOOSERS, ghasemi.rewards, 0.3,
    ),
}  # fmt: skip
BETTER = {"islam": "islam-dqn"}  # the one of two that ships under the plain name


def peer_of(name: str) -> Peer:
    name = BETTER.get(name, name)
    if name not in BY_NAME:
        raise UnknownName(f"peer {name!r} is unknown; {suggestion(name, BY_NAME)}")
    return BY_NAME[name]
