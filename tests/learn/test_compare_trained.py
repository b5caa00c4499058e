"""What `trimtab train` wrote is what `trimtab compare` takes, by its file and by its folder."""

import json
import subprocess
import sys
from functools import partial

import pytest

from trimtab.cli import train as train_cli
from trimtab.policies.adlro import training

DQN = (
    "clusters=8", "window=3", "hidden=16", "batch=16", "replay=2000", "warmup=100", "jobs=20",
    "train_jobs=100", "windows=2", "window_jobs=20", "every=400", "trunk=cnn",
)  # fmt: skip
ADLRO = ("rounds=1", "decisions=60", "clusters=4", "width=8", "batch=32", "horizon=2")
SCENE = "adlro:jobs=30"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folders that both learners wrote, after a few steps each."""
    of = tmp_path_factory.mktemp("trained")
    train_cli.train("dqn", to=of / "dqn", steps=400, settings=list(DQN))
    with pytest.MonkeyPatch.context() as patch:
        few = partial(training.validation, jobs=20, seeds=1)
        patch.setattr(training, "validation", few)
        train_cli.train("adlro", to=of / "adlro", steps=20, settings=list(ADLRO))
    return of


def compared(*words):
    command = [sys.executable, "-m", "trimtab", "compare", *words, "--trace", SCENE, "--json", "-"]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_compare_takes_what_training_wrote_and_calls_it_what_was_typed(trained):
    names = [
        f"dqn:{trained / 'dqn' / 'dqn.onnx'}",
        f"dqn:{trained / 'dqn'}",
        f"adlro:{trained / 'adlro'}",
        f"adlro-drift:{trained / 'adlro' / 'adlro.onnx'}",
    ]
    done = compared(*names)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["policy"] for row in rows] == names
    assert all(row["metrics"]["finished"] == 30 for row in rows)
    assert rows[0]["metrics"]["jct_mean_s"] == rows[1]["metrics"]["jct_mean_s"]


def test_a_network_of_another_cluster_is_refused_before_anything_runs(trained):
    done = compared(
        "fcfs", f"dqn:{trained / 'dqn'}", "--cluster", "adlro:volta=2,turing=1,radeon=1"
    )
    assert done.returncode == 2 and not done.stdout
    assert "for 16 nodes, and this cluster has 4; train it" in done.stderr
