"""The example site: the same from one seed, read like a real one, and possible."""

import numpy as np

from trimtab import site
from trimtab.traces import read
from trimtab.traces.dumps.example import write_example
from trimtab.traces.dumps.slurm import from_slurm


def test_one_seed_makes_the_same_files_and_another_seed_others(tmp_path):
    first = write_example(tmp_path / "a", jobs=40, seed=3)
    again = write_example(tmp_path / "b", jobs=40, seed=3)
    other = write_example(tmp_path / "c", jobs=40, seed=4)
    texts = [[path.read_text() for path in made] for made in (first, again, other)]
    assert texts[0] == texts[1] and texts[0][2] != texts[2][2]


def test_its_jobs_name_what_its_cluster_has(tmp_path):
    write_example(tmp_path, jobs=200)
    made, _, notes = from_slurm([tmp_path / "nodes.txt", tmp_path / "partitions.txt"])
    work = read(tmp_path / "month.txt")
    assert len(work) == 200
    partitions = {one.name for one in made.site.partitions}
    assert set(work.labels[site.PARTITION].names) == partitions == {"cpu", "gpu"}
    assert set(work.labels[site.GPU_KIND].names) - {""} == set(made.site.gpu_kind) - {""}
    assert [note.split(":")[0] for note in notes] == ["cpu05"]


def test_what_it_recorded_never_holds_more_gpus_than_there_are(tmp_path):
    write_example(tmp_path, jobs=300)
    work = read(tmp_path / "month.txt")
    recorded, gpus = work.meta["recorded"], work.jobs["gpus"] * work.jobs["instances"]
    at_once = [
        gpus[(recorded["start_s"] <= at_s) & (recorded["end_s"] > at_s)].sum()
        for at_s in recorded["start_s"]
    ]
    assert 8 < max(at_once) <= 16 and (recorded["start_s"] >= work.jobs["submit_s"]).all()
    assert np.mean(recorded["start_s"] > work.jobs["submit_s"]) > 0.05
