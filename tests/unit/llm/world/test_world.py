"""The decision process: what an epoch pays, what a failure costs, and the exact optimum."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.world.world import (
    CONTEXTS,
    EPOCH_S,
    GAMMA,
    MEMORY,
    REDONE_S,
    SHAPE,
    World,
    bins,
    context,
    failing,
    gain,
    ladder,
    q_of,
    rollout,
    solve,
    world,
)
from trimtab.llm.world.world_rules import (
    best_constant,
    constant,
    fixed_rule,
    myopic,
    value_of,
    visits,
)

CHAIN = ladder(0.2, 0.2, SHAPE[0])


@pytest.fixture(scope="module")
def full():
    made = world(CHAIN)
    return made, solve(made)


@pytest.fixture(scope="module")
def paper():
    return world(CHAIN, resharding=False)


def test_a_ladder_moves_by_one_rung():
    expected = [[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.2, 0.8]]
    assert ladder(0.1, 0.2) == pytest.approx(np.array(expected))


def test_contexts_and_bins_are_one_numbering():
    at = bins()
    assert (context(at[:, 0], at[:, 1:]) == np.arange(CONTEXTS)).all()
    assert (at[:, MEMORY] == np.arange(CONTEXTS) % SHAPE[MEMORY]).all()


def test_rewards_are_shares_and_chances_are_chances(full):
    made, _ = full
    assert made.score.min() >= 0 and made.score.max() <= 1
    assert made.chain.sum(axis=1) == pytest.approx(1.0)
    assert made.fails.min() >= 0 and made.fails.max() <= 1


def test_the_optimum_satisfies_bellmans_equation_and_takes_what_is_legal(full):
    made, best = full
    assert q_of(made, best.v).max(axis=2) == pytest.approx(best.v, abs=1e-7)
    x = np.arange(CONTEXTS)[:, None]
    assert made.legal[x, best.policy].all()


def test_no_other_policy_is_worth_more(full):
    made, best = full
    for policy in (fixed_rule(made), best_constant(made), myopic(made)):
        assert (value_of(made, policy) <= best.v + 1e-2).all()


def test_without_resharding_the_optimum_is_the_best_of_each_context(paper):
    best = solve(paper)
    expected = gain(paper, failing(paper)).argmax(axis=1)
    assert (best.policy == expected[:, None]).all()


def test_staying_is_free_and_changing_is_not(full):
    made, _ = full
    same = np.arange(made.score.shape[1])
    assert (made.lost[:, same, same] == 0).all()
    changed = made.lost[:, 0, 1:]
    assert changed.min() > 0.3  # of an epoch: the restart alone is 120 s of 300


def two_contexts(fail: float) -> World:
    """Two contexts that follow each other, two actions; in the second context memory is short."""
    chain = np.array([[0.0, 1.0], [1.0, 0.0]])
    lost = np.zeros((2, 3, 2))
    lost[:, 2, :], lost[:, 0, 1], lost[:, 1, 0] = 0.4, 0.25, 0.25
    fails = np.zeros((2, 2, 2))
    fails[:, 1, 1] = fail  # action 1 fails where memory ends up short
    score = np.array([[0.5, 0.9], [0.5, 0.9]])
    legal, names = np.ones((2, 2), bool), ("safe", "bold")
    return World(score, legal, fails, lost, chain, 0.5, score, score, names)


def rewards(made: World, action: int, epochs: int) -> float:
    contexts = np.arange(epochs + 1)[None] % 2
    states = np.zeros((1, epochs, 2), np.int64)
    policy = np.full((2, 3), action)
    return float(rollout(made, policy, contexts, np.full((1, epochs), 0.5), states)[0])


def test_a_window_pays_its_start_once_and_then_every_epoch():
    # 4 x 0.5 - 0.4
    assert rewards(two_contexts(0.0), 0, 4) == pytest.approx(1.6)
    assert rewards(two_contexts(0.0), 1, 4) == pytest.approx(4 * 0.9 - 0.4)


def test_a_failure_loses_the_epoch_and_the_work_before_it_and_starts_anew():
    # contexts 0 1 0 1 0: the epochs that end in context 1 fail, the first and the third
    # the start fails: -0.4 - 0.5; starts anew: -0.4 + 0.9; fails: -0.5; starts anew: -0.4 + 0.9
    assert rewards(two_contexts(1.0), 1, 4) == pytest.approx(-0.9 + 0.5 - 0.5 + 0.5)


def test_a_failure_costs_half_an_epoch_and_where_nothing_is_down_the_restart_too(full, paper):
    assert full[0].loss == REDONE_S / EPOCH_S == 0.5
    assert paper.loss > full[0].loss


def test_a_slower_truth_pays_no_more(full):
    slower = world(CHAIN, factor=1.25)
    assert (slower.score <= full[0].score + 1e-12).all()
    assert (slower.score < full[0].score - 0.01).any()
    assert slower.step_s == pytest.approx(1.25 * full[0].step_s)


def test_visits_are_where_a_chain_spends_its_time():
    # up 0.1, down 0.2: weights 4 : 2 : 1
    assert visits(ladder(0.1, 0.2)) == pytest.approx(np.array([4, 2, 1]) / 7)


def test_the_fixed_rule_depends_on_the_state_and_is_legal(full):
    made, _ = full
    rule = fixed_rule(made)
    assert made.legal[np.arange(CONTEXTS)[:, None], rule].all()
    assert len(np.unique(rule)) >= 6


@pytest.mark.slow
def test_the_best_constant_is_best_of_all_that_always_fit(full):
    made, _ = full
    often = visits(made.chain)
    chosen = often @ value_of(made, best_constant(made))[:, -1]
    for action in np.flatnonzero(made.legal.all(axis=0)):
        assert often @ value_of(made, constant(made, action))[:, -1] <= chosen + 1e-2


def test_the_myopic_planner_weighs_one_epoch_against_the_change(full):
    made, _ = full
    x, plan = 17, 4
    now = gain(made, made.fails[:, x % SHAPE[MEMORY]])[x] - made.lost[x, plan]
    assert myopic(made)[x, plan] == int(now.argmax())


def test_a_chain_of_the_wrong_shape_is_refused():
    with pytest.raises(PlanError, match=r"cpu_chain has shape \(3, 3\); give \(4, 4\)"):
        world(ladder(0.1, 0.1))


def test_values_are_discounted(full):
    _, best = full
    assert best.v.max() < 1.0 / (1.0 - GAMMA)
