"""Limits of regions as actions: how much of what services reserve batch jobs may borrow.

A rule places the batch jobs of a co-located scene; every `every_s` seconds an action sets a limit
for each region. gymnasium.make("trimtab/Limits-v0", trace="colocated:load=0.9", seeds=range(4))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from trimtab.arrays import Array
from trimtab.core import Cluster, Workload
from trimtab.envs.limiting import ACT, BEGIN, IDLE, PLAY, RULE, WIDTH, play_all, play_one
from trimtab.errors import TraceError, UnknownName
from trimtab.metrics import Result, measure
from trimtab.rules.names import FEEDBACK, parse
from trimtab.rules.names import Rule as Parsed
from trimtab.rules.nodes.index import indexed
from trimtab.rules.steer import LEAST, MOST
from trimtab.rules.world import World
from trimtab.sim import kernel, loop
from trimtab.sim.lending import lending_of, lends, service_use, set_lending
from trimtab.sim.whole import left_in
from trimtab.sim.world import Models, check_hostable, copied, fitted, grown, make_world
from trimtab.traces.scenes.scene import Scene, open_scene

DEFAULT = "colocated"
PLACED_BY = "smallest-area+greedy+calm+p95"
EVERY_S = 60.0
PRICE_S = 60.0
SEEDS = tuple(range(8))
DIGITS = 4  # of a limit that are kept: 32-bit actions then say the same as a rule's name does


@dataclass
class Stage:
    """A scene laid out for a rule, from which worlds are copied; its pools only grow."""

    scene: Scene
    work: Workload
    cluster: Cluster
    world: World
    jobs: int  # of batch
    served_s: float  # core-seconds that services use while jobs come

    def copied(self) -> World:
        """A world of its own at the scene's beginning."""
        return copied(self.world)

    def score(self, totals: Array, price_s: float) -> float:
        """The rewards of an episode that left these totals."""
        harm_s = float(totals["harmed_s"]) - float(totals["own_harm_s"])
        wait_s = float(totals["waiting_s"]) / self.jobs
        return -wait_s - price_s * 100.0 * harm_s / self.served_s


def staged(scene: Scene, rule: Parsed, models: Models | None) -> Stage:
    """Lay out a scene, or raise TraceError where there is nothing to set limits for."""
    work, cluster = fitted(scene.workload, scene.cluster)
    check_hostable(work, cluster)
    world = make_world([work], [cluster], scene.profile, models)
    if not lends(world):
        raise TraceError(
            f"{work.source}: limits say what batch jobs may borrow of services, and "
            f"{cluster.source} lends nothing; give a trace such as {DEFAULT}"
        )
    loop.set_rank(world, 0, rule.order)
    kernel.reset(world, 0)
    world = set_lending(world, work, cluster, **lending_of(rule))
    world = indexed(world, rule.place)
    batch = work.truth["service"] == 0
    if not batch.any():
        raise TraceError(f"{work.source}: has no batch jobs that could borrow; give some")
    return Stage(scene, work, cluster, world, int(batch.sum()), served_s(work, cluster, batch))


def served_s(work: Workload, cluster: Cluster, batch: Array) -> float:
    """Core-seconds that services use from the first submit of `batch` (J,) to the last."""
    use, step_s = service_use(work, cluster).sum(1), work.pattern_step_s  # (T,)
    ends_s = work.jobs["submit_s"][batch].min(), work.jobs["submit_s"][batch].max()
    whole = np.concatenate(([0.0], np.cumsum(use) * step_s))

    def until(time_s: float) -> float:
        rounds, rest = divmod(time_s / step_s, len(use))
        return float(rounds * whole[-1] + np.interp(rest, np.arange(len(whole)), whole))

    return max(until(float(ends_s[1])) - until(float(ends_s[0])), 1e-9)


class Limits:
    """`count` clusters that play scenes under one rule, whose limits are set from outside.

    Scenes are given, or drawn by `seeds` from a `trace` that `trimtab compare` knows.
    """

    def __init__(
        self,
        count: int,
        scenes: Sequence[Scene] | None = None,
        models: Models | None = None,
        *,
        trace: str = DEFAULT,
        seeds: Sequence[int] = SEEDS,
        rule: str = PLACED_BY,
        every_s: float = EVERY_S,
        price_s: float = PRICE_S,
    ) -> None:
        found = parse(rule)
        if not math.isnan(found.target):
            raise UnknownName(f"rule {rule!r}: {FEEDBACK} sets limits, as the actions do; drop it")
        if not (math.isfinite(every_s) and every_s > 0 and price_s >= 0):
            raise TraceError(
                f"limits: every_s={every_s}, price_s={price_s}; give seconds above 0 and a price "
                "of 0 or more"
            )
        self.rule, self.models, self.price_s = found, models, price_s
        self.trace, self.seeds, self.scenes = trace, tuple(seeds), scenes
        self.count = len(self.seeds) if scenes is None else len(scenes)
        if self.count == 0:
            raise TraceError("limits: no scenes; give some, or seeds of a trace")
        self._stages: dict[int, Stage] = {}
        self.cluster = self.stage(0).cluster
        self.regions = self.cluster.regions
        shape = (count, len(self.regions))
        self.worlds: list[World] = [self.stage(0).world] * count
        self.playing = [self.stage(0)] * count
        self.limits = np.zeros(shape)
        self.out = np.zeros((*shape, WIDTH), np.float32)
        self.play = np.zeros(count, PLAY)
        self._before = np.zeros((*shape, 2))
        self._rule = np.zeros(1, RULE)
        self._rule["every_s"], self._rule["order"] = every_s, found.order
        self._rule["backfill"], self._rule["place"] = found.backfill, found.place
        self._rule["seed"] = found.seed

    def stage(self, number: int) -> Stage:
        """The scene of that number, made when it is first played."""
        if number not in self._stages:
            scene = (
                open_scene(self.trace, seed=self.seeds[number])
                if self.scenes is None
                else self.scenes[number]
            )
            self._stages[number] = staged(scene, self.rule, self.models)
            regions = self._stages[number].cluster.regions
            if len(regions) != len(self.stage(0).cluster.regions):
                raise TraceError(
                    f"{scene.name}: has {len(regions)} regions, and the first scene "
                    f"{len(self.stage(0).cluster.regions)}; an agent sees as many in all"
                )
        return self._stages[number]

    def drawn(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> int:
        """The number of a scene: that of the options, or one at random."""
        if options and "scene" in options:
            number = int(options["scene"])
            if not 0 <= number < self.count:
                raise TraceError(f"scene={number}; scenes have numbers 0..{self.count - 1}")
            return number
        return int(rng.integers(self.count))

    def begin(self, c: int, number: int) -> None:
        """Put cluster c at the beginning of a scene; `run` goes to its first action."""
        stage = self.stage(number)
        self.playing[c] = stage
        self._put(c, stage.copied())
        play = self.play[c : c + 1]
        play["a_wait_s"] = 1.0 / stage.jobs
        play["a_harm_s"] = 100.0 * self.price_s / stage.served_s
        play["todo"] = BEGIN

    def act(self, c: int, limits: Array) -> None:
        """Have these limits set (G,); what is no number stays, what is out of bounds is cut."""
        wanted = np.round(np.asarray(limits, np.float64), DIGITS)
        stands = self.worlds[c].limit[0]
        self.limits[c] = np.where(np.isnan(wanted), stands, np.clip(wanted, LEAST, MOST))
        self.play[c]["todo"] = ACT

    def run(self) -> None:
        """Go on with every cluster that has something to do, until its next action or its end."""
        how = play_one if len(self.play) == 1 else play_all
        while (self.play["todo"] != IDLE).any():
            how(self._rule, self.play, self.limits, self._before, self.out)
            for c in np.flatnonzero(self.play["todo"] != IDLE):
                self._grow(int(c))

    def info(self, c: int) -> dict[str, Any]:
        """The clock, and the metrics once all is over."""
        info: dict[str, Any] = {"now_s": float(self.worlds[c].head[0]["now_s"])}
        if self.play[c]["done"]:
            info["metrics"] = self.metrics(c)
        return info

    def metrics(self, c: int) -> dict[str, float]:
        """The metrics of an episode that is over."""
        stage, left = self.playing[c], left_in(self.worlds[c], None, 0.0)
        return measure(
            Result(
                "limits", 0, stage.work, stage.cluster, left.state, left.totals,
                profile=stage.scene.profile, arrived=left.arrived, so_far=left.so_far,
            )
        )  # fmt: skip

    def _grow(self, c: int) -> None:
        """Double the pools of a cluster, and of those that begin after it."""
        old, stage = self.worlds[c], self.playing[c]
        more = {"runs": 2 * old.runs.shape[1], "pieces": 2 * old.pieces.shape[1]}
        self._put(c, grown(old, **more))
        stage.world = grown(stage.world, **more)

    def _put(self, c: int, world: World) -> None:
        self.worlds[c] = world
        self.play["world"][c] = world._address


def spaces(regions: int) -> tuple[Box, Box]:
    """(observation, action) of all regions."""
    return (
        Box(-1.0, 1.0, (regions, WIDTH), np.float32),
        Box(LEAST, MOST, (regions,), np.float32),
    )


class LimitsEnv(gymnasium.Env):
    """Set a limit for every region of a co-located scene, every `every_s` seconds.

    Observation (regions, features), see limiting.FEATURES; an action is a limit a region, a share
    of its nodes that services' estimated use and batch jobs may fill. `rule` places the jobs.
    reset(seed=..) draws one of the scenes, reset(options={"scene": number}) takes that one.

    The rewards of an episode sum to -(mean seconds waiting + `price_s` x percentage points of
    services' use that was harmed, less what they do to themselves); info["metrics"] has the
    metrics at the end. It ends when all jobs have, or none will ever start.
    """

    metadata = {"render_modes": []}

    def __init__(
        self, scenes: Sequence[Scene] | None = None, models: Models | None = None, **settings: Any
    ) -> None:
        self.limits = Limits(1, scenes, models, **settings)
        self.observation_space, self.action_space = spaces(len(self.limits.regions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.limits.begin(0, self.limits.drawn(self.np_random, options))
        self.limits.run()
        return self.limits.out[0].copy(), self.limits.info(0)

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        on = self.limits
        on.act(0, action)
        on.run()
        play = on.play[0]
        return on.out[0].copy(), float(play["reward"]), bool(play["done"]), False, on.info(0)


class LimitsVectorEnv(GymnasiumVectorEnv):
    """`num_envs` of LimitsEnv, in parallel and without the GIL: what gymnasium.make_vec makes.

    Cluster c draws its scenes by seed + c, as Gymnasium's own vectors do. Same-step autoreset.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        scenes: Sequence[Scene] | None = None,
        models: Models | None = None,
        **settings: Any,
    ) -> None:
        self.limits = Limits(num_envs, scenes, models, **settings)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces(len(self.limits.regions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._rngs = [seeding.np_random(seed + c)[0] for c in range(self.num_envs)]
        for c, rng in enumerate(self._rngs):
            self.limits.begin(c, self.limits.drawn(rng, options))
        self.limits.run()
        return self.limits.out.copy(), self._infos({})

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        on = self.limits
        infos: dict[str, Any] = {}
        for c in range(self.num_envs):
            on.act(c, actions[c])
        on.run()
        reward, done = on.play["reward"].copy(), on.play["done"] != 0
        for c in np.flatnonzero(done).tolist():
            last = {"final_obs": on.out[c].copy(), "final_info": on.info(c)}
            infos = self._add_info(infos, last, c)
            on.begin(c, on.drawn(self._rngs[c], None))
        on.run()
        return on.out.copy(), reward, done, np.zeros_like(done), self._infos(infos)

    def _infos(self, infos: dict[str, Any]) -> dict[str, Any]:
        for c in range(self.num_envs):
            infos = self._add_info(infos, {"now_s": self.limits.info(c)["now_s"]}, c)
        return infos
