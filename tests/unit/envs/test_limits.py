"""Limits of regions as actions: one cluster, and many at once."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.worlds import lending_scene

from trimtab.core import Status
from trimtab.envs.limiting import FEATURES
from trimtab.envs.limits import LimitsEnv, LimitsVectorEnv
from trimtab.errors import TraceError, UnknownName
from trimtab.sim.whole import simulate
from trimtab.traces.scenes.scene import Scene, open_scene

SMALL = "colocated:machines=8,regions=2,span_s=300"
EVERY_S = 20.0


def scenes(count):
    made = [lending_scene(np.random.default_rng(seed)) for seed in range(count)]
    return [Scene(*parts, f"lending {seed}", True) for seed, parts in enumerate(made)]


def same(ours, theirs):
    """Whether two infos, or parts of them, hold the same by the same names."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        return all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, np.ndarray) and theirs.dtype == object:
        return all(same(one, other) for one, other in zip(ours, theirs, strict=True))
    return np.array_equal(ours, theirs)


def test_gymnasiums_own_checker_finds_nothing():
    env = gymnasium.make("trimtab/Limits-v0", trace=SMALL, seeds=range(2))
    check_env(env.unwrapped, skip_render_check=True)


def test_a_seed_says_which_scene_is_drawn_and_all_that_follows():
    def episode(env, seed):
        rows, over = [env.reset(seed=seed)[0]], False
        rng = np.random.default_rng(7)
        while not over:
            seen, reward, over, _, _ = env.step(rng.uniform(0.3, 1.2, 2))
            rows += [seen, np.full(1, reward)]
        return np.concatenate([np.ravel(row) for row in rows])

    one, other = LimitsEnv(scenes(3), every_s=EVERY_S), LimitsEnv(scenes(3), every_s=EVERY_S)
    first = episode(one, 4)
    episode(one, 5)  # what was played before leaves nothing behind
    np.testing.assert_array_equal(first, episode(one, 4))
    np.testing.assert_array_equal(first, episode(other, 4))


def test_a_vector_says_what_gymnasiums_own_vector_of_single_environments_says():
    settings = {"scenes": scenes(2), "every_s": EVERY_S}
    ours = LimitsVectorEnv(3, **settings)
    theirs = SyncVectorEnv(
        [lambda: LimitsEnv(**settings)] * 3, autoreset_mode=AutoresetMode.SAME_STEP
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    shown, info = ours.reset(seed=3)
    their_shown, their_info = theirs.reset(seed=3)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(150):
        np.testing.assert_array_equal(shown, their_shown)
        assert same(info, their_info) and ours.observation_space.contains(shown)
        actions = rng.uniform(0.3, 1.2, (3, 2)).astype(np.float32)
        shown, reward, ended, cut, info = ours.step(actions)
        their_shown, their_reward, their_ended, _, their_info = theirs.step(actions)
        np.testing.assert_array_equal(reward, their_reward)
        np.testing.assert_array_equal(ended, their_ended)
        assert not cut.any()
        ends += int(ended.sum())
    assert ends >= 3


def test_a_higher_limit_waits_less_and_harms_more():
    env, found = LimitsEnv(scenes(1), every_s=EVERY_S), []
    for limit in (0.6, 1.2):
        env.reset(seed=0)
        over = False
        while not over:
            _, _, over, _, info = env.step(np.full(2, limit))
        found.append(info["metrics"])
    low, high = found
    assert low["awt_s"] > high["awt_s"] and low["harm_added"] < high["harm_added"]
    assert low["finished"] == high["finished"] == 60


def test_what_is_seen_is_what_the_world_holds():
    env = LimitsEnv(scenes(1), every_s=EVERY_S)
    env.reset(seed=0)
    for _ in range(8):
        seen, _, _, _, _ = env.step(np.array([0.7, 0.9]))
    assert len(FEATURES) == seen.shape[1]
    show = dict(zip(FEATURES, seen.T, strict=True))
    world = env.limits.worlds[0]
    state, node, head = world.node_state[0], world.nodes[0], world.head[0]
    total = np.bincount(node["region"], world.capacity[0, :, 0])

    def share(values):
        return np.bincount(node["region"], values) / total

    use = np.where(state["read"] < 0, state["reserved"], state["read"])
    batch = np.bincount(node["region"], state["batch"])
    booked = world.capacity[0, :, 0] - state["kept"] - world.free[0, :, 0]
    assert show["load"] == pytest.approx(np.minimum(share(state["used"]), 1.0), rel=1e-5)
    assert show["use"] == pytest.approx(share(use), rel=1e-5)
    assert show["reserved"] == pytest.approx(share(state["reserved"]), rel=1e-5)
    assert show["booked"] == pytest.approx(share(booked), abs=1e-5)
    assert show["left"] == pytest.approx(share(np.maximum(world.free[0, :, 0], 0)), abs=1e-5)
    assert show["limit"] == pytest.approx([0.35, 0.45])
    assert show["queue"] == pytest.approx(head["waiting"] / (head["waiting"] + 100.0), rel=1e-5)
    since_s = head["now_s"] - head["first_s"]
    assert show["clock"] == pytest.approx(since_s / (since_s + 3600.0), rel=1e-5)
    assert (batch > 0).any() and (show["most"] >= show["mean"]).all()


def test_harm_and_evictions_of_nodes_are_those_of_the_cluster():
    env, over, seen_evicted = LimitsEnv(scenes(1), every_s=EVERY_S), False, False
    env.reset(seed=0)
    while not over:
        seen, _, over, _, _ = env.step(np.full(2, 1.2))
        seen_evicted |= bool((seen[:, list(FEATURES).index("evicted")] > 0).any())
    world = env.limits.worlds[0]
    totals = world.totals[0]
    assert world.node_state[0]["evicted"].sum() == totals["evicted"] > 0 and seen_evicted
    harm_s = totals["harmed_s"] - totals["own_harm_s"]
    assert world.node_state[0]["harm_s"].sum() == pytest.approx(harm_s) and harm_s > 0


def test_the_price_is_of_a_percentage_point_of_what_services_use_while_jobs_come():
    (scene,) = scenes(1)
    env = LimitsEnv([scene], price_s=10.0)
    whole = simulate(scene.workload, scene.cluster, "sjf+best+now@1", profile=scene.profile)
    stage = env.limits.stage(0)
    assert stage.served_s == pytest.approx(float(whole.arrived["service_s"]), rel=1e-9)
    free, paid = (stage.score(whole.totals, price_s) for price_s in (0.0, 10.0))
    harm_s = float(whole.totals["harmed_s"] - whole.totals["own_harm_s"])
    assert free - paid == pytest.approx(10.0 * 100.0 * harm_s / stage.served_s)


def test_an_action_out_of_bounds_is_cut_and_one_that_is_no_number_changes_nothing():
    env = LimitsEnv(scenes(1), every_s=EVERY_S)
    env.reset(seed=0)
    env.step(np.array([7.0, -1.0]))
    assert env.limits.worlds[0].limit[0].tolist() == [1.2, 0.3]
    env.step(np.array([np.nan, 0.9], np.float32))
    assert env.limits.worlds[0].limit[0].tolist() == [1.2, 0.9]


def test_an_episode_ends_where_jobs_will_never_start():
    env = LimitsEnv(scenes(1), every_s=EVERY_S)
    env.reset(seed=0)
    over = False
    while not over:
        _, _, over, _, info = env.step(np.full(2, 0.3))
    waiting = (env.limits.worlds[0].state[0]["status"] == Status.QUEUED).sum()
    assert waiting + info["metrics"]["finished"] <= 60 and waiting > 0


def test_pools_that_run_out_grow_and_nothing_changes():
    def ends(runs):
        env = LimitsEnv(scenes(1), every_s=EVERY_S)
        stage = env.limits.stage(0)
        if runs:
            keep = {"runs": 14, "pieces": 14, "entry": 14, "heap": 14, "stop": 14}
            world = stage.world
            stage.world = world.replaced(
                **{name: np.array(getattr(world, name)[:, :count]) for name, count in keep.items()}
            )
        env.reset(seed=0)
        over = False
        while not over:
            _, _, over, _, _ = env.step(np.full(2, 1.0))
        return env.limits.worlds[0].state[0]["end_s"].tolist(), env.limits.worlds[0].runs.shape[1]

    (few, grew), (many, _) = ends(True), ends(False)
    np.testing.assert_array_equal(few, many)
    assert grew > 14


def test_mistakes_say_what_to_give():
    with pytest.raises(TraceError, match="lends nothing; give a trace such as colocated"):
        LimitsEnv([open_scene("adlro:load=1,jobs=50")])
    with pytest.raises(UnknownName, match="feedback sets limits, as the actions do"):
        LimitsEnv(scenes(1), rule="sjf+p95+feedback")
    with pytest.raises(TraceError, match=r"every_s=0.0, price_s=1.0; give seconds above 0"):
        LimitsEnv(scenes(1), every_s=0.0, price_s=1.0)
    with pytest.raises(TraceError, match=r"scene=2; scenes have numbers 0..1"):
        LimitsEnv(scenes(2)).reset(options={"scene": 2})
    with pytest.raises(TraceError, match="no scenes"):
        LimitsEnv(seeds=())
