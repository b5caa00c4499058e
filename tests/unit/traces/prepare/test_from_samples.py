"""Samples of any machines become windows: what is kept, masked or counted, and a second run."""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.unit.traces.prepare.folders import hashes

from trimtab.errors import TraceError
from trimtab.load.features import CLUSTER, NODE, REGION
from trimtab.load.samples import Samples
from trimtab.load.window import LoadWindow
from trimtab.traces.prepare import Options, from_samples, prepare_samples

NAN = np.nan
RESULTS = {"cluster.parquet", "machines.parquet", "manifest.json", "node.parquet", "region.parquet"}
RESULTS |= {"segments.parquet"}
COLUMNS = ("time_s", "node", "cpu", "mem", "net_in", "net_out", "disk", "gpu")


def samples(*rows, names=("a", "b")):
    """Samples from (time_s, node, cpu[, mem, net_in, net_out, disk, gpu]); the rest is missing."""
    table = np.full((len(rows), len(COLUMNS)), NAN)
    for row, values in zip(table, rows):
        row[: len(values)] = values
    columns = list(np.ascontiguousarray(table.T))
    columns[1] = columns[1].astype(np.int64)
    return Samples(*columns, names=names)


def shuffled(seen, seed):
    order = np.random.default_rng(seed).permutation(len(seen.time_s))
    return seen._replace(**{name: getattr(seen, name)[order] for name in COLUMNS})


def level(out, name):
    return pq.read_table(out / f"{name}.parquet").to_pylist()


def removed(seen):
    return {name: count for name, count in from_samples.cleaned(seen)[1].items() if count}


def many(count=4000, windows=200, machines=3):
    """Samples at random moments of a day and more; some sensors are silent now and then."""
    rng = np.random.default_rng(5)
    ratios = rng.random((6, count))
    ratios[1:][rng.random((5, count)) < 0.2] = NAN
    time_s = np.round(rng.random(count) * windows * 300, 3)
    names = tuple(f"m{n}" for n in range(machines))
    return Samples(time_s, rng.integers(0, machines, count), *ratios, names=names)


def test_a_mean_of_samples_is_the_load_of_the_window(tmp_path):
    seen = samples((0, 0, 0.2, 0.4), (100, 0, 0.4, 0.6), (10, 1, 0.5, 0.9))
    manifest = prepare_samples(seen, tmp_path / "out")
    first, second = level(tmp_path / "out", "node")
    # cpu (0.2 + 0.4) / 2, mem (0.4 + 0.6) / 2, load their mean
    assert first["cpu"] == pytest.approx(0.3)
    assert first["mem"] == pytest.approx(0.5)
    assert first["load"] == pytest.approx(0.4)
    assert (first["cpu_max"], second["mem"]) == pytest.approx((0.4, 0.9))
    (cluster,) = level(tmp_path / "out", "cluster")
    assert cluster["machines"] == 2
    assert cluster["cpu"] == pytest.approx((0.3 + 0.5) / 2)
    assert manifest["tables"]["samples"]["kept"] == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == RESULTS


def test_of_two_samples_of_a_moment_the_smallest_is_kept_whatever_their_order(tmp_path):
    rows = [(10, 0, 0.9, 0.1), (10, 0, 0.2, 0.8), (10, 0, 0.2, 0.3), (10, 0, 0.2), (10, 1, 0.7)]
    kept, counts = from_samples.cleaned(samples(*rows))
    assert kept.tolist() == [2, 4]
    assert counts["repeated"] == 3
    prepare_samples(samples(*rows), tmp_path / "one")
    prepare_samples(samples(*rows[::-1]), tmp_path / "two")
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert level(tmp_path / "one", "node")[0]["mem"] == pytest.approx(0.3)


def test_no_order_of_the_rows_changes_a_byte(tmp_path):
    seen = many()
    again = seen._replace(
        **{name: np.repeat(getattr(seen, name), 2) for name in COLUMNS if name != "gpu"},
        gpu=np.stack((seen.gpu, 1 - seen.gpu), axis=1).ravel(),
    )
    prepare_samples(again, tmp_path / "as-they-came")
    for seed in range(2):
        prepare_samples(shuffled(again, seed), tmp_path / str(seed))
        assert hashes(tmp_path / str(seed)) == hashes(tmp_path / "as-they-came")


def test_the_moment_is_a_millisecond_and_machines_are_told_apart_before_time_0():
    assert removed(samples((-1.0, 0, 0.5), (-1.0, 1, 0.5))) == {}
    assert removed(samples((-1.0, 0, 0.5), (-1.0001, 0, 0.5), (-1.001, 0, 0.5))) == {"repeated": 1}


def test_load_is_cpu_alone_where_memory_is_not_measured(tmp_path):
    prepare_samples(samples((0, 0, 0.25), (0, 1, 0.75)), tmp_path / "out")
    first, second = level(tmp_path / "out", "node")
    assert (first["mem"], first["gpu"], second["mem"]) == (None, None, None)
    assert (first["load"], second["load"]) == (0.25, 0.75)
    (cluster,) = level(tmp_path / "out", "cluster")
    assert cluster["mem"] is None
    assert cluster["load"] == 0.5


def test_a_sensor_that_reads_no_share_is_masked_and_the_sample_kept(tmp_path):
    rows = [(0, 0, 0.5, 1.7, -0.1, np.inf, 0.25), (30, 0, 0.5, 0.5, 0.5, 0.5, 0.75)]
    seen = samples(*rows, names=("a",))
    assert removed(seen) == {}
    prepare_samples(seen, tmp_path / "out")
    (row,) = level(tmp_path / "out", "node")
    assert (row["mem"], row["net_in"], row["net_out"], row["disk"]) == (0.5,) * 4


def test_rows_in_are_rows_kept_and_removed_by_rule(tmp_path):
    rows = [(0, 0, 0.5), (1, 0, NAN), (2, 0, 1.01), (3, 0, -0.01), (NAN, 0, 0.5), (np.inf, 0, 0.5)]
    rows += [(NAN, 0, NAN), (1e300, 0, 0.5), (0, 0, 0.5), (4, 0, np.inf)]
    counts = prepare_samples(samples(*rows), tmp_path / "out")["tables"]["samples"]
    assert counts["in"] == len(rows)
    assert counts["kept"] == 1
    # no value: the NaN at 1 and without a time, and the infinity at 4
    assert counts["removed"] == {"no-value": 3, "no-time": 3, "over-capacity": 2, "repeated": 1}


def test_samples_of_which_none_is_good_are_refused(tmp_path):
    with pytest.raises(TraceError, match="none of its 2 samples is left"):
        prepare_samples(samples((0, 0, NAN), (0, 1, 7.0)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_clock_that_was_wrong_is_refused_and_not_filled_with_windows(tmp_path):
    with pytest.raises(TraceError, match="from 0 to 1700000000, more than 10 years"):
        prepare_samples(samples((0, 0, 0.5), (1.7e9, 0, 0.5)), tmp_path / "out")


def test_a_gap_is_marked_and_not_filled(tmp_path):
    # windows 1 and 3 have nothing of a; b is silent from window 1 on
    seen = samples((0, 0, 0.2), (0, 1, 0.4), (600, 0, 0.3), (1200, 0, 0.1))
    prepare_samples(seen, tmp_path / "out")
    rows = level(tmp_path / "out", "node")
    assert [row["window"] for row in rows if row["node"] == 0] == [0, 1, 2, 3, 4]
    cpu = {(row["window"], row["node"]): row["cpu"] for row in rows}
    assert [cpu[w, 0] is None for w in range(5)] == [False, True, False, True, False]
    assert [cpu[w, 1] is None for w in range(5)] == [False, True, True, True, True]
    machines = [row["machines"] for row in level(tmp_path / "out", "cluster")]
    assert machines == [2, 0, 1, 0, 1]


def test_a_gap_longer_than_a_block_is_as_many_empty_windows(tmp_path):
    far = 3 * from_samples.WINDOWS_A_BLOCK
    manifest = prepare_samples(samples((0, 0, 0.2), (300 * far, 0, 0.4)), tmp_path / "out")
    assert manifest["windows"] == {"first": 0, "count": far + 1, "machines": 2}
    seen = [row["machines"] for row in level(tmp_path / "out", "cluster")]
    assert (seen[0], seen[far], sum(seen)) == (1, 1, 2)


@pytest.mark.parametrize("begin_s", [0.0, 1.7e9, -86_400.0])
def test_features_are_those_of_the_live_window(tmp_path, begin_s):
    seen = many()
    seen = seen._replace(time_s=seen.time_s + begin_s)
    prepare_samples(seen, tmp_path / "out", options=Options(history=6))
    first_s = seen.time_s.min() // 300 * 300
    live = LoadWindow(np.ones((3, 2)), np.zeros(3, int), history=6, start_s=first_s)
    live.use(seen)
    frames = live.close(seen.time_s.max() // 300 * 300 + 300)
    for name, features in (("node", NODE), ("region", REGION), ("cluster", CLUSTER)):
        table = pq.read_table(tmp_path / "out" / f"{name}.parquet")
        ours = np.stack([table[f].to_numpy(zero_copy_only=False) for f in features], axis=-1)
        theirs = np.concatenate([np.atleast_2d(getattr(frame, name)) for frame in frames])
        assert np.array_equal(ours, theirs, equal_nan=True)
    assert table["window"].to_pylist() == [frame.window for frame in frames]


def test_splits_that_are_too_short_are_noted(tmp_path):
    notes = prepare_samples(samples((0, 0, 0.5)), tmp_path / "out")["notes"]
    assert [note.split(" ")[0] for note in notes] == ["load", "validation", "test"]


def test_the_same_samples_once_more_find_their_result(tmp_path, monkeypatch):
    out, seen = tmp_path / "out", many(500)
    made = prepare_samples(seen, out)
    (out / "report.html").write_text("of the same")
    monkeypatch.setattr(from_samples, "write_levels", None)  # nothing is made again
    assert (
        prepare_samples(shuffled(seen, 1), out)
        == made
        == json.loads((out / "manifest.json").read_text())
    )


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": np.full(500, 0.5)},
        {"gpu": np.full(500, 0.5)},
        {"source": "another"},
        {"time_s": np.arange(500.0)},
    ],
)
def test_other_samples_do_not_find_it(tmp_path, other):
    seen = many(500)
    prepare_samples(seen, tmp_path / "out")
    with pytest.raises(TraceError, match="out: is not empty"):
        prepare_samples(seen._replace(**other), tmp_path / "out")
    with pytest.raises(TraceError, match="out: is not empty"):
        prepare_samples(seen, tmp_path / "out", options=Options(history=3))


def test_a_folder_with_anything_else_is_refused_and_left_alone(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(TraceError, match="out: is not empty; choose an --out that is empty or new"):
        prepare_samples(many(500), out)
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    with pytest.raises(TraceError, match=r"thesis\.tex: is not a folder"):
        prepare_samples(many(500), out / "thesis.tex")


def test_the_begun_preparation_of_a_trace_is_not_thrown_away(tmp_path):
    work = tmp_path / "out" / ".work"
    work.mkdir(parents=True)
    (work / "plan.json").write_text("{}")
    with pytest.raises(TraceError, match="holds a trace whose preparation was stopped"):
        prepare_samples(many(500), tmp_path / "out")
    assert (work / "plan.json").exists()


@pytest.mark.parametrize("step", ["write_levels", "write_segments", "write_numbers"])
def test_a_crash_leaves_only_its_work_and_the_next_run_starts_over(tmp_path, monkeypatch, step):
    seen, out = many(500), tmp_path / "out"
    prepare_samples(seen, tmp_path / "undisturbed")

    def crash(*_):
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(from_samples, step, crash)
        with pytest.raises(OSError, match="no space left"):
            prepare_samples(seen, out)
    assert [path.name for path in out.iterdir()] == [".work"]
    prepare_samples(seen, out)
    assert hashes(out) == hashes(tmp_path / "undisturbed")


@pytest.mark.parametrize("moves", [0, 3, 5])
def test_a_crash_between_two_moves_is_mended_by_the_next_run(tmp_path, monkeypatch, moves):
    seen, out = many(500), tmp_path / "out"
    prepare_samples(seen, tmp_path / "undisturbed")
    moved, really = [], os.replace

    def replace(path, to):
        if to.parent == out and len(moved) == moves:
            raise OSError("no space left")
        moved.extend([to] if to.parent == out else [])
        really(path, to)

    with monkeypatch.context() as broken:
        broken.setattr(from_samples.os, "replace", replace)
        with pytest.raises(OSError, match="no space left"):
            prepare_samples(seen, out)
    assert len(list(out.iterdir())) == moves + 1
    assert not (out / "manifest.json").exists()
    prepare_samples(seen, out, options=Options(history=3))  # another one may take its place
    prepare_samples(seen, tmp_path / "other", options=Options(history=3))
    assert hashes(out) == hashes(tmp_path / "other")
