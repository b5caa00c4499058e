"""Tabular learners on worlds small enough to know the answer."""

import numpy as np
import pytest

from trimtab.errors import PolicyError, UnknownName
from trimtab.llm.world.tabular import KINDS, Settings, learn, stream
from trimtab.llm.world.world import World


def small(score, fails=None, lost=None, loss=0.5) -> World:
    """Two contexts, each as likely as the other, of which the second is short of memory."""
    score = np.asarray(score, float)
    actions = score.shape[1]
    fails = np.zeros((2, 2, actions)) if fails is None else fails
    lost = np.zeros((2, actions + 1, actions)) if lost is None else lost
    chain, legal = np.full((2, 2), 0.5), np.ones((2, actions), bool)
    names = tuple("abcdef"[:actions])
    return World(score, legal, fails, lost, chain, loss, score, score, names)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_the_best_action_of_each_context(kind):
    made = small([[0.2, 0.8, 0.1], [0.7, 0.3, 0.6]])
    learned = learn(made, kind, steps=20_000, seed=0, resharding=False)
    assert (learned.policy == np.array([[1] * 4, [0] * 4])).all()


def test_values_are_the_discounted_rewards():
    made = small([[0.4, 0.2], [0.4, 0.2]])
    learned = learn(made, "q", steps=50_000, seed=0, resharding=False, settings=Settings(gamma=0.5))
    # 0.4 / (1 - 0.5), and 0.2 + 0.5 x 0.8
    assert learned.q[0, -1] == pytest.approx([0.8, 0.6], abs=0.01)


def test_a_change_that_costs_more_than_it_brings_is_not_made():
    lost = np.zeros((2, 3, 2))
    lost[:, 0, 1] = lost[:, 1, 0] = 0.6
    # what a context prefers is gone in the next epoch with even odds: 0.2 more, twice 0.6 to pay
    made = small([[0.6, 0.4], [0.4, 0.6]], lost=lost)
    learned = learn(made, "q", steps=200_000, seed=0)
    assert learned.policy[:, :2].tolist() == [[0, 1], [0, 1]]


def test_what_is_illegal_is_never_taken():
    made = small([[0.2, 0.9], [0.2, 0.9]])
    made.legal[0, 1] = False
    learned = learn(made, "q", steps=5_000, seed=0, resharding=False)
    assert learned.policy[0, 0] == 0 and learned.policy[1, 0] == 1
    assert learned.q[0, 0, 1] == -np.inf


def test_starting_above_what_can_be_reached_tries_everything():
    made = small([[0.5, 0.9], [0.5, 0.9]])
    frozen = Settings(start=0.0, explore_first=0.0, explore_last=0.0)
    bold = Settings(start=1.0, explore_first=0.0, explore_last=0.0)
    given = {"steps": 5_000, "seed": 0, "resharding": False}
    assert learn(made, "q", settings=frozen, **given).policy[0, 0] == 0
    assert learn(made, "q", settings=bold, **given).policy[0, 0] == 1


def cliff() -> World:
    """Plan 1 pays a little more, and from it a slip to action 2 always fails."""
    score = np.array([[0.70, 0.74, 0.0]] * 2)
    lost = np.zeros((2, 4, 3))
    lost[:, 1, 2] = 5.0  # the slip
    lost[:, 3, :] = 0.1
    return small(score, lost=lost)


def test_near_a_cliff_sarsa_keeps_away_and_q_learning_walks_along_it():
    made = cliff()
    settings = Settings(explore_first=0.3, explore_last=0.3, window=10)
    learned = {
        kind: learn(made, kind, steps=400_000, seed=0, settings=settings)
        for kind in ("q", "sarsa", "expected_sarsa")
    }
    # the slip costs 5 in a tenth of the epochs: more than the 0.04 that plan 1 pays
    assert learned["q"].policy[0, 0] == 1
    assert learned["sarsa"].policy[0, 0] == learned["expected_sarsa"].policy[0, 0] == 0
    assert learned["sarsa"].online > learned["q"].online


def test_all_kinds_meet_the_same_contexts_and_the_same_seed_the_same_run():
    made = small([[0.2, 0.8], [0.7, 0.3]])
    first, again = (learn(made, "sarsa", steps=3_000, seed=4) for _ in range(2))
    assert (first.q == again.q).all()
    contexts, chances = stream(made, 2_000, 4)
    others, _ = stream(made, 2_000, 5)
    assert (contexts != others).any()
    assert abs(contexts.mean() - 0.5) < 0.05 and abs(chances.mean() - 0.5) < 0.05


def test_online_is_the_mean_of_a_window_and_of_the_curve():
    made = small([[0.5], [0.5]])
    learned = learn(made, "q", steps=4_800, seed=0, resharding=False)
    assert learned.online == pytest.approx(24.0)
    assert learned.curve == pytest.approx(np.full(20, 24.0))


def test_a_warm_start_keeps_what_it_was_given():
    made = small([[0.5, 0.4], [0.5, 0.4]])
    warm = np.zeros((2, 3, 2))
    warm[..., 0] = 9.0
    learned = learn(made, "q", steps=48, seed=0, warm=warm, settings=Settings(explore_first=0.02))
    assert (learned.policy == 0).all()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: learn(m, "qq", steps=99, seed=0), UnknownName, "learner 'qq' is unknown"),
        (lambda m: learn(m, "q", steps=9, seed=0), PolicyError, "steps=9 are less than one window"),
        (lambda m: Settings(gamma=1.0), PolicyError, "gamma=1.0 of a tabular learner"),
        (lambda m: Settings(window=0), PolicyError, "window=0"),
    ],
)
def test_settings_that_cannot_learn_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(small([[0.5], [0.5]]))
