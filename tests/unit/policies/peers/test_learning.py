"""Each learner finds the better of several rows, and a training goes on where it stopped."""

import numpy as np
import pytest
import torch

from trimtab.policies.peers import deeprm, rlscheduler
from trimtab.policies.peers.kinds import BY_NAME, TABLE
from trimtab.policies.peers.learning import Learner, Round, against_time, shortest, shuffled


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def bandit(peer, seed, theta=None, many=400):
    """Decisions among three rows, of which the one with the largest first number is worth 1."""
    rng = np.random.default_rng(seed)
    act = rng.integers(0, 3, many)
    if peer.learner == TABLE:
        rows = np.tile([[3.0, 0], [5.0, 0], [9.0, 0]], (many, 1))
        good = act == 2
    else:
        rows = rng.uniform(0, 1, (3 * many, peer.features))
        good = act == rows[:, 0].reshape(many, 3).argmax(1)
    steps = peer.memory[0] * peer.memory[1]
    return Round(
        rows.astype(np.float32), np.zeros((many, steps), np.float32), 3 * np.arange(many + 1), act,
        good.astype(float), np.zeros(many, np.int64), np.arange(many) * 1.0, np.zeros(many),
        np.arange(many) == many - 1,
    )  # fmt: skip


def rightly(learner, peer):
    """The share of new decisions in which the best row scores best."""
    done = bandit(peer, 99)
    rows, owner = done.rows_of(np.arange(len(done.act)))
    if peer.learner == TABLE:
        value = learner.theta[done.rows[:, 0].astype(int)]
        return float((value.reshape(-1, 3).argmax(1) == 2).mean())
    weights = torch.tensor(learner.theta, dtype=torch.float32)
    with torch.no_grad():
        value = learner._scores(weights, done, rows, owner).numpy().reshape(-1, 3)
    return float((value.argmax(1) == done.rows[:, 0].reshape(-1, 3).argmax(1)).mean())


@pytest.mark.parametrize("name", ["cheng", "rjoub", "islam-reinforce", "rlscheduler", "ghasemi"])
def test_a_learner_finds_the_row_that_is_worth_more(name):
    peer = BY_NAME[name]._replace(gamma=0.0)
    learner = Learner(peer, 0.005, 0)
    for seed in range(12):
        learner.learn(bandit(peer, seed), np.random.default_rng(seed))
    assert rightly(learner, peer) > 0.8  # at random a third


def test_deeprm_is_first_taught_to_take_the_shortest():
    peer = BY_NAME["deeprm"]
    rows = np.zeros((2, peer.features + 10), np.float32)
    asked = [0.5, 0.3, 0.4, 0.1]
    for slot in range(4):
        rows[:, deeprm.IMAGE + 6 * slot + 3] = asked[slot]
    rows[0, peer.features : peer.features + 3] = rows[1, peer.features : peer.features + 4] = 1
    nothing = np.zeros(2)
    done = Round(
        rows, np.zeros((2, 0), np.float32), np.arange(3), np.zeros(2, np.int64), nothing,
        np.zeros(2, np.int64), nothing, nothing, nothing > 0,
    )  # fmt: skip
    assert shortest(done).tolist() == [1, 3]


def test_deeprm_learns_which_slot_to_start():
    peer, many = BY_NAME["deeprm"], 400
    learner, rng = Learner(peer, 0.1, 0), np.random.default_rng(0)
    for _ in range(25):
        rows = np.zeros((many, peer.features + peer.masked), np.float32)
        right_one = rng.integers(0, 2, many)  # which of the two asks less
        for slot in range(2):
            rows[:, deeprm.IMAGE + 6 * slot] = 1
            rows[:, deeprm.IMAGE + 6 * slot + 3] = np.where(right_one == slot, 0.2, 0.8)
        rows[:, peer.features : peer.features + 2] = 1  # the first two slots; or to move on
        done = Round(
            rows, np.zeros((many, 0), np.float32), np.arange(many + 1), right_one, np.zeros(many),
            np.zeros(many, np.int64), np.zeros(many), np.zeros(many), np.zeros(many, bool),
        )  # fmt: skip
        weights = torch.tensor(learner.theta, dtype=torch.float32)
        chance = [
            learner._chances(weights, done._replace(act=np.full(many, act)), np.arange(many))[0]
            for act in (0, 1, 10)
        ]
        ends = torch.stack(chance).exp().numpy().cumsum(0)
        act = np.array([0, 1, 10])[np.minimum((rng.uniform(size=many) > ends).sum(0), 2)]
        learner.learn(done._replace(act=act, worth=(act == right_one) * 1.0), rng, 0.5)
    found, _ = learner._chances(weights, done, np.arange(many))
    assert float(found.exp().mean()) > 0.8  # at first a third


def test_a_cell_moves_to_what_it_brought_and_the_best_that_follows():
    peer = BY_NAME["ghasemi"]._replace(gamma=0.5)
    learner = Learner(peer, 1.0, 0)  # a visit is enough: 50 x rate, at most 1
    learner.theta[9] = 4.0
    done = Round(
        np.array([[3, 0], [5, 0], [5, 0], [9, 0]], np.float32), np.zeros((2, 0), np.float32),
        np.array([0, 2, 4]), np.array([0, 0]), np.array([1.0, 2.0]), np.zeros(2, np.int64),
        np.zeros(2), np.zeros(2), np.array([False, True]),
    )  # fmt: skip
    learner.learn(done, np.random.default_rng(0))
    assert learner.theta[[3, 5, 9]].tolist() == [1.0 + 0.5 * 4.0, 2.0, 4.0]


def test_a_refusal_is_learned_by_every_agent_that_was_asked():
    learner = Learner(BY_NAME["belgacem"]._replace(gamma=0.0), 1.0, 0)
    done = Round(
        np.array([[3, 0], [30, 19], [0, 0]], np.float32), np.zeros((1, 0), np.float32),
        np.array([0, 3]), np.array([2]), np.array([-1.0]), np.zeros(1, np.int64), np.zeros(1),
        np.zeros(1), np.array([True]),
    )  # fmt: skip
    learner.learn(done, np.random.default_rng(0))
    assert np.flatnonzero(learner.theta).tolist() == [0, 19]


def test_the_baseline_is_the_mean_at_that_time_of_that_scene():
    done = bandit(BY_NAME["cheng"], 0, many=4)._replace(
        worth=np.array([1.0, 3.0, 5.0, 5.0]), scene=np.array([0, 0, 1, 1]), time_s=np.zeros(4)
    )
    assert np.allclose(against_time(done), [-np.sqrt(2), np.sqrt(2), 0, 0], atol=1e-4)
    same = done._replace(standing=np.array([4.0, 2.0, 0.0, 0.0]))  # as bad before as after
    assert np.allclose(against_time(same), 0, atol=0.01)


def test_slots_in_another_order_are_the_same_decision():
    peer = BY_NAME["deeprm"]
    rows = np.zeros((3, peer.features + 10), np.float32)
    for slot in range(10):
        rows[:, deeprm.IMAGE + 6 * slot] = slot
    rows[:, peer.features : peer.features + 4] = 1
    nothing = np.zeros(3)
    done = Round(
        rows, np.zeros((3, 0), np.float32), np.arange(4), np.array([0, 3, 10]), nothing,
        np.zeros(3, np.int64), nothing, nothing, nothing > 0,
    )  # fmt: skip
    other = shuffled(peer, done, np.random.default_rng(0))
    assert not (other.rows == rows).all() and other.act[2] == 10
    for decision, slot in ((0, 0), (1, 3)):
        at = other.act[decision]
        assert other.rows[decision, deeprm.IMAGE + 6 * at] == slot
        assert other.rows[decision, peer.features + at] == 1
    assert (other.rows[:, peer.features :].sum(1) == 4).all()


def test_chances_of_a_choice_add_up_to_one():
    peer = BY_NAME["rlscheduler"]
    learner, done = Learner(peer, 0.001, 0), bandit(BY_NAME["rlscheduler"], 0, many=5)
    weights = torch.tensor(learner.theta, dtype=torch.float32)
    total = sum(
        learner._chances(weights, done._replace(act=np.full(5, act)), np.arange(5))[0].exp()
        for act in range(3)
    )
    assert np.allclose(total.numpy(), 1.0, atol=1e-5) and rlscheduler.WINDOW == 128
