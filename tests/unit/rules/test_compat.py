"""The workers' score in its parts, as an index asks for them, and as the sum of its terms."""

import numpy as np
import pytest

from trimtab.compiled import compiled
from trimtab.rules.compat import LEAST, SIGN, WEIGHTS, compatibility, terms
from trimtab.rules.fit import horizon_now
from trimtab.rules.names import PLACES
from trimtab.rules.place import bonus, ease, rest
from trimtab.sim import kernel
from trimtab.sim.lend import set_limit
from trimtab.sim.lending import estimate_of
from trimtab.sim.world import make_world
from trimtab.traces.scenes.scene import open_scene

WORKER = PLACES["worker"]


@compiled
def probe(w, node, job, out):
    """The score, the most that its parts allow; its terms go to `out`."""
    terms(w, 0, node, job, 0, out)
    own = ease(WORKER, w, 0, node, horizon_now(w, 0, job)) + bonus(WORKER, w, 0, node, job, 0)
    return compatibility(w, 0, node, job, 0), own + rest(WORKER, w, 0, node)


@pytest.fixture(scope="module")
def world():
    scene = open_scene("colocated:machines=24,span_s=300", seed=3)
    made = make_world([scene.workload], [scene.cluster], scene.profile)
    kernel.reset(made, 0)
    set_limit(made, 0, -1, 0.9, estimate_of("trend"))
    for _ in range(200):
        assert kernel.advance(made, 0)
    return made


def test_the_parts_of_a_score_are_its_terms_by_their_weights(world):
    rng, out = np.random.default_rng(0), np.zeros(LEAST)
    jobs = np.flatnonzero(np.array(world.truth[0]["service"]) == 0)
    for _ in range(200):
        weights = rng.uniform(-1, 1, len(WEIGHTS))
        weights[LEAST], weights[4] = -1e9, abs(weights[4])
        node, job = int(rng.integers(24)), int(rng.choice(jobs))
        found, most = probe(world.replaced(worker=weights[None, None].copy()), node, job, out)
        assert found == pytest.approx(float((SIGN * weights[:LEAST]) @ out), abs=1e-9)
        assert found <= most
    assert out[1] > 0 and out[2] > 0  # services run there


def test_below_the_least_that_is_admitted_a_node_is_no_choice(world):
    weights = np.zeros(len(WEIGHTS))
    weights[LEAST] = 0.5
    out = np.zeros(LEAST)
    job = len(world.jobs[0]) - 1
    assert probe(world.replaced(worker=weights[None, None]), 0, job, out)[0] == -np.inf
