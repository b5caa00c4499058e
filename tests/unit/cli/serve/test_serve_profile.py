"""`trimtab serve profile`: what it shows, writes and refuses."""

import json

import numpy as np
import pytest

from trimtab.cli.serve.serve_profile import profile
from trimtab.errors import ServeError
from trimtab.serving.net import serve_profile, slim_weights
from trimtab.serving.net.slim_form import Form, macs, row_of
from trimtab.serving.net.slim_weights import shapes
from trimtab.serving.server import measure

TINY = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(1, 1, 1, 1), side=8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A weight file whose accuracy rises with the row of the tuple."""
    path = tmp_path_factory.mktemp("weights") / "tiny.npz"
    rng = np.random.default_rng(0)
    arrays = {name: rng.random(shape, np.float32) + 0.5 for name, shape in shapes(TINY).items()}
    slim_weights.save(path, TINY, arrays, {"accuracy_stored": np.linspace(0.5, 0.9, 256).tolist()})
    return path


def told(weights, folder, **more):
    saved = folder / "told.json"
    profile(
        weights=weights, buckets="1,2", repeats=1, cache=folder / "cache", json_file=str(saved),
        **more,
    )  # fmt: skip
    return json.loads(saved.read_text())


def test_the_profile_is_written_with_its_ways_and_the_ratio_of_wholes(weights, tmp_path, capsys):
    shown = told(weights, tmp_path, to=tmp_path / "made.npz")
    made = serve_profile.load(tmp_path / "made.npz")
    assert made.measured and made.buckets == (1, 2)
    assert made.accuracy[255] == pytest.approx(0.9)
    assert set(made.way.ravel()) <= {"onnx", "onnx-extended"}
    assert made.machine["whole_ratio"] > 0 and made.machine["threads"] == 1
    assert shown["uniform_s"]["2"][3] == pytest.approx(
        serve_profile.tuple_s(made, 2)[row_of((3, 3, 3, 3))]
    )
    printed = capsys.readouterr()
    assert "images/s" in printed.out and "tuples that none beats" in printed.out
    assert "x the sum of its segments" in printed.err


def test_the_tuples_shown_are_those_that_none_beats(weights, tmp_path):
    shown = told(weights, tmp_path)["tuples"]
    assert shown[-1]["accuracy"] == pytest.approx(0.9)
    assert all(a["accuracy"] < b["accuracy"] for a, b in zip(shown, shown[1:], strict=False))
    assert all(a["batch_s"] <= b["batch_s"] for a, b in zip(shown, shown[1:], strict=False))


def test_all_shows_every_tuple(weights, tmp_path, capsys):
    shown = told(weights, tmp_path, every=True)["tuples"]
    assert len(shown) == 256
    assert shown[255]["mmac"] == pytest.approx(macs(TINY, (3, 3, 3, 3)) / 1e6)
    assert "all tuples" in capsys.readouterr().out


def test_the_figures_are_written(weights, tmp_path, capsys):
    told(weights, tmp_path, plots=tmp_path / "figures")
    files = sorted((tmp_path / "figures").iterdir())
    assert [file.stem for file in files] == [
        "energy_by_utilisation",
        "latency_by_utilisation",
        "utilisation_by_batch",
    ]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    assert capsys.readouterr().err.count("figure: ") == 3


def test_stated_watts_are_kept_where_there_is_no_meter(weights, tmp_path, monkeypatch):
    monkeypatch.setattr("trimtab.serving.server.power._rapl", lambda *_: None)
    shown = told(weights, tmp_path, idle_w=3.0, busy_w=8.0)
    assert (shown["idle_w"], shown["busy_w"]) == (3.0, 8.0)
    assert "there is no meter" in shown["source"]


def test_weights_without_accuracy_take_the_published_line(weights, tmp_path):
    network = slim_weights.load(weights)
    slim_weights.save(tmp_path / "blind.npz", TINY, network.arrays, {})
    shown = told(tmp_path / "blind.npz", tmp_path)
    assert "accuracy from published tables" in shown["source"]


def test_a_stop_in_the_middle_writes_nothing(weights, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "measured", stopped)
    with pytest.raises(KeyboardInterrupt):
        told(weights, tmp_path, to=tmp_path / "made.npz")
    assert not (tmp_path / "made.npz").exists()


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"buckets": "1,two"}, "--buckets '1,two': give batch sizes such as"),
        ({"buckets": "4,8"}, r"buckets=\(4, 8\)"),
        ({"repeats": 0}, "repeats=0"),
        ({"way": ["quick"]}, "way 'quick' is unknown"),
        ({"idle_w": 9.0, "busy_w": 1.0}, "idle_w=9"),
    ],
)
def test_a_mistake_is_named(weights, tmp_path, asked, named):
    with pytest.raises(ServeError, match=named):
        profile(weights=weights, cache=tmp_path, **asked)


def test_missing_places_are_named_before_anything_is_measured(command, weights, tmp_path):
    to = tmp_path / "none" / "made.npz"
    code, _, said = command("serve", "profile", "--weights", weights, "--out", to)
    assert (code, "there is no such folder" in said) == (2, True)
    with pytest.raises(ServeError, match="no such file"):
        profile(weights=tmp_path / "none.npz")
