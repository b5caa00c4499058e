"""The synthetic twin of Alibaba's trace of 2018: like it, exact about its dirt, resumable."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import duckdb
import pytest

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018.published import BY_HOUR, PUBLISHED
from trimtab.traces.alibaba2018.statistics import statistics
from trimtab.traces.twin import files, shapes, tasks, write_twin
from trimtab.traces.twin.dirt import KINDS
from trimtab.traces.twin.inventory import inventory, machine_chunk
from trimtab.traces.twin.plan import Options, planned, stream

ROWS_WANTED = 2_000_000

# Figure, target, tolerance as a share of it. From a day of tasks at the rate of 4,034 machines:
AT_FULL_RATE = [
    ("machines", 4034, 0.0),
    ("machine.cpu_num", 96, 0.0),
    ("machine.mem_size", 100, 0.0),
    ("failure_domains_1", 292, 0.0),
    ("failure_domains_2", 20, 0.0),
    ("failure_domains_2_of_one_1.mean", 1.8, 0.1),
    ("tasks_a_machine_hour", 21.07, 0.03),
    *((f"task_rate.hour_{hour:02d}", rate, 0.06) for hour, rate in enumerate(BY_HOUR)),
    ("jobs_a_second.dispersion", 4.4, 0.05),
    ("task_duration_s.p25", 3, 0.0),
    ("task_duration_s.p50", 10, 0.0),
    ("task_duration_s.p75", 37, 0.03),
    ("task_duration_s.p90", 148, 0.03),
    ("task_duration_s.p95", 320, 0.03),
    ("task_duration_s.p99", 741, 0.03),
    ("task_duration_s.mean", 64, 0.03),
    ("task_instances.p50", 1, 0.0),
    ("task_instances.p75", 5, 0.0),
    ("task_instances.p90", 48, 0.03),
    ("task_instances.p95", 233, 0.03),
    ("task_instances.p99", 877, 0.03),
    ("task_instances.mean", 98.15, 0.04),
    ("task_instances.mean_under_6000", 45, 0.03),
    ("plan_cpu.share_100", 0.52, 0.02),
    ("plan_cpu.share_50", 0.45, 0.02),
    ("plan_mem.p50", 0.3, 0.0),
    ("plan_mem.p90", 0.49, 0.0),
    ("tasks_a_job.mean", 3.8, 0.05),
    ("tasks_a_job.p50", 2, 0.0),
    ("tasks_a_job.p75", 5, 0.0),
    ("tasks_a_job.p90", 8, 0.0),
    ("tasks_a_job.p99", 23, 0.05),
    ("jobs.single_share", 0.35, 0.02),
    ("jobs.chain_share", 0.52, 0.03),
    ("job_depth.mean", 2.6, 0.05),
    ("job_depth.p90", 5, 0.0),
    ("job_depth.p99", 9, 0.12),
    ("tasks.independent_share", 0.146, 0.05),
]
# From 8 days of a small cluster, with its dirt:
OF_SMALL_CLUSTER = [
    ("cluster_cpu_percent.mean", 40, 0.05),
    ("cluster_cpu_percent.sd", 9.8, 0.1),
    ("cluster_cpu_percent.min", 16, 0.25),
    ("cluster_cpu_percent.max", 79, 0.15),
    ("cluster_cpu_percent.hour_min", 31, 0.1),
    ("cluster_cpu_percent.hour_max", 52, 0.1),
    ("cluster_mem_percent.mean", 88, 0.02),
    ("cluster_mem_percent.min", 78, 0.06),
    ("cluster_mem_percent.max", 95, 0.03),
    ("machine_cpu_percent.own_sd", 12, 0.08),
    ("containers_a_machine", 17.72, 0.01),
    ("containers.machine_share", 0.993, 0.01),
    ("containers.cores_reserved", 0.935, 0.03),
    ("container_cpu_percent.p50", 6, 0.17),  # a whole number: one off
    ("tasks.day_0_share", 0.0002, 2.0),
    ("cpu_used_of_planned.p50", 0.64, 0.06),
    ("cpu_used_of_planned.p90", 1.7, 0.05),
    ("mem_used_of_planned.p50", 0.14, 0.08),  # memory is in hundredths, plans are 0.2 or 0.3
    ("mem_used_of_planned.p90", 0.68, 0.06),
    ("straggler.p50", 1.5, 0.05),
    ("straggler.p90", 2.9, 0.08),
    ("straggler.p99", 11, 0.2),
]
IS_DIRTY = {  # kind: how a cleaner finds it
    "empty_id": "{id} is null",
    "end_before_start": "end_time < start_time and status = 'Terminated'",
    "running": "status = 'Running' and end_time = 0",
    "waiting": "status = 'Waiting' and end_time = 0",
    "failed": "status = 'Failed'",
    "plan_cpu_above_machine": "plan_cpu > 9600",
    "cpu_request_above_machine": "cpu_request > 9600",
    "disk_io_below": "disk_io_percent = -1",
    "disk_io_above": "disk_io_percent = 101",
    "cpu_util_above": "cpu_util_percent = 101",
    "unknown_machine": "machine_id not in (select machine_id from machine_meta"
    " where machine_id is not null)",
    "unknown_task": "job_name is not null and (job_name, task_name) not in"
    " (select (job_name, task_name) from batch_task where job_name is not null)",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_twin(folder, machines=40, days=8, seed=1, instances=ROWS_WANTED)
    return folder


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    write_twin(folder, machines=8, days=1.2, seed=2, dirt=0)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def small_figures(small) -> dict[str, float]:
    return statistics(small)


@pytest.fixture(scope="module")
def full_rate_figures(tmp_path_factory) -> dict[str, float]:
    """The tasks, without their instances, of two days of a cluster of the real size."""
    folder = tmp_path_factory.mktemp("full")
    plan = planned(Options(4034, 2.0, 3, 0.0, None))
    library = shapes.made(stream(plan, "shapes"))
    hours = (tasks.tasks_of(plan, library, hour) for hour in range(plan.periods))
    rows = ((tasks.task_chunk(drawn), {}) for drawn in hours)
    files.write(folder / "batch_task.parquet", "batch_task", rows)
    machines = iter([(machine_chunk(plan, inventory(plan)), {})])
    files.write(folder / "machine_meta.parquet", "machine_meta", machines)
    return statistics(folder)


def make_tiny(folder: Path, **options) -> dict:
    return write_twin(folder, **({"machines": 3, "days": 1.1, "seed": 5} | options))


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def opened(folder: Path) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    for table in KINDS:
        path = files.path_of(folder, table)
        name = path if path.is_file() else path / "*.parquet"
        db.execute(f"create view {table} as select * from '{name}'")
    return db


def count(db: duckdb.DuckDBPyConnection, query: str) -> int:
    return db.execute(query).fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target", "tolerance"), AT_FULL_RATE)
def test_tasks_at_the_full_rate_are_like_the_trace(name, target, tolerance, full_rate_figures):
    assert full_rate_figures[name] == pytest.approx(target, rel=tolerance or 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target", "tolerance"), OF_SMALL_CLUSTER)
def test_use_of_a_small_cluster_is_like_the_trace(name, target, tolerance, small_figures):
    assert small_figures[name] == pytest.approx(target, rel=tolerance)


def test_every_published_figure_is_held_against_a_twin():
    targets = {name: target for name, target, _ in AT_FULL_RATE + OF_SMALL_CLUSTER}
    assert targets.keys() == PUBLISHED.keys()
    for name, target in targets.items():
        assert PUBLISHED[name] == pytest.approx(target, rel=0.07)


def test_about_as_many_instances_come_out_as_are_asked_for(small):
    rows = json.loads((small / "twin.json").read_text())["made"]["rows"]
    assert rows["batch_instance"] == pytest.approx(ROWS_WANTED, rel=0.15)


def test_dirt_is_there_in_the_numbers_told(small):
    made = json.loads((small / "twin.json").read_text())["made"]
    db = opened(small)
    ids = {"machine_meta": "machine_id", "machine_usage": "machine_id"}
    ids |= {"container_meta": "container_id", "container_usage": "container_id"}
    for table, kinds in made["dirt"].items():
        assert count(db, f"select count(*) from {table}") == made["rows"][table]
        assert kinds.keys() == KINDS[table].keys()
        key = ids.get(table, "job_name")
        for kind, told in kinds.items():
            if kind != "repeated":
                rule = IS_DIRTY[kind].format(id=key)
                assert count(db, f"select count(*) from {table} where {rule}") == told, kind


@pytest.mark.parametrize("table", ["batch_task", "machine_meta", "machine_usage", "batch_instance"])
def test_repeated_rows_are_there_in_the_number_told(table, small):
    told = json.loads((small / "twin.json").read_text())["made"]["dirt"][table]["repeated"]
    db = opened(small)
    key = "machine_id" if table.startswith("machine") else "job_name"
    rows = f"select * from {table} where {key} is not null"
    distinct = f"select count(*) from (select distinct * from ({rows}))"
    assert count(db, f"select count(*) from ({rows})") - count(db, distinct) == told


@pytest.mark.parametrize(
    "table", ["machine_usage", "container_usage", "batch_task", "batch_instance"]
)
def test_dirt_is_the_share_asked_for(table, small):
    made = json.loads((small / "twin.json").read_text())["made"]
    share = sum(made["dirt"][table].values()) / made["rows"][table]
    assert share == pytest.approx(0.01, rel=0.2)


def test_a_clean_twin_has_no_dirt(clean):
    made = json.loads((clean / "twin.json").read_text())["made"]
    assert not any(sum(kinds.values()) for kinds in made["dirt"].values())
    db = opened(clean)
    for table, kinds in KINDS.items():
        for kind in kinds:
            if kind not in ("repeated", "empty_id"):
                assert count(db, f"select count(*) from {table} where {IS_DIRTY[kind]}") == 0, kind
    distinct = "select count(distinct (job_name, task_name)) from batch_task"
    assert count(db, distinct) == made["rows"]["batch_task"]
    names = "select count(distinct instance_name) from batch_instance"
    assert count(db, names) == made["rows"]["batch_instance"]


def test_instances_run_within_their_task_and_the_last_ends_with_it(clean):
    wrong = (
        "select count(*) from (select job_name, task_name, count(*) as n, min(start_time) as first,"
        " max(end_time) as last from batch_instance group by 1, 2) full join batch_task"
        " using (job_name, task_name) where n is distinct from instance_num"
        " or first is null or first < start_time or last != end_time"
    )
    assert count(opened(clean), wrong) == 0


def test_a_child_starts_after_its_parents_have_ended(clean):
    jobs: dict[str, dict[int, tuple[list[int], int, int]]] = {}
    rows = opened(clean).execute("select job_name, task_name, start_time, end_time from batch_task")
    for job, task, start_s, end_s in rows.fetchall():
        match = re.fullmatch(r"[MRJ](\d+)((?:_\d+)*)", task)
        if match is None:
            assert re.fullmatch(r"task_[A-Za-z0-9+/]{22}", task)
            continue
        parents = [int(number) for number in match[2].split("_") if number]
        jobs.setdefault(job, {})[int(match[1])] = (parents, start_s, end_s)
    assert max(map(len, jobs.values())) > 10
    for of_job in jobs.values():
        for parents, start_s, _ in of_job.values():
            assert all(of_job[parent][2] <= start_s for parent in parents)


def test_names_and_types_are_the_official_ones(tiny):
    db = opened(tiny)
    columns = {row[0]: row[1] for row in db.execute("describe batch_instance").fetchall()}
    assert " ".join(columns) == (
        "instance_name task_name job_name task_type status start_time end_time machine_id"
        " seq_no total_seq_no cpu_avg cpu_max mem_avg mem_max"
    )
    assert columns["instance_name"] == columns["machine_id"] == "VARCHAR"
    assert columns["start_time"] == "BIGINT" and columns["cpu_avg"] == "DOUBLE"
    row = db.execute(
        "select instance_name, job_name, machine_id from batch_instance where job_name != 'j_0'"
    ).fetchone()
    assert all(
        re.fullmatch(form, name) for form, name in zip((r"ins_\d+", r"j_\d+", r"m_\d+"), row)
    )


def test_machine_samples_come_every_30_s_on_the_mean_and_miss_counters(small):
    db = opened(small)
    samples = count(db, "select count(*) from machine_usage")
    assert samples / (40 * 8 * 86400 / 30) == pytest.approx(1, rel=0.02)
    assert count(db, "select avg((mem_gps is null)::int) from machine_usage") > 0.7
    assert count(db, "select count(*) from machine_usage where time_stamp % 10 != 0") == 0


def test_one_seed_makes_the_same_bytes_and_another_does_not(tiny, tmp_path):
    make_tiny(tmp_path / "same")
    make_tiny(tmp_path / "other", seed=6)
    assert digests(tmp_path / "same") == digests(tiny)
    other, same = digests(tmp_path / "other"), digests(tiny)
    assert other.keys() == same.keys()
    assert other["batch_task.parquet"] != same["batch_task.parquet"]


def test_deleted_parts_are_made_again_to_the_byte_and_others_kept(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "twin")
    kept = tmp_path / "twin" / "batch_instance" / "part-00024.parquet"
    before = kept.stat().st_mtime_ns
    for name in ("batch_task.parquet", "batch_instance/part-00025.parquet"):
        (tmp_path / "twin" / name).unlink()
    (tmp_path / "twin" / "machine_usage" / "part-00003.parquet").unlink()
    (tmp_path / "twin" / "machine_usage" / ".part-00003.parquet.1.part").write_bytes(b"half a file")
    made = make_tiny(tmp_path / "twin")
    assert digests(tmp_path / "twin") == digests(tiny)
    assert kept.stat().st_mtime_ns == before
    assert made == json.loads((tiny / "twin.json").read_text())["made"]


def test_a_run_that_was_broken_off_goes_on(tiny, tmp_path):
    def stop(table: str, done: int, of: int) -> None:
        if table == "container_usage" and done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_tiny(tmp_path, progress=stop)
    assert "made" not in json.loads((tmp_path / "twin.json").read_text())
    make_tiny(tmp_path)
    assert digests(tmp_path) == digests(tiny)


def test_progress_is_told_for_every_hour_of_every_table(tmp_path):
    heard = []
    write_twin(tmp_path, machines=1, days=0.1, progress=lambda *what: heard.append(what))
    for table in ("batch_task", "machine_usage", "container_usage", "batch_instance"):
        assert [what for what in heard if what[0] == table] == [(table, k, 3) for k in (1, 2, 3)]


def test_other_options_in_the_folder_are_refused_with_both_values(tiny):
    with pytest.raises(TraceError, match=r"twin\.json: machines is 3 there and 4 here; give"):
        make_tiny(tiny, machines=4)
    with pytest.raises(TraceError, match=r"dirt is 0\.01 there and 0\.02 here"):
        make_tiny(tiny, dirt=0.02)


def test_a_folder_of_another_origin_is_refused(tmp_path):
    (tmp_path / "batch_task.parquet").write_bytes(b"")
    with pytest.raises(TraceError, match=r"holds batch_task but no twin\.json.*empty folder"):
        make_tiny(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"machines": 0}, "machines=0"),
        ({"days": 0}, "days=0"),
        ({"dirt": 0.9}, "dirt=0.9"),
        ({"seed": -1}, "seed=-1"),
        ({"instances": 0}, "instances=0"),
        ({"instances": 10, "days": 0.5}, "day 0 of the trace is nearly empty"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_written(options, words, tmp_path):
    with pytest.raises(TraceError, match=re.escape(words)):
        make_tiny(tmp_path / "twin", **options)
    assert not (tmp_path / "twin").exists()


def test_statistics_of_a_folder_without_tables_are_refused(tmp_path):
    with pytest.raises(TraceError, match="holds none of machine_meta"):
        statistics(tmp_path)
