"""The Gymnasium environments keep their word: spaces, masks, seeds, rewards."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import trimtab.envs  # noqa: F401  registers the ids
from trimtab.build import cluster, workload
from trimtab.errors import TraceError, UnknownName

IDS = ("trimtab/Queue-v0", "trimtab/Grid-v0")


def pool(jobs=40, seed=0, units=8):
    """Jobs of 1 to 4 units that overload a pool of 8."""
    rng = np.random.default_rng(seed)
    work_s = rng.integers(10, 100, jobs).astype(float)
    submit_s = np.cumsum(rng.integers(0, 12, jobs)).astype(float)
    size = rng.integers(1, 5, jobs).astype(float)
    return dict(
        workload=workload(submit_s, work_s, size, request_s=work_s * 1.5, resources=("node",)),
        cluster=cluster([float(units)], resources=("node",)),
    )


def small(name, **more):
    return gymnasium.make(name, **{**pool(), "jobs": 20, "window": 6, **more}).unwrapped


def play(env, choose, **reset):
    """(actions, rewards, masks) of one episode."""
    seen, _ = env.reset(**reset)
    actions, rewards, masks = [], [], [seen["action_mask"]]
    over = False
    while not over:
        actions.append(choose(seen["action_mask"]))
        seen, reward, ended, stuck, _ = env.step(actions[-1])
        rewards.append(reward)
        masks.append(seen["action_mask"])
        over = ended or stuck
    return actions, rewards, masks


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("scene", ["pool", "mixed-gpu"])
def test_gymnasiums_own_checker_finds_nothing(name, scene):
    env = small(name) if scene == "pool" else gymnasium.make(name, jobs=30, window=5).unwrapped
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("name", IDS)
def test_a_seed_fixes_the_episode(name):
    first = play(small(name), lambda mask: int(mask.argmax()), seed=7)
    again = play(small(name), lambda mask: int(mask.argmax()), seed=7)
    assert first[0] == again[0]
    assert first[1] == again[1]


@pytest.mark.parametrize("name", IDS)
def test_every_choice_offers_a_start(name):
    _, _, masks = play(small(name), lambda mask: int(mask.argmax()), seed=1)
    assert all(mask[:-1].any() for mask in masks[:-1])


def test_rewards_sum_to_minus_the_mean_wait_over_the_mean_request():
    env = small("trimtab/Queue-v0")
    _, rewards, _ = play(env, lambda mask: int(mask.argmax()), options={"start": 0})
    state, jobs = env.clusters.world.state[0], env.clusters.world.jobs[0]
    wait_s = (state["start_s"] - jobs["submit_s"])[:20]
    mean_request_s = pool()["workload"].jobs["request_s"].mean()
    assert sum(rewards) == pytest.approx(-wait_s.mean() / mean_request_s)
    assert wait_s.sum() > 0


def test_a_reward_may_weigh_any_running_total():
    env = small("trimtab/Queue-v0", reward={"finished": 1.0, "waiting_s": 0.0}, scale=1.0)
    _, rewards, _ = play(env, lambda mask: int(mask.argmax()), seed=3)
    assert sum(rewards) == 20
    with pytest.raises(UnknownName, match="the totals are time_s, waiting_s"):
        small("trimtab/Queue-v0", reward={"waitings": 1.0})


def test_a_masked_action_is_refused_and_waits():
    env = small("trimtab/Queue-v0")
    seen, _ = env.reset(options={"start": 0})
    masked = int(np.flatnonzero(seen["action_mask"] == 0)[0])
    before_s = float(env.clusters.world.head[0]["now_s"])
    _, _, _, _, told = env.step(masked)
    assert told["refused"] == 1
    assert float(env.clusters.world.head[0]["now_s"]) > before_s


@pytest.mark.parametrize("action", [-1, 999])
def test_an_action_outside_the_space_is_refused_and_nothing_breaks(action):
    env = small("trimtab/Grid-v0")
    env.reset(seed=0)
    _, _, _, _, told = env.step(action)
    assert told["refused"] == 1


def test_an_agent_that_only_waits_still_ends_its_episode():
    env = small("trimtab/Queue-v0")
    env.reset(seed=0)
    for _ in range(1000):
        _, _, ended, _, _ = env.step(env.action_space.n - 1)
        if ended:
            break
    assert ended


def test_the_grid_starts_a_job_on_the_chosen_node():
    work = workload([0.0, 0.0], [10.0, 10.0], [1.0, 1.0])
    env = gymnasium.make(
        "trimtab/Grid-v0", workload=work, cluster=cluster([2.0, 2.0, 2.0]), jobs=2, window=2
    ).unwrapped
    env.reset(options={"start": 0})
    env.step(0 * 3 + 2)  # first job, node 2
    assert env.clusters.world.node_state[0]["pieces"].tolist() == [0, 0, 1]


def test_an_episode_outside_the_trace_is_an_error():
    with pytest.raises(TraceError, match=r"jobs=50; an episode has 1\.\.40 jobs"):
        small("trimtab/Queue-v0", jobs=50)
    with pytest.raises(TraceError, match=r"start=30; an episode starts at a row in 0\.\.20"):
        small("trimtab/Queue-v0").reset(options={"start": 30})


def test_dependencies_inside_an_episode_hold():
    work = workload([0.0, 0.0, 0.0], [10.0, 10.0, 10.0], [1.0, 1.0, 1.0], after=[[], [0], [1]])
    env = gymnasium.make(
        "trimtab/Queue-v0", workload=work, cluster=cluster([4.0]), jobs=3, window=3
    ).unwrapped
    play(env, lambda mask: int(mask.argmax()), options={"start": 0})
    assert env.clusters.world.state[0]["start_s"].tolist() == [0.0, 10.0, 20.0]
