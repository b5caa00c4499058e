"""How good a policy is in an environment: its rewards over windows that no training saw.

env = gymnasium.make("trimtab/Queue-v0", trace="log.swf.gz", part="test")
evaluate(model, env)              a model of Stable-Baselines3, or what has its predict
evaluate(named("sjf+easy"), env)  a policy, which plays through the loop
evaluate("shortest", env)         random, oldest or shortest
evaluate(lambda seen, mask: int(mask.argmax()), env)
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Policy
from trimtab.envs.clusters import Clusters, episode_of
from trimtab.envs.engine import GRID, TOTAL_NAMES
from trimtab.envs.single import ClusterEnv
from trimtab.errors import TraceError, UnknownName
from trimtab.metrics import interval
from trimtab.run import run
from trimtab.sim.backend import SimBackend

WINDOWS = 20
CHOICES = ("random", "oldest", "shortest")
Choose = Callable[[Any, Array], int]  # of what is seen and the mask


class Evaluation(NamedTuple):
    """Rewards a window; compare two policies window by window, where `starts` are the same."""

    starts: Array  # (W,) rows of the workload where the windows begin
    rewards: Array  # (W,) sums over each window
    choices: float  # share of steps at which two starts or more were possible; NaN where not played

    @property
    def mean(self) -> float:
        return interval(self.rewards.tolist())[0]

    @property
    def half(self) -> float | None:
        """Half the width of the mean's 95 % interval; None for one window."""
        return interval(self.rewards.tolist())[1]

    def __str__(self) -> str:
        more = "" if self.half is None else f" ± {self.half:.3f}"
        return f"{self.mean:.3f}{more} over {len(self.starts)} windows"


def evaluate(policy: Any, env: Any, *, windows: int = WINDOWS, seed: int = 0) -> Evaluation:
    """Play whole windows of an environment's part that have no job in common.

    `windows` is how many at most: they are taken evenly from all that there are. `seed` is that of
    "random".
    """
    bare = env.unwrapped
    if not isinstance(bare, ClusterEnv):
        raise TraceError(
            f"evaluate: {type(bare).__name__} is no single cluster; give gymnasium.make("
            '"trimtab/Queue-v0", ...) or Grid-v0'
        )
    if windows < 1:
        raise TraceError(f"evaluate: windows={windows}; give 1 or more")
    clusters = bare.clusters
    starts = apart(clusters.first, clusters.windows, clusters.jobs, windows)
    if isinstance(policy, Policy):
        rewards = [played(policy, clusters, int(start)) for start in starts]
        return Evaluation(starts, np.array(rewards), float("nan"))
    choose = chooser(policy, bare, np.random.default_rng(seed))
    rows = np.array([episode(choose, env, int(start)) for start in starts])  # (W, 3)
    return Evaluation(starts, rows[:, 0], float(rows[:, 1].sum() / rows[:, 2].sum()))


def apart(first: int, count: int, jobs: int, windows: int) -> Array:
    """Rows where windows begin that do not overlap: as many as wanted, evenly among all."""
    every = np.arange(first, first + count, jobs)
    kept = min(windows, len(every))
    return every[(np.arange(kept) * len(every)) // kept]


def played(policy: Policy, clusters: Clusters, start: int) -> float:
    """The rewards of a window that a policy plays through the loop."""
    part = episode_of(clusters.workload, start, clusters.jobs)
    backend = SimBackend(part, clusters.cluster, clusters.profile, clusters.models)
    run(backend, policy)
    totals = backend.world.totals[0]
    return float(clusters.weights @ [float(totals[name]) for name in TOTAL_NAMES])


def episode(choose: Choose, env: Any, start: int) -> tuple[float, int, int]:
    """Rewards, steps with a real choice, steps."""
    seen, told = env.reset(options={"start": start})
    reward, real, steps, over = 0.0, 0, 0, False
    while not over:
        mask = told["action_mask"]
        real += int(mask[:-1].sum() > 1)
        seen, paid, ended, cut, told = env.step(choose(seen, mask))
        reward, steps, over = reward + paid, steps + 1, ended or cut
    return reward, real, steps


def chooser(policy: Any, env: ClusterEnv, rng: np.random.Generator) -> Choose:
    """What maps an observation and its mask to an action."""
    if isinstance(policy, str):
        if policy not in CHOICES:
            raise UnknownName(
                f"evaluate: {policy!r} is unknown; give {', '.join(CHOICES)}, a model, a function "
                "or a policy, such as trimtab.policies.named('sjf+easy')"
            )
        if policy == "random":
            return lambda seen, mask: int(rng.choice(np.flatnonzero(mask)))
        return lambda seen, mask: first_job(env, mask, policy == "shortest")
    if hasattr(policy, "predict"):
        masked = "action_masks" in signature(policy.predict).parameters

        def predicted(seen: Any, mask: Array) -> int:
            more = {"action_masks": mask.astype(bool)} if masked else {}
            return int(policy.predict(seen, deterministic=True, **more)[0])

        return predicted
    chosen: Choose = policy
    return chosen


def first_job(env: ClusterEnv, mask: Array, shortest: bool) -> int:
    """Start the oldest job that can start, or the shortest; on the grid, where it runs fastest."""
    jobs = env.queue()
    clusters = env.clusters
    rows = clusters.world.jobs[0]
    per = len(clusters.cluster) if clusters.settings["codec"][0] == GRID else 1
    may = mask[:-1].reshape(-1, per)[: len(jobs)] > 0  # (rows, nodes or 1)
    key = rows["request_s"][jobs] if shortest else np.arange(len(jobs))
    row = int(np.where(may.any(axis=1), key, np.inf).argmin())
    if per == 1:
        return row
    rate = clusters.profile.rate[rows["kind"][jobs[row]], clusters.cluster.nodes["kind"], 0]
    return row * per + int(np.where(may[row], rate, -1.0).argmax())
