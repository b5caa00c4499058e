"""The hierarchy as a policy: a manager that sets goals, workers that place, an encoder that sees.

named("hierarchy")                       the shipped weights
named("hierarchy+encoder@0.9")           at a limit of your own; goals move it up and down
named("hierarchy:run")                   what `trimtab train hierarchy --out run` made
named("hierarchy-no-manager")            an ablation; also no-encoder, no-compatibility
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Profile, Workload
from trimtab.policies.hierarchy.goals import NAMES
from trimtab.policies.hierarchy.manager import read_manager
from trimtab.policies.hierarchy.steering import Look, Steering
from trimtab.policies.hierarchy.weights import LEARNER, Orders, read_orders
from trimtab.policies.networks import file_at
from trimtab.policies.rule import RulePolicy

if TYPE_CHECKING:
    from trimtab.sim.whole import Whole
    from trimtab.sim.world import Models

RULE = "smallest-area+greedy+worker"


class HierarchyPolicy(RulePolicy):
    """Workers are a compiled rule; the manager looks every minute and changes what they weigh."""

    without = ""

    def __init__(self, path: str = "", seed: int = 0, borrow: str = "") -> None:
        folder = file_at(path, LEARNER).parent if path else ""
        orders = read_orders(folder, self.without).borrowing(borrow)
        self.orders: Orders = orders
        lent = f"{orders.estimate}@{orders.limit:g}+relieve@{orders.patience_s:g}"
        super().__init__(f"{RULE}+{lent}", seed)
        name = f"hierarchy-no-{self.without}" if self.without else "hierarchy"
        self.name = f"{name}+{borrow}" if borrow else name
        manager = None if self.without == "manager" else read_manager(folder)
        self._looking = Steering(orders, manager)
        self._steering, self._worker = self._looking, orders.worker

    @property
    def workers(self) -> Array | None:
        """(G, weights) of the regions' workers since the last look, None before it."""
        return self._looking.worker

    @property
    def looks(self) -> list[Look]:
        """The manager's looks of the run, oldest first."""
        return self._looking.looks

    def counters(self) -> dict[str, float]:
        """How many regions were given each goal, and how often the guard acted."""
        of = Counter(int(goal) for look in self.looks for goal in look.goals)
        told = {f"goal_{NAMES[goal]}": float(count) for goal, count in sorted(of.items())}
        return {**told, "guarded": float(sum(look.guard != "" for look in self.looks))}

    def footnote(self) -> str:
        """Why the guard acted, if it did."""
        why = Counter(look.guard for look in self.looks if look.guard)
        told = "; ".join(f"{count} x {reason}" for reason, count in why.most_common(3))
        return f"the best rule acted in place of the manager: {told}" if told else ""

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
        """A whole trace in compiled code, with the manager's looks between."""
        from trimtab.sim.whole import simulate

        lends = cluster.lending is not None and models.lends
        self._steering = self._looking = Steering(
            self.orders, self._looking.manager, self._looking.every_s
        )
        return simulate(
            workload, cluster, self._parts if lends else RULE, profile=profile, models=models,
            seed=self.rule.seed, log=log, progress=progress,
            steering=self._looking if lends else None,
            worker=np.tile(self.orders.worker, (len(cluster.regions), 1)),
        )  # fmt: skip


class Unseeing(HierarchyPolicy):
    without = "encoder"


class Unmanaged(HierarchyPolicy):
    without = "manager"


class Unmatched(HierarchyPolicy):
    without = "compatibility"
