"""The PettingZoo environment: an agent a region."""

import pytest
from pettingzoo.test import parallel_api_test

from trimtab.build import cluster, workload
from trimtab.core import What
from trimtab.envs.regions import RegionsEnv
from trimtab.errors import TraceError


def env_of(demand, **more):
    jobs = len(demand)
    work = workload([0.0] * jobs, [10.0] * jobs, demand, **more)
    two = cluster([2.0, 2.0], region=[0, 1], regions=("east", "west"))
    return RegionsEnv(work, two, jobs=jobs, window=4, record=True)


def starts(env):
    return [(event.job, event.nodes) for event in env.events() if event.what == What.STARTED]


@pytest.mark.slow
def test_pettingzoos_own_checker_finds_nothing():
    parallel_api_test(RegionsEnv(jobs=20, window=4), num_cycles=50)


def test_an_agent_starts_a_job_in_its_own_region():
    env = env_of([1.0, 1.0])
    env.reset(options={"start": 0})
    env.step({"east": 4, "west": 0})
    assert starts(env)[0] == (0, (1,))


def test_of_two_agents_that_choose_one_job_the_later_is_refused():
    env = env_of([1.0, 1.0])
    env.reset(options={"start": 0})
    _, _, _, _, told = env.step({"east": 0, "west": 0})
    assert (told["east"]["refused"], told["west"]["refused"]) == (0, 1)


def test_a_gang_too_large_for_any_region_is_an_error():
    with pytest.raises(TraceError, match="region"):
        env_of([2.0], instances=2)


def test_the_episode_ends_when_every_job_has():
    env = RegionsEnv(jobs=12, window=4)
    seen, _ = env.reset(seed=5)
    for _ in range(500):
        actions = {agent: int(part["action_mask"].argmax()) for agent, part in seen.items()}
        seen, _, ended, stuck, _ = env.step(actions)
        if not env.agents:
            break
    assert all(ended.values()) and not any(stuck.values())
    assert env.clusters.world.totals[0]["finished"] == 12
