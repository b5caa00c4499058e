"""Cleaning and joining: every rule fires where it should, and sums are what a pencil says."""

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.unit.traces.prepare.folders import BY_HAND, COUNTS, hashes, small_twin, written

from trimtab.traces.prepare import Options, prepare
from trimtab.traces.prepare.rules import RULES
from trimtab.traces.readers import parquet
from trimtab.traces.scenes import cluster_file

WINDOW_S = 300


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """(manifest, folder) of the tables written by hand."""
    folder = tmp_path_factory.mktemp("by_hand")
    manifest = prepare(written(folder / "trace"), folder / "out")
    return manifest, folder / "out"


def rows(out, level, window, **where):
    """The one row of a level and window."""
    found = pq.read_table(out / f"{level}.parquet").to_pylist()
    (row,) = [
        one
        for one in found
        if one["window"] == window and all(one[name] == value for name, value in where.items())
    ]
    return row


@pytest.mark.parametrize("table", BY_HAND)
def test_every_rule_removes_the_rows_written_for_it(by_hand, table):
    counts = by_hand[0]["tables"][table]
    expected = dict.fromkeys((rule.name for rule in RULES[table]), 0) | COUNTS[table]
    assert counts["removed"] == expected
    assert all(expected.values()), "the folder by hand breaks every rule of the table"


@pytest.mark.parametrize("table", BY_HAND)
def test_rows_in_are_rows_kept_and_removed(by_hand, table):
    counts = by_hand[0]["tables"][table]
    assert counts["in"] == len(BY_HAND[table].splitlines())
    assert counts["in"] == counts["kept"] + sum(counts["removed"].values())
    assert counts["narrow"] == 0


def test_measured_use_is_the_mean_of_clean_samples(by_hand):
    found = rows(by_hand[1], "node", 0, node=0)
    expected = {
        "cpu": (0.4 + 0.6) / 2,
        "cpu_max": 0.6,
        "mem": (0.6 + 0.8) / 2,
        "mem_max": 0.8,
        "net_in": 0.1,  # the other one is -1
        "net_out": (0.2 + 0.4) / 2,
        "disk": 0.3,  # the other one is 101
        "load": (0.5 + 0.7) / 2,
        "gap": 0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_a_gap_is_marked_and_not_filled(by_hand):
    found = rows(by_hand[1], "node", 1, node=0)
    assert found["gap"] == 1
    for name in ("cpu", "cpu_max", "mem", "mem_max", "net_in", "net_out", "disk", "load"):
        assert found[name] is None
    assert found["cpu_recent"] == pytest.approx(0.5)  # of the window before
    assert found["gpu"] is None


def test_recent_use_has_mean_and_slope(by_hand):
    found = rows(by_hand[1], "node", 1, node=1)
    assert found["cpu"] == pytest.approx(0.4)
    assert found["cpu_recent"] == pytest.approx((0.2 + 0.4) / 2)
    assert found["cpu_trend"] == pytest.approx((0.4 - 0.2) / (WINDOW_S / 3600))


def test_instances_are_spread_over_the_windows_they_ran_in(by_hand):
    # m_1: i_1 90..120, i_3 150..240, i_5 270..400 of which 30 s are in window 0
    first, second = (rows(by_hand[1], "node", window, node=0) for window in (0, 1))
    expected = {
        "running": (30 + 90 + 30) / WINDOW_S,
        "batch_cpu": (100 * 30 + 50 * 90 + 200 * 30) / (100 * 96) / WINDOW_S,
        "batch_mem": (1 * 30 + 0.5 * 90 + 2 * 30) / 100 / WINDOW_S,
        "started": 3,
        "ended": 2,
        # i_1 waited from 60, i_3 from the end of M1 at 120, i_5 from the end of R2_1 at 240
        "start_wait_s": (30 + 30 + 30) / 3,
    }
    # shares are summed in whole 2**-24ths
    assert {name: first[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert second["running"] == pytest.approx(100 / WINDOW_S)
    assert (second["started"], second["ended"]) == (0, 1)
    other = rows(by_hand[1], "node", 0, node=1)
    assert other["running"] == pytest.approx((60 + 90 + 60) / WINDOW_S)
    assert (other["started"], other["ended"], other["start_wait_s"]) == (3, 3, 0)


def test_services_reserve_from_their_deployment_and_use_what_was_sampled(by_hand):
    first = rows(by_hand[1], "node", 0, node=0)
    assert (first["services"], first["density"], first["mem_density"]) == (1, 0.5, 0.25)
    assert first["service_cpu"] == pytest.approx((0.1 + 0.3) / 2 * 0.5)
    assert first["service_mem"] == pytest.approx((0.2 + 0.4) / 2 * 0.25)
    before, after = (rows(by_hand[1], "node", window, node=1) for window in (0, 1))
    assert (before["services"], before["density"], before["service_cpu"]) == (0, 0, None)
    assert (after["services"], after["density"]) == (1, pytest.approx(0.1))
    assert after["service_cpu"] == pytest.approx(0.5 * 0.1)


def test_the_cluster_has_the_queue(by_hand):
    found = rows(by_hand[1], "cluster", 0)
    waiting_cpu = (100 + 50 + 200) * 30 / (100 * 96) / WINDOW_S  # in machines
    free = (1 - 0.5) + (1 - 0.2)
    expected = {
        "machines": 2,
        "cpu": (0.5 + 0.2) / 2,
        "cpu_sd": 0.15,
        "runnable": 6,
        "waiting": (30 + 30 + 30) / WINDOW_S,
        "waiting_cpu": waiting_cpu,
        "waiting_mem": (1 + 0.5 + 2) * 30 / 100 / WINDOW_S,
        "start_wait_s": 90 / 6,
        "competition": waiting_cpu / (waiting_cpu + free),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_a_region_is_a_failure_domain(by_hand):
    assert rows(by_hand[1], "region", 0, region=0)["cpu"] == pytest.approx(0.5)
    assert rows(by_hand[1], "region", 0, region=1)["cpu"] == pytest.approx(0.2)


def test_the_workload_has_tasks_services_and_what_waits_for_what(by_hand):
    work = parquet.load(by_hand[1] / "workload.parquet")
    assert list(work.job_id) == [
        "c_1", "j_2/task_x", "j_1/M1", "j_1/R2_1", "j_1/M3", "j_1/J4_2_3", "c_2",
    ]  # fmt: skip
    jobs, truth = work.jobs, work.truth
    kinds = [work.kinds[kind] for kind in jobs["kind"]]
    assert kinds == ["service", "independent", "map", "reduce", "map", "join", "service"]
    assert jobs["submit_s"].tolist() == [0, 30, 60, 60, 60, 60, 300]
    assert jobs["instances"].tolist() == [1, 1, 2, 1, 1, 1, 1]
    # M1: i_1 ran 30 s and i_2 60 s
    assert truth["work_s"].tolist() == [np.inf, 60, 45, 90, 90, 130, np.inf]
    assert jobs["request_s"].tolist() == [np.inf, 60, 60, 90, 90, 130, np.inf]
    # used / planned CPU over the time they ran; task_x used 1.5 of what it planned
    use = [1, 1, (50 * 30 + 80 * 60) / 90 / 100, 25 / 50, 1, 100 / 200, 1]
    assert truth["use"].tolist() == pytest.approx(use)
    # services take what they used: 0.1 of 96 cores, 0.075 of 512 GB
    assert work.demand[:, 0].tolist() == pytest.approx([9.6, 1, 1, 0.5, 1, 2, 4.8])
    mem_gb = [0.075 * 512, 5.12, 5.12, 2.56, 5.12, 10.24, 0.05 * 512]
    assert work.demand[:, 1].tolist() == pytest.approx(mem_gb, rel=1e-6)
    after = pq.read_table(by_hand[1] / "workload.parquet")["after"].to_pylist()
    assert after == [[], [], [], [2], [], [3, 4], []]
    straggle = work.meta["straggle"]
    assert straggle[2] == pytest.approx(60 / 45)
    assert work.meta["dag"].tolist() == [-1, 0, 1, 1, 1, 1, -1]


def test_services_may_take_what_they_reserve_or_nothing(by_hand, tmp_path):
    trace = written(tmp_path / "trace")
    prepare(trace, tmp_path / "reserved", options=Options(services="reserved"))
    reserved = parquet.load(tmp_path / "reserved" / "workload.parquet")
    assert reserved.demand[[0, 6], 0].tolist() == pytest.approx([48, 9.6])
    prepare(trace, tmp_path / "none", options=Options(services="none"))
    assert len(parquet.load(tmp_path / "none" / "workload.parquet").jobs) == 5


def test_the_machines_are_a_cluster_file(by_hand):
    made, _ = cluster_file.read_cluster(by_hand[1] / "cluster.yaml")
    assert list(made.names) == ["m_1", "m_2"]
    assert np.asarray(made.capacity).tolist() == [[96, 512], [96, 512]]


def test_a_number_that_cannot_be_read_is_a_missing_one(tmp_path):
    usage = BY_HAND["machine_usage"] + "m_1,40,x,60,,,10,20,30\nm_1,50,1e1,60,,,10,20,30\n"
    tasks = BY_HAND["batch_task"] + "M1,1,j_20,1,Terminated,60,120,many,1\n"
    trace = written(tmp_path / "trace", {"machine_usage": usage, "batch_task": tasks})
    found = prepare(trace, tmp_path / "out")["tables"]
    assert found["machine_usage"]["removed"]["no-value"] == 2
    assert found["machine_usage"]["kept"] == 5
    assert found["batch_task"]["removed"]["no-plan"] == 2


def test_one_time_beyond_a_year_is_dirt(tmp_path):
    usage = BY_HAND["machine_usage"] + "m_1,99999999,40,60,,,10,20,30\n"
    instances = BY_HAND["batch_instance"].replace(
        "i_13,M1,j_1,1,Terminated,-90,", "i_13,M1,j_1,1,Terminated,99999999,"
    )
    trace = written(tmp_path / "trace", {"machine_usage": usage, "batch_instance": instances})
    found = prepare(trace, tmp_path / "out")["tables"]
    assert found["machine_usage"]["removed"]["bad-time"] == 2
    assert found["batch_instance"]["removed"]["bad-time"] == 1
    raw = pq.read_table(tmp_path / "out" / "raw.parquet")
    assert max(raw["time_s"].to_pylist()) < 99_999_999 / 3  # no point at the end of the year
    assert max(raw["time_s"].to_pylist()) == 10_000_000 // 30 * 30


def test_an_end_far_beyond_the_trace_does_not_stretch_it(tmp_path):
    tasks = BY_HAND["batch_task"] + "M1,1,j_20,1,Terminated,60,20000000,100,1\n"
    instances = BY_HAND["batch_instance"].replace(
        "i_19,M1,j_1,1,Terminated,10000000,10000030", "i_19,M1,j_1,1,Terminated,90,20000000"
    )
    trace = written(tmp_path / "trace", {"batch_task": tasks, "batch_instance": instances})
    found = prepare(trace, tmp_path / "out")
    assert found["windows"]["count"] == 2
    assert found["tables"]["batch_task"]["removed"]["stray-time"] == 2
    assert found["tables"]["batch_instance"]["removed"]["stray-time"] == 1


def test_two_samples_of_one_moment_leave_the_same_one_in_any_order(tmp_path):
    lines = BY_HAND["machine_usage"].splitlines()
    lines.append("m_1,10,10,70,,,10,20,30")
    made = []
    for name, order in (("ahead", lines), ("behind", lines[::-1])):
        trace = written(tmp_path / name, {"machine_usage": "\n".join(order) + "\n"})
        found = prepare(trace, tmp_path / f"out-{name}")
        assert found["tables"]["machine_usage"]["removed"]["repeated"] == 2
        made.append({n: h for n, h in hashes(tmp_path / f"out-{name}").items() if "raw" not in n})
    assert made[0] == made[1]


def test_tasks_alone_are_enough(tmp_path):
    nothing = dict.fromkeys(BY_HAND, None)
    trace = written(tmp_path / "trace", {**nothing, "batch_task": BY_HAND["batch_task"]})
    found = prepare(trace, tmp_path / "out")
    assert found["windows"] == {"first": 0, "count": 2, "machines": 0}
    assert found["workload"]["tasks"] == 5
    work = parquet.load(tmp_path / "out" / "workload.parquet")
    # from when it could run to its recorded end
    assert work.truth["work_s"].tolist() == [60, 60, 120, 90, 160]
    assert not (tmp_path / "out" / "node.parquet").exists()


def test_rows_that_nothing_is_made_of_do_not_lengthen_the_trace(tmp_path):
    usage = BY_HAND["container_usage"] + "c_1,m_1,60000,10,20,,,,,,\n"
    without = {"container_meta": None, "container_usage": usage}
    found = prepare(written(tmp_path / "trace", without), tmp_path / "out")
    assert found["windows"] == {"first": 0, "count": 2, "machines": 2}
    assert "container_usage without container_meta" in found["notes"][0]


def test_a_split_that_is_missing_is_noted(by_hand):
    assert [note.split()[0] for note in by_hand[0]["notes"]] == ["validation", "test"]


def test_a_header_in_any_order_is_read(tmp_path, by_hand):
    columns = (
        "time_stamp,machine_id,mem_util_percent,cpu_util_percent,net_out,net_in,disk_io_percent"
    )
    lines = [columns]
    for line in BY_HAND["machine_usage"].splitlines():
        machine, time_s, cpu, mem, _, _, net_in, net_out, disk = line.split(",")
        lines.append(",".join((time_s, machine, mem, cpu, net_out, net_in, disk)))
    trace = written(tmp_path / "trace", {"machine_usage": "\n".join(lines) + "\n"})
    prepare(trace, tmp_path / "out")
    ours, theirs = hashes(tmp_path / "out"), hashes(by_hand[1])
    assert ours.pop("manifest.json") != theirs.pop("manifest.json")  # the file has another size
    assert ours == theirs


# The kinds of dirt that the twin injects, and the rule that removes such a row. Two kinds are kept:
# a disk value of -1 or 101 is masked, the CPU and memory of that sample are good.
CAUGHT_BY = {
    "machine_meta": {"empty_id": "no-machine"},
    "container_meta": {"empty_id": "no-id", "cpu_request_above_machine": "over-capacity"},
    "machine_usage": {
        "repeated": "repeated", "empty_id": "no-machine",
        "cpu_util_above": "marked-invalid",  # 101 is the trace's own mark
    },
    "container_usage": {
        "repeated": "repeated", "empty_id": "no-id", "cpu_util_above": "marked-invalid",
    },
    "batch_task": {
        "repeated": "repeated", "empty_id": "no-id", "end_before_start": "end-before-start",
        "running": "running", "waiting": "waiting", "failed": "failed",
        "plan_cpu_above_machine": "over-capacity",
    },
    "batch_instance": {
        "repeated": "repeated", "empty_id": "no-id", "end_before_start": "end-before-start",
        "running": "running", "waiting": "waiting", "failed": "failed",
        "unknown_machine": "unknown-machine",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def dirty(tmp_path_factory):
    """What was injected into a twin, what the cleaner found, and the twin."""
    folder = tmp_path_factory.mktemp("dirty")
    made = small_twin(folder / "twin", dirt=0.05, seed=3)
    return made, prepare(folder / "twin", folder / "out"), folder / "twin"


@pytest.mark.parametrize("table", CAUGHT_BY)
def test_the_dirt_of_a_twin_is_found_to_the_row(dirty, table):
    made, manifest, _ = dirty
    injected, counts = made["dirt"][table], manifest["tables"][table]
    assert counts["in"] == made["rows"][table]
    assert counts["in"] == counts["kept"] + sum(counts["removed"].values())
    for kind, rule in CAUGHT_BY[table].items():
        assert counts["removed"][rule] == injected[kind], (kind, rule)


@pytest.mark.parametrize("table", ["machine_usage", "container_usage"])
def test_nothing_but_the_injected_rows_is_removed(dirty, table):
    made, manifest, _ = dirty
    removed = sum(made["dirt"][table][kind] for kind in CAUGHT_BY[table])
    assert sum(manifest["tables"][table]["removed"].values()) == removed


def test_instances_of_removed_tasks_go_with_those_of_unknown_ones(dirty):
    made, manifest, _ = dirty
    # a Failed task's instances are Terminated: their task is not among the clean ones either
    lost = manifest["tables"]["batch_instance"]["removed"]["unknown-task"]
    assert lost >= made["dirt"]["batch_instance"]["unknown_task"]


def test_the_machines_and_containers_of_a_twin_are_all_there(dirty):
    _, manifest, twin = dirty
    assert manifest["tables"]["machine_meta"]["kept"] == 12
    # a dirty first row does not take the container's later rows with it
    named = duckdb.execute(
        "SELECT count(DISTINCT container_id) FROM read_parquet(?) WHERE cpu_request <= 9600",
        [str(twin / "container_meta.parquet")],
    ).fetchall()[0][0]
    assert manifest["tables"]["container_meta"]["kept"] == named
    assert manifest["workload"]["services"] == named
