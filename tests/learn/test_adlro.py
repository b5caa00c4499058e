"""The learner of the adlro policy on a small field: it learns, resumes and refuses to mix runs."""

import numpy as np
import pytest

from trimtab.errors import PolicyError
from trimtab.policies.adlro.branches import Branches
from trimtab.policies.adlro.learner import Settings, train
from trimtab.policies.adlro.net import GUIDE
from trimtab.policies.adlro.policy import read_net
from trimtab.traces.scenes.adlro import adlro_cluster, adlro_jobs, adlro_profile

MACHINES = adlro_cluster(volta=2, turing=1, radeon=1)
SMALL = dict(decisions=400, steps=150, batch=256, width=16, apart=30)


def jobs(seed, count=40):
    rng = np.random.default_rng(seed)
    return adlro_jobs(rng=rng, jobs=count, load=0.9, estimate="noisy", cluster=MACHINES)


def draw(rng):
    works = [jobs(int(rng.integers(2**31))) for _ in range(24)]
    return Branches(works, [MACHINES] * 24, adlro_profile(), horizon=4)


def validate(net):
    works = [jobs(10**6 + seed, 100) for seed in range(6)]
    return Branches(works, [MACHINES] * 6, adlro_profile()).finish(net)


def rounds(out, **settings):
    told = list(train(draw, validate, out, Settings(**SMALL | settings)))
    return [row for row in told if row.ratio == row.ratio]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training of two rounds: its folder and what it told."""
    out = tmp_path_factory.mktemp("whole")
    return out, rounds(out, rounds=2)


def test_a_network_is_written_that_is_not_worse_than_its_rule_on_the_validation_windows(whole):
    out, told = whole
    assert [row.round for row in told] == [0, 1]
    assert told[-1].best_ratio == min(row.ratio for row in told)
    net = read_net(out / "adlro.onnx")
    by_rule, by_net = validate(GUIDE), validate(net)
    assert np.exp(np.log(by_net / by_rule).mean()) == pytest.approx(told[-1].best_ratio)
    assert told[-1].best_ratio < 1.02


def test_a_training_in_two_parts_is_the_training_in_one(whole, tmp_path):
    rounds(tmp_path, rounds=1)
    rest = rounds(tmp_path, rounds=2)
    assert rest[0]._replace(wall_s=0) == whole[1][1]._replace(wall_s=0)


def test_other_settings_in_the_same_folder_are_refused_by_name(whole):
    with pytest.raises(PolicyError, match="made with width=16, and now width=8"):
        rounds(whole[0], rounds=1, width=8)
