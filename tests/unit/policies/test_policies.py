"""Policies by name, and by name and file: what is taken, and a sentence for what is not."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from trimtab.errors import PolicyError, TrimtabError
from trimtab.policies import check, file_of, labels, named
from trimtab.policies.adlro.policy import SHIPPED, AdlroPolicy, write_net
from trimtab.serving.routing.learned_router import SHIPPED as ROUTERS
from trimtab.testing import check_policy


@pytest.fixture
def run(tmp_path) -> Path:
    """A folder as `trimtab train adlro --out run` leaves it, as far as a policy reads it."""
    shutil.copy(SHIPPED, tmp_path / "adlro.onnx")
    return tmp_path


def another(path: Path) -> None:
    """A network of somebody else's."""
    from onnx import TensorProto, helper, save_model

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "theirs", ends[:1], ends[1:])
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def test_a_file_and_its_folder_name_the_same_network(run):
    by_file, by_folder = named(f"adlro:{run / 'adlro.onnx'}"), named(f"adlro:{run}")
    assert isinstance(by_file, AdlroPolicy)
    assert (by_file.net.flat == by_folder.net.flat).all()
    assert file_of(f"adlro:{run}") == run / "adlro.onnx"


def test_adlro_drift_watches_over_the_network_that_is_given(run):
    layers = [(np.ones((32, 4)), np.zeros(4)), (np.ones((4, 1)), np.zeros(1))]
    write_net(run / "adlro.onnx", layers, 0.1, 1.0)
    assert named(f"adlro-drift:{run}").policy.net.sizes.tolist() == [32, 4, 1]


def test_a_name_with_a_file_is_checked_as_any_policy(run):
    check_policy(f"adlro:{run}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adlro:nope.onnx", r"^nope\.onnx: no such file; train one with `trimtab train adlro"),
        ("dqn:nope.onnx", r"^nope\.onnx: no such file; train one with `trimtab train dqn"),
        ("dqn", "train one first: `trimtab train dqn --out run`, then dqn:run/dqn.onnx"),
        ("adlro:", "give adlro:PATH"),
        ("fluid:x", r"'fluid' takes no file \(fluid:x\); those that do: adlro:PATH, .*dqn:PATH"),
        ("adlro-rule:x", "takes no file"),
        ("sjf:x", "'sjf' takes no file"),
        ("sjf+easy:x", "takes no file"),
        ("adrlo:x", "'adrlo' in 'adrlo:x' is unknown; did you mean 'adlro'"),
        (f"dqn:{SHIPPED}", "a network of adlro, not of dqn; give it as adlro:"),
        (
            f"adlro:{ROUTERS['learned']}",
            "router.npz: a router, which `trimtab serve --router` takes",
        ),
    ],
)
def test_a_wrong_name_or_file_is_one_sentence_that_says_what_to_give(name, words):
    for raised_by in (check, named):
        with pytest.raises(TrimtabError, match=words) as mistake:
            raised_by(name)
        assert "\n" not in str(mistake.value)


def test_a_folder_without_the_network_says_whose_it_holds(run):
    with pytest.raises(PolicyError, match=f"holds no dqn.onnx, but a network of adlro: .*{run}"):
        check(f"dqn:{run}")
    (run / "adlro.onnx").unlink()
    with pytest.raises(PolicyError, match=r"holds no adlro\.onnx; train one"):
        check(f"adlro:{run}")


@pytest.mark.parametrize("format", ["trimtab gpu profile 1", "trimtab slim 1"])
def test_a_file_of_another_command_says_which_takes_it(tmp_path, format):
    path = tmp_path / ("mine.json" if "profile" in format else "slim.npz")
    if path.suffix == ".json":
        path.write_text(f'{{"format": "{format}"}}')
    else:
        np.savez(path, facts=np.array(f'{{"format": "{format}"}}'))
    taker = "plan --profile" if path.suffix == ".json" else "serve --weights"
    with pytest.raises(
        PolicyError, match=f"{path.name}: .*, which `trimtab {taker}` takes; for adlro"
    ):
        check(f"adlro:{path}")


def test_a_checkpoint_is_not_taken_for_the_network(tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"anything")
    with pytest.raises(PolicyError, match="a training's checkpoint, which `trimtab train` goes on"):
        check(f"adlro:{tmp_path / 'checkpoint.pt'}")


def test_a_network_of_somebody_else_and_a_file_that_is_none_are_told_apart(tmp_path):
    another(tmp_path / "theirs.onnx")
    with pytest.raises(PolicyError, match=r"theirs\.onnx: an ONNX network, but none of ours"):
        check(f"adlro:{tmp_path / 'theirs.onnx'}")
    (tmp_path / "text.onnx").write_text("not a network")
    with pytest.raises(PolicyError, match=r"text\.onnx: not a readable ONNX network"):
        check(f"dqn:{tmp_path / 'text.onnx'}")


def test_checking_a_name_makes_no_policy(monkeypatch):
    monkeypatch.setattr(AdlroPolicy, "__init__", lambda *_, **__: pytest.fail("it was made"))
    check("adlro")


def test_a_bare_path_finds_whose_network_it_is(run):
    assert isinstance(named(str(run / "adlro.onnx")), AdlroPolicy)
    assert isinstance(named(str(run)), AdlroPolicy)
    assert file_of(str(run)) == run / "adlro.onnx"


def test_a_bare_path_to_no_network_of_ours_is_one_sentence(run):
    another(run / "theirs.onnx")
    (run / "empty").mkdir()
    for name, words in (
        (
            run / "theirs.onnx",
            r"theirs\.onnx: an ONNX network, but none of ours \(it tells none of",
        ),
        (run / "nope.onnx", r"nope\.onnx: no such file; train one with"),
        (run / "empty", r"empty: holds no network of ours; train one"),
    ):
        with pytest.raises(PolicyError, match=words) as mistake:
            check(str(name))
        assert "\n" not in str(mistake.value)


def test_a_folder_of_two_networks_is_not_guessed_at(run):
    shutil.copy(SHIPPED, run / "dqn.onnx")
    with pytest.raises(PolicyError, match=r"holds adlro\.onnx and dqn\.onnx; give the one"):
        check(str(run))


def test_a_folder_called_as_a_rule_is_not_meant(tmp_path, monkeypatch):
    (tmp_path / "fcfs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert named("fcfs").name == "fcfs"


def test_a_label_leaves_out_folders_where_the_rest_still_tells_policies_apart():
    long, other = "sb3:some/where/far/ppo.zip,place=first", "./a/folder/far/away/mine.py:Mine"
    assert labels([long, other, "a/dqn.onnx"]) == {
        long: "sb3:ppo.zip,place=first", other: "mine.py:Mine", "a/dqn.onnx": "a/dqn.onnx",
    }  # fmt: skip
    twin = "./b/folder/far/away/mine.py:Mine"
    assert labels([other, twin]) == {other: other, twin: twin}
