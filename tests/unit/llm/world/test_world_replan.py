"""The re-planner: factors from what it saw, and a plan ahead with them."""

import numpy as np
import pytest

from trimtab.llm.world.tabular import stream
from trimtab.llm.world.world import SHAPE, bins, ladder, solve, world
from trimtab.llm.world.world_replan import DAY, corrections, replan

CHAIN = ladder(0.2, 0.2, SHAPE[0])


def test_a_factor_is_the_geometric_mean_of_what_was_seen_and_bold_where_nothing_was():
    total, count = np.zeros((3, 2)), np.zeros((3, 2))
    total[0, 0], count[0, 0] = np.log(1.2) + np.log(1.3), 2
    factor = corrections(total, count, bold=0.1)
    assert factor[:, 0] == pytest.approx(np.full(3, np.sqrt(1.2 * 1.3)))
    assert factor[:, 1] == pytest.approx(np.full(3, np.exp(-0.1)))


@pytest.fixture(scope="module")
def wrong():
    """Three days in a truth whose actions are each a quarter faster or slower than the model's."""
    off = np.where(np.arange(15) % 2, 1.25, 0.8)
    truth = world(CHAIN, factor=np.broadcast_to(off, (3, 15)))
    contexts, chances = stream(truth, 3 * DAY, seed=1)
    found = replan(truth, CHAIN, contexts, chances, window=48, rng=np.random.default_rng(0))
    return truth, off, found


def test_it_learns_the_factors_of_what_it_runs(wrong):
    _, off, found = wrong
    seen = np.abs(found.factor[0] - np.exp(-0.1)) > 1e-9
    assert seen.sum() >= 4
    assert found.factor[0, seen] == pytest.approx(off[seen], rel=0.05)


def test_its_plan_is_nearer_to_the_optimum_than_the_models(wrong):
    truth, _, found = wrong
    best, planned = solve(truth), solve(world(CHAIN))
    x = np.arange(len(bins()))[:, None]
    plan = np.arange(best.policy.shape[1])[None]
    lost = [(best.v - best.q[x, plan, policy]).mean() for policy in (found.policy, planned.policy)]
    assert lost[0] < 0.5 * lost[1]


def test_with_a_right_model_it_ends_at_the_optimum():
    truth = world(CHAIN)
    contexts, chances = stream(truth, DAY, seed=2)
    found = replan(truth, CHAIN, contexts, chances, window=48, rng=np.random.default_rng(0))
    best = solve(truth)
    x, plan = np.arange(len(bins()))[:, None], np.arange(best.policy.shape[1])[None]
    assert (best.v - best.q[x, plan, found.policy]).mean() < 0.01
