"""A peer as a policy: the compiled pass of the whole-trace run, on a snapshot of any backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Decision, Profile, Snapshot, Workload
from trimtab.errors import PolicyError
from trimtab.policies.networks import file_at
from trimtab.policies.peers.files import Weights, read_weights, shipped
from trimtab.policies.peers.kinds import BETTER, Peer, peer_of
from trimtab.policies.peers.mind import Mind, Tape, tape
from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import ORDERS, PLACES, Rule, at_limit, parse
from trimtab.rules.seen import decisions_of, world_of

if TYPE_CHECKING:
    from trimtab.sim.whole import Whole
    from trimtab.sim.world import Models

NO_TAPE = tape(0, 0, 0, 0)


class PeerPolicy:
    """One of Table 1's methods by name. `borrow` is an estimate as a rule has it: `p95@0.9`."""

    def __init__(
        self, name: str, seed: int = 0, path: str = "", borrow: str = "",
        weights: Weights | None = None,
    ) -> None:  # fmt: skip
        self.name = f"{name}+{borrow}" if borrow else name
        self.peer: Peer = peer_of(name)
        at = file_at(path, BETTER.get(name, name)) if path else shipped(name)
        self.weights = weights or read_weights(Path(at), name)
        self.rule: Rule = parse(f"{self.weights.order}+greedy{'+' + borrow if borrow else ''}")
        self._lending = RulePolicy("+".join(["fcfs", borrow] if borrow else ["fcfs"]))
        self._mind, self._room, self._seed = self.fresh_mind(seed), 256, seed

    def fresh_mind(self, seed: int = 0) -> Mind:
        """What it decides by, with nothing to remember."""
        return self.peer.mind(self.weights.theta, seed=seed)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        from trimtab.policies.peers.loop import decide_peer

        due = self._lending.lent(snapshot)
        if due:
            return due
        order, place = ORDERS[self.weights.order], PLACES[self.weights.place]
        while True:
            world = world_of(snapshot, self._room)
            waiting = len(snapshot.queue)
            decide_peer(world, self.peer.number, order, place, self._mind, NO_TAPE, waiting)
            if not world.head[0]["full"]:
                return decisions_of(world)
            self._room *= 2

    def whole(
        self,
        workload: Workload,
        cluster: Cluster,
        profile: Profile,
        models: Models,
        *,
        log: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Whole:
        """A whole trace in compiled code; see `play`."""
        return play_whole(
            self, self.fresh_mind(self._seed), NO_TAPE, workload, cluster, profile, models,
            log=log, progress=progress,
        )  # fmt: skip


def play_whole(
    policy: PeerPolicy, mind: Mind, kept: Tape, workload: Workload, cluster: Cluster,
    profile: Profile, models: Models, *, log: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Whole:  # fmt: skip
    """The same by another mind, its decisions on a tape."""
    from trimtab.policies.peers.loop import run_peer
    from trimtab.sim import kernel, loop
    from trimtab.sim.lending import lending_of, set_lending
    from trimtab.sim.whole import drive, left_in, steering_of
    from trimtab.sim.world import check_hostable, fitted, make_world

    workload, cluster = fitted(workload, cluster)
    check_hostable(workload, cluster)
    began_s, rule = time.perf_counter(), policy.rule
    world = make_world([workload], [cluster], profile, models, log=4096 if log else 0)
    loop.set_rank(world, 0, rule.order)
    kernel.reset(world, 0)
    world = set_lending(world, workload, cluster, **lending_of(rule))
    how = (policy.peer.number, PLACES[policy.weights.place], mind, kept)
    world = drive(world, run_peer, how, progress, steering_of(world, rule), profile)
    waiting = int(world.head[0]["waiting"])
    if waiting:
        raise PolicyError(
            f"{policy.name} left {waiting} jobs waiting while nothing runs and nothing will happen"
            + (f"; choose a higher limit, such as {at_limit(policy.name, 1.0)}" if rule.estimate
               else "")
        )  # fmt: skip
    rows: Array | None = np.array(world.log[0, : int(world.head[0]["log"])]) if log else None
    return left_in(world, rows, time.perf_counter() - began_s)


def _named(name: str) -> Callable[..., PeerPolicy]:
    def made(seed: int = 0, path: str = "", borrow: str = "") -> PeerPolicy:
        return PeerPolicy(name, seed, path, borrow)

    return made


deeprm, rjoub, islam = _named("deeprm"), _named("rjoub"), _named("islam")
islam_dqn, islam_reinforce = _named("islam-dqn"), _named("islam-reinforce")
cheng, rlscheduler = _named("cheng"), _named("rlscheduler")
belgacem, ghasemi = _named("belgacem"), _named("ghasemi")
