"""An episode by hand: every number an env shows, forbids and pays, with its arithmetic."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.columns import TOTALS
from trimtab.envs.single import ClusterEnv
from trimtab.traces.scenes.synthetic import generate


def overloaded(**settings):
    """Twenty jobs for two servers at load 1.5."""
    work = generate("queue", seed=3, jobs=60, servers=2, load=1.5, mean_s=100.0)
    return ClusterEnv(work, cluster([1.0, 1.0]), jobs=20, window=5, **settings)


def play(env, choose, seed=5):
    """Rewards of an episode, and the last info."""
    _, info = env.reset(seed=seed)
    rewards, done = [], False
    while not done:
        _, reward, done, _, info = env.step(choose(info["action_mask"]))
        rewards.append(reward)
    return rewards, info


def first_legal(mask):
    return int(mask.argmax())


def test_the_features_are_what_their_names_say():
    work = workload(
        [0, 0, 1800], [3600.0] * 3, [1, 4, 1], request_s=[7200.0, 3600.0, 60.0], priority=[0, 3, -1]
    )
    env = ClusterEnv(work, cluster([4.0]), jobs=3, window=4)
    env.reset(options={"start": 0})
    shown, *_ = env.step(0)  # job 1 wants all four units: passed over until job 2 arrives
    rows = shown["observation"]
    assert rows[:2, 0].tolist() == [1, 1]
    assert rows[:2, 1] == pytest.approx([1800 / (1800 + 3600), 0])
    assert rows[:2, 2] == pytest.approx(np.log1p([3600, 60]) / np.log1p(30 * 86400))
    assert rows[:2, 3].tolist() == [0, 0]  # 1 - 1 / 1
    assert rows[:2, 4] == pytest.approx([4 / 4, 1 / 4])
    assert rows[:2, 5] == pytest.approx([3 / (1 + 3), -1 / (1 + 1)])
    assert rows[:2, 6].tolist() == [0, 1]
    assert rows[:2, 7] == pytest.approx([3 / 4, 3 / 4])
    assert not rows[2:].any()


def test_the_mask_allows_what_fits_and_waiting_where_something_runs():
    work = workload([0, 0, 0, 50], [100.0] * 4, [1, 1, 2, 1])
    env = ClusterEnv(work, cluster([1.0, 2.0]), jobs=4, window=4, place="worst")
    _, info = env.reset(options={"start": 0})
    assert info["action_mask"].tolist() == [1, 1, 1, 0, 0]  # nothing runs: waiting is pointless
    _, _, _, _, info = env.step(0)  # worst fit takes the node of two units
    assert env.queue().tolist() == [1, 2]
    assert info["action_mask"].tolist() == [1, 0, 0, 0, 1]
    assert (env.action_masks() == info["action_mask"]).all()


@pytest.mark.parametrize("action", [4, 5, -1, 999])
def test_a_masked_action_is_refused_and_waits(action):
    work = workload([0, 0, 0, 0], [10.0, 20.0, 30.0, 40.0], [1, 1, 1, 1])
    env, twin = (ClusterEnv(work, cluster([1.0, 1.0]), jobs=4, window=5) for _ in range(2))
    for one in (env, twin):
        one.reset(options={"start": 0})
        one.step(0)
    shown, reward, _, _, info = env.step(action)
    other, twins_reward, _, _, _ = twin.step(5)
    assert (shown["observation"] == other["observation"]).all()
    assert reward == twins_reward
    assert info["refused"] == (action != 5)


def test_where_nothing_would_ever_happen_waiting_starts_the_oldest_job():
    env = ClusterEnv(workload([0, 0], [10.0, 10.0], [1, 1]), cluster([1.0]), jobs=2, window=2)
    _, info = env.reset(options={"start": 0})
    assert info["action_mask"].tolist() == [1, 1, 0]
    _, _, _, _, info = env.step(2)
    assert info["refused"] == 1
    assert env.queue().tolist() == [1]


@pytest.mark.parametrize("action", [0, 3, 5])
def test_an_agent_that_repeats_itself_comes_to_the_end_and_pays_for_it(action):
    rewards, info = play(overloaded(scale=1.0), lambda mask: action)
    assert info["totals"]["finished"] == 20
    assert sum(rewards) == pytest.approx(-info["totals"]["waiting_s"])


def test_by_default_rewards_sum_to_mean_wait_over_mean_request():
    env = overloaded()
    rewards, _ = play(env, first_legal)
    wait_s = env.clusters.world.state[0]["waited_s"].mean()
    assert wait_s > 0
    assert sum(rewards) == pytest.approx(-wait_s / env.clusters.workload.jobs["request_s"].mean())


@pytest.mark.parametrize("name", TOTALS.names)
def test_every_total_has_its_own_weight(name):
    rewards, info = play(overloaded(reward={name: 3.0}, scale=2.0), first_legal)
    assert sum(rewards) == pytest.approx(1.5 * info["totals"][name])


def test_a_window_keeps_the_parents_and_cancellations_inside_it():
    # job 0 is outside the window, so job 1 need not wait for it; job 3 is cancelled in the queue
    work = workload(
        [0, 10, 10, 11], [50.0, 5.0, 5.0, 5.0], [1, 1, 1, 1],
        after=[[], [0], [1], []], cancel_s=[np.inf, np.inf, np.inf, 12.0],
    )  # fmt: skip
    env = ClusterEnv(work, cluster([1.0]), jobs=3, window=3)
    _, info = env.reset(options={"start": 1})
    done, seen = False, []
    while not done:
        seen.append((float(env.clusters.world.head[0]["now_s"]), env.queue().tolist()))
        _, _, done, _, info = env.step(0)
    assert seen == [(0.0, [0]), (5.0, [1])]
    assert (info["totals"]["finished"], info["totals"]["stopped"]) == (2, 1)
