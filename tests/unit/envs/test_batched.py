"""Many clusters in one call."""

import numba
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from trimtab.build import cluster
from trimtab.envs.batched import BatchedEnv
from trimtab.traces.scenes.synthetic import generate


def batch(clusters=6, **settings):
    work = generate("queue", seed=3, jobs=60, servers=2, load=1.5, mean_s=100.0)
    return BatchedEnv(clusters, work, cluster([1.0, 1.0]), jobs=12, window=5, **settings)


def play(env, seed, steps):
    """Observations, rewards and ends of an agent that takes the first legal action."""
    shown, info = env.reset(seed=seed)
    rows = [shown.copy()]
    for _ in range(steps):
        shown, reward, ended, _, info = env.step(info["action_mask"].argmax(1))
        rows += [shown.copy(), reward.copy(), ended.copy()]
    return rows


def test_it_is_a_vector_env_that_resets_in_the_step_that_ends():
    env = batch()
    assert isinstance(env, VectorEnv)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    shown, info = env.reset(seed=0)
    assert env.observation_space.contains(shown)
    assert env.action_space.contains(info["action_mask"].argmax(1))
    assert shown.shape == (6, 5, 8)


def test_an_ended_episode_is_followed_by_another_window():
    env = batch(1)
    _, info = env.reset(seed=1)
    starts = []
    while len(starts) < 6:
        shown, _, ended, truncated, info = env.step(info["action_mask"].argmax(1))
        assert not truncated.any()
        if ended[0]:
            starts.append(int(env.clusters.episode["start"][0]))
            assert not info["final_obs"].any()  # nothing waits at the end
            assert info["_final_obs"].all()
            assert shown.any()
            assert env.clusters.world.head[0]["now_s"] == 0.0
    assert len(set(starts)) > 2


@pytest.mark.parametrize("codec", ["queue", "grid"])
def test_the_number_of_threads_changes_nothing(codec):
    most = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        one = play(batch(codec=codec), 4, 60)
        numba.set_num_threads(most)
        many = play(batch(codec=codec), 4, 60)
    finally:
        numba.set_num_threads(most)
    assert all((a == b).all() for a, b in zip(one, many, strict=True))


def test_a_seed_fixes_every_episode():
    env = batch()
    first, again, other = play(env, 4, 60), play(env, 4, 60), play(env, 5, 60)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not all((a == b).all() for a, b in zip(first, other, strict=True))


def test_copies_outlive_the_next_step():
    env = batch(copy=True)
    shown, info = env.reset(seed=0)
    kept = shown.copy()
    env.step(info["action_mask"].argmax(1))
    assert (shown == kept).all()


def test_refused_actions_are_counted_a_cluster():
    env = batch(3)
    env.reset(seed=0)
    *_, info = env.step(np.array([0, 77, -5]))
    assert info["refused"].tolist() == [0, 1, 1]
