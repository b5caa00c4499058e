"""The hierarchy as an environment: its places, its reward, and that it plays as the policy does."""

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

from trimtab.core import Limit
from trimtab.errors import PolicyError, TraceError, UnknownName
from trimtab.play import play
from trimtab.policies.hierarchy.course import COLUMNS, TERMS
from trimtab.policies.hierarchy.env import PLACES, HierarchyEnv
from trimtab.policies.hierarchy.goals import GOALS, NAMES
from trimtab.policies.hierarchy.manager import Manager
from trimtab.policies.hierarchy.policy import HierarchyPolicy
from trimtab.policies.hierarchy.sight import MACHINE, REGION
from trimtab.traces.scenes.scene import open_scene

SMALL = "colocated:machines=12,regions=2,span_s=300"
ONLY = {name: float(name == "cost") for name in TERMS}


@pytest.fixture(scope="module")
def scene():
    return open_scene(SMALL, seed=3)


@pytest.fixture(scope="module")
def envs(scene):
    return {place: HierarchyEnv([scene], place=place) for place in PLACES}


def episode(env, choose, seed=0):
    """Rewards of an episode, what was seen in it, and the last infos."""
    seen, infos = env.reset(seed=seed)
    rewards, shown = [], [np.concatenate(list(seen.values()))]
    while env.agents:
        seen, reward, ended, cut, infos = env.step({a: choose(a) for a in env.agents})
        assert len(set(reward.values())) == 1 and not any(cut.values())
        rewards.append(reward[env.possible_agents[0]])
        shown.append(np.concatenate(list(seen.values())))
    assert all(ended.values())
    return np.array(rewards), np.array(shown), infos


@pytest.mark.parametrize("place", PLACES)
def test_pettingzoos_own_checker_finds_nothing(envs, place):
    parallel_api_test(envs[place], num_cycles=60)


@pytest.mark.parametrize("place", PLACES)
def test_where_agents_say_nothing_it_is_the_policy_that_ships(envs, scene, place):
    env, whole = envs[place], play(HierarchyPolicy(), scene)
    env.reset()
    while env.agents:
        _, _, _, _, infos = env.step({})
    assert env.course.world.totals[0] == whole.totals
    ends_s = env.course.world.state[0]["end_s"]
    assert np.array_equal(ends_s, whole.state["end_s"], equal_nan=True)
    assert infos["region-0"]["metrics"]["finished"] == (scene.workload.truth["service"] == 0).sum()


def test_goals_said_are_those_of_a_manager_that_always_wants_them(envs, scene):
    relieve, hidden = NAMES.index("relieve"), 4
    head = np.zeros((hidden + 1, len(GOALS)))
    head[-1, relieve] = -1.0
    policy = HierarchyPolicy()
    policy._looking.manager = Manager(
        np.zeros((len(MACHINE) + 1, hidden)), np.zeros((2 * hidden + len(REGION) + 1, hidden)),
        np.zeros((hidden, hidden)), np.zeros((hidden, hidden)), head, 0.1, {},
    )  # fmt: skip
    whole = play(policy, scene)
    episode(envs["manager"], lambda agent: relieve)
    assert envs["manager"].course.world.totals[0] == whole.totals
    kept = play(HierarchyPolicy(), scene)
    assert whole.totals != kept.totals


def test_orders_said_are_those_of_their_region_alone(envs):
    env = envs["workers"]
    env.reset(seed=0)
    plain = env.orders
    by = np.zeros(len(env.names))
    by[env.names.index("limit")], by[env.names.index("peak")] = -1.0, 2.0
    given = []
    decisions = env._told.decisions
    env._told.decisions = lambda view: given.append(decisions(view)) or given[-1]
    env.step({"region-1": by})
    other, mine = given[0]
    assert isinstance(mine, Limit) and (other.share, other.margin) == (plain.limit, plain.margin)
    moved = plain.moved(env.names, by * plain.free()[1])
    assert mine.share == moved.limit == pytest.approx(plain.limit - plain.free()[1][0])
    assert (env.course.world.worker[0] == np.vstack((plain.worker, moved.worker))).all()


@pytest.mark.parametrize("place", PLACES)
def test_a_seed_says_which_scene_is_drawn_and_all_that_follows(place):
    def drawn(env, seed):
        for g, agent in enumerate(env.possible_agents):
            env.action_space(agent).seed(g)
        return episode(env, lambda agent: env.action_space(agent).sample(), seed)

    one, other = (HierarchyEnv(place=place, trace=SMALL, seeds=range(3)) for _ in range(2))
    first = drawn(one, 4)
    drawn(one, 5)  # what was played before leaves nothing behind
    for found in (drawn(one, 4), drawn(other, 4)):
        assert np.array_equal(found[0], first[0]) and np.array_equal(found[1], first[1])
    space = one.observation_space("region-0")
    halves = first[1].astype(np.float32).reshape(-1, space.shape[0])
    assert all(space.contains(row) for row in halves)


def test_rewards_sum_to_the_weighed_totals(scene):
    weights = {"utilisation": 2.0, "waiting": 0.5, "imbalance": 3.0, "cost": 0.25}
    env = HierarchyEnv([scene], every_s=30.0, **weights)
    rewards, _, _ = episode(env, lambda agent: NAMES.index("fill"))
    total, came = env.course.world.totals[0], env.course.world.arrived[0]
    machines, services = 12, int((scene.workload.truth["service"] == 1).sum())
    cores = float(scene.cluster.capacity[:, 0].sum())
    jobs_s = total["system_s"] - services * total["time_s"]
    harmed_s = total["harmed_s"] - total["own_harm_s"]
    terms = (
        came["busy_s"] / machines / 30.0,
        -jobs_s / machines / 30.0,
        -came["imbalance_s"] / 30.0,
        -(100.0 * harmed_s / cores / 30.0 + total["evicted"] / machines),
    )
    assert came["time_s"] < total["time_s"] and jobs_s > 0 and harmed_s > 0
    assert rewards.sum() == pytest.approx(sum(w * t for w, t in zip(weights.values(), terms)))


def test_what_fills_harms_more_than_what_relieves(scene):
    env = HierarchyEnv([scene], **ONLY)
    costs = [
        -episode(env, lambda agent, goal=goal: NAMES.index(goal))[0].sum()
        for goal in ("relieve", "fill")
    ]
    assert 0 <= costs[0] < costs[1]


def test_what_is_seen_is_pooled_as_the_managers_readout_has_it(envs):
    env = envs["manager"]
    seen, _ = env.reset(seed=0)
    for _ in range(4):
        seen, _, _, _, _ = env.step({})
    sight, row = env.course.sight, dict(zip(COLUMNS, seen["region-1"]))
    mine, theirs = (sight.machine[sight.of == g] for g in (1, 0))
    load = list(MACHINE).index("load")
    assert row["own mean load"] == pytest.approx(mine[:, load].mean())
    assert row["own most load"] == pytest.approx(mine[:, load].max())
    assert row["near mean load"] == pytest.approx(theirs[:, load].mean())  # its one neighbour
    both = [mine[:, load].mean(), theirs[:, load].mean()]
    assert row["all mean load"] == pytest.approx(np.mean(both))
    assert row["own waiting"] == pytest.approx(sight.region[1, list(REGION).index("waiting")])
    assert mine[:, load].mean() > 0 and len(seen["region-1"]) == len(COLUMNS)


def test_workers_see_the_goal_of_their_region(envs):
    env = envs["workers"]
    seen, _ = env.reset(seed=0)
    assert seen["region-0"][len(COLUMNS) :].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]  # keep


def test_the_first_look_is_the_last_before_a_job_comes(envs):
    _, infos = envs["manager"].reset()
    now_s, first_s = infos["region-0"]["now_s"], envs["manager"].course.world.head[0]["first_s"]
    assert now_s % 60 == 0 and now_s <= first_s < now_s + 60


def test_what_would_never_begin_ends_the_episode_cut_off(scene, monkeypatch):
    monkeypatch.setattr("trimtab.policies.hierarchy.course.DAY_S", 60.0)
    env = HierarchyEnv([scene])
    env.reset()
    while env.agents:
        _, _, ended, cut, infos = env.step({})
    assert all(cut.values()) and not any(ended.values()) and "metrics" not in infos["region-0"]


def test_a_mistake_is_named(scene, envs):
    with pytest.raises(UnknownName, match="place='worker' is unknown; known: manager, workers"):
        HierarchyEnv([scene], place="worker")
    with pytest.raises(TraceError, match="lends nothing; give a trace such as colocated"):
        HierarchyEnv(trace="adlro:jobs=20")
    with pytest.raises(TraceError, match=r"every_s=0\.0; give seconds above 0"):
        HierarchyEnv([scene], every_s=0.0)
    with pytest.raises(TraceError, match="no scenes; give some"):
        HierarchyEnv([])
    env = HierarchyEnv([scene, open_scene("colocated:machines=12,regions=3,span_s=300", seed=1)])
    with pytest.raises(TraceError, match="has 3 regions, and the first scene 2"):
        env.reset(options={"scene": 1})
    with pytest.raises(TraceError, match="scene=7; scenes have numbers"):
        env.reset(options={"scene": 7})
    envs["manager"].reset()
    with pytest.raises(PolicyError, match="region-0: goal 5 is unknown; known: 0 keep"):
        envs["manager"].step({"region-0": 5})
