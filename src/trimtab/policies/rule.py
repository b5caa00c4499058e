"""A rule as a policy: the compiled pass that the simulator runs, on a snapshot of any backend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from trimtab.arrays import Array
from trimtab.compiled import interruptible
from trimtab.core import Cluster, Decision, Limit, Profile, Snapshot, Wait, Workload
from trimtab.rules.names import BACKFILLS, Rule, parse
from trimtab.rules.plan import decide, decide_conservative
from trimtab.rules.seen import decisions_of, world_of
from trimtab.rules.steer import Steering

if TYPE_CHECKING:
    from trimtab.sim.whole import Whole
    from trimtab.sim.world import Models


class RulePolicy:
    """Order x backfill x place, by name; decides as the compiled whole-trace run, to the node.

    `packer` are weights for the placement of that name, in place of the shipped ones.
    """

    def __init__(self, name: str, seed: int = 0, packer: Array | None = None) -> None:
        self.name = name
        self.rule: Rule = parse(name, seed)
        self._parts, self._packer = name, packer
        self._room = 256
        self._steering = None if math.isnan(self.rule.target) else Steering(self.rule.target)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        rule, waiting = self.rule, len(snapshot.queue)
        own = self.lent(snapshot)
        if own:
            return own
        while True:
            world = world_of(snapshot, self._room, self._packer)
            if rule.backfill == BACKFILLS["conservative"]:
                how = (rule.order, rule.place, rule.seed, waiting)
                interruptible(decide_conservative, world, *how, halt=world.halt)
            else:
                decide(world, rule.order, rule.backfill, rule.place, rule.seed, waiting)
            if not world.head[0]["full"]:
                return decisions_of(world)
            self._room *= 2

    def lent(self, snapshot: Snapshot) -> list[Decision]:
        """What is due of the rule's estimate and limits; nothing is decided beside it."""
        return self._own_limit(snapshot) or self._steered(snapshot)

    def _own_limit(self, snapshot: Snapshot) -> list[Decision]:
        """The rule's estimate and limit, where the cluster does not have them yet."""
        rule = self.rule
        if not rule.estimate or not len(snapshot.limit):
            return []
        share = float(snapshot.limit[0]) if math.isnan(rule.limit) else rule.limit
        stands = (snapshot.limit == share).all()
        if self._steering is not None and self._steering.began(snapshot.now_s):
            stands = True
        if snapshot.estimate == rule.estimate and stands:
            return []
        return [Limit(share, estimate=rule.estimate), Wait(snapshot.now_s)]

    def _steered(self, snapshot: Snapshot) -> list[Decision]:
        """Limits of regions that are due, where the rule moves them."""
        if self._steering is None or not len(snapshot.limit):
            return []
        made = self._steering.limits(
            snapshot.now_s, snapshot.nodes, snapshot.node_state, snapshot.limit
        )
        if made is None:
            return []
        moved = [Limit(float(share), region) for region, share in enumerate(made)]
        return [*moved, Wait(self._steering.due_s), Wait(snapshot.now_s)]

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
        from trimtab.sim.whole import is_pool, simulate, simulate_pool  # a live loop needs none

        if not log and is_pool(workload, cluster, self.rule, profile, models):
            return simulate_pool(workload, cluster, self.rule, progress)
        return simulate(
            workload, cluster, self._parts, profile=profile, models=models, seed=self.rule.seed,
            log=log, progress=progress, packer=self._packer,
        )  # fmt: skip
