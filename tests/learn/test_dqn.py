"""The DQN solves a small cluster in seconds, by every way of learning that it has."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.core import Profile, Shape
from trimtab.policies.dqn.field import BatchedField, Windows, demonstrations, ground
from trimtab.policies.dqn.learner import Learner, Settings, train
from trimtab.policies.rule import RulePolicy
from trimtab.sim.world import Models

QUICK = dict(
    steps=6_000, clusters=8, window=4, hidden=32, batch=32, replay=20_000, warmup=500,
    explore_steps=3_000, imitate_updates=200, learning_rate=2e-3, target_every=50, gamma=0.9,
    updates=1,
)  # fmt: skip


def opposites(seed, jobs):
    """Two kinds of job on two nodes; each runs at rate 1 on one of them and at 0.25 on the other.

    A job of 100 s comes every 150 s: each node is busy a third of the time if each kind stays on
    its own, and five sixths of it if jobs go where there is room.
    """
    rng = np.random.default_rng(seed)
    gap_s = rng.exponential(150.0, jobs)
    kind = rng.integers(0, 2, jobs)
    work = workload(
        np.cumsum(gap_s), rng.uniform(50.0, 150.0, jobs), np.ones(jobs), kind=kind,
        kinds=("left", "right"),
    )  # fmt: skip
    machine = cluster([1.0, 1.0], kind=[0, 1])
    profile = Profile(
        rate=np.array([[[1.0], [0.25]], [[0.25], [1.0]]]), slow=np.zeros((2, 2)),
        draw=np.ones((2, 2)), quality=np.ones((2, 1)), shapes=(Shape(),),
    )  # fmt: skip
    return ground(work, machine, profile, Models(), 50)


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"trunk": "set"}, 0.75),
        ({"trunk": "cnn", "double": False, "dueling": False, "n_step": 1}, 0.75),
        ({"trunk": "set", "prioritised": True, "reward": "completion"}, 0.75),
        ({"trunk": "set", "imitate": "sjf+fastest", "demonstrations": 500}, 0.75),
        ({"trunk": "cnn", "mode": "paper", "steps": 9_000}, 1.0),  # sees one job, and no speeds
    ],
    ids=["set", "plain cnn", "prioritised", "imitation", "paper"],
)
def test_it_learns_which_node_each_kind_of_job_belongs_on(settings, share):
    on = Settings(**QUICK | settings).check()
    here, held = opposites(0, 2_000), Windows(opposites(1, 500))
    learner = Learner(on, here.layout(on))
    untrained_s = held.by_learner(learner).mean()
    if on.imitate:
        learner.shown = demonstrations(here, on, on.imitate)
    field = BatchedField(here, on, seed=0)
    told = list(train(field, learner, lambda one: float(held.by_learner(one).mean()), every=2_000))
    assert told[-1].step >= on.steps
    best_s = min(one.jct_s for one in told)
    fcfs_s = held.by_policy(lambda: RulePolicy("fcfs")).mean()
    assert best_s < share * fcfs_s  # a node of its own for each kind: about a quarter
    assert best_s < untrained_s
