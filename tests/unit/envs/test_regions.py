"""The PettingZoo environment: an agent a region."""

from pettingzoo.test import parallel_api_test

from trimtab.core import cluster, workload
from trimtab.envs.regions import RegionsEnv


def two_regions():
    return cluster([2.0, 2.0], region=[0, 1], regions=("east", "west"))


def env_of(demand, submit_s=(0.0, 0.0), **more):
    jobs = len(demand)
    work = workload(submit_s[:jobs], [10.0] * jobs, demand, **more)
    return RegionsEnv(work, two_regions(), jobs=jobs, window=4)


def test_pettingzoos_own_checker_finds_nothing():
    parallel_api_test(RegionsEnv(jobs=20, window=4, regions=2), num_cycles=50)


def test_an_agent_starts_a_job_in_its_own_region():
    env = env_of([1.0, 1.0], submit_s=(0.0, 5.0))
    env.reset(options={"start": 0})
    env.step({"east": 4, "west": 0})  # goes on to second 5, when the other job arrives
    assert env._backend.world.node_state[0]["pieces"].tolist() == [0, 1]


def test_of_two_agents_that_choose_one_job_the_later_is_refused():
    env = env_of([1.0, 1.0])
    env.reset(options={"start": 0})
    _, _, _, _, told = env.step({"east": 0, "west": 0})
    assert told == {"east": {"refused": 0}, "west": {"refused": 1}}


def test_a_gang_too_large_for_a_region_starts_across_regions():
    env = env_of([2.0], instances=2)
    env.reset(options={"start": 0})
    assert env._backend.world.state[0]["start_s"].tolist() == [0.0]


def test_the_episode_ends_when_every_job_has():
    env = RegionsEnv(jobs=12, window=4, regions=2)
    seen, _ = env.reset(seed=5)
    for _ in range(500):
        actions = {agent: int(part["action_mask"].argmax()) for agent, part in seen.items()}
        seen, reward, ended, stuck, _ = env.step(actions)
        if not env.agents:
            break
    assert all(ended.values()) and not any(stuck.values())
    assert env._backend.world.totals[0]["finished"] == 12
