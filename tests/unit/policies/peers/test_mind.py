"""How a row is chosen: the best, by its share, or any; and never one that is masked."""

import numpy as np
import pytest

from trimtab.compiled import compiled
from trimtab.policies.peers.kinds import BY_NAME
from trimtab.policies.peers.mind import (
    ANY,
    BEST,
    DRAWN,
    choose,
    keep_place,
    remember,
    take_back,
    tape,
    write,
)

PEER = BY_NAME["rjoub"]
THETA = np.zeros(PEER.weights)


@compiled
def chosen(mind, score, times):
    """How often each row is taken."""
    found = np.zeros(score.shape[0], np.int64)
    for _ in range(times):
        found[choose(mind, score, score.shape[0])] += 1
    return found


@compiled
def decided(mind, kept, rows, step, again):
    """Two decisions of a pass, the second of which is taken back where `again`."""
    remember(mind, step)
    write(mind, kept, rows, 2, 1, 7, 3.0)
    keep_place(mind, kept)
    remember(mind, 2 * step)
    write(mind, kept, rows, 3, 0, 8, 4.0)
    choose(mind, step, 2)
    if again:
        take_back(mind, kept)


def test_the_best_row_is_taken_and_of_equals_the_first():
    score = np.array([1.0, 3.0, 3.0])
    assert chosen(PEER.mind(THETA, BEST), score, 5).tolist() == [0, 5, 0]


@pytest.mark.parametrize("how", [BEST, DRAWN])
def test_a_masked_row_is_never_taken(how):
    score = np.array([-np.inf, 0.0, -np.inf, 0.5])
    found = chosen(PEER.mind(THETA, how), score, 2000)
    assert found[0] == found[2] == 0


def test_a_row_is_drawn_by_its_share():
    score = np.log(np.array([1.0, 2.0, 5.0]))
    share = chosen(PEER.mind(THETA, DRAWN, seed=3), score, 20_000) / 20_000
    assert np.allclose(share, [0.125, 0.25, 0.625], atol=0.015)


def test_any_row_is_taken_as_often_as_the_rate_says():
    score = np.array([0.0, 1.0, 0.0, 0.0])
    share = chosen(PEER.mind(THETA, ANY, 0.4, seed=5), score, 20_000) / 20_000
    assert np.allclose(share, [0.1, 0.7, 0.1, 0.1], atol=0.015)


@pytest.mark.parametrize("again", [False, True])
def test_a_pass_that_is_planned_anew_leaves_nothing_behind(again):
    mind, kept = PEER.mind(THETA), tape(5, 20, 2, 48)
    rows, step = np.arange(8.0).reshape(4, 2), np.arange(1.0, 7.0)
    decided(mind, kept, rows, step, again)
    assert kept.length[0] == (1 if again else 2) and mind.asked[0] == (0 if again else 1)
    assert (mind.memory[0, -1] == (step if again else 2 * step)).all()
    assert kept.ptr[:2].tolist() == [0, 2] and kept.act[0] == 1 and kept.job[0] == 7
    assert kept.rows[:2].tolist() == [[0, 1], [2, 3]]
    assert (kept.more[0, -6:] == step).all() and (kept.more[0, :-6] == 0).all()


def test_a_full_tape_keeps_what_it_has():
    mind, kept = PEER.mind(THETA), tape(1, 20, 2, 48)
    decided(mind, kept, np.zeros((4, 2)), np.ones(6), False)
    assert kept.length[0] == 1 and kept.job[0] == 7
