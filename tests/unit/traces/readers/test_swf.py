"""The SWF reader: its row rules, its refusals, and real logs where the data folder is at hand."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.traces import read
from trimtab.traces.readers.swf import read_swf, swf_cluster

DEFAULT = (
    {"number": 1, "submit": 0, "wait": 5, "run": 100, "alloc": 4, "cpu": -1, "mem": -1}
    | {"procs": 4, "request": 200, "mem_req": -1, "status": 1, "user": 7, "group": 1}
    | {"exe": -1, "queue": 2, "part": -1, "prev": -1, "think": -1}
)
HEADER = "; Computer: a toy\n; MaxNodes: 8\n; MaxProcs: 16\n"


def line(**fields) -> str:
    return " ".join(str(value) for value in (DEFAULT | fields).values()) + "\n"


@pytest.fixture
def log(tmp_path):
    def write(*lines: str, header: str = HEADER) -> Path:
        path = tmp_path / "toy.swf"
        path.write_text(header + "".join(lines))
        return path

    return write


def test_a_row_becomes_a_job_that_takes_whole_nodes(log):
    # 8 nodes of 16 / 8 = 2 processors: 5 processors take ceil(5 / 2) = 3 nodes
    work = read_swf(log(line(submit=30, run=100, procs=5, request=200)), nodes="whole")
    assert work.resources == ("node",)
    assert work.demand.tolist() == [[3.0]]
    assert work.jobs["submit_s"].tolist() == [30.0]
    assert work.jobs["request_s"].tolist() == [200.0]
    assert work.truth["work_s"].tolist() == [100.0]
    assert work.jobs["instances"].tolist() == [1]
    assert (work.name(0), work.tenants) == ("1", ("7",))
    assert work.meta["procs"].tolist() == [5.0]
    assert (work.meta["max_procs"], work.meta["max_nodes"]) == (16, 8)


@pytest.mark.parametrize(
    ("fields", "work_s", "request_s", "procs"),
    [
        ({"run": -1}, 10, 200, 4),  # a negative run time becomes 10 s
        ({"request": -1}, 100, 100, 4),  # no request: the run time
        ({"run": -1, "request": -1}, 10, 10, 4),
        ({"alloc": 6, "procs": 4}, 100, 200, 6),  # the larger of the two
        ({"alloc": -1, "procs": 4}, 100, 200, 4),
        ({"alloc": 4, "procs": -1}, 100, 200, 4),
        ({"run": 99.5, "request": "2e2"}, 99.5, 200, 4),  # floats in any field
    ],
)
def test_row_rules(log, fields, work_s, request_s, procs):
    work = read_swf(log(line(**fields)))
    assert work.truth["work_s"][0] == work_s
    assert work.jobs["request_s"][0] == request_s
    assert work.meta["procs"][0] == procs


def test_run_time_0_is_dropped_and_counted_also_when_its_processors_are_unknown(log):
    work = read_swf(log(line(), line(number=2, run=0), line(number=3, run=0, alloc=-1, procs=-1)))
    assert len(work) == 1
    assert work.meta["dropped"] == {"run time 0": 2}


def test_rows_are_in_job_number_order(log):
    work = read_swf(
        log(line(number=3, submit=9), line(number=1, submit=2), line(number=2, submit=5))
    )
    assert work.job_id.tolist() == ["1", "2", "3"]
    assert work.jobs["submit_s"].tolist() == [2, 5, 9]
    assert work.meta["swf"]["job_number"].tolist() == [1, 2, 3]


def test_pieces_of_a_swapped_job_are_dropped_and_counted(log):
    work = read_swf(log(line(), line(status=2, run=40), line(status=3, run=60), line(number=2)))
    assert len(work) == 2
    assert work.meta["dropped"] == {"part of a job that was swapped out": 2}


def test_fields_that_nothing_is_scheduled_by_stay_in_meta(log):
    work = read_swf(log(line(wait=5, cpu=99.25, queue=2, status=1)))
    columns = work.meta["swf"]
    assert len(columns) == 16  # 18 less submit and requested time
    assert (columns["wait_s"][0], columns["cpu_s"][0], columns["queue"][0]) == (5, 99.25, 2)


def test_tenants_are_users(log):
    work = read_swf(log(line(user=9), line(number=2, user=-1), line(number=3, user=9)))
    assert work.tenants == ("unknown", "9")
    assert work.jobs["tenant"].tolist() == [1, 0, 1]


def test_header_lines_continue_and_repeat(log):
    header = (
        "; Information: http://one\n;   http://two\n;Queue: 0 a\n;  Queue: 1 b\n"
        "; MaxNodes: 338 (batch partition; 512 total)\n;\n"
    )
    told = read_swf(log(line(), header=header)).meta["header"]
    assert told["Information"] == "http://one\nhttp://two"
    assert told["Queue"] == "0 a\n1 b"
    assert told["MaxNodes"] == "338 (batch partition; 512 total)"


@pytest.mark.parametrize(
    ("header", "nodes", "procs"),
    [
        ("; MaxNodes: 8\n; MaxProcs: 16\n", 8, 16),
        ("; MaxNodes: 338 (batch partition; 512 total)\n", 338, 338),
        ("; MaxProcs: 1,024\n", 1024, 1024),
        ("; MaxProcs: -1\n; MaxNodes: 64\n", 64, 64),
        ("", 6, 6),  # neither: the most a job asks for
    ],
)
def test_the_machine_comes_from_the_header(log, header, nodes, procs):
    work = read_swf(log(line(wait=-1), line(number=2, procs=6, wait=-1), header=header))
    assert (work.meta["max_nodes"], work.meta["max_procs"]) == (nodes, procs)
    pool = swf_cluster(work)
    assert pool.kinds == ("pool",)
    assert pool.resources == work.resources
    assert pool.capacity.tolist() == [[nodes if pool.resources == ("node",) else procs]]


def test_a_machine_taken_from_the_jobs_says_so(log):
    work = read_swf(log(line(wait=-1), header=""))
    assert "no MaxNodes or MaxProcs: 4 is the most a job asks for" in work.source


def test_whole_nodes_of_a_fractional_processor_count(log):
    # 2004 / 151 = 13.27 processors a node: 2004 take all 151, 14 take 2, 13 take 1
    header = "; MaxNodes: 151\n; MaxProcs: 2004\n"
    path = log(line(procs=2004), line(number=2, procs=14), line(number=3, procs=13), header=header)
    assert read_swf(path, nodes="whole").demand[:, 0].tolist() == [151, 2, 1]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_logs_read_as_plain_ones(tmp_path, pack):
    path = tmp_path / "toy.swf.packed"
    path.write_bytes(pack((HEADER + line() + line(number=2, submit=9)).encode()))
    assert read_swf(path).jobs["submit_s"].tolist() == [0, 9]


def test_extra_fields_inner_comments_blank_lines_and_carriage_returns_are_passed_over(log):
    long = line(number=2).replace("\n", " {1,2} q_1d 1:ppn=64#excl\r\n")
    work = read_swf(
        log(line(), "\n; a note 1 2 3\n  \t\n", long, "  " + line(number=3).rstrip("\n"))
    )
    assert work.job_id.tolist() == ["1", "2", "3"]


BAD = [  # lines after the first good one, the line, field, value and reason
    ([line(number=2)[:20] + "\n"], 5, "field 9", "missing: the line has 8 of 18", "too few fields"),
    ([line(number=2, run="1O0")], 5, "run time (field 4)", "'1O0'", "not a number"),
    ([line(number=2, cpu="nan")], 5, "average CPU time used (field 6)", "'nan'", "not a number"),
    ([line(number=2, think="1_0")], 5, "think time (field 18)", "'1_0'", "not a number"),
    ([line(number=2, submit=-3)], 5, "submit time (field 2)", "-3", "negative submit time"),
    ([line(number=2, alloc=-1, procs=0)], 5, "processors (field 8)", "0", "no processors"),
    ([line(number=2, procs=17)], 5, "requested processors (field 8)", "17", "asks more than"),
    ([line(number=2, alloc=18)], 5, "allocated processors (field 5)", "18", "asks more than"),
    (["; note\n", line(number=1)], 6, "job number (field 1)", "1", "job number twice"),
]


@pytest.mark.parametrize(("lines", "row", "field", "value", "reason"), BAD)
def test_a_bad_line_is_refused_by_file_line_field_value_and_remedy(
    log, lines, row, field, value, reason
):
    path = log(line(), *lines, line(number=9))
    with pytest.raises(TraceError) as caught:
        read_swf(path, lenient=False)
    message = str(caught.value)
    assert message.startswith(f"{path}:{row}: ")
    for part in (field, f"= {value}", "lenient=True"):
        assert part in message


@pytest.mark.parametrize(("lines", "row", "field", "value", "reason"), BAD)
def test_a_lenient_read_drops_a_bad_line_and_counts_why(log, lines, row, field, value, reason):
    work = read_swf(log(line(), *lines, line(number=9)), lenient=True)
    assert work.job_id.tolist() == ["1", "9"]
    assert [(why.startswith(reason), n) for why, n in work.meta["dropped"].items()] == [(True, 1)]


def test_a_submit_time_out_of_order_is_refused_and_a_lenient_read_sorts_it(log):
    path = log(line(submit=50), line(number=2, submit=20), line(number=3, submit=60))
    with pytest.raises(TraceError, match=r"toy\.swf:5: submit time \(field 2\) = 20 is before 50"):
        read_swf(path, lenient=False)
    work = read_swf(path)
    assert work.job_id.tolist() == ["2", "1", "3"]
    assert work.meta["procs"].tolist() == [4, 4, 4]
    assert work.meta["dropped"] == {"submit time out of order (sorted, not dropped)": 1}


def test_fields_that_shift_between_two_lines_are_not_mistaken_for_good_ones(log):
    words = line(number=2).split()
    path = log(" ".join(words[:17]) + "\n", " ".join([*words, "0"]) + "\n")  # 17 + 19 = 2 x 18
    with pytest.raises(TraceError, match=r":4: think time \(field 18\) = missing"):
        read_swf(path, lenient=False)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no jobs"),
        (b"; MaxNodes: 4\n", "holds no jobs"),
        (b"1 2 3\n", "has 3 of 18 fields"),
        (line(run=0).encode(), "all jobs were dropped"),
        (gzip.compress(b"x" * 99, mtime=0)[:-9], "cannot be unpacked"),
    ],
)
def test_a_file_without_jobs_is_refused_by_name(tmp_path, content, problem):
    path = tmp_path / "empty.swf"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=problem) as caught:
        read_swf(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.swf: cannot be read .* give the path"):
        read_swf(tmp_path / "gone.swf")


REAL = [  # log, jobs kept, nodes, processors, dropped
    ("CTC-SP2-1996-3.1-cln", 77205, 338, 338, {"run time 0": 17}),
    ("HPC2N-2002-2.2-cln", 202871, 240, 240, {}),
    ("NASA-iPSC-1993-3.1-cln", 18066, 128, 128, {"run time 0": 173}),
    ("SDSC-SP2-1998-4.2-cln", 59705, 128, 128, {"run time 0": 10}),
    ("UniLu-Gaia-2014-2", 51887, 151, 2004, {"run time 0": 100}),
    ("alea-hpc2n", 3170, 240, 240, {}),
    ("lublin_256", 10000, 256, 256, {}),
    ("wagap-2013", 17900, 1531, 1531, {}),
]


@pytest.mark.parametrize(("name", "jobs", "nodes", "procs", "dropped"), REAL)
def test_a_real_log_reads_strictly(name, jobs, nodes, procs, dropped):
    work = read(found("data", "swf", f"{name}.swf.xz"), lenient=False)
    assert len(work) == jobs
    assert (work.meta["max_nodes"], work.meta["max_procs"]) == (nodes, procs)
    assert work.meta["dropped"] == dropped
    assert work.demand.max() <= procs
    assert (np.diff(work.jobs["submit_s"]) >= 0).all()
