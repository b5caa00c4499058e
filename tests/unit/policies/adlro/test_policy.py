"""The adlro policy that is shipped, and a network file that is none."""

import numpy as np
import onnxruntime
import pytest
from tests.nets import values_of

from trimtab.errors import PolicyError
from trimtab.policies.adlro.pairs import WIDTH
from trimtab.policies.adlro.policy import SHIPPED, AdlroPolicy
from trimtab.testing import check_policy


def test_onnxruntime_and_compiled_code_give_the_same_numbers():
    policy = AdlroPolicy()
    rows = np.random.default_rng(0).normal(size=(50, WIDTH)).astype(np.float32)
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
