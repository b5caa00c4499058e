"""Peers by name, with a file of yours and what they borrow of services."""

import numpy as np
import pytest

from trimtab.errors import PolicyError, UnknownName
from trimtab.metrics import measure
from trimtab.play import play
from trimtab.policies import PEERS, check, file_of, named, trained
from trimtab.policies.peers.files import read_weights, shipped, write_weights
from trimtab.policies.peers.kinds import BY_NAME, peer_of
from trimtab.policies.peers.policy import PeerPolicy
from trimtab.rules.names import at_limit, turned
from trimtab.testing import check_policy
from trimtab.traces.scenes.scene import open_scene


@pytest.fixture
def run(tmp_path):
    """A folder as `trimtab train ghasemi --out run` leaves it."""
    peer = peer_of("ghasemi")
    theta = -np.arange(peer.weights) / 1000
    write_weights(tmp_path / "ghasemi.npz", theta, "sjf", "calm", {"command": "none"})
    return tmp_path


def test_every_peer_ships_small_and_is_called_by_its_name():
    for name in PEERS:
        made = named(f"{name}+p95@0.9")
        assert isinstance(made, PeerPolicy) and made.name == f"{name}+p95@0.9"
        assert made.rule.limit == 0.9 and trained(f"{name}+p95") and trained(name)
        assert shipped(name).stat().st_size < 100_000
        assert (made.weights.order, made.weights.place) in made.peer.ways


def test_a_limit_is_put_behind_the_estimate_as_in_a_rule(run):
    assert turned("cheng+p95") == "p95" and at_limit("cheng+p95", 0.7) == "cheng+p95@0.7"
    name = f"ghasemi:{run}+peak"
    assert at_limit(name, 0.8) == f"{name}@0.8"
    assert named(at_limit(name, 0.8)).rule.limit == 0.8


def test_weights_of_yours_are_taken_by_file_and_by_folder(run):
    for path in (run, run / "ghasemi.npz"):
        made = named(f"ghasemi:{path}+now")
        assert made.weights.order == "sjf" and made.weights.theta[1] == np.float32(-0.001)
        assert file_of(f"ghasemi:{path}+now") == run / "ghasemi.npz"
    check(f"ghasemi:{run}+now@0.8")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cheng:nope.npz", "no such file; train one with `trimtab train cheng"),
        ("cheng+best", "'cheng' in 'cheng.best' is unknown"),
        ("cheng+p95@3", "limit @3 is not a share"),
        ("ghasemi:", "no file stands behind the colon"),
    ],
)
def test_a_wrong_name_is_one_sentence(name, words):
    with pytest.raises((PolicyError, UnknownName), match=words):
        check(name)


def test_a_file_that_is_none_of_its_own_is_refused(run):
    with pytest.raises(PolicyError, match="not the weights of cheng"):
        read_weights(run / "ghasemi.npz", "cheng")
    (run / "cheng.npz").write_text("no weights")
    with pytest.raises(PolicyError, match="not a file of weights"):
        named(f"cheng:{run}")
    write_weights(run / "bad.npz", np.full(peer_of("ghasemi").weights, np.nan), "sjf", "calm", {})
    with pytest.raises(PolicyError, match="not finite"):
        named(f"ghasemi:{run / 'bad.npz'}")


@pytest.mark.parametrize("name", BY_NAME)
def test_a_peer_keeps_the_protocol(name):
    check_policy(name)


@pytest.mark.parametrize("name", ["rlscheduler", "rjoub"])
def test_what_was_trained_on_24_machines_runs_on_120_in_other_regions(name):
    scene = open_scene("colocated:machines=120,regions=8,span_s=120", seed=1, load=0.5)
    found = measure(play(named(f"{name}+peak@0.9"), scene))
    assert 0.5 < found["tsr"] <= 1.0
