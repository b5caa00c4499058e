"""Where the DQN learns and is measured: batched clusters, held-out windows, decisions of a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Policy, Profile, Snapshot, Start, Status, Workload
from trimtab.envs.batched import BatchedEnv
from trimtab.envs.clusters import episode_of, weights_of
from trimtab.errors import PolicyError, TraceError
from trimtab.play import play
from trimtab.policies.dqn.learner import Learner, Settings
from trimtab.policies.dqn.policy import Layout, seen_now
from trimtab.policies.dqn.replay import Replay
from trimtab.policies.rule import RulePolicy
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models, fitted
from trimtab.traces.scenes.scene import Scene


@dataclass(frozen=True)
class Ground:
    """A workload, its cluster, and the units that its rewards and discounts are counted in."""

    workload: Workload
    cluster: Cluster
    profile: Profile
    models: Models
    jobs: int  # of an episode

    @property
    def gap_s(self) -> float:
        """Mean seconds between two arrivals."""
        submit_s = self.workload.jobs["submit_s"]
        return max(float(submit_s[-1] - submit_s[0]) / max(len(submit_s) - 1, 1), 1e-9)

    @property
    def scale_s(self) -> float:
        """What a reward of 1 is: a mean gap with as many jobs in the system as there are nodes."""
        return self.gap_s * len(self.cluster)

    def layout(self, settings: Settings) -> Layout:
        kinds = len(self.workload.kinds)
        return settings.layout(len(self.cluster), len(self.cluster.resources), kinds)

    def env(self, clusters: int, window: int, reward: dict[str, float], scale: float) -> BatchedEnv:
        return BatchedEnv(
            clusters, self.workload, self.cluster, self.profile, self.models, codec="grid",
            jobs=self.jobs, window=window, reward=reward, scale=scale,
        )  # fmt: skip


def ground(
    workload: Workload, cluster: Cluster, profile: Profile, models: Models, jobs: int
) -> Ground:
    """Workload and cluster brought to the same resources."""
    workload, cluster = fitted(workload, cluster)
    if cluster.lending is not None and models.lends:
        raise TraceError(
            f"{cluster.source}: lends to batch jobs what services leave, which a Q-network sees "
            "nothing of; train on a trace without services"
        )
    return Ground(workload, cluster, profile, models, min(jobs, len(workload)))


def reward_of(idle_weight: float) -> dict[str, float]:
    """Weights of core.TOTALS: -(jobs in the system + lambda idle nodes while jobs wait) a second.

    The integral of the jobs in the system is the sum of their completion times, so that an
    episode's rewards add up to the paper's, paid at completions.
    """
    return {"system_s": -1.0, "idle_s": -idle_weight}


class BatchedField:
    """The clusters that a learner plays, as `dqn_learner.Field`."""

    def __init__(self, on: Ground, settings: Settings, seed: int) -> None:
        self.on, self.settings, self.layout = on, settings, on.layout(settings)
        weights = reward_of(settings.idle_weight)
        self.env = on.env(settings.clusters, self.layout.window, weights, on.scale_s)
        self.world = self.env.clusters.world
        self.env.reset(seed=seed)
        self._owed = np.zeros(settings.clusters)  # dense rewards not yet paid at a completion
        self._settled = np.zeros(settings.clusters)

    def look(self) -> tuple[Array, Array]:
        return seen_by(self.env, self.layout), self.env.clusters.mask

    def step(self, action: Array) -> tuple[Array, Array]:
        before_s = self.world.head["now_s"].copy()
        _, reward, ended, _, _ = self.env.step(action)
        gaps = 1.0
        if self.settings.discount == "time":
            gaps = np.maximum(self.world.head["now_s"] - before_s, 0.0) / self.on.gap_s
        carry = np.where(ended, 0.0, self.settings.gamma**gaps)
        return (self._at_completion(reward, ended) if self._late else reward.copy()), carry

    @property
    def _late(self) -> bool:
        return self.settings.reward == "completion"

    def _at_completion(self, reward: Array, ended: Array) -> Array:
        """Hold the dense rewards back until jobs end; the end of an episode settles the rest."""
        state, jobs = self.world.state, self.world.jobs
        done = state["status"] == Status.FINISHED
        jct_s = np.where(done, state["end_s"] - jobs["submit_s"], 0.0).sum(1)
        idle_s = self.settings.idle_weight * self.world.totals["idle_s"]
        settled = -(jct_s + idle_s) / self.on.scale_s
        self._owed += reward
        paid = np.where(ended, self._owed, settled - self._settled)
        # the next episode has begun where one ended
        self._settled = settled
        self._owed = np.where(ended, 0.0, self._owed - paid)
        return paid


def seen_by(env: BatchedEnv, layout: Layout) -> Array:
    """(clusters, size) what the network sees of every cluster."""
    world = env.clusters.world
    waiting = world.head["waiting"]
    head = np.where(waiting > 0, world.queue[:, 0], 0)
    kind = world.jobs["kind"][np.arange(len(head)), head]
    return layout.seen(env.clusters.out, waiting, kind)


def windows_of(on: Ground) -> Array:
    """Rows at which windows of `jobs` jobs begin that do not overlap."""
    return np.arange(0, len(on.workload) - on.jobs + 1, on.jobs)


class Windows:
    """Held-out windows, each from an empty cluster to its last completion."""

    def __init__(self, on: Ground) -> None:
        self.on, self.starts = on, windows_of(on)
        self._env: BatchedEnv | None = None

    def jct_s(self, choose: Callable[[Array, Array], Array], layout: Layout) -> Array:
        """(windows,) mean completion times if `choose` maps what is seen and masks to actions."""
        if self._env is None or self._env.codec.window != layout.window:
            size, scale = len(self.starts), float(self.on.jobs)
            self._env = self.on.env(size, layout.window, {"system_s": -1.0}, scale)
        env = self._env
        env.reset(seed=0, options={"start": self.starts})
        going, total_s = np.ones(len(self.starts), bool), np.zeros(len(self.starts))
        while going.any():
            action = choose(seen_by(env, layout), env.clusters.mask)
            _, reward, ended, _, _ = env.step(action)
            total_s -= np.where(going, reward, 0.0)
            going &= ~ended
        return total_s

    def by_learner(self, learner: Learner) -> Array:
        return self.jct_s(learner.best, learner.layout)

    def by_policy(self, made: Callable[[], Policy]) -> Array:
        """The same of a policy, made anew for each window, which sees the whole queue."""
        return np.array([self._whole_s(made(), int(start)) for start in self.starts])

    def _whole_s(self, policy: Policy, start: int) -> float:
        on = self.on
        part = episode_of(on.workload, start, on.jobs)
        done = play(policy, Scene(part, on.cluster, on.profile, part.source, False), on.models)
        return float((done.state["end_s"] - part.jobs["submit_s"]).mean())


def demonstrations(on: Ground, settings: Settings, rule: str) -> Replay:
    """What a rule decides in the learner's place: it sees the jobs of the window only.

    Episodes follow each other as in the batched clusters, one at a time.
    """
    layout, policy = on.layout(settings), RulePolicy(rule, settings.seed)
    codec = layout.codec()
    kept = Replay(settings.demonstrations + 1, 1, layout.size, layout.actions)
    rng = np.random.default_rng([settings.seed, 2])
    weights = weights_of(reward_of(settings.idle_weight), on.scale_s)
    while kept.paid < settings.demonstrations:
        first = int(rng.integers(0, len(on.workload) - on.jobs + 1))
        backend = SimBackend(
            episode_of(on.workload, first, on.jobs), on.cluster, on.profile, on.models
        )
        last: Last | None = None
        while backend.wait() is not None:
            while True:
                snapshot = backend.snapshot()
                seen, mask = seen_now(layout, codec, snapshot)
                if not mask[0, :-1].any():
                    break
                score = float(weights @ np.array(snapshot.totals.tolist(), float))
                if last:
                    gaps = (snapshot.now_s - last.now_s) / on.gap_s
                    carry = settings.gamma ** (gaps if settings.discount == "time" else 1.0)
                    _pay(kept, last, score, carry, settings)
                kept.show(seen, mask)
                short = snapshot._replace(queue=snapshot.queue[: layout.window])
                decision = _first_start(policy, short)
                action = layout.actions - 1
                if decision is not None:
                    row = int(np.flatnonzero(short.queue == decision.job)[0])
                    action = row * layout.nodes + decision.nodes[0]
                last = Last(snapshot.now_s, score, action)
                if decision is None:
                    break
                backend.apply(decision)
        if last:
            totals = np.array(backend.snapshot().totals.tolist(), float)
            _pay(kept, last, float(weights @ totals), 0.0, settings)
    kept.show(seen, mask)
    return kept


class Last(NamedTuple):
    """The rule's last decision, until what came of it is known."""

    now_s: float
    score: float
    action: int


def _pay(kept: Replay, last: Last, score: float, carry: float, settings: Settings) -> None:
    one = (np.array([last.action]), np.array([score - last.score]), np.array([carry]))
    kept.pay(*one, settings.n_step)


def _first_start(policy: RulePolicy, snapshot: Snapshot) -> Start | None:
    """The first job that the rule starts now, if any."""
    made = policy.decide(snapshot)
    starts = [decision for decision in made if isinstance(decision, Start)]
    if len(starts) < len(made):
        raise PolicyError(
            f"imitate={policy.name}: it stops jobs, which the network cannot; "
            "give a rule that only starts them, such as sjf+fastest"
        )
    return starts[0] if starts else None


def shuffled(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """The same cluster with its nodes in another order."""
    order = rng.permutation(len(cluster))
    names = cluster.names[order] if cluster.names is not None else None
    return replace(
        cluster, nodes=cluster.nodes[order], capacity=cluster.capacity[order], names=names
    )
