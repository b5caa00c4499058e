"""Generators match the distributions they state, from fixed seeds."""

import csv

import numpy as np
import pytest
from tests.data import found

from trimtab.build import workload
from trimtab.errors import TraceError, UnknownName
from trimtab.traces.scenes.describe import busy_s, describe
from trimtab.traces.scenes.presets import BY_NAME as PRESETS
from trimtab.traces.scenes.presets import (
    JOB_KINDS,
    NODE_KINDS,
    P100_TO_V100,
    mixed_gpu_cluster,
    mixed_gpu_profile,
    preset,
)
from trimtab.traces.scenes.synthetic import (
    BY_HOUR,
    BY_NAME,
    GPU_ASK,
    GPU_ASK_SHARE,
    arrival_times,
    generate,
    like,
    requests,
    sizes,
)


def rng(seed: int = 1):
    return np.random.default_rng(seed)


def windows(submit_s, window_s):
    """Counts in whole windows."""
    return np.bincount((submit_s // window_s).astype(int))[:-1]


@pytest.mark.parametrize("process", ["poisson", "diurnal", "bursty", "diurnal-bursty"])
def test_arrivals_come_in_order_at_the_mean_rate(process):
    submit_s = arrival_times(200_000, 2.0, rng=rng(), process=process)
    assert (np.diff(submit_s) >= 0).all()
    days = submit_s[submit_s < 86400]  # a whole day: the mean of the hourly shape is 1
    assert len(days) / 86400 == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize(("process", "dispersion"), [("poisson", 1.0), ("bursty", 4.4)])
@pytest.mark.parametrize("window_s", [1, 60])
def test_variance_to_mean_is_as_stated_in_every_window(process, dispersion, window_s):
    count = windows(arrival_times(400_000, 5.0, rng=rng(), process=process), window_s)
    assert count.var() / count.mean() == pytest.approx(dispersion, rel=0.1)


def test_diurnal_arrivals_follow_the_hour_of_day():
    submit_s = arrival_times(480_000, 48_000 / 86400, rng=rng(), process="diurnal")  # ten days
    by_hour = np.bincount((submit_s[submit_s < 9 * 86400] // 3600 % 24).astype(int))
    assert np.allclose(by_hour / by_hour.mean(), np.array(BY_HOUR) / np.mean(BY_HOUR), rtol=0.05)


def test_a_start_hour_shifts_the_day():
    submit_s = arrival_times(100_000, 10.0, rng=rng(), process="diurnal", start_hour=3)
    by_hour = windows(submit_s, 3600)
    assert submit_s[0] >= 0
    assert by_hour[0] == pytest.approx(36_000 * BY_HOUR[3] / np.mean(BY_HOUR), rel=0.05)


@pytest.mark.parametrize(
    ("law", "scv"), [("fixed", 0), ("exponential", 1), ("lognormal", 2), ("hyperexponential", 5)]
)
def test_sizes_have_the_stated_mean_and_variation(law, scv):
    work_s = sizes(400_000, rng=rng(), law=law, mean_s=50.0, scv=scv or 1)
    assert work_s.mean() == pytest.approx(50.0, rel=0.02)
    assert work_s.var() / work_s.mean() ** 2 == pytest.approx(scv, rel=0.1)


def test_requests_are_exact_for_a_share_and_else_evenly_too_long():
    work_s = np.full(100_000, 60.0)
    used = work_s / requests(work_s, rng=rng(), exact=0.15, max_factor=10)
    assert (used == 1).mean() == pytest.approx(0.15, abs=0.01)
    others = used[used < 1]  # even over (0.1, 1): mean 0.55
    assert others.min() >= 0.1
    assert others.mean() == pytest.approx(0.55, abs=0.01)


def test_poisson_mmc_has_the_rate_and_service_of_the_queue():
    work = generate("poisson-mmc", seed=5, jobs=100_000, servers=3, load=0.7, mean_s=2.0)
    assert 1 / np.diff(work.jobs["submit_s"]).mean() == pytest.approx(0.7 * 3 / 2, rel=0.02)
    assert work.truth["work_s"].mean() == pytest.approx(2.0, rel=0.02)
    machine, profile = preset("poisson-mmc", servers=3)
    assert describe(work, machine, profile)["offered_load"]["cpu"] == pytest.approx(0.7, rel=0.03)


@pytest.mark.parametrize("name", list(BY_NAME))
def test_one_seed_makes_one_workload_and_its_cluster_is_known(name):
    a, b, c = (describe(generate(name, seed=s, jobs=50))["content_sha256"] for s in (1, 1, 2))
    assert a == b != c
    assert name in PRESETS


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_mixed_gpu_offers_the_stated_load(load):
    work = generate("mixed-gpu", seed=2, jobs=20_000, load=load)
    # of all the work: describe counts what can be done before the last arrival
    span_s = np.ptp(work.jobs["submit_s"])
    offered = {name: s / span_s for name, s in busy_s(work, *preset("mixed-gpu")).items()}
    assert max(offered.values()) == offered["gpu"] == pytest.approx(load, rel=0.04)


def test_mixed_gpu_matches_the_production_mix():
    work = generate("mixed-gpu", seed=3, jobs=30_000)
    asked = work.demand[:, 2]
    for ask, share in zip(GPU_ASK, GPU_ASK_SHARE):
        assert np.isclose(asked, ask, atol=1e-5).mean() == pytest.approx(share, abs=0.01)
    p50, p90, p99 = np.percentile(work.truth["work_s"], [50, 90, 99])
    assert p50 == pytest.approx(800, rel=0.05)
    assert p90 == pytest.approx(17_896, rel=0.25)  # two parameters cannot meet three quantiles
    assert p99 == pytest.approx(125_000, rel=0.25)


def test_mixed_gpu_has_gangs_deadlines_pins_and_progress_kept():
    work = generate("mixed-gpu", seed=4, jobs=10_000)
    jobs = work.jobs
    assert len(generate("mixed-gpu", seed=4)) == 3000
    assert set(np.unique(jobs["instances"])) == {1, 2, 4, 8}
    assert np.isfinite(jobs["deadline_s"]).mean() == pytest.approx(0.2, abs=0.02)
    assert (jobs["deadline_s"] > jobs["submit_s"] + 2 * work.truth["work_s"]).all()
    training = jobs["kind"] <= JOB_KINDS.index("reinforcement")
    assert (jobs["checkpoint_s"][training] == 0).all()
    assert np.isinf(jobs["checkpoint_s"][~training]).all()
    one_gpu_kind = np.isin(jobs["node_kinds"], [1, 2, 4, 8]) & (jobs["gpus"] == 1)
    assert one_gpu_kind.any()


def test_every_mixed_gpu_job_fits_its_empty_cluster():
    work, machine = generate("mixed-gpu", seed=5, jobs=5000), mixed_gpu_cluster()
    for job in range(len(work)):
        row = work.jobs[job]
        allowed = (row["node_kinds"] >> machine.nodes["kind"].astype(np.uint64)) & np.uint64(1) > 0
        allowed &= machine.nodes["gpu_mem_gb"] >= row["gpu_mem_gb"]
        times = np.full(len(machine), 10**6)
        for r in range(3):
            if work.demand[job, r] > 0:
                times = np.minimum(times, machine.capacity[:, r] // work.demand[job, r])
        assert times[allowed].sum() >= row["instances"], work.name(job)


def test_the_mixed_cluster_has_48_nodes_and_202_gpus_and_draws_more_at_peak():
    machine = mixed_gpu_cluster()
    assert (len(machine), machine.nodes["gpus"].sum()) == (48, 202)
    assert (machine.nodes["peak_w"] > machine.nodes["idle_w"]).all()
    assert mixed_gpu_cluster(a100=1, v100=0, t4=0, p100=0, cpu=2).name(2) == "cpu-1"


def test_the_mixed_profile_is_relative_to_a_v100_and_says_what_was_measured():
    profile = mixed_gpu_profile()
    assert (profile.rate[:, NODE_KINDS.index("v100"), 0] == 1).all()
    assert (profile.rate[:4, NODE_KINDS.index("cpu")] == 0).all()
    assert (profile.rate[:, :4] > 0).all()
    assert "Gavel" in profile.source
    assert "modelled" in profile.source


def test_p100_rates_are_the_geometric_means_of_gavels_measurements():
    path = found("data", "profiles", "gavel_isolated_throughputs.csv")
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["scale_factor"] == "1"]
    families = {
        "training-vision": ("ResNet", "CycleGAN"),
        "training-language": ("LM", "Transformer"),
        "reinforcement": ("A3C",),
    }
    for kind, names in families.items():
        ratio = [
            float(r["p100"]) / float(r["v100"]) for r in rows if r["job_type"].startswith(names)
        ]
        assert P100_TO_V100[kind] == pytest.approx(np.exp(np.log(ratio).mean()), abs=5e-5)


def test_like_draws_whole_rows_and_keeps_the_rate():
    source = workload(
        [0, 10, 20],
        [100, 200, 400],
        [[1, 10], [2, 20], [4, 40]],
        resources=("cpu", "mem_gb"),
        request_s=[200, 400, 800],
        deadline_s=[500, np.inf, 900],
        meta={"procs": np.array([1, 2, 4]), "max_procs": 8},
    )
    made = like(source, rng=rng(), jobs=30_000, jitter=0.1)
    assert np.allclose(made.demand[:, 1], made.demand[:, 0] * 10)
    assert np.allclose(made.jobs["request_s"], made.truth["work_s"] * 2)
    assert np.array_equal(made.meta["procs"], made.demand[:, 0])
    scale = made.truth["work_s"] / (made.demand[:, 0] * 100)
    assert scale.mean() == pytest.approx(1, abs=0.01)
    assert np.log(scale).std() == pytest.approx(0.1, rel=0.05)
    assert 1 / np.diff(made.jobs["submit_s"]).mean() == pytest.approx(2 / 20, rel=0.03)
    first = made.demand[:, 0] == 1  # its deadline is 500 s after it was submitted
    assert np.allclose((made.jobs["deadline_s"] - made.jobs["submit_s"])[first], 500)


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda: generate("mixd-gpu"), UnknownName, ["'mixd-gpu'", "did you mean 'mixed-gpu'?"]),
        (lambda: generate("queue", laod=1), UnknownName, ["laod=1", "did you mean 'load'?"]),
        (lambda: generate("queue", arrivals="x"), UnknownName, ["'x'", "known: poisson"]),
        (lambda: generate("queue", law="x"), UnknownName, ["'x'", "lognormal"]),
        (lambda: generate("queue", load=-1), TraceError, ["load=-1", "above 0"]),
        (lambda: generate("queue", law="hyperexponential", scv=0.5), TraceError, ["scv=0.5", "1"]),
        (lambda: generate("mixed-gpu", by_hour=[1]), TraceError, ["by_hour=(1,)", "24 positive"]),
        (lambda: preset("nothing"), UnknownName, ["'nothing'", "mixed-gpu"]),
    ],
)
def test_a_wrong_parameter_is_refused_by_name_value_and_remedy(call, error, parts):
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
