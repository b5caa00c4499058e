"""Gavel's measured speeds, the work made of them, and the scene that joins both."""

import csv
import json

import numpy as np
import pytest
from tests.data import found

from trimtab.build import cluster, workload
from trimtab.errors import TraceError
from trimtab.traces import file_kind
from trimtab.traces.readers.parquet import save
from trimtab.traces.scenes import presets
from trimtab.traces.scenes.cluster_file import save_cluster
from trimtab.traces.scenes.gavel import (
    FAMILIES,
    GAVEL,
    SOURCE,
    STEPS_HZ,
    dags,
    gavel_profile,
    mapped,
    rates_of,
)
from trimtab.traces.scenes.scene import open_cluster, open_scene

PREPARED = {"made_by": "trimtab trace prepare"}


def tasks(count: int = 20, **columns):
    columns = {"instances": 3, "gang": 0} | columns
    demand = np.tile([0.5, 2.0], (count, 1))
    return workload(
        np.arange(count), np.full(count, 60.0), demand, resources=("cpu", "mem_gb"), **columns
    )


def machine(gpus=(0, 2, 8)):
    capacity = [[8, 64, count] for count in gpus]
    kinds = ("cpu", "t4", "v100")
    return cluster(capacity, resources=("cpu", "mem_gb", "gpu"), kind=[0, 1, 2], kinds=kinds)


def test_rates_are_relative_to_the_v100():
    # A3C: 3.4388 steps a second on a K80, 5.6813 on a P100, 7.1758 on a V100
    assert GAVEL["A3C"] == pytest.approx((0.4792, 0.7917, 1.0), abs=1e-4)
    assert len(GAVEL) == 26


def test_a_familys_rate_is_the_geometric_mean_of_its_types():
    # ResNet-50 on P100 / V100: 9.0530 / 11.3961, 4.8883 / 7.7873, 2.6195 / 4.3948, 1.5844 / 2.4968
    four = (0.79439, 0.62773, 0.59604, 0.63457)
    assert rates_of("ResNet-50")["p100"] == pytest.approx(np.prod(four) ** 0.25, abs=1e-4)
    assert rates_of("ResNet-50 (batch size 16)")["p100"] == pytest.approx(four[0], abs=1e-4)
    assert rates_of("data-processing") is None


def test_the_familys_means_are_those_of_the_preset():
    language = [rate[1] for name, rate in GAVEL.items() if name.startswith(("LM", "Transformer"))]
    mean = np.exp(np.mean(np.log(language)))
    assert mean == pytest.approx(presets.P100_TO_V100["training-language"], abs=1e-4)


def test_measured_modelled_and_absent_speeds():
    kinds = ("job", "ResNet-50", "A3C")
    profile = gavel_profile(kinds, ("k80", "p100", "v100", "t4", "cpu", "tpu"))
    t4 = (65 / 125 * 320 / 900) ** 0.5  # data sheets: 0.43
    resnet = rates_of("ResNet-50")
    assert profile.rate[0, :, 0].tolist() == [1] * 6
    assert profile.rate[1, :, 0].tolist() == [resnet["k80"], resnet["p100"], 1, t4, 0, 1]
    # half of A3C's time is the host's: 1 / (.5 + .5 / .43)
    assert profile.rate[2, 3, 0] == pytest.approx(1 / (0.5 + 0.5 / t4))
    for part in ("measured by Gavel", "data sheets: t4", "so 1: tpu", "job kinds job"):
        assert part in profile.source


def test_a_profile_of_measured_speeds_alone_says_so():
    assert gavel_profile(("LM",), ("K80", "P100", "V100M32", "cpu")).source == SOURCE
    assert "taken to be V100: G2" in gavel_profile(("LM",), ("G2",)).source  # undisclosed


def test_dags_are_the_given_numbers_or_what_dependencies_connect():
    given = tasks(3, meta={"dag": np.array([7, 5, 7])})
    assert dags(given).tolist() == [1, 0, 1]
    # 0 -> 2 <- 1 and 3 -> 4 -> 5, 6 alone
    joined = tasks(7, after=[[], [], [0, 1], [], [3], [4], []])
    assert dags(joined).tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert dags(tasks(3)).tolist() == [0, 1, 2]


def test_a_long_chain_is_one_dag():
    chain = tasks(1000, after=[[], *([job] for job in range(999))])
    assert not dags(chain).any()


def test_the_stated_share_of_whole_jobs_becomes_gpu_work():
    work = tasks(20, meta={"dag": np.repeat(np.arange(10), 2)})
    made = mapped(work, machine(), seed=3, gpu_jobs=0.3, gpu_share=0.5)
    gpu = made.jobs["gpus"] > 0
    assert gpu.reshape(10, 2).all(axis=1).sum() == 3  # .3 of 10 jobs
    assert gpu.sum() == 6  # no job is half GPU work
    assert made.resources == ("cpu", "mem_gb", "gpu")
    assert made.demand[gpu].tolist() == [[0.5, 2, 0.5]] * 6
    assert made.demand[~gpu].tolist() == [[0.5, 2, 0]] * 14
    assert set(made.jobs["gpu_share"][gpu]) == {0.5}
    assert {made.kinds[k] for k in made.jobs["kind"][gpu]} <= set(FAMILIES)
    assert {made.kinds[k] for k in made.jobs["kind"][~gpu]} == {"job"}
    assert made.meta["mapped"]["tasks"] == 6
    for name in ("submit_s", "instances", "gang", "request_s"):
        assert (made.jobs[name] == work.jobs[name]).all()
    assert (made.truth == work.truth).all()


def test_the_seed_fixes_the_mapping_and_another_changes_it():
    work = tasks(200)
    kinds = [mapped(work, machine(), seed=seed).jobs["kind"].tolist() for seed in (1, 1, 2)]
    assert kinds[0] == kinds[1] != kinds[2]


def test_dependencies_stay():
    work = tasks(4, after=[[], [0], [0], [1, 2]])
    made = mapped(work, machine(), seed=0, gpu_jobs=1.0)
    assert made.after_idx.tolist() == work.after_idx.tolist()
    assert len(set(made.jobs["kind"])) == 1


def test_services_gpu_jobs_and_gangs_that_do_not_fit_stay_as_they_are():
    # 10 GPUs: a gang of 11 cannot start, an array of 11 can
    columns = {"instances": [11, 11, 1, 1], "gang": [1, 0, 1, 1], "service": [0, 0, 1, 0]}
    made = mapped(tasks(4, **columns), machine(), seed=0, gpu_jobs=2 / 3)
    assert made.jobs["gpus"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"gpu_jobs": 1.5}, "gpu_jobs=1.5"),
        ({"gpu_share": 0.0}, "gpu_share=0.0"),
        ({"families": ("GPT",)}, "GPT.*choose from: A3C"),
        ({"machine": machine((0, 0, 0))}, "has no GPUs"),
        ({"work": tasks(4, instances=99, gang=1), "gpu_jobs": 1.0}, "can hold 0 of 4"),
    ],
)
def test_what_cannot_be_mapped_is_refused_with_the_remedy(arguments, problem):
    with pytest.raises(TraceError, match=problem):
        mapped(**({"work": tasks(), "machine": machine(), "seed": 0} | arguments))


@pytest.mark.parametrize("name", ["openb:48", "pai", "mixed-gpu"])
def test_mapped_work_gets_measured_speeds_on_any_cluster(name):
    work = mapped(tasks(), presets.mix_cluster("openb:48"), seed=0)
    nodes, profile = open_cluster(name, work)
    p100 = [kind.lower() for kind in nodes.kinds].index("p100")
    assert profile.rate[work.kinds.index("LM"), p100, 0] == rates_of("LM")["p100"]
    assert "Gavel" in profile.source


def test_a_prepared_folder_brings_its_workload_and_its_cluster(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(PREPARED))
    save(tasks(), tmp_path / "workload.parquet")
    with pytest.raises(TraceError, match="--cluster"):
        open_scene(str(tmp_path))
    save_cluster(machine(), tmp_path / "cluster.yaml")
    assert file_kind(tmp_path) == "prepared"
    scene = open_scene(str(tmp_path))
    assert (len(scene.workload), len(scene.cluster)) == (20, 3)
    assert len(open_scene(str(tmp_path), "openb:5").cluster) == 5
    assert len(open_cluster(str(tmp_path), scene.workload)[0]) == 3


@pytest.mark.parametrize("manifest", ["{", "[]", '{"made_by": "someone else"}'])
def test_a_folder_with_another_manifest_is_a_folder(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    assert file_kind(tmp_path) == "a folder"


def test_the_figures_are_gavels():
    with found("data", "profiles", "gavel_isolated_throughputs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["scale_factor"] == "1"]
    assert {row["job_type"] for row in rows} == set(STEPS_HZ)
    for row in rows:
        published = [float(row[gpu]) for gpu in ("k80", "p100", "v100")]
        assert STEPS_HZ[row["job_type"]] == pytest.approx(published, abs=5e-5)
