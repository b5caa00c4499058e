"""A file given for a profile of a GPU by mistake is named, with the command that takes it."""

import json

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.calibrate.foreign import named_as
from trimtab.llm.calibrate.gpu_profile import read_profile
from trimtab.serving.net.serve_profile import SHIPPED
from trimtab.serving.routing.learned_router import SHIPPED as ROUTERS


def network(folder):
    path = folder / "dqn.onnx"
    path.write_bytes(b"\x08\x07")
    return path


def written(folder, content):
    path = folder / "x.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (lambda _: next(iter(ROUTERS.values())), "is a learned router; give it to trimtab serve"),
        (lambda _: SHIPPED["cpu"], "is a profile of `trimtab serve profile`; give it to"),
        (network, "is a network, such as `trimtab train dqn` writes; give it to trimtab compare"),
        (lambda folder: written(folder, {"plans": []}), "trimtab plan watch --current"),
        (lambda folder: written(folder, {"correction": {}}), "trimtab plan watch --state"),
        (lambda folder: written(folder, {"hidden_size": 8}), "trimtab plan, as its MODEL"),
    ],
)
def test_a_file_of_another_command_says_where_it_belongs(tmp_path, path, said):
    with pytest.raises(PlanError, match="--profile takes here what") as refused:
        read_profile(path(tmp_path))
    assert said in str(refused.value)


def test_a_stranger_is_not_named(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(2))
    assert named_as(tmp_path / "x.npz") == ""
    assert named_as(tmp_path / "absent.npz") == ""
    assert named_as(written(tmp_path, [1])) == ""
