"""`trimtab train packer`: what it leaves behind, that it goes on, and what it refuses."""

import json

import numpy as np
import pytest

from trimtab.cli import train as cli
from trimtab.errors import PolicyError, TraceError
from trimtab.learners import settings_of
from trimtab.policies import check, named
from trimtab.policies.packer.lists import ground, packer_of
from trimtab.policies.packer.training import first_weights, losses, score, train_packer
from trimtab.rules.worth import CLASSES, FEATURES, read_weights
from trimtab.sim.packing import FGD, PACKER, Packing

TINY = {"nodes": 20, "lists": 1, "held": 2, "every": 2, "population": 4, "workers": 2}
SHAPE = (len(CLASSES), len(FEATURES))


def trained(out, **more):
    return list(train_packer(out, command="trimtab train packer", **{**TINY, **more}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("packer")
    return out, trained(out, steps=4)


def test_it_leaves_weights_that_say_how_they_were_made(run):
    out, rows = run
    assert [row.step for row in rows] == [1, 2, 3, 4]
    assert [row.loss == row.loss for row in rows] == [False, True, False, True]
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint.npz", "packer.json"]
    held = json.loads((out / "packer.json").read_text())
    assert held["command"] == "trimtab train packer"
    assert held["settings"]["nodes"] == 20 and held["generation"] in (2, 4)
    assert rows[-1].best_loss == min(row.loss for row in rows if row.loss == row.loss)


def test_a_training_that_was_stopped_goes_on_to_the_last_bit(run, tmp_path):
    out, rows = run
    first = trained(tmp_path, steps=3, every=2)
    assert [row.step for row in first] == [1, 2, 3]
    second = trained(tmp_path, steps=4)
    assert [row.step for row in second] == [4]
    assert second[-1].loss == rows[-1].loss
    with np.load(out / "checkpoint.npz") as whole, np.load(tmp_path / "checkpoint.npz") as parts:
        for name in ("mean", "covariance", "sigma"):
            assert whole[name].tolist() == parts[name].tolist()
    assert trained(tmp_path, steps=4) == []


def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(tmp_path):
    rows = train_packer(tmp_path, **{**TINY, "steps": 4})
    next(rows)
    with pytest.raises(KeyboardInterrupt):
        rows.throw(KeyboardInterrupt)
    assert [row.step for row in trained(tmp_path, steps=4)] == [2, 3, 4]


def test_other_settings_and_damaged_checkpoints_are_refused(run, tmp_path):
    out, _ = run
    with pytest.raises(PolicyError, match=r"made with nodes=20, and now nodes=21"):
        trained(out, steps=4, nodes=21)
    (tmp_path / "checkpoint.npz").write_bytes(b"no zip")
    with pytest.raises(PolicyError, match="not a checkpoint of ours"):
        trained(tmp_path, steps=1)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"steps": 0}, "steps=0"), ({"population": 3}, "population=3"), ({"sigma": 0.0}, "sigma=0")],
)
def test_settings_that_leave_nothing_are_refused(tmp_path, given, told):
    with pytest.raises(PolicyError, match=told):
        trained(tmp_path, **given)


def test_the_policy_takes_the_folder_and_the_file(run):
    out, _ = run
    for name in (f"packer:{out}", f"packer:{out}/packer.json", str(out)):
        check(name)
        assert named(name).name == "packer"
    code, weights = packer_of(f"packer:{out}")
    assert code == PACKER
    assert weights.tolist() == read_weights(out / "packer.json").tolist()
    assert packer_of("fgd") == (FGD, None)
    with pytest.raises(PolicyError, match="no such file"):
        check("packer:nowhere")


def test_a_loss_counts_what_is_below_fgd_twice_and_at_most_two_points_above():
    gains = np.array([[1.0, 0.5], [5.0, -1.0]])
    # (1 + 0.5) / 2;  (2 - 2 x 1) / 2
    assert losses(gains).tolist() == [-0.75, 0.0]


def test_a_score_is_of_the_moment_all_gpus_are_asked_for_the_mean_since_and_the_end():
    used = np.array([600, 700, 900])
    arrived = np.array([900, 1000, 1200])
    done = Packing(None, None, arrived, used, None, 1000)
    assert score(done) == pytest.approx(100 * (0.7 + (0.7 + 0.9) / 2 + 0.9) / 3)
    early = done._replace(arrived_gpu_milli=arrived // 2)
    assert score(early) == pytest.approx(90)


def test_lists_are_drawn_of_a_users_own_mix(tmp_path):
    pods = tmp_path / "pods.csv"
    nodes = tmp_path / "nodes.csv"
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
        + "".join(f"p{i},2000,4096,1,{250 if i % 2 else 1000}\n" for i in range(8))
    )
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,65536,4,T4\nb,32000,65536,0,\n")
    of = ground(str(pods), str(nodes), 600, 1.3, 0.0, 0.0)
    drawn = of.drawn(np.random.default_rng(1))
    assert len(drawn.nodes.gpu) == 1  # the node without GPUs has nothing to share
    assert set(drawn.pods.gpu_milli.tolist()) <= {250, 1000}
    assert 0.5 <= drawn.filled(PACKER, first_weights()).gpu_allocation <= 1
    with pytest.raises(TraceError, match="give --cluster"):
        ground(str(pods), None, 600, 1.3, 0.0, 0.0)
    with pytest.raises(TraceError, match="goes with a pod list"):
        ground("openb", str(nodes), 600, 1.3, 0.0, 0.0)


def test_the_command_trains_and_names_what_to_do_next(tmp_path, capsys):
    cli.train("packer", to=tmp_path, steps=2, settings=[f"{k}={v}" for k, v in TINY.items()])
    told = capsys.readouterr()
    assert f"trimtab compare packer:{tmp_path}" in told.out + told.err
    assert settings_of("packer")["trace"] == "openb"
