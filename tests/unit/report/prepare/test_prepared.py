import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.report.compare.test_html import Page

from trimtab.errors import TraceError
from trimtab.report.prepare import prepared_plots as plots
from trimtab.report.prepare.prepared import quantile_rows, write_prepared_report
from trimtab.report.prepare.prepared_figures import (
    last_window,
    mean_imbalance,
    rates_by_hour,
    read_work,
    task_depth,
)
from trimtab.traces.alibaba2018.published import PUBLISHED
from trimtab.traces.alibaba2018.statistics import statistics
from trimtab.traces.prepare import prepare
from trimtab.traces.prepare.result import Line, line, roughness
from trimtab.traces.twin import write_twin

TABLES = ("machine_meta", "machine_usage", "container_meta", "container_usage", "batch_task")
USE = "cluster_cpu_percent.mean"
STRAGGLER = "straggler.p50"


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin")
    write_twin(folder, machines=6, days=2, seed=1)
    return folder


@pytest.fixture(scope="module")
def whole(twin, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "whole"
    prepare(twin, out)
    return out


def part_of(twin, tmp_path, *tables):
    """The prepared folder of some tables only."""
    source = tmp_path / "source"
    source.mkdir()
    for table in tables:
        one = twin / f"{table}.parquet"
        if one.exists():
            shutil.copy(one, source)
        else:
            shutil.copytree(twin / table, source / table)
    prepare(source, tmp_path / "out")
    return tmp_path / "out"


def text_of(folder, path):
    return write_prepared_report(folder, path).read_text("utf-8")


def test_the_page_is_balanced_and_has_every_section(whole, tmp_path):
    text = text_of(whole, tmp_path / "page.html")
    page = " ".join(Page(text).text)
    for told in (
        *("What came in", "Before and after", "How smooth", "By region", "Over time"),
        *("The work", "Durations", "By hour of the day", "Segments", "Files"),
        *("validation", "purged", "workload.parquet", "cpu_recent"),
    ):
        assert told in page, told


def test_the_page_is_small_loads_nothing_and_is_the_same_again(whole, tmp_path):
    text = text_of(whole, tmp_path / "page.html")
    assert len(text) < 1_500_000
    assert "http://" not in text and "https://" not in text and "<script" not in text
    assert text == text_of(whole, tmp_path / "again.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.html", "page.html"]


def test_without_a_path_the_page_lies_in_the_folder(whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    assert write_prepared_report(folder) == folder / "report.html"


def test_every_table_and_rule_is_on_the_page_with_its_count(whole, tmp_path):
    page = " ".join(Page(text_of(whole, tmp_path / "page.html")).text)
    for table, counts in json.loads((whole / "manifest.json").read_text())["tables"].items():
        for told in (table, f"{counts['in']:,}", f"{counts['kept']:,}", *counts["removed"]):
            assert told in page, (table, told)


@pytest.mark.parametrize(
    ("name", "within"),
    [
        (USE, 0.01),
        ("cluster_mem_percent.mean", 0.01),
        ("failure_domains_2_of_one_1.mean", 0.0),
        ("containers_a_machine", 0.02),
        ("containers.machine_share", 0.0),
        ("containers.cores_reserved", 0.02),
        ("tasks_a_machine_hour", 0.03),
        ("jobs_a_second.dispersion", 0.03),
        ("task_instances.mean_under_6000", 0.03),
        ("plan_cpu.share_100", 0.02),
        ("plan_mem.p50", 0.0),
        ("cpu_used_of_planned.p50", 0.03),
        (STRAGGLER, 0.05),
        ("tasks_a_job.mean", 0.03),
        ("job_depth.mean", 0.03),
        ("jobs.chain_share", 0.05),
        ("tasks.independent_share", 0.03),
    ],
)
def test_a_figure_of_the_clean_trace_is_close_to_that_of_its_tables(twin, whole, name, within):
    here = {figure: value for figure, _, value in quantile_rows(whole)}
    assert here[name] == pytest.approx(statistics(twin)[name], rel=within + 1e-6)


def test_figures_come_with_what_was_published_in_its_order(whole):
    rows = quantile_rows(whole)
    names = [name for name, _, _ in rows]
    assert names == [name for name in PUBLISHED if name in names]
    assert all(published == PUBLISHED[name] for name, published, _ in rows)
    assert "task_duration_s.p50" in names
    assert not any(name.startswith("task_rate.") for name in names)


def test_rates_by_hour_are_against_their_mean(whole):
    rates = rates_by_hour(read_work(whole))
    assert rates.shape == (24,) and rates.mean() == pytest.approx(1.0)


def test_without_machine_usage_the_page_has_gaps_and_no_figures_of_use(twin, tmp_path):
    folder = part_of(twin, tmp_path, "machine_meta", "batch_task", "batch_instance")
    names = [name for name, _, _ in quantile_rows(folder)]
    assert USE not in names and STRAGGLER in names and "machines" in names
    page = " ".join(Page(text_of(folder, tmp_path / "page.html")).text)
    assert "nothing recorded" in page and "100 % of all windows" in page


def test_without_instances_there_are_no_figures_of_instances(twin, tmp_path):
    folder = part_of(twin, tmp_path, *TABLES)
    names = [name for name, _, _ in quantile_rows(folder)]
    assert USE in names and STRAGGLER not in names and "tasks_a_job.mean" in names
    page = " ".join(Page(text_of(folder, tmp_path / "page.html")).text)
    assert "from when it could run to its end" in page and "no batch_instance" in page


def test_without_machines_the_work_is_still_shown(twin, tmp_path):
    folder = part_of(twin, tmp_path, "batch_task")
    names = [name for name, _, _ in quantile_rows(folder)]
    assert "machines" not in names and "tasks_a_machine_hour" not in names
    page = " ".join(Page(text_of(folder, tmp_path / "page.html")).text)
    assert "there is no load to show" in page and "Segments" in page


def test_a_folder_that_was_not_prepared_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"manifest\.json.*trimtab trace prepare"):
        quantile_rows(tmp_path)


def test_a_broken_file_is_named(whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    (folder / "cluster.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(TraceError, match=r"cluster\.parquet.*prepare it again"):
        write_prepared_report(folder, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_names_from_outside_are_escaped(whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["notes"] = ["<b>&"]
    manifest["sources"]["batch_task"] = "<i>.csv"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = text_of(folder, tmp_path / "page.html")
    assert "<b>" not in text and "<i>" not in text
    assert "&lt;b&gt;&amp;" in text and "&lt;i&gt;.csv" in text


def test_times_that_are_left_out_become_gaps():
    one = line("after", np.array([600.0, 900.0, 1800.0]), np.array([1.0, 2.0, 3.0]), 300.0)
    assert one.first_s == 600.0
    np.testing.assert_array_equal(one.value, [1.0, 2.0, np.nan, np.nan, 3.0])


def test_a_line_keeps_the_extremes_of_each_column_and_breaks_at_a_gap():
    values = np.array([1.0, 9.0, 2.0, 5.0, 5.0, 1.0, *[np.nan] * 3, 4.0])
    time_s, drawn = plots.thinned(Line("", 100.0, 10.0, values), columns=4)
    np.testing.assert_array_equal(drawn, [1, 9, 5, 1, np.nan, np.nan, 4, 4])
    np.testing.assert_array_equal(time_s[:4], [100, 110, 130, 150])
    assert time_s[6] == time_s[7] == 190.0


def test_means_leave_gaps_out():
    mean, width = plots.averaged(np.array([[1.0, 3.0, np.nan, 5.0, np.nan, np.nan, 7.0]]), 4)
    assert width == 2
    np.testing.assert_array_equal(mean, [[2.0, 5.0, np.nan, 7.0]])


def test_roughness_is_of_neighbours_without_gaps():
    assert roughness(np.array([0.0, 1.0, 0.0, np.nan, 50.0])) == pytest.approx(1.0)
    assert roughness(np.array([0.0, 1.0, 0.0, 1.0, 0.0]), apart=2) == 0.0
    assert np.isnan(roughness(np.full(4, np.nan)))


def test_the_heat_map_holds_its_own_image():
    values = np.array([[0.1, np.nan], [0.5, 0.9]])
    drawn = plots.heat(values, ["a", "b"], (0.0, 600.0), 300.0, "regions")
    assert 'href="data:image/png' in drawn and "regions-data" not in drawn


def test_depth_is_the_longest_path_whatever_the_order_of_rows(tmp_path):
    after = pa.array([[1, 2], [2], [], [], [0, 3]], pa.list_(pa.int64()))
    pq.write_table(pa.table({"after": after}), tmp_path / "work.parquet")
    np.testing.assert_array_equal(task_depth(tmp_path / "work.parquet"), [3, 2, 1, 1, 4])


def test_imbalance_is_the_mean_over_machines_with_samples(tmp_path):
    table = {
        "window": pa.array([5, 5, 5, 6, 6, 6], pa.int32()),
        "imbalance": pa.array([-0.2, 0.4, None, None, None, None], pa.float32()),
        "services": pa.array([0.0, 0.0, 0.0, 1.0, 2.0, 0.0], pa.float32()),
    }
    pq.write_table(pa.table(table), tmp_path / "node.parquet", row_group_size=3)
    np.testing.assert_allclose(mean_imbalance(tmp_path, 5, 2), [0.3, np.nan], rtol=1e-6)
    np.testing.assert_array_equal(last_window(tmp_path, "services"), [1.0, 2.0, 0.0])
