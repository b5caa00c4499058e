"""Peers on snapshots of any backend and compiled whole: one outcome."""

import numpy as np
import pytest
from tests.worlds import Logged, lending_scene

from trimtab.live.fake import FakeBackend
from trimtab.policies.peers.files import Weights
from trimtab.policies.peers.kinds import BY_NAME
from trimtab.policies.peers.policy import PeerPolicy
from trimtab.run import run
from trimtab.sim.backend import SimBackend, events_of
from trimtab.sim.world import Models

BORROWED = ("", "peak@1.1", "trend@1.2", "p95@0.9+feedback@0.02", "now@1", "native@1.2")
CASES = [(name, seed) for i, name in enumerate(BY_NAME) for seed in (i % 6, (i + 3) % 6)]


def random_weights(name, seed):
    """Weights that nobody has trained: more is put off, and more groups are chosen."""
    peer = BY_NAME[name]
    theta = np.random.default_rng(seed).normal(0, 0.3, peer.weights)
    return Weights(theta, *peer.ways[seed % len(peer.ways)], {})


@pytest.mark.parametrize("name, seed", CASES)
def test_the_compiled_run_is_the_stepped_run_event_for_event(name, seed):
    jobs, machine, profile = lending_scene(np.random.default_rng(seed))
    models = Models(startup_s=float(seed % 2))
    given = {"borrow": BORROWED[seed], "weights": random_weights(name, seed)}
    stepped = Logged(jobs, machine, profile, models)
    run(stepped, PeerPolicy(name, **given))
    whole = PeerPolicy(name, **given).whole(jobs, machine, profile, models, log=True)
    assert events_of(whole.log) == stepped.seen
    assert whole.totals == stepped.snapshot().totals
    assert stepped.total("refused") == 0


@pytest.mark.parametrize("name", ["deeprm", "islam-dqn", "rjoub"])
def test_a_peer_brings_a_cluster_that_answers_late_to_its_end(name):
    jobs, machine, profile = lending_scene(np.random.default_rng(3), count=30)
    true = SimBackend(jobs, machine, profile)
    backend = FakeBackend(true, lag_s=2.0, rng=np.random.default_rng(0))
    run(backend, PeerPolicy(name, borrow="p95@1.1", weights=random_weights(name, 0)))
    batch = true.workload.truth["service"] == 0
    assert (true.snapshot().state["end_s"][batch] > 0).all()
