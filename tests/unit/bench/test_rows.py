"""The benchmarks run, their inputs are what they say, and a peer does the same work. No times."""

import json

import numpy as np
import pytest

from trimtab import cli
from trimtab.bench import inputs, peers, traces
from trimtab.bench.cases import Measured, Setup, pooled
from trimtab.bench.rows import GROUPS, Row, chosen, header, measured
from trimtab.checks import check_workload
from trimtab.errors import TraceError, UnknownName
from trimtab.sim import packing
from trimtab.sim.world import check_hostable

BY_NAME = GROUPS["engine"]


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["trimtab", "bench", *arguments])
    code = 0
    try:
        cli.main()
    except SystemExit as done:
        code = int(done.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_json_has_one_object_a_row_with_value_unit_and_peer(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "--quick", "--only", "swf-fcfs", "--json", "-")
    (row,) = json.loads(out)
    assert code == 0
    assert list(row) == ["name", "value", "unit", "peer", "peer_value"]
    assert (row["name"], row["unit"]) == ("swf-fcfs", "jobs/s")
    assert row["value"] > 0
    if peers.installed("simpy"):
        assert (row["peer"], row["peer_value"] > 0) == ("SimPy", True)
    else:
        assert row["peer"] is None and row["peer_value"] is None


def test_the_table_names_the_machine_and_excludes_compilation(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "--quick", "--only", "openb-fgd,dag")
    assert code == 0
    for said in ("compilation excluded", "cores", "numba", "openb-fgd", "pods/s", "tasks/s"):
        assert said in out


@pytest.mark.slow
def test_the_learned_scheduler_and_the_training_of_the_dqn_are_measured(monkeypatch, capsys):
    pytest.importorskip("torch")
    words = ("learning", "--quick", "--only", "adlro-load,dqn-steps", "--json", "-")
    code, out, _ = run(monkeypatch, capsys, *words)
    assert code == 0
    assert [(row["name"], row["value"] > 0) for row in json.loads(out)] == [
        ("adlro-load", True),
        ("dqn-steps", True),
    ]


def test_the_planner_of_language_models_is_measured(monkeypatch, capsys):
    words = ("plan", "--quick", "--only", "price-dense,growth-plans-100x,answer-1k-gpus")
    code, out, _ = run(monkeypatch, capsys, *words, "--json", "-")
    assert code == 0
    assert [(row["unit"], row["value"] > 0) for row in json.loads(out)] == [
        ("plans/s", True),
        ("x", True),
        ("s", True),
    ]


def test_a_round_and_a_window_of_a_co_located_cluster_are_measured():
    names = ["round-1000-on-4000", "window-4000"]
    rows = list(measured(Setup(quick=True), names))
    assert [(row.name, row.unit, row.value > 0) for row in rows] == [
        (name, "ms", True) for name in names
    ]
    assert list(rows[0].peers) == ["by scans"]


def test_copies_of_a_co_located_scene_stand_side_by_side():
    one, two = inputs.colocated_like(1000), inputs.colocated_like(2000)
    check_workload(two.workload)
    check_hostable(two.workload, two.cluster)
    assert len(two.cluster) == 2000 and len(two.workload) == 2 * len(one.workload)
    truth, jobs = two.workload.truth, two.workload.jobs
    service = truth["service"] == 1
    assert (np.bincount(truth["pinned"][service] - 1) == 3).all()
    assert (jobs["submit_s"][service] == 0).all()
    before = one.workload.jobs["submit_s"][one.workload.truth["service"] == 0]
    after = jobs["submit_s"][~service]
    assert (after.min(), len(after)) == (before.min(), 2 * len(before))
    assert after.max() - after.min() < inputs.SPAN_S
    ptr, idx = two.workload.after_ptr, two.workload.after_idx
    child = np.repeat(np.arange(len(jobs)), np.diff(ptr))
    assert (jobs["submit_s"][child] == jobs["submit_s"][idx]).all()  # a DAG comes at once


def test_an_interrupt_shows_what_is_finished(monkeypatch, capsys, tmp_path):
    def stop(setup):
        raise KeyboardInterrupt

    monkeypatch.setitem(BY_NAME, "swf-fcfs", lambda setup: Measured(1.0, "jobs/s"))
    monkeypatch.setitem(BY_NAME, "swf-sjf", stop)
    path = tmp_path / "speed.json"
    code, out, err = run(monkeypatch, capsys, "--only", "swf-fcfs,swf-sjf", "--json", str(path))
    assert code == 130
    assert "swf-fcfs" in out and "swf-sjf" not in out
    assert "stopped after 1 of 2" in err
    assert [row["name"] for row in json.loads(path.read_text())] == ["swf-fcfs"]


def test_an_unknown_row_suggests_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'swf-fcfs'"):
        chosen(["swf-fcf"])
    assert chosen(["dag,swf-sjf"]) == ["swf-sjf", "dag"]
    assert chosen(None) == list(BY_NAME)


def test_openb_files_belong_together():
    with pytest.raises(TraceError, match="--pods and --nodes"):
        list(measured(Setup(pods="pods.csv"), ["openb-fgd"]))


def test_the_fastest_peer_stands_in_the_row():
    row = Row("swf-fcfs", 10.0, "jobs/s", {"slow": 1.0, "fast": 4.0})
    assert (row.peer, row.ratio, row.as_json()["peer_value"]) == ("fast", 2.5, 4.0)
    assert "quick" in header(Setup(quick=True))


def test_json_of_the_group_of_traces_is_all_that_is_printed(monkeypatch, capsys):
    words = ("traces", "--only", "load-window", "--quick", "--json", "-")
    code, out, err = run(monkeypatch, capsys, *words)
    (row,) = json.loads(out)
    assert (code, err) == (0, "")
    assert (row["name"], row["unit"], row["peer"]) == ("load-window", "us", None)
    assert row["value"] > 0


def test_an_unknown_group_is_one_line_with_the_known_ones(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "nonsense-group")
    assert (code, out) == (2, "")
    known = "engine, traces, learning, plan, serve, faults"
    assert err == f"error: group 'nonsense-group' is unknown; known: {known}\n"


def test_a_row_belongs_to_its_group():
    assert chosen(None, "traces") == list(traces.BY_NAME)
    assert chosen(["load-window,prepare-1m"], "traces") == ["prepare-1m", "load-window"]
    with pytest.raises(UnknownName, match="'load-window' is unknown; known: swf-fcfs, "):
        chosen(["load-window"])
    with pytest.raises(UnknownName, match="did you mean 'prepare-10m'"):
        chosen(["prepare-10"], "traces")
    assert not set(traces.BY_NAME) & set(BY_NAME)


def ran(rows, form):
    """What the processes would tell: 10 times the rows take 8 times as long; Polars failed."""
    wall_s = {1_000_000: 1.0, 10_000_000: 8.0}[rows]
    ours = {"wall_s": wall_s, "peak_mb": 500.0, "rows": rows}
    return {"ours": ours, "DuckDB": {"wall_s": wall_s / 2, "peak_mb": 800.0}, "Polars": None}


def test_a_peer_that_did_not_fit_into_the_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(traces, "run", ran)
    speed, memory, growth = (
        row
        for row in measured(
            Setup(quick=True), ["prepare-1m", "memory-1m", "growth-10x"], group="traces"
        )
    )
    assert (speed.value, speed.unit, speed.peers) == (1e6, "rows/s", {"DuckDB alone": 2e6})
    assert (memory.value, memory.unit, memory.peers) == (500.0, "MB", {"DuckDB alone": 800.0})
    assert (growth.value, growth.unit) == (0.8, "x")  # 1e6 rows/s over 1.25e6


def test_a_process_tells_its_time_and_memory_and_leaves_nothing(tmp_path):
    (tmp_path / "twin").mkdir()
    code = "open(OUT, 'w').close(); import os; os.remove(OUT); told(time.perf_counter(), rows=7)"
    told = traces.timed(code, tmp_path / "twin")
    assert told["rows"] == 7
    assert told["wall_s"] >= 0 and told["peak_mb"] > 1
    assert traces.timed("raise MemoryError", tmp_path / "twin") is None
    assert [path.name for path in tmp_path.iterdir()] == ["twin"]


def test_a_scratch_folder_is_gone_whatever_happens():
    with pytest.raises(KeyboardInterrupt), traces.scratch() as folder:
        (folder / "large").write_text("x")
        raise KeyboardInterrupt
    assert not folder.exists()


@pytest.mark.slow
def test_every_row_gives_a_positive_number():
    names = chosen(None)
    rows = list(measured(Setup(quick=True), names))
    assert [row.name for row in rows] == names
    assert all(np.isfinite(row.value) and row.value > 0 for row in rows)


def test_the_log_resembles_sdsc_sp2():
    work, machine = inputs.sdsc_like()
    jobs, run_s, width = work.jobs, work.truth["work_s"], work.demand[:, 0]
    assert (len(work), machine.capacity.tolist()) == (59_705, [[128.0]])
    span_s = jobs["submit_s"][-1] - jobs["submit_s"][0]
    assert (run_s * width).sum() / span_s / 128 == pytest.approx(0.83, abs=0.03)
    assert np.isin(width, 2 ** np.arange(8)).mean() == pytest.approx(0.84, abs=0.01)
    assert np.log(run_s).mean() == pytest.approx(6.03, abs=0.1)
    assert np.log(run_s).std() == pytest.approx(2.65, abs=0.2)
    assert (jobs["request_s"] >= run_s).all()
    assert np.median(run_s / jobs["request_s"]) < 0.5
    for seconds in (jobs["submit_s"], run_s, jobs["request_s"]):
        assert (seconds == np.floor(seconds)).all()


def test_the_log_of_shared_nodes_has_jobs_below_a_node_and_is_measured_beside_whole_nodes(
    monkeypatch, capsys
):
    work, machine = inputs.gaia_like()
    width, run_s = work.demand[:, 0], work.truth["work_s"]
    span_s = work.jobs["submit_s"][-1]
    assert (len(work), work.resources, machine.capacity.tolist()) == (51_887, ("cpu",), [[2004.0]])
    assert (width < 2004 / 151).mean() == pytest.approx(0.93, abs=0.02)
    assert (run_s * width).sum() / span_s / 2004 == pytest.approx(0.83, abs=0.05)
    words = ("--quick", "--only", "shared-fcfs", "--json", "-")
    code, out, _ = run(monkeypatch, capsys, *words)
    (row,) = json.loads(out)
    assert (code, row["peer"], row["peer_value"] > 0) == (0, "whole nodes", True)


def test_shared_nodes_one_by_one_hold_the_same_jobs_as_the_pool():
    pool, _ = inputs.gaia_like(200)
    work, machine = inputs.gaia_nodes(200)
    check_hostable(work, machine)
    assert (work.jobs["instances"] == pool.demand[:, 0]).all()
    assert machine.capacity.sum(axis=0).tolist() == pytest.approx([2004.0, 167 * 48.0])


def test_the_long_log_makes_tens_of_thousands_wait():
    work, machine = inputs.sdsc_like(447_784, load=1.2)
    start_s, _ = pooled(work, machine, "fcfs+easy")
    time_s = np.concatenate((work.jobs["submit_s"], start_s))
    change = np.repeat([1, -1], len(work))[np.argsort(time_s, kind="stable")]
    assert np.cumsum(change).max() > 20_000


def test_nodes_and_pods_have_the_published_counts_of_openb():
    nodes, pods = inputs.openb_like()
    gpus = {
        model: int(nodes["gpu"][nodes["model"] == model].sum()) for model in set(nodes["model"])
    }
    assert gpus == {
        "G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2,
    }  # fmt: skip
    assert (len(nodes["sn"]), len(pods["name"])) == (1213, 10_866)
    one = pods["num_gpu"] == 1
    assert one.mean() == pytest.approx(0.86, abs=0.01)
    assert (pods["gpu_milli"][one] < 1000).mean() == pytest.approx(0.44, abs=0.02)
    assert (pods["num_gpu"] == 0).mean() == pytest.approx(0.13, abs=0.01)
    assert (pods["num_gpu"] == 8).mean() == pytest.approx(0.005, abs=0.002)
    done = packing.pack(*packing.columns(nodes, pods), np.arange(10_866), packing.FGD)
    assert done.arrived_gpu_milli[-1] / done.capacity_gpu_milli == pytest.approx(1.3, abs=0.03)


def test_dag_stages_wait_for_earlier_stages_of_their_job():
    work, machine = inputs.dags(jobs=50)
    start_s, end_s = pooled(work, machine, "fcfs")
    owner = np.repeat(np.arange(len(work)), np.diff(work.after_ptr))
    assert len(owner) > 0
    assert (work.jobs["submit_s"][owner] == work.jobs["submit_s"][work.after_idx]).all()
    assert (start_s[owner] >= end_s[work.after_idx]).all()


@pytest.mark.parametrize("times", [1, 10])
def test_every_mixed_job_can_run(times):
    for short in (False, True):
        check_hostable(*inputs.mixed(3_000, times=times, short=short))


def test_a_seed_fixes_the_inputs():
    for make in (lambda: inputs.sdsc_like(500), lambda: inputs.dags(20), lambda: inputs.mixed(200)):
        (one, _), (two, _) = make(), make()
        assert (one.jobs == two.jobs).all() and (one.truth == two.truth).all()
        assert (one.demand == two.demand).all()
    for one, two in zip(inputs.openb_like(100), inputs.openb_like(100)):
        assert all((one[name] == two[name]).all() for name in one)


def test_the_simpy_pool_starts_every_job_when_ours_does():
    pytest.importorskip("simpy")
    work, machine = inputs.sdsc_like(400, load=1.1)
    start_s, _ = pooled(work, machine, "fcfs")
    width = work.demand[:, 0].astype(np.int64)
    theirs_s = peers.simpy_fcfs(work.jobs["submit_s"], work.truth["work_s"], width, 128)
    assert (start_s > work.jobs["submit_s"]).any()
    assert theirs_s.tolist() == start_s.tolist()
