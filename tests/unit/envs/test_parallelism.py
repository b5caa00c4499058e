"""The environment of parallelism plans is the world that `reproduce llm` measures."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import trimtab.envs  # noqa: F401  registers the ids
from trimtab.errors import PlanError
from trimtab.llm.world.world import rollout, solve

NAME = "trimtab/Parallelism-v0"


@pytest.fixture(scope="module")
def env():
    return gymnasium.make(NAME, epochs=12).unwrapped


def play(env, policy, **reset):
    """Rewards of one episode of a table of actions, (X, A + 1)."""
    seen, _ = env.reset(**reset)
    rewards, over = [], False
    while not over:
        action = policy[env.contexts[env.at], env.plan]
        assert seen["action_mask"][action]
        seen, reward, ended, cut, _ = env.step(action)
        rewards.append(reward)
        over = ended or cut
    return rewards


def test_gymnasiums_own_checker_finds_nothing(env):
    check_env(env, skip_render_check=True)


def test_an_episode_earns_what_the_compiled_world_earns(env):
    best = solve(env.world).policy
    for seed in range(5):
        total = sum(play(env, best, seed=seed))
        contexts, chances = env.contexts[None], env.chances[None]
        states = np.zeros((1, 12, 2), np.int64)
        assert total == pytest.approx(rollout(env.world, best, contexts, chances, states)[0])


def test_the_same_seed_is_the_same_episode(env):
    first, _ = env.reset(seed=3)
    contexts = env.contexts.copy()
    again, _ = env.reset(seed=3)
    assert (env.contexts == contexts).all()
    assert (first["observation"] == again["observation"]).all()


def test_a_masked_action_leaves_the_job_down_and_is_counted(env):
    _, info = env.reset(seed=0)
    wrong = int(np.flatnonzero(info["action_mask"] == 0)[0])
    seen, reward, *_, info = env.step(wrong)
    assert (reward, info["refused"], seen["observation"][-1]) == (0.0, 1, env.down)


def test_without_resharding_the_running_plan_is_not_shown():
    env = gymnasium.make(NAME, epochs=6, resharding=False).unwrapped
    seen, info = env.reset(seed=1)
    for _ in range(3):
        seen, *_, info = env.step(int(info["action_mask"].argmax()))
        assert seen["observation"][-1] == env.down


def test_windows_to_learn_on_and_held_out_ones_are_of_different_days():
    parts = [gymnasium.make(NAME, held_out=held).unwrapped.series for held in (False, True)]
    assert parts[0].epoch.max() < parts[1].epoch.min()


def test_an_episode_needs_an_epoch():
    with pytest.raises(PlanError, match="epochs=0 make no episode"):
        gymnasium.make(NAME, epochs=0)
