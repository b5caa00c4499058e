"""What jobs of sacct name of their site, from the fields and from the line that submitted them."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit.traces.readers.test_sacct import HEADER, ROW, listed

from trimtab import site
from trimtab.traces import read

FIELDS = "Partition|QOS|Constraints|Reservation|SubmitLine"
ALL = f"{HEADER}|{FIELDS}"
MORE = {"Partition": "gpu", "QOS": "normal", "Constraints": "", "Reservation": ""}
MORE |= {"SubmitLine": "sbatch job.sh"}


def rows(tmp_path: Path, *jobs: dict[str, str]):
    """A list with a job a dict, on top of one usual job."""
    texts = []
    for number, job in enumerate(jobs):
        submit = f"2025-03-01T10:00:{number:02d}"
        texts.append(
            "|".join((ROW | {"JobID": str(101 + number), "Submit": submit} | MORE | job).values())
        )
    return read(listed(tmp_path, *texts, header=ALL))


def of(work, label: str) -> list[str]:
    return [work.label(label, job) for job in range(len(work))]


def test_fields_are_labels_and_what_no_job_names_is_none(tmp_path):
    named = {"Partition": "gpu,long", "Constraints": "nvlink&(ib|opa)".replace("|", "+")}
    named |= {"Reservation": "course", "QOS": "urgent"}
    work = rows(tmp_path, named, {"Constraints": "(null)", "User": "bo", "Account": "art"})
    assert of(work, site.PARTITION) == ["gpu,long", "gpu"]
    assert of(work, site.CONSTRAINT) == ["nvlink&(ib+opa)", ""]
    assert of(work, site.RESERVATION) == ["course", ""] and of(work, site.QOS)[0] == "urgent"
    assert of(work, site.USER) == ["ann", "bo"] and of(work, site.ACCOUNT) == ["physics", "art"]
    assert of(work, site.GPU_KIND) == ["v100", "v100"] and work.kinds == ("v100",)
    assert site.EXCLUSIVE not in work.labels and site.ARRAY not in work.labels


GENERIC = {"AllocTRES": "cpu=8,mem=32G,node=1,gres/gpu=2", "ReqTRES": "cpu=8,gres/gpu=2"}


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("sbatch --gres=gpu:a100:2 job.sh", "a100"),
        ("sbatch --gres nvme:1,gpu:a100:2 job.sh", "a100"),
        ("sbatch -G a100:2 job.sh", "a100"),
        ("sbatch --gpus-per-node=h100:2 job.sh", "h100"),
        ("sbatch --gres=gpu:2 job.sh", ""),
        ("sbatch --gpus 2 job.sh", ""),
        ("", ""),
    ],
)
def test_where_gpus_are_not_counted_by_model_the_line_tells_which_was_asked(tmp_path, line, model):
    work = rows(tmp_path, GENERIC | {"SubmitLine": line})
    assert work.label(site.GPU_KIND, 0) == model and work.kinds == (model or "job",)


def test_a_model_that_was_given_and_not_asked_for_is_no_label(tmp_path):
    given = {"AllocTRES": "cpu=8,gres/gpu=2,gres/gpu:t4=2", "ReqTRES": "cpu=8,gres/gpu=2"}
    assert site.GPU_KIND not in rows(tmp_path, given).labels


@pytest.mark.parametrize("gres", ["gpu:v100:2", "PER_NODE:gpu:v100:2"])
def test_the_field_of_old_releases_tells_gpus_of_each_node(tmp_path, gres):
    names = "JobID|Submit|ElapsedRaw|State|NCPUS|NNodes|ReqGRES"
    work = read(listed(tmp_path, f"1|1740823200|600|COMPLETED|8|2|{gres}", header=names))
    assert work.jobs["gpus"].tolist() == [2] and work.label(site.GPU_KIND, 0) == "v100"


def test_an_array_has_the_limit_of_its_line_or_of_its_tasks_that_wait(tmp_path):
    work = rows(
        tmp_path,
        {"JobID": "200_1", "SubmitLine": "sbatch --array=1-9%4 job.sh"},
        {"JobID": "201_1"},
        {"JobID": "201_[2-9%3]", "State": "PENDING", "ElapsedRaw": "0"},
        {"JobID": "202_1", "SubmitLine": "sbatch -a 1-9 job.sh"},
        {"JobID": "203"},
    )
    assert of(work, site.ARRAY) == ["200%4", "201%3", "", ""]


def test_whole_nodes_are_asked_for_by_the_bare_option_alone(tmp_path):
    lines = ("sbatch --exclusive x", "sbatch --exclusive=user x", "sbatch x")
    work = rows(tmp_path, *({"SubmitLine": line} for line in lines))
    assert of(work, site.EXCLUSIVE) == ["yes", "", ""]


def test_a_job_waits_for_the_jobs_it_depends_on_and_all_tasks_of_an_array(tmp_path):
    work = rows(
        tmp_path,
        {"JobID": "300_1"},
        {"JobID": "300_2"},
        {"JobID": "301"},
        {"JobID": "302", "SubmitLine": "sbatch --dependency=afterok:300:301 x"},
        {"JobID": "303", "SubmitLine": "sbatch -d afterany:301,afterok:302+5 x"},
        {"JobID": "304", "SubmitLine": "sbatch -d after:301 x"},
        {"JobID": "305", "SubmitLine": "sbatch -d afterok:301?afterok:302 x"},
        {"JobID": "306", "SubmitLine": "sbatch -d afterok:999,singleton x"},
    )
    parents = [
        work.after_idx[work.after_ptr[job] : work.after_ptr[job + 1]].tolist() for job in range(8)
    ]
    assert parents == [[], [], [], [0, 1, 2], [2, 3], [], [], []]
    # after, two of an alternative, a job that the list lacks, singleton
    assert work.meta["dependencies_left_out"] == 5


def test_options_of_the_job_itself_are_none_of_slurms(tmp_path):
    line = "sbatch job.py -d 3 -a fast --gres=none"
    work = rows(tmp_path, {"SubmitLine": line})
    assert work.after_ptr is None and work.meta["dependencies_left_out"] == 0
    assert site.ARRAY not in work.labels


def test_a_line_that_holds_bars_stands_last(tmp_path):
    line = 'sbatch --exclusive --wrap "a | b | c"'
    work = rows(tmp_path, {"SubmitLine": line}, {"SubmitLine": "sbatch --wrap 'cut off"})
    assert of(work, site.EXCLUSIVE) == ["yes", ""]


def test_starts_and_ends_that_were_recorded_have_the_clock_of_the_submissions(tmp_path):
    work = rows(tmp_path, {}, {"Start": "Unknown"}, {"Start": "", "End": ""})
    # submitted 10:00:00, :01 and :02; started 10:00:30 or 600 s before the end at 10:10:30
    assert work.jobs["submit_s"].tolist() == [0, 1, 2]
    assert work.meta["recorded"]["start_s"][:2].tolist() == [30, 30]
    assert work.meta["recorded"]["end_s"][:2].tolist() == [630, 630]
    assert np.isnan([work.meta["recorded"][name][2] for name in ("start_s", "end_s")]).all()
    assert work.meta["epoch_s"] == 1740823200
    cut = work.window(1, 2)
    assert len(cut.meta["recorded"]["start_s"]) == 2


def test_a_job_with_whole_nodes_needs_what_it_asked_for(tmp_path):
    # as Slurm 22.05 counts a job of one CPU that had a node of 8 with 2 GPUs for itself
    tres = {"AllocTRES": "billing=8,cpu=8,gres/gpu=2,mem=4000M,node=1"}
    tres |= {"ReqTRES": "billing=1,cpu=1,mem=500M,node=1"}
    work = rows(tmp_path, tres | {"SubmitLine": "sbatch --exclusive x"}, tres)
    assert work.demand[:, 0].tolist() == [1, 8] and work.demand[:, 2].tolist() == [0, 2]


def test_jobs_of_one_second_are_in_the_order_of_their_numbers(tmp_path):
    at = {"Submit": "2025-03-01T10:00:00"}
    waits = at | {"JobID": "5", "SubmitLine": "sbatch -d afterok:4 x"}
    work = rows(tmp_path, waits, at | {"JobID": "4_2"}, at | {"JobID": "4_1"})
    assert work.job_id.tolist() == ["4_2", "4_1", "5"] and work.after_idx.tolist() == [0, 1]
