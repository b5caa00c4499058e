"""Whole DAGs: of a trace, by splits, or drawn."""

import numpy as np
import pytest

from trimtab.build import workload
from trimtab.errors import TraceError
from trimtab.traces.colocated.dags import dags_of, drawn, taken
from trimtab.traces.readers.parquet import save


def chains(count, cpu=2.0, **more):
    """`count` jobs of three tasks in a row, their work seconds 100 x job + task."""
    tasks = 3 * count
    after = [[] if row % 3 == 0 else [row - 1] for row in range(tasks)]
    return workload(
        np.repeat(10.0 * np.arange(count), 3),
        [100.0 * (row // 3) + row % 3 + 1 for row in range(tasks)],
        np.tile([cpu, 4.0], (tasks, 1)),
        resources=("cpu", "mem_gb"),
        after=after,
        kinds=("M", "R"),
        kind=np.arange(tasks) % 3 % 2,
        **more,
    )


def written(tmp_path, work):
    path = tmp_path / "work.parquet"
    save(work, path)
    return str(path)


def test_splits_share_no_job_and_keep_each_whole(tmp_path):
    path = written(tmp_path, chains(14))
    rng = np.random.default_rng(0)
    seen = {split: dags_of(path, split, rng) for split in ("train", "validation", "test")}
    jobs = {split: set((one.run_s // 100).astype(int).tolist()) for split, one in seen.items()}
    assert jobs == {
        "train": {0, 1, 2, 3, 7, 8, 9, 10}, "validation": {4, 11}, "test": {5, 6, 12, 13},
    }  # fmt: skip
    for one in seen.values():
        assert (np.diff(one.first) == 3).all()
        parents = [one.parent[a:b].tolist() for a, b in zip(one.parent_ptr, one.parent_ptr[1:])]
        assert parents == [[] if row % 3 == 0 else [row - 1] for row in range(len(one.cpu))]


def test_jobs_that_are_taken_twice_are_two(tmp_path):
    one = dags_of(written(tmp_path, chains(7)), "test", np.random.default_rng(0))
    two = taken(one, np.array([1, 0, 1]))
    assert (two.run_s // 100).astype(int).tolist() == [6, 6, 6, 5, 5, 5, 6, 6, 6]
    assert two.parent.tolist() == [0, 1, 3, 4, 6, 7]
    assert two.work()[0] == two.work()[2] == pytest.approx(2.0 * (601 + 602 + 603))


def test_a_trace_of_gpu_jobs_alone_is_refused(tmp_path):
    work = workload([0.0], [10.0], [[1.0, 1.0]], resources=("cpu", "gpu"), gpus=[1])
    with pytest.raises(TraceError, match="has no jobs of CPUs alone"):
        dags_of(written(tmp_path, work), "test", np.random.default_rng(0))


def test_drawn_dags_have_parents_of_their_own_job_only():
    made = drawn(np.random.default_rng(3))
    of = np.repeat(np.arange(len(made.first) - 1), np.diff(made.first))
    child = np.repeat(np.arange(len(made.cpu)), np.diff(made.parent_ptr))
    assert (of[child] == of[made.parent]).all() and (made.parent != child).all()
    assert made.cpu.min() > 0 and made.run_s.min() > 0 and made.instances.min() >= 1
