"""What validation makes of a few limits."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.policies.peers import validation
from trimtab.policies.peers.files import Weights
from trimtab.policies.peers.kinds import peer_of

WEIGHTS = Weights(np.zeros(peer_of("ghasemi").weights), "fcfs", "calm", {})


@pytest.fixture
def tried(monkeypatch):
    """Limits: harm and cost there; without either, some job never fits."""

    def lay(told):
        def play(policy, _):
            found = told[policy.rule.limit]
            if found is None:
                raise PolicyError("jobs are left")
            return SimpleNamespace(harm_added=found[0], cost=found[1])

        monkeypatch.setattr(validation, "play", play)
        monkeypatch.setattr(validation, "measure", vars)
        monkeypatch.setattr(validation, "cost", lambda found: found["cost"])

    return lay


def test_cost_at_a_harm_between_two_limits_is_in_proportion(tried):
    tried({0.8: (0.0, 9.0), 0.87: (0.005, 3.0), 0.94: (0.025, 1.0)})
    assert validation.at_harm("ghasemi", WEIGHTS, [None]) == pytest.approx(2.5)


def test_a_limit_under_which_some_job_never_fits_is_left_out(tried):
    tried({0.8: None, 0.87: (0.005, 3.0), 0.94: (0.015, 1.0)})
    assert validation.at_harm("ghasemi", WEIGHTS, [None]) == pytest.approx(2.0)
    tried({0.8: None, 0.87: None, 0.94: None})
    assert validation.at_harm("ghasemi", WEIGHTS, [None]) == math.inf
