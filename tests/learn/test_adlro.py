"""The learner of the adlro policy on a small field: it learns, resumes and refuses to mix runs."""

import numpy as np
import onnxruntime
import pytest
from tests.nets import values_of

from trimtab.errors import PolicyError
from trimtab.policies.adlro.branches import Branches
from trimtab.policies.adlro.learner import Settings, train
from trimtab.policies.adlro.net import GUIDE
from trimtab.policies.adlro.pairs import WIDTH
from trimtab.policies.adlro.policy import AdlroPolicy, read_net
from trimtab.testing import check_policy
from trimtab.traces.scenes.adlro import adlro_cluster, adlro_jobs, adlro_profile

pytestmark = pytest.mark.learn
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


def test_a_network_is_written_that_is_not_worse_than_its_rule_on_the_validation_windows(tmp_path):
    told = rounds(tmp_path, rounds=2)
    assert [row.round for row in told] == [0, 1]
    assert told[-1].best_ratio == min(row.ratio for row in told)
    net = read_net(tmp_path / "adlro.onnx")
    by_rule, by_net = validate(GUIDE), validate(net)
    assert np.exp(np.log(by_net / by_rule).mean()) == pytest.approx(told[-1].best_ratio)
    assert told[-1].best_ratio < 1.02


def test_a_training_in_two_parts_is_the_training_in_one(tmp_path):
    whole = rounds(tmp_path / "one", rounds=2)
    rounds(tmp_path / "two", rounds=1)
    rest = rounds(tmp_path / "two", rounds=2)
    assert rest[0]._replace(wall_s=0) == whole[1]._replace(wall_s=0)


def test_other_settings_in_the_same_folder_are_refused_by_name(tmp_path):
    rounds(tmp_path, rounds=1)
    with pytest.raises(PolicyError, match=r"other settings \(width\)"):
        rounds(tmp_path, rounds=1, width=8)


def test_onnxruntime_and_compiled_code_give_the_same_numbers():
    policy = AdlroPolicy()
    rows = np.random.default_rng(0).normal(size=(50, WIDTH)).astype(np.float32)
    from trimtab.policies.adlro.policy import SHIPPED

    session = onnxruntime.InferenceSession(str(SHIPPED))
    (worth,) = session.run(["worth"], {"rows": rows})
    assert values_of(rows, policy.net) == pytest.approx(worth[:, 0], rel=1e-4, abs=1e-5)


def test_the_shipped_policy_keeps_the_protocol():
    check_policy(AdlroPolicy())


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no such file"), (b"rubbish", "not a readable ONNX network")],
)
def test_a_bad_network_file_is_named_with_the_remedy(tmp_path, content, says):
    path = tmp_path / "net.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PolicyError, match=says) as raised:
        AdlroPolicy(path)
    assert "net.onnx" in str(raised.value) and "trimtab train adlro" in str(raised.value)
