"""Whole or shared nodes of a log of processors, the size of its machine, its labels and dates."""

import numpy as np
import pytest
from tests.unit.traces.readers.test_swf import line

from trimtab.build import cluster
from trimtab.errors import TraceError
from trimtab.sim.whole import simulate
from trimtab.traces.readers.machine import most_in_use
from trimtab.traces.readers.swf import on_nodes, read_swf, swf_cluster
from trimtab.traces.scenes.scene import open_scene

DUAL = "; MaxNodes: 8\n; MaxProcs: 16\n"


@pytest.fixture
def log(tmp_path):
    def write(*lines: str, header: str = DUAL):
        path = tmp_path / "toy.swf"
        path.write_text(header + "".join(lines))
        return path

    return write


def jobs_of(*procs: int, **fields) -> list[str]:
    """One job a number of processors, a second apart."""
    return [
        line(number=n, submit=n, alloc=p, procs=p, **fields) for n, p in enumerate(procs, start=1)
    ]


@pytest.mark.parametrize(
    ("header", "procs", "nodes", "because"),
    [
        ("; MaxNodes: 16\n; MaxProcs: 16\n", [1, 3, 5], "whole", "a node has one processor"),
        (DUAL, [2, 4, 6, 16], "whole", "100% of the jobs held a multiple of the 2 processors"),
        (DUAL, [2, 4, 6, 1], "shared", "75% of the jobs held a multiple of the 2 processors"),
        # 20 / 8 = 2.5 processors a node, which no job can hold a whole number of
        ("; MaxNodes: 8\n; MaxProcs: 20\n", [1, 2, 5, 9], "shared", "50% of the jobs held less"),
        ("", [4, 8], "shared", "nothing says how many processors a node has"),
    ],
)
def test_the_log_decides_whether_jobs_take_whole_nodes(log, header, procs, nodes, because):
    work = read_swf(log(*jobs_of(*procs), header=header))
    assert work.meta["nodes"] == nodes
    assert because in work.meta["nodes_because"]
    assert because in work.meta["notes"][0]


def test_jobs_that_share_nodes_take_their_processors_of_one_pool(log):
    work = read_swf(log(*jobs_of(3, 1, 16)))
    assert work.resources == ("cpu",)
    assert work.demand[:, 0].tolist() == [3, 1, 16]
    assert swf_cluster(work).capacity.tolist() == [[16]]


def test_the_user_decides_before_the_log(log):
    path = log(*jobs_of(3, 1))
    whole, shared = read_swf(path, nodes="whole"), read_swf(path, nodes="shared")
    assert (whole.resources, whole.demand[:, 0].tolist()) == (("node",), [2, 1])  # 3 / 2 rounds up
    assert (shared.resources, shared.demand[:, 0].tolist()) == (("cpu",), [3, 1])
    assert whole.meta["nodes_because"] == "--nodes whole"
    with pytest.raises(TraceError, match="--nodes half: is unknown; give whole or shared"):
        read_swf(path, nodes="half")


def test_two_jobs_share_a_node_where_whole_nodes_would_make_one_wait(log):
    # one node of 2 processors; two jobs of one processor, each 100 s, a second apart
    path = log(*jobs_of(1, 1), header="; MaxNodes: 1\n; MaxProcs: 2\n")
    ends = {}
    for nodes in ("whole", "shared"):
        scene = open_scene(str(path), nodes=nodes)
        ends[nodes] = simulate(scene.workload, scene.cluster, "fcfs").state["end_s"].tolist()
    assert ends == {"whole": [101, 201], "shared": [101, 102]}


def test_memory_of_nodes_and_requests_makes_nodes_with_both(log):
    # 2 nodes of 4 processors and 8 GB; 3 processors with 4 GB each: two on one node, one beside
    header = f"; MaxNodes: 2\n; MaxProcs: 8\n; MaxMemory: {8 * 2**20}\n"
    work = read_swf(log(*jobs_of(3, 1, mem_req=4 * 2**20), header=header))
    assert work.resources == ("cpu", "mem_gb")
    assert work.demand.tolist() == [[1, 4], [1, 4]]
    assert work.jobs["instances"].tolist() == [3, 1]
    machine = swf_cluster(work)
    assert machine.capacity.tolist() == [[4, 8], [4, 8]]
    start_s = simulate(work, machine, "fcfs").state["start_s"]
    assert start_s.tolist() == [1, 2]  # 4 x 4 GB fill both nodes


def test_a_job_whose_memory_fits_no_node_is_counted(log):
    header = f"; MaxNodes: 2\n; MaxProcs: 8\n; MaxMemory: {8 * 2**20}\n"
    rows = jobs_of(*[1] * 20, mem_req=2**20)
    rows.append(line(number=21, submit=30, alloc=1, procs=1, mem_req=9 * 2**20))
    assert read_swf(log(*rows, header=header)).meta["dropped"] == {
        "asks more than the machine has": 1
    }


def test_memory_that_no_node_is_known_to_have_is_said_to_be_left_out(log):
    notes = read_swf(log(*jobs_of(3, 1, mem_req=1024))).meta["notes"]
    assert any(note.startswith("memory is not modelled") for note in notes)
    assert not any("memory" in note for note in read_swf(log(*jobs_of(3, 1))).meta["notes"])


def test_a_log_runs_on_nodes_of_a_cluster_file_as_gangs(log):
    work = read_swf(log(*jobs_of(5, 1, mem_req=2**20)))
    rack = cluster([[4, 16], [4, 16]], resources=("cpu", "mem_gb"))
    placed = on_nodes(work, rack)
    assert placed.jobs["instances"].tolist() == [5, 1]
    assert placed.demand.tolist() == [[1, 1], [1, 1]]
    assert placed.jobs["like"][0] != placed.jobs["like"][1]
    assert simulate(placed, rack, "fcfs").state["start_s"].tolist() == [1, 2]
    bare = on_nodes(work, cluster([4, 4]))
    assert bare.resources == ("cpu",)
    assert "memory is not modelled" in bare.meta["notes"][0]


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ("nodes=4,procs=32", (4, 32, 0)),
        ("procs=24", (8, 24, 0)),  # nodes stay the header's
        ("nodes=2, mem-gb=1.5", (2, 16, 1.5)),
    ],
)
def test_an_option_overrides_the_header(log, asked, size):
    meta = read_swf(log(*jobs_of(1, 3)), machine=asked).meta
    assert (meta["max_nodes"], meta["max_procs"], meta["node_mem_gb"]) == size
    assert meta["machine"] == f"--machine {asked}"


@pytest.mark.parametrize("asked", ["nodes=0", "procs=2.5", "cores=3", "", "nodes=99,procs=3"])
def test_a_machine_that_is_none_is_refused_by_what_was_given(log, asked):
    with pytest.raises(TraceError, match=f"--machine {asked}: .*procs=2004"):
        read_swf(log(*jobs_of(1, 3)), machine=asked)


def test_without_a_header_the_machine_is_as_large_as_the_jobs_that_ran_at_once(log):
    # submitted at 1 and 2, both wait 5 s and run 100 s: 4 + 6 processors at once
    work = read_swf(log(*jobs_of(4, 6), header=""))
    assert work.meta["max_procs"] == 10
    assert (
        "guessed: the header has no MaxNodes or MaxProcs: 10 processors were in use"
        in (work.meta["notes"][1])
    )


def test_what_ends_makes_room_for_what_starts_at_that_second():
    start_s, end_s = np.array([0.0, 10, 5, np.nan]), np.array([10.0, 20, 12, np.nan])
    assert most_in_use(start_s, end_s, np.array([3, 3, 2, 9])) == 5


def test_queue_user_and_group_become_labels_by_the_names_of_the_header(log):
    header = DUAL + "; Queue: 2 - the second one\n; Queue:  2  express  express\n"
    rows = [*jobs_of(1), line(number=2, submit=2, queue=7, user=-1, group=-1)]
    labels = read_swf(log(*rows, header=header)).labels
    assert [labels["partition"].of(job) for job in (0, 1)] == ["express", "7"]
    assert [labels["user"].of(job) for job in (0, 1)] == ["7", ""]
    assert [labels["account"].of(job) for job in (0, 1)] == ["1", ""]


def test_the_partition_stands_in_for_a_queue_that_the_log_lacks(log):
    rows = jobs_of(1, queue=-1, part=1)
    labels = read_swf(log(*rows, header=f"{DUAL}; Partition: 1 DEFAULT\n")).labels
    assert labels["partition"].of(0) == "DEFAULT"


def test_recorded_starts_and_ends_are_kept_where_the_log_has_them(log):
    rows = [line(submit=7, wait=5, run=100), line(number=2, submit=9, wait=-1)]
    recorded = read_swf(log(*rows)).meta["recorded"]
    assert (recorded["start_s"][0], recorded["end_s"][0]) == (12, 112)
    assert np.isnan([recorded["start_s"][1], recorded["end_s"][1]]).all()
    assert "recorded" not in read_swf(log(line(wait=-1))).meta


def test_a_log_names_the_date_of_its_time_0_and_its_zone(log):
    header = f"{DUAL}; UnixStartTime: 893466664\n; TimeZone: -28800\n"
    meta = read_swf(log(line(), header=header)).meta
    assert (meta["epoch_s"], meta["utc_offset_s"]) == (893466664, -28800)
    assert "epoch_s" not in read_swf(log(line())).meta
    assert read_swf(log(line(submit=1356996147))).meta["epoch_s"] == 0
