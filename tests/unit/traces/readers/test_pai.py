"""Alibaba's PAI trace of 2020: tasks, machines and node mixes."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.data import found

from trimtab.build import workload
from trimtab.errors import TraceError, UnknownName
from trimtab.traces import file_kind, read
from trimtab.traces.readers import openb
from trimtab.traces.readers.pai import GPU_TYPES, read_machines
from trimtab.traces.scenes import presets
from trimtab.traces.scenes.scene import open_cluster

TASKS = (
    "b,worker,2.0,Terminated,50.0,90.0,600.0,29.296875,50.0,T4\n"
    "a,ps,1.0,Terminated,30.0,40.0,400.0,10.0,,\n"
    "a,worker,4.0,Terminated,30.0,45.0,400.0,10.0,250.0,V100\n"
)
JOBS = "a,id-a,anna,Terminated,10.0,45.0\nb,id-b,ben,Terminated,48.0,90.0\n"
SPEC = "m1,CPU,96,512,0\nm2,T4,96,512,2\nm3,V100M32,96,384,8\n"
DERIVED = (
    ",job_id,task_id,submit_time,duration,instances_num,cpu,memory,disk,gpu,gpu_memory,gpu_type\n"
    "0,0,0,5.0,583.0,1.0,6.0,29.25,0.0,0.5,0.0,CPU\n"
    "1,1,1,9.0,210.0,2.0,2.0,4.5,0.0,0.0,0.0,CPU\n"
)


def tarred(path: Path, name: str, text: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
    return path


def written(tmp_path, text: str = TASKS, name: str = "pai_task_table.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_percent_become_cores_and_devices_and_an_empty_plan_is_no_gpu(tmp_path):
    work = read(written(tmp_path))
    assert work.job_id.tolist() == ["a/ps", "a/worker", "b/worker"]
    assert work.jobs["submit_s"].tolist() == [0, 0, 20]  # started at 30, 30 and 50
    assert work.truth["work_s"].tolist() == [10, 15, 40]
    assert work.jobs["gpus"].tolist() == [0, 3, 1]  # 250 % is 2.5 devices: 3 whole ones
    assert work.jobs["gpu_share"].tolist() == [1, 1, 0.5]
    assert work.demand.tolist() == [[4, 10, 0], [4, 10, 3], [6, 29.296875, 0.5]]
    assert work.jobs["instances"].tolist() == [1, 4, 2]
    assert work.jobs["gang"].tolist() == [1, 1, 1]
    assert [work.kinds[k] for k in work.jobs["kind"]] == ["CPU", "V100", "T4"]
    assert work.meta["rounded_up"] == 1
    assert work.meta["dag"].tolist() == [0, 0, 1]


def test_the_job_table_beside_it_gives_submit_times_and_users(tmp_path):
    tarred(tmp_path / "pai_job_table.tar.gz", "pai_job_table.csv", JOBS)
    path = tarred(tmp_path / "pai_task_table.tar.gz", "pai_task_table.csv", TASKS)
    assert file_kind(path) == "pai"
    work = read(path)
    assert work.jobs["submit_s"].tolist() == [0, 0, 38]  # jobs at 10 and 48
    assert [work.tenants[t] for t in work.jobs["tenant"]] == ["anna", "anna", "ben"]
    assert "3 of 3" in work.meta["submitted"]
    recorded = work.meta["recorded"]
    assert (recorded["start_s"] >= work.jobs["submit_s"]).all()
    assert (recorded["end_s"] - recorded["start_s"] == work.truth["work_s"]).all()


def test_without_submissions_of_their_own_nothing_is_recorded(tmp_path):
    assert "recorded" not in read(written(tmp_path, TASKS)).meta


def test_the_header_file_orders_the_columns(tmp_path):
    fields = [row.split(",") for row in TASKS.splitlines()]
    swapped = "\n".join(",".join([*row[1::-1], *row[2:]]) for row in fields)
    names = "task_name,job_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu"
    (tmp_path / "pai_task_table.header").write_text(f"{names},gpu_type\n")
    assert read(written(tmp_path, swapped)).job_id.tolist() == ["a/ps", "a/worker", "b/worker"]


@pytest.mark.parametrize(
    ("field", "row"),
    [
        ("status", "c,w,1.0,Failed,1.0,2.0,100.0,1.0,0.0,"),
        ("end_time", "c,w,1.0,Terminated,1.0,,100.0,1.0,0.0,"),
        ("end_time", "c,w,1.0,Terminated,2.0,1.0,100.0,1.0,0.0,"),
        ("plan_cpu", "c,w,1.0,Terminated,1.0,2.0,,1.0,0.0,"),
        ("plan_gpu", "c,w,1.0,Terminated,1.0,2.0,100.0,1.0,-5,"),
        ("inst_num", "c,w,1.5,Terminated,1.0,2.0,100.0,1.0,0.0,"),
    ],
)
def test_a_dirty_task_is_refused_by_its_line_or_counted(tmp_path, field, row):
    path = written(tmp_path, TASKS + row + "\n")
    with pytest.raises(TraceError, match=f":4: {field}=.*--lenient"):
        read(path, lenient=False)
    work = read(path, lenient=True)
    assert len(work) == 3
    assert sum(work.meta["dropped"].values()) == 1


def test_the_conversion_is_known_by_its_header(tmp_path):
    work = read(written(tmp_path, DERIVED, "tasks.csv"))
    assert [work.kinds[k] for k in work.jobs["kind"]] == ["GPU", "CPU"]
    assert work.demand.tolist() == [[6, 29.25, 0.5], [2, 4.5, 0]]
    assert work.jobs["submit_s"].tolist() == [0, 4]


def test_machines_become_a_cluster_by_gpu_type(tmp_path):
    path = tarred(tmp_path / "pai_machine_spec.tar.gz", "pai_machine_spec.csv", SPEC)
    nodes, profile = open_cluster(str(path), workload([0], [1], [1]))
    assert [nodes.kinds[k] for k in nodes.nodes["kind"]] == ["CPU", "T4", "V100M32"]
    assert nodes.capacity.tolist() == [[96, 512, 0], [96, 512, 2], [96, 384, 8]]
    assert nodes.name(1) == "m2"
    assert profile.rate.shape == (1, len(GPU_TYPES), 1)


def test_a_tar_of_several_files_is_refused_with_their_names(tmp_path):
    with tarfile.open(tmp_path / "both.tar.gz", "w:gz") as tar:
        for name in ("one.csv", "two.csv"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(TraceError, match=r"one\.csv, two\.csv"):
        read(tmp_path / "both.tar.gz")


def test_what_is_left_over_goes_to_the_largest_remainders():
    # 10 x 5/9 = 5.56, 10 x 3/9 = 3.33, 10 x 1/9 = 1.11: floors 5 + 3 + 1, one left for .56
    assert presets.apportioned(np.array([5, 3, 1]), 10).tolist() == [6, 3, 1]
    assert presets.apportioned(np.array([1, 1, 1]), 2).tolist() == [1, 1, 0]


def test_a_mix_is_the_published_cluster_and_scales_by_kind():
    whole, small = presets.mix_cluster("openb"), presets.mix_cluster("openb:48")
    assert (len(whole), whole.capacity[:, 2].sum()) == (1523, 6212)
    assert whole.kinds == openb.KINDS  # openb's pods name node kinds by these numbers
    # 48/1523 of 310 cpu = 9.77, A10 .06, G2 17.30, G3 1.23, P100 4.22, T4 12.73, V100M16 1.73,
    # V100M32 .95: floors 44, the 4 left to V100M32, cpu, T4 and V100M16
    count = np.bincount(small.nodes["kind"], minlength=len(openb.KINDS))
    assert dict(zip(small.kinds, count.tolist())) == {
        "cpu": 10, "A10": 0, "G1": 0, "G2": 17, "G3": 1, "P100": 4, "T4": 13, "V100M16": 2,
        "V100M32": 1,
    }  # fmt: skip
    assert len(presets.mix_cluster("pai:100")) == 100


def test_a_mix_draws_by_cores_and_gpus():
    nodes = presets.mix_cluster("pai")
    t4 = int(np.flatnonzero(nodes.nodes["kind"] == GPU_TYPES.index("T4"))[0])
    assert nodes.nodes["peak_w"][t4] == 200 + 96 * 4 + 2 * 70
    assert nodes.nodes["idle_w"][t4] == pytest.approx(0.3 * nodes.nodes["peak_w"][t4])


@pytest.mark.parametrize("name", ["openb:", "openb:0", "pai:many"])
def test_a_mix_of_no_nodes_is_refused(name):
    with pytest.raises(TraceError, match=name):
        open_cluster(name, workload([0], [1], [1]))


def test_an_unknown_mix_names_those_there_are():
    with pytest.raises(UnknownName, match="openb, pai"):
        presets.mix_cluster("philly")


@pytest.mark.parametrize(
    ("mix", "read_nodes", "file"),
    [
        ("openb", openb.read_cluster, "openb_node_list_all_node.csv.xz"),
        ("pai", read_machines, "pai_machine_spec.tar.gz"),
    ],
)
def test_the_mixes_are_those_of_the_public_lists(mix, read_nodes, file):
    def groups(nodes):
        rows = np.column_stack((nodes.nodes["kind"], nodes.capacity))
        return [part.tolist() for part in np.unique(rows, axis=0, return_counts=True)]

    published = read_nodes(found("data", "alibaba_gpu", file))
    assert groups(presets.mix_cluster(mix)) == groups(published)


def test_the_public_conversion_is_read_whole():
    work = read(found("data", "alibaba_gpu", "pai_10k_tasks_derived.csv.xz"))
    assert len(work) == 10_000
    assert (work.jobs["gpus"] == 0).sum() == 1990
    assert work.meta["rounded_up"] == 0
