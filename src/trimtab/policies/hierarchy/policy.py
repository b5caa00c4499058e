"""The hierarchy as a policy: a manager that sets goals, workers that place, an encoder that sees.

named("hierarchy")                       the shipped weights
named("hierarchy+encoder@0.9")           at a limit of your own; goals move it up and down
named("hierarchy:run")                   what `trimtab train hierarchy --out run` made
named("hierarchy-no-manager")            an ablation; also no-encoder, no-compatibility
named("hierarchy-online+encoder")        calibration and limits learn on, a step a day
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Profile, Workload
from trimtab.policies.hierarchy.goals import NAMES
from trimtab.policies.hierarchy.manager import read_manager
from trimtab.policies.hierarchy.online import DAY_S, FILE, TARGET, Online
from trimtab.policies.hierarchy.steering import Look, Steering
from trimtab.policies.hierarchy.weights import LEARNER, Orders, read_orders
from trimtab.policies.networks import file_at
from trimtab.policies.rule import RulePolicy
from trimtab.rules.steer import Steers

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
        self._steering, self._worker = self._steers(), orders.worker

    def _steers(self, cluster: Cluster | None = None) -> Steers:
        """What steers a run: of a cluster that is known whole, or by steps."""
        return self._looking

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
        self._looking = Steering(self.orders, self._looking.manager, self._looking.every_s)
        self._steering = self._steers(cluster)
        return simulate(
            workload, cluster, self._parts if lends else RULE, profile=profile, models=models,
            seed=self.rule.seed, log=log, progress=progress,
            steering=self._steering if lends else None,
            worker=np.tile(self.orders.worker, (len(cluster.regions), 1)),
        )  # fmt: skip


class Unseeing(HierarchyPolicy):
    without = "encoder"


class Unmanaged(HierarchyPolicy):
    without = "manager"


class Unmatched(HierarchyPolicy):
    without = "compatibility"


class Learning(HierarchyPolicy):
    """The hierarchy whose calibration and limits learn on; `path`, a folder, keeps what it learned
    in online.json: read by every run, written by those that go by steps, as live ones do. `day_s`:
    of what the cluster knows where it is 0.
    """

    def __init__(
        self, path: str = "", seed: int = 0, borrow: str = "", *, day_s: float = 0.0,
        target: float = TARGET,
    ) -> None:  # fmt: skip
        self._kept = Path(path) / FILE if path and Path(path).is_dir() else None
        self._day_s, self._target = day_s, target
        super().__init__(path, seed, borrow)
        self.name = self.name.replace("hierarchy", "hierarchy-online", 1)

    def _steers(self, cluster: Cluster | None = None) -> Steers:
        day_s = self._day_s or day_of(cluster)
        self.online = Online(
            self._looking, day_s=day_s, target=self._target, path=self._kept, keep=cluster is None
        )
        return self.online

    def counters(self) -> dict[str, float]:
        """How often regions' days ended in each way, too."""
        told = {f"online_{what.replace(' ', '_')}": float(n) for what, n in self._ends().items()}
        return {**super().counters(), **told}

    def footnote(self) -> str:
        told = ", ".join(f"{what} {n}" for what, n in self._ends().items())
        learned = f"learned online, days of regions: {told}" if told else ""
        return "; ".join(filter(None, (super().footnote(), learned)))

    def _ends(self) -> dict[str, int]:
        return dict(sorted(Counter(event.what for event in self.online.events).items()))


def day_of(cluster: Cluster | None) -> float:
    """Seconds of the day that a cluster knows of its services."""
    lending = None if cluster is None else cluster.lending
    if lending is None or lending.usual is None or not lending.usual.shape[1]:
        return DAY_S
    return float(lending.usual.shape[1] * lending.usual_step_s)
