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
from trimtab.rules.steer import Steering, Steers

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
        feedback = not math.isnan(self.rule.target)
        self._steering: Steers | None = Steering(self.rule.target) if feedback else None
        self._worker: Array | None = None

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        rule, waiting = self.rule, len(snapshot.queue)
        own = self.lent(snapshot)
        if own:
            return own
        while True:
            world = world_of(snapshot, self._room, self._packer, self._worker, place=rule.place)
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
        """The rule's estimate, limit and patience, where the cluster does not have them yet."""
        rule = self.rule
        if not len(snapshot.limit) or not (rule.estimate or rule.patience_s >= 0):
            return []
        if self._steering is not None and self._steering.began(snapshot.now_s):
            return []  # it moves them
        share = float(snapshot.limit[0]) if math.isnan(rule.limit) else rule.limit
        patient = math.isnan(rule.patience_s) or bool(
            (snapshot.patience_s == rule.patience_s).all()
        )
        if snapshot.estimate == (rule.estimate or snapshot.estimate) and patient:
            if (snapshot.limit == share).all():
                return []
        return [
            Limit(share, estimate=rule.estimate, patience_s=rule.patience_s),
            Wait(snapshot.now_s),
        ]

    def _steered(self, snapshot: Snapshot) -> list[Decision]:
        """Limits of regions that are due, where something moves them."""
        if self._steering is None or not len(snapshot.limit):
            return []
        made = self._steering.decisions(snapshot)
        if made is None:
            return []
        self._worker = self._worker if self._steering.worker is None else self._steering.worker
        return [*made, Wait(self._steering.due_s), Wait(snapshot.now_s)]

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
