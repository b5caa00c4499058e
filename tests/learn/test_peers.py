"""Peers train end to end on a small co-located scene, go on where they stopped, and get better."""

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.policies.peers.files import read_weights
from trimtab.policies.peers.kinds import peer_of
from trimtab.policies.peers.nets import mlp
from trimtab.policies.peers.training import train_peer

SMALL = dict(trace="colocated:regions=2,span_s=120", machines=8, pool=3, held=2, every=2, round=2)


@pytest.mark.parametrize("name", ["ghasemi", "islam-reinforce"])
def test_training_goes_on_where_it_stopped(tmp_path, name):
    whole = list(train_peer(name, tmp_path / "a", steps=4, **SMALL))
    first = next(train_peer(name, tmp_path / "b", steps=4, **SMALL))
    rest = list(train_peer(name, tmp_path / "b", steps=4, **SMALL))
    assert [row.step for row in whole] == [2, 4] == [first.step, *(row.step for row in rest)]
    assert rest[-1].loss == whole[-1].loss and rest[-1].worth == whole[-1].worth
    assert list(train_peer(name, tmp_path / "b", steps=4, **SMALL)) == []
    with pytest.raises(PolicyError, match=r"rate=0\.003, and now rate"):
        list(train_peer(name, tmp_path / "b", steps=4, rate=0.1, **SMALL))
    kept = read_weights(tmp_path / "a" / f"{name}.npz", name)
    assert kept.facts["loss"] == min(row.loss for row in whole if row.loss == row.loss)


def test_a_setting_that_leaves_nothing_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="steps=0 leaves nothing"):
        list(train_peer("cheng", tmp_path, steps=0))


def test_rlscheduler_learns_to_start_short_jobs_first(tmp_path):
    given = SMALL | {"every": 100, "round": 5, "rate": 0.01}
    list(train_peer("rlscheduler", tmp_path, steps=60, **given))
    theta = read_weights(tmp_path / "rlscheduler.npz", "rlscheduler").theta
    peer = peer_of("rlscheduler")
    row = np.array([0.3, 0.2, 0.25, 0.02, 0.2, 0.3, 1.0, 0.0])
    short, long = row.copy(), row.copy()
    long[[1, 5]] = 0.9, 0.6
    first, last = (mlp(theta, 0, np.array(peer.sizes), one)[0] for one in (short, long))
    assert first > last
