"""The likelihood, reward and credit of the learner of routers, by hand; and its settings."""

import numpy as np
import pytest
import torch

from trimtab.errors import ServeError
from trimtab.serving.routing import heads
from trimtab.serving.training.router import train_router
from trimtab.serving.training.router_ppo import PpoSettings, credited, log_likelihood, rewards


def test_the_likelihood_has_the_mixed_server_head():
    logits = torch.zeros(1, heads.outputs_of(3))
    logits[0, 0] = np.log(2.0)  # servers 2 : 1 : 1
    action, explore = torch.tensor([[0, 1, 2]]), torch.tensor([0.3])
    found, entropy = log_likelihood(logits, action, explore)
    assert found.item() == pytest.approx(np.log((0.7 * 0.5 + 0.3 / 3) / 4 / 5), rel=1e-5)
    servers = -(0.5 * np.log(0.5) + 0.5 * np.log(0.25))
    assert entropy.item() == pytest.approx(servers + np.log(4) + np.log(5), rel=1e-5)


def test_the_reward_is_that_of_the_paper():
    on = PpoSettings(alpha=2.0, beta=3.0, gamma=5.0, delta=7.0, bonus=0.1)
    part = np.array([[0.8, 0.01, 0.02, 0.03]])
    assert rewards(part, on, 0.7)[0] == pytest.approx(0.2 - 0.03 - 0.1 - 0.21 + 0.1)


def test_credit_runs_along_a_fleet_and_stops_at_its_end():
    on = PpoSettings(discount=0.5, trace=1.0)
    reward, value = torch.tensor([1.0, 1.0, 4.0]), torch.zeros(3)
    found = credited(reward, value, np.array([0, 0, 1]), on)
    assert found.tolist() == [1.5, 1.0, 4.0]


@pytest.mark.parametrize(
    ("given", "named"),
    [({"kind": "best"}, "kind='best'"), ({"updates": 0}, "updates=0"), ({"load_low": 2.0}, "load")],
)
def test_a_mistake_is_named(tmp_path, given, named):
    with pytest.raises(ServeError, match=named):
        list(train_router(tmp_path, **given))
