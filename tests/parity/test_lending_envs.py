"""Where a cluster lends what services leave, environments, loop and compiled runs agree as well."""

import numpy as np
import pytest
from tests.worlds import lending_scene

from trimtab.codecs.grid import GridCodec
from trimtab.codecs.queue import QueueCodec
from trimtab.core import Limit, Wait
from trimtab.envs.batched import BatchedEnv
from trimtab.envs.clusters import leading, window_of
from trimtab.envs.evaluate import played
from trimtab.envs.limits import LimitsEnv
from trimtab.envs.regions import RegionsEnv
from trimtab.envs.single import ClusterEnv
from trimtab.policies import named
from trimtab.policies.rule import RulePolicy
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.whole import simulate
from trimtab.traces.scenes.scene import Scene

JOBS = 30
FIRST = 20  # a row of the workload: the twelve services stand before it


def env_of(codec="queue", seed=3, **more):
    work, machine, profile = lending_scene(np.random.default_rng(seed))
    settings = {"workload": work, "cluster": machine, "profile": profile, "codec": codec}
    return settings | {"jobs": JOBS, "window": JOBS if codec == "queue" else 5} | more


def rule_action(env, order):
    """What a rule without backfilling does: start the head of its order if it fits, else wait."""
    jobs = env.queue()
    key = env.clusters.world.jobs[0]["request_s"][jobs] if order == "sjf" else jobs
    first = int(np.argmin(key))
    return first if env.action_masks()[first] else env.action_space.n - 1


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
def test_a_rule_played_through_gymnasium_runs_every_job_as_the_compiled_run(order):
    settings = env_of(place="best")
    env = ClusterEnv(**settings)
    env.reset(options={"start": FIRST})
    over, reward = False, 0.0
    while not over:
        _, paid, over, _, _ = env.step(rule_action(env, order))
        reward += paid
    part = window_of(settings["workload"], FIRST, JOBS)
    rule = f"{order}+best"
    whole = simulate(part, settings["cluster"], rule, profile=settings["profile"])
    state = env.clusters.world.state[0]
    for name in ("start_s", "end_s", "evicted", "waited_s"):
        np.testing.assert_array_equal(state[name], whole.state[name])
    assert whole.state["evicted"].sum() > 0  # services came back at least once
    assert env.clusters.world.totals[0] == whole.totals
    assert reward == pytest.approx(played(named(rule), env.clusters, FIRST))


@pytest.mark.parametrize("codec", ["queue", "grid"])
def test_the_batched_environment_equals_the_single_one_byte_for_byte(codec):
    batched = BatchedEnv(3, **env_of(codec))
    _, told = batched.reset(seed=11)
    singles = [ClusterEnv(**env_of(codec)) for _ in range(3)]
    for c, env in enumerate(singles):
        env.reset(options={"start": int(batched.clusters.episode["start"][c])})
    rng, ends = np.random.default_rng(0), 0
    for _ in range(400):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in told["action_mask"]])
        seen, reward, ended, _, told = batched.step(actions)
        for c, env in enumerate(singles):
            alone, alone_reward, alone_ended, _, _ = env.step(actions[c])
            assert (alone_reward, alone_ended) == (reward[c], ended[c])
            if alone_ended:
                ends += 1
                row = int(batched.clusters.episode["start"][c])
                alone, _ = env.reset(options={"start": row})
            np.testing.assert_array_equal(alone["observation"], seen[c])
            np.testing.assert_array_equal(alone["action_mask"], told["action_mask"][c])
    assert ends > 0


@pytest.mark.parametrize("estimate", ["p95", "trend"])
@pytest.mark.parametrize("codec", ["queue", "grid"])
def test_a_codec_sees_a_snapshot_as_the_environment_sees_its_arrays(codec, estimate):
    settings = env_of(codec, place="best")
    machine = settings["cluster"]
    object.__setattr__(machine.lending, "estimate", estimate)
    env = ClusterEnv(**settings)
    seen, _ = env.reset(options={"start": FIRST})
    window = settings["window"]
    grid = GridCodec(len(machine), len(machine.resources), window, "best", lends=True)
    made = QueueCodec(window, "best") if codec == "queue" else grid
    part = window_of(settings["workload"], FIRST, JOBS)
    backend = SimBackend(part, machine, settings["profile"])
    steps, ended = 0, False
    while backend.wait() is not None:
        while (mask := made.mask(snapshot := backend.snapshot()))[:-1].any():
            np.testing.assert_array_equal(mask, seen["action_mask"])
            np.testing.assert_allclose(made.encode(snapshot), seen["observation"], atol=1e-6)
            assert env.observation_space.contains(seen)
            action = int(mask[:-1].nonzero()[0][-1])
            answers = [backend.apply(decision) for decision in made.decode(action, snapshot)]
            assert all(answer.what.name == "PLACED" for answer in answers)
            seen, _, ended, _, _ = env.step(action)
            steps += 1
    assert ended and steps >= JOBS


def test_a_grid_of_a_model_that_knows_no_lending_shows_what_is_free_alone():
    work, machine, profile = lending_scene(np.random.default_rng(0))
    backend = SimBackend(work, machine, profile)
    backend.wait()
    plain, lent = (GridCodec(len(machine), 2, 3, lends=lends) for lends in (False, True))
    before, _ = plain.split(plain.encode(backend.snapshot()))
    after, _ = lent.split(lent.encode(backend.snapshot()))
    np.testing.assert_array_equal(before[:, :8], after[:, :8])
    assert after.shape[1] == before.shape[1] + 4
    state, capacity = backend.snapshot().node_state, machine.capacity[:, 0]
    read = np.where(state["read"] < 0, -1.0, state["read"] / capacity)
    np.testing.assert_allclose(after[:, 8], read, rtol=1e-6)
    np.testing.assert_allclose(after[:, 9], state["reserved"] / capacity, rtol=1e-6)
    np.testing.assert_allclose(after[:, 10], state["kept"] / capacity / 2, rtol=1e-6)


def test_agents_of_regions_place_every_job_of_a_cluster_that_lends():
    settings = env_of()
    del settings["codec"]
    env = RegionsEnv(**settings)
    seen, told = env.reset(seed=1)
    rng = np.random.default_rng(0)
    while env.agents:
        assert all(env.observation_space(agent).contains(seen[agent]) for agent in env.agents)
        actions = {a: int(rng.choice(np.flatnonzero(told[a]["action_mask"]))) for a in env.agents}
        seen, _, ended, _, told = env.step(actions)
    assert all(ended.values())
    services = leading(settings["workload"])
    assert (env.clusters.world.state[0]["status"][services:] >= 4).all()


def scene_of(seed):
    work, machine, profile = lending_scene(np.random.default_rng(seed))
    return Scene(work, machine, profile, f"lending {seed}", True)


@pytest.mark.parametrize("limit", [0.6, 0.9, 1.2])
@pytest.mark.parametrize(
    ("rule", "every_s"),
    [
        ("smallest-area+greedy+calm+p95", 15.0),
        ("smallest-area+greedy+calm+p95", 7.3),
        ("fcfs+easy+best+now", 15.0),
        ("sjf+conservative+swift+trend", 30.0),
    ],
)
def test_limits_that_stand_still_give_the_compiled_run_job_by_job(rule, every_s, limit):
    scene = scene_of(5)
    env = LimitsEnv([scene], rule=rule, every_s=every_s)
    env.reset(seed=0)
    over, rewards = False, 0.0
    while not over:
        _, reward, over, _, info = env.step(np.full(2, limit, np.float32))
        rewards += reward
    whole = simulate(scene.workload, scene.cluster, f"{rule}@{limit}", profile=scene.profile)
    world = env.limits.worlds[0]
    for name in whole.state.dtype.names:
        np.testing.assert_array_equal(world.state[0][name], whole.state[name])
    for name in whole.totals.dtype.names:
        # an action between two changes of use parts an integral, which rounds it otherwise
        near = 0.0 if every_s % scene.workload.pattern_step_s == 0 else 1e-12
        assert world.totals[0][name] == pytest.approx(whole.totals[name], rel=near, abs=0.0)
    harm_s = float(whole.totals["harmed_s"] - whole.totals["own_harm_s"])
    harm = harm_s / float(whole.arrived["service_s"])
    waits_s = float(whole.state["waited_s"][12:].mean())
    assert rewards == pytest.approx(-(waits_s + env.limits.price_s * 100 * harm), rel=1e-6)
    assert info["metrics"]["awt_s"] == pytest.approx(waits_s)


class Told:
    """A rule, and limits of regions set at multiples of an interval: the same through the loop."""

    def __init__(self, rule, every_s, begin_s, plan):
        self.rule, self.every_s, self.due_s = RulePolicy(rule), every_s, begin_s
        self.plan = iter(plan)

    def decide(self, snapshot):
        if snapshot.now_s < self.due_s:
            return [*self.rule.decide(snapshot), Wait(self.due_s)]
        self.due_s += self.every_s
        shares = next(self.plan)
        limits = [Limit(share, region) for region, share in enumerate(shares)]
        return [*limits, Wait(self.due_s), Wait(snapshot.now_s)]


def test_limits_of_an_action_are_limits_that_a_policy_decides():
    scene = scene_of(6)
    rng = np.random.default_rng(0)
    plan = np.round(rng.uniform(0.5, 1.2, (1000, 2)), 3).tolist()
    env = LimitsEnv([scene], rule="smallest-area+greedy+calm", every_s=20.0)
    _, info = env.reset(seed=0)
    begin_s, over = info["now_s"], False
    shares = iter(plan)
    while not over:
        _, _, over, _, _ = env.step(np.array(next(shares)))
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    run(backend, Told("smallest-area+greedy+calm", 20.0, begin_s, plan))
    played_state, stepped = env.limits.worlds[0].state[0], backend.world.state[0]
    for name in ("start_s", "end_s", "evicted", "waited_s"):
        np.testing.assert_array_equal(played_state[name], stepped[name])
    assert played_state["evicted"].sum() > 0
