"""Traces of load: PlanetLab, Bitbrains (both forms) and Alibaba's machine_usage."""

import lzma
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.traces.load.cpu_use import read_bitbrains, read_machine_usage, read_planetlab, share

MARCH_3_S = 1299110400.0  # 2011-03-03 00:00 UTC
HEADER = (
    "Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage [%]"
    ";\tMemory capacity provisioned [KB];\tMemory usage [KB];\tDisk read throughput [KB/s]"
    ";\tDisk write throughput [KB/s];\tNetwork received throughput [KB/s]"
    ";\tNetwork transmitted throughput [KB/s]\n"
)


def day(folder: Path, machine: str, *first: int) -> Path:
    """A PlanetLab file: the values given, then 50 %."""
    folder.mkdir(parents=True, exist_ok=True)
    values = [*first, *[50] * (288 - len(first))]
    (folder / machine).write_text("".join(f"{value}\n" for value in values))
    return folder


def bitbrains_row(time_s: int, *, usage: float = 650, mem_kb: float = 256, cores: int = 2) -> str:
    fields = (time_s, cores, 1300 * cores, usage, 25.0, 1024, mem_kb, 1.5, 2.5, 3.5, 4.5)
    return ";\t".join(str(field) for field in fields) + "\n"


@pytest.fixture
def opendc(tmp_path):
    def write(tasks: dict, fragments: dict) -> Path:
        pq.write_table(pa.table(tasks), tmp_path / "small_tasks.parquet")
        pq.write_table(pa.table(fragments), tmp_path / "small_fragments.parquet")
        return tmp_path

    return write


def test_a_planetlab_day_is_288_steps_of_five_minutes(tmp_path):
    seen = read_planetlab(day(tmp_path / "20110303", "vm_a", 7, 100))
    assert seen.names == ("vm_a",)
    assert seen.time_s.tolist() == [MARCH_3_S + 300 * step for step in range(288)]
    assert seen.cpu[:3].tolist() == [0.07, 1.0, 0.5]
    assert np.isnan(seen.mem).all() and np.isnan(seen.gpu).all()


def test_a_machine_continues_on_another_day_with_a_gap_between(tmp_path):
    day(tmp_path / "20110303", "vm_a", 1)
    day(tmp_path / "20110306", "vm_a", 2)
    day(tmp_path / "20110306", "vm_b", 3)
    (tmp_path / "README.md").write_text("notes lie beside the days")
    seen = read_planetlab(tmp_path)
    assert seen.names == ("vm_a", "vm_b")
    time_s = np.sort(seen.time_s[seen.node == 0])
    assert len(time_s) == 2 * 288
    # three days less the last 287 steps of the first
    assert np.diff(time_s).max() == 3 * 86400 - 287 * 300


def test_days_that_are_no_dates_follow_each_other_by_name(tmp_path):
    day(tmp_path / "day_1", "vm", 1)
    day(tmp_path / "day_2", "vm", 2)
    assert read_planetlab(tmp_path).time_s.max() == 86400 + 287 * 300


@pytest.mark.parametrize("packing", ["gz", "xz"])
def test_a_packed_planetlab_trace_reads_as_its_folder_does(tmp_path, packing):
    day(tmp_path / "days" / "20110303", "vm_a", 9)
    packed = tmp_path / f"days.tar.{packing}"
    with tarfile.open(packed, f"w:{packing}") as tar:
        tar.add(tmp_path / "days", ".")
    folder, archive = read_planetlab(tmp_path / "days"), read_planetlab(packed)
    assert folder.names == archive.names
    assert np.array_equal(folder.time_s, archive.time_s)
    assert np.array_equal(folder.cpu, archive.cpu)


@pytest.mark.parametrize("value", ["101", "-1", "x", "3.5"])
def test_a_value_that_is_no_percent_is_refused_with_its_line(tmp_path, value):
    folder = day(tmp_path / "20110303", "vm_a")
    (folder / "vm_a").write_text("5\n" + f"{value}\n" * 287)
    with pytest.raises(TraceError, match=rf"vm_a:2: '{value}' is not a whole percent"):
        read_planetlab(folder)


def test_a_short_day_is_refused_with_its_count(tmp_path):
    folder = day(tmp_path / "20110303", "vm_a")
    (folder / "vm_a").write_text("5\n" * 287)
    with pytest.raises(TraceError, match=r"vm_a: has 287 values, not the 288"):
        read_planetlab(folder)


def test_a_missing_trace_is_refused(tmp_path):
    with pytest.raises(TraceError, match="is not there"):
        read_planetlab(tmp_path / "none.tar.xz")


def test_a_damaged_archive_is_refused(tmp_path):
    day(tmp_path / "20110303", "vm_a")
    packed = tmp_path / "days.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(tmp_path / "20110303", "20110303")
    packed.write_bytes(packed.read_bytes()[:-90])
    with pytest.raises(TraceError, match="fetch the file again"):
        read_planetlab(packed)


def test_a_bitbrains_file_gives_shares_of_what_the_machine_was_given(tmp_path):
    (tmp_path / "7.csv").write_text(HEADER + bitbrains_row(1376314846) + bitbrains_row(1376315146))
    seen = read_bitbrains(tmp_path)
    assert seen.names == ("7",)
    # the column says ms, the files hold seconds
    assert seen.time_s.tolist() == [1376314846, 1376315146]
    assert seen.cpu.tolist() == [0.25, 0.25]  # 650 of 2 x 1300 MHz
    assert seen.mem.tolist() == [0.25, 0.25]  # 256 of 1024 KB
    assert np.isnan(seen.net_in).all() and np.isnan(seen.disk).all()  # KB/s of an unknown link


def test_milliseconds_that_are_milliseconds_are_read_as_such(tmp_path):
    (tmp_path / "7.csv").write_text(HEADER + bitbrains_row(1376314846000))
    assert read_bitbrains(tmp_path / "7.csv").time_s.tolist() == [1376314846]


def test_months_of_one_machine_continue_and_a_zip_reads_as_its_folder(tmp_path):
    packed = tmp_path / "rnd.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("rnd/2013-7/1.csv", HEADER + bitbrains_row(1372629804))
        archive.writestr("rnd/2013-8/1.csv", HEADER + bitbrains_row(1375308304))
        archive.writestr("rnd/2013-8/2.csv", HEADER + bitbrains_row(1375308304))
        archive.writestr("rnd/readme.txt", "not a machine")
    seen = read_bitbrains(packed)
    assert seen.names == ("rnd/1", "rnd/2")
    assert seen.node.tolist() == [0, 0, 1]


def test_a_machine_that_is_off_has_no_share(tmp_path):
    (tmp_path / "7.csv").write_text(HEADER + bitbrains_row(1376314846, usage=0, cores=0))
    assert np.isnan(read_bitbrains(tmp_path).cpu).all()


def test_use_above_the_capacity_counts_as_full():
    got = share(np.array([1.1, 0.5, -1.0, np.nan]), np.array([1.0, 1.0, 1.0, 1.0]))
    assert np.array_equal(got, [1.0, 0.5, np.nan, np.nan], equal_nan=True)


def test_a_bitbrains_value_that_is_no_number_is_refused_with_its_row(tmp_path):
    (tmp_path / "7.csv").write_text(HEADER + bitbrains_row(1, usage="much"))
    with pytest.raises(TraceError, match=r"7\.csv: .*Row #2.*'much'.*drop the row"):
        read_bitbrains(tmp_path)


def test_a_csv_of_another_kind_is_refused_with_the_missing_column(tmp_path):
    (tmp_path / "7.csv").write_text("a;b\n1;2\n")
    with pytest.raises(TraceError, match=r"column 'Timestamp \[ms\]' is missing"):
        read_bitbrains(tmp_path)


def test_an_opendc_fragment_is_a_run_of_measurements(opendc):
    folder = opendc(
        {"id": [4, 3], "submission_time": [5_000_000, 1_000_000], "cpu_capacity": [100.0, 200.0]},
        {
            "id": [3, 3, 4],
            "duration": [600_000, 300_000, 299_000],
            "cpu_usage": [50.0, 100.0, 25.0],
        },
    )
    for path in (folder, folder / "small_tasks.parquet", folder / "small_fragments.parquet"):
        seen = read_bitbrains(path)
        assert seen.names == ("3", "4")
        assert seen.node.tolist() == [0, 0, 0, 1]
        # each stands at the end of its 300 s, as in the original files
        assert seen.time_s.tolist() == [1300, 1600, 1900, 5300]
        assert seen.cpu.tolist() == [0.25, 0.25, 0.5, 0.25]


def test_a_fragment_without_its_task_is_refused(opendc):
    folder = opendc(
        {"id": [3], "submission_time": [0], "cpu_capacity": [100.0]},
        {"id": [3, 9], "duration": [300_000] * 2, "cpu_usage": [50.0] * 2},
    )
    with pytest.raises(TraceError, match="id=9 has fragments and no task"):
        read_bitbrains(folder)


def test_half_an_opendc_pair_is_refused(opendc):
    folder = opendc({"id": [3]}, {"id": [3]})
    (folder / "small_tasks.parquet").unlink()
    with pytest.raises(TraceError, match=r"small_tasks\.parquet: cannot be read"):
        read_bitbrains(folder)


def test_alibaba_marks_of_broken_readings_are_masks(tmp_path):
    path = tmp_path / "machine_usage.csv.xz"
    rows = "m_1,10,40,90,,,30,20,5\nm_2,10,-1,101,1,2,30,20,101\nm_1,20,0,100,,,,20,-1\n"
    path.write_bytes(lzma.compress(rows.encode()))
    seen = read_machine_usage(path)
    assert seen.names == ("m_1", "m_2")
    assert seen.node.tolist() == [0, 1, 0]
    nan = np.nan
    for name, expected in {
        "cpu": [0.4, nan, 0.0],
        "mem": [0.9, nan, 1.0],
        "net_in": [0.3, 0.3, nan],
        "net_out": [0.2, 0.2, 0.2],
        "disk": [0.05, nan, nan],
        "gpu": [nan] * 3,
    }.items():
        assert np.allclose(getattr(seen, name), expected, equal_nan=True), name


def test_rows_without_machine_or_time_are_dropped_and_counted(tmp_path):
    path = tmp_path / "usage.csv"
    header = "machine_id,time_stamp,cpu_util_percent,mem_util_percent,mem_gps,mkpi,net_in,net_out,"
    rows = ",10,40,90,,,30,20,5\nm_1,,40,90,,,30,20,5\nm_1,20,40,90,,,30,20,5\n"
    path.write_text(header + "disk_io_percent\n" + rows)
    seen = read_machine_usage(path)
    assert seen.names == ("m_1",)
    assert seen.time_s.tolist() == [20]
    assert "2 rows without machine or time dropped" in seen.source


def test_planetlab_as_published():
    seen = read_planetlab(found("data", "cpu_usage", "planetlab_7days.tar.xz"))
    assert len(seen.names) == 3345
    assert len(seen.cpu) == 8426 * 288
    assert seen.cpu.mean() == pytest.approx(0.1107, abs=1e-4)


def test_bitbrains_as_converted_by_opendc():
    path = found("data", "cpu_usage", "workloadTraces_bitbrains-small_fragments.parquet")
    seen = read_bitbrains(path)
    assert len(seen.names) == 50
    # the time of the first row of the original files
    assert seen.time_s.min() == 1376314846
    tasks = pq.read_table(str(path).replace("fragments", "tasks"))
    fragments = pq.read_table(path).group_by("id").aggregate([("duration", "sum")])
    joined = tasks.join(fragments, "id")
    left_out = joined["duration"].to_numpy() - joined["duration_sum"].to_numpy()
    assert left_out.max() / 3.6e6 == pytest.approx(2.4, abs=0.01)  # hours


def test_alibaba_machine_usage_as_published():
    seen = read_machine_usage(found("data", "alibaba2018", "machine_usage_16machines.csv.xz"))
    assert len(seen.names) == 16
    assert len(seen.cpu) == 100_002
    assert np.isnan(seen.disk).sum() == 16
