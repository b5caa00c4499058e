"""`trimtab train`: what it leaves behind, how it goes on, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from trimtab.cli import train as cli
from trimtab.errors import PolicyError, TrimtabError
from trimtab.policies.dqn.policy import DqnPolicy

COMMAND = [sys.executable, "-m", "trimtab"]
TINY = (
    "clusters=8", "window=3", "hidden=16", "batch=16", "replay=2000", "warmup=100", "jobs=20",
    "train_jobs=100", "windows=2", "window_jobs=20", "every=400", "trunk=cnn",
)  # fmt: skip
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def trimtab(*words, **more):
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=900, env=QUIET, **more
    )


def train(out, steps, *more):
    """What the command tells as JSON; nothing where there was nothing to do."""
    saved = out.parent / "told.json"
    saved.unlink(missing_ok=True)
    cli.train("dqn", to=out, steps=steps, settings=[*TINY, *more], json_file=str(saved))
    return json.loads(saved.read_text()) if saved.exists() else None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    return out, train(out, 800)


def test_it_leaves_a_network_a_checkpoint_and_a_log(run):
    out, told = run
    assert (told["step"], told["steps"]) == (800, 800)
    assert told["jct_s"] >= told["best_jct_s"] > 0 and told["rule_jct_s"] > 0
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint.pt", "dqn.onnx", "log"]
    assert any((out / "log").iterdir())
    policy = DqnPolicy(out / "dqn.onnx")
    assert policy.trained.window == 3
    assert policy.told["command"].startswith("trimtab")
    assert json.loads(policy.told["settings"])["hidden"] == 16


def test_it_goes_on_where_it_stopped_and_refuses_other_settings(run, capsys):
    out, _ = run
    (out / "checkpoint.pt.part").write_bytes(b"killed while it wrote this")
    assert train(out, 800) is None
    assert "trained so far already" in capsys.readouterr().err
    assert train(out, 1200)["step"] == 1200
    with pytest.raises(
        PolicyError, match=r"made with gamma=0\.95, and now gamma=0\.5; give another"
    ):
        train(out, 2000, "gamma=0.5")


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path):
    settings = [word for text in TINY for word in ("--set", text)]
    words = ["train", "dqn", "--out", str(tmp_path), *settings, "--steps", "100000000"]
    process = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True, env=QUIET)
    checkpoint = tmp_path / "checkpoint.pt"
    for _ in range(3000):
        if checkpoint.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 130, told
    assert "give the same command again to go on" in told
    assert torch.load(checkpoint, weights_only=True)["learner"]["step"] >= 400


@pytest.mark.parametrize(
    ("learner", "given", "text"),
    [
        ("dqm", {}, "learner 'dqm' is unknown; did you mean 'dqn'? known: "),
        ("dqn", {"settings": ["gama=0.9"]}, "did you mean 'gamma'?"),
        ("dqn", {"settings": ["gamma=high"]}, "gamma='high' is not a number"),
        ("dqn", {"settings": ["double=1"]}, "double=1 is not true or false"),
        ("dqn", {"settings": ["trunk=cmm"]}, "known: cnn, set"),
        ("dqn", {"settings": ["gamma"]}, "is not NAME=VALUE"),
        ("dqn", {"settings": ["steps=6"], "steps": 5}, "both given"),
        ("dqn", {"trace": "nope.swf"}, "nope.swf: no such file"),
        ("dqn", {"settings": ["imitate=sfj", *TINY]}, "sfj"),
        ("dqn", {"settings": ["device=tpu9"]}, "device='tpu9' cannot be used here"),
    ],
)
def test_a_mistake_is_named_with_what_is_known(learner, given, text, tmp_path):
    with pytest.raises(TrimtabError) as mistake:
        cli.train(learner, to=tmp_path / "out", **given)
    assert text in str(mistake.value)


def test_a_mistake_is_one_line(tmp_path):
    done = trimtab("train", "dqn", "--out", tmp_path, "--set", "gama=0.9")
    assert done.returncode == 2
    assert done.stderr.startswith("error: setting 'gama' is unknown")
    assert "Traceback" not in done.stderr


def test_help_has_examples_and_every_setting():
    assert "--set mode=paper" in trimtab("train", "--help").stdout
    listed = trimtab("train", "dqn", "--set", "help").stdout
    assert "gamma=0.95" in listed and "trace=adlro" in listed
