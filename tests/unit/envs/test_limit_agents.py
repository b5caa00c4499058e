"""The PettingZoo environment whose agents set limits of regions."""

import numpy as np
from pettingzoo.test import parallel_api_test
from tests.worlds import lending_scene

from trimtab.envs.limit_agents import LimitAgentsEnv
from trimtab.envs.limits import LimitsEnv
from trimtab.traces.scenes.scene import Scene


def scene():
    return Scene(*lending_scene(np.random.default_rng(1)), "lending", True)


def test_pettingzoos_own_checker_finds_nothing():
    parallel_api_test(LimitAgentsEnv([scene()], every_s=20.0), num_cycles=200)


def test_agents_of_regions_together_are_the_single_environment():
    agents, single = LimitAgentsEnv([scene()], every_s=20.0), LimitsEnv([scene()], every_s=20.0)
    assert agents.possible_agents == ["a", "b"]
    seen, _ = agents.reset(seed=0)
    alone, _ = single.reset(seed=0)
    rng = np.random.default_rng(0)
    while agents.agents:
        np.testing.assert_array_equal(np.stack([seen["a"], seen["b"]]), alone)
        limits = rng.uniform(0.3, 1.2, 2).astype(np.float32)
        chosen = {agent: limits[g : g + 1] for g, agent in enumerate(agents.agents)}
        seen, reward, ended, cut, told = agents.step(chosen)
        alone, alone_reward, over, _, info = single.step(limits)
        assert reward == {"a": alone_reward, "b": alone_reward}
        assert ended == {"a": over, "b": over} and not any(cut.values())
    assert over and told["a"]["metrics"] == info["metrics"]


def test_the_limit_of_an_agent_that_says_nothing_stays():
    env = LimitAgentsEnv([scene()], every_s=20.0)
    env.reset(seed=0)
    env.step({"a": np.array([0.5]), "b": np.array([0.7])})
    env.step({"b": np.array([0.8])})
    assert env.limits.worlds[0].limit[0].tolist() == [0.5, 0.8]
