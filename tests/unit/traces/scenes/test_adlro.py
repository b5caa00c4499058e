"""The ADLRO scene has the GPUs, speeds, sizes, estimates and load that it states."""

import csv
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.data import found

from trimtab.core import Cluster
from trimtab.errors import TraceError, UnknownName
from trimtab.sim.whole import simulate
from trimtab.traces import read
from trimtab.traces.scenes import presets
from trimtab.traces.scenes.adlro import (
    DRAWN,
    GPU,
    JOB_KINDS,
    NODE_KINDS,
    PERCENTILES,
    PRIOR_S,
    RUN_S,
    SIZES,
    adlro_cluster,
    adlro_profile,
    by_ended,
    fluid_s,
    offered_load,
)
from trimtab.traces.scenes.describe import content_sha256
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.scene import open_scene
from trimtab.traces.scenes.synthetic import generate

EXAMPLES = Path(__file__).parents[4] / "examples"


def of_kind(machine: Cluster) -> dict[str, int]:
    count = np.bincount(machine.nodes["kind"], minlength=len(machine.kinds))
    return {name: int(n) for name, n in zip(machine.kinds, count)}


def rate(job: str, node: str) -> float:
    return float(adlro_profile().rate[JOB_KINDS.index(job), NODE_KINDS.index(node), 0])


def test_the_preset_has_sixteen_gpus_one_a_node():
    machine, _ = preset("adlro")
    assert of_kind(machine) == {"volta": 8, "turing": 4, "radeon": 4}
    assert (machine.nodes["gpus"] == 1).all()
    assert (machine.nodes["gpu_mem_gb"] == 16).all()
    # 300 W a V100 and a Radeon VII, 70 W a T4, each with 200 / 8 + 4 x 8 = 57 W of the host
    assert np.unique(machine.nodes["peak_w"]).tolist() == [127.0, 357.0]
    assert np.allclose(machine.nodes["idle_w"], 0.3 * machine.nodes["peak_w"])
    assert machine.names is not None
    assert (machine.names[0], machine.names[8], machine.names[15]) == (
        *("volta-0", "turing-0", "radeon-3"),
    )


@pytest.mark.parametrize("count", [(4, 2, 2), (32, 16, 16), (8, 0, 0)])
def test_eight_to_sixty_four_gpus_are_offered_the_load_asked(count: tuple[int, int, int]):
    nodes = dict(zip(NODE_KINDS, count))
    machine, profile = preset("adlro", **nodes)
    assert of_kind(machine) == nodes
    work = generate("adlro", seed=2, jobs=20_000, cluster=machine)
    # the span of 20,000 Poisson arrivals has a standard deviation of 1 / sqrt(20,000) = 0.7 %
    assert offered_load(work, machine, profile) == pytest.approx(0.9, rel=0.03)


def test_the_rates_follow_from_the_data_sheets():
    # double precision at 1 FLOP a byte: V100 min(7800, 900), T4 min(253.1, 320), Radeon min(3360,
    # 1024) GFLOP/s
    assert rate("simulation", "turing") == pytest.approx(253.125 / 900)
    assert rate("simulation", "radeon") == pytest.approx(1024 / 900)
    assert rate("machine-learning", "turing") == pytest.approx((65 / 125 * 320 / 900) ** 0.5)
    assert rate("machine-learning", "radeon") == pytest.approx((26.88 / 125 * 1024 / 900) ** 0.5)
    assert rate("data-processing", "turing") == pytest.approx(320 / 900)
    profile = adlro_profile()
    assert (profile.rate > 0).all()
    assert (profile.rate[:, 0] == 1).all()
    assert "modelled" in profile.source


def test_the_data_sheets_are_those_of_the_other_presets():
    for node, gpu in (("volta", "v100"), ("turing", "t4")):
        sheet = GPU[node]
        assert (sheet.half, sheet.gb_s) == presets.DATA_SHEET[gpu]
        assert (sheet.peak_w, sheet.mem_gb) == (presets.GPU_PEAK_W[gpu], presets.GPU_MEM_GB[gpu])
    assert rate("machine-learning", "turing") == pytest.approx(presets.modelled_rate("t4"))


def test_kinds_of_job_prefer_different_gpus():
    order = {job: sorted(NODE_KINDS, key=lambda node: -rate(job, node)) for job in JOB_KINDS}
    assert order["machine-learning"] == ["volta", "radeon", "turing"]
    assert order["simulation"] == order["data-processing"] == ["radeon", "volta", "turing"]
    # a T4 loses least on machine learning and most on simulation
    assert rate("machine-learning", "turing") > rate("data-processing", "turing")
    assert rate("data-processing", "turing") > rate("simulation", "turing")


def test_two_kinds_on_two_gpus_take_the_time_worked_out_by_hand():
    # GPU 0 does kind 0 in 1 / 2 s, then helps with kind 1: (T - 0.5) x 1 + T x 1 = 1, T = 0.75
    assert fluid_s([1, 1], [1, 1], [[2, 1], [1, 1]]) == pytest.approx(0.75)
    # each at home
    assert fluid_s([1, 1], [1, 1], [[1, 0.1], [0.1, 1]]) == pytest.approx(1.0)
    # a third GPU does half as much of either: 2 T + 0.5 T = 2
    assert fluid_s([1, 1], [1, 1, 1], [[1, 0.1, 0.5], [0.1, 1, 0.5]]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("work_s", "gpus", "rates", "seconds"),
    [
        ([12], [2, 4], [[1, 0.5]], 3.0),  # one kind: 12 / (2 x 1 + 4 x 0.5)
        ([12, 0], [2, 4], [[1, 0.5], [1, 0]], 3.0),  # a kind without work
        ([12, 6], [2, 0], [[1, 9], [3, 9]], 7.0),  # a make without GPUs: (12 + 6 / 3) / 2
        ([4, 4], [1, 1], [[1, 0], [0, 1]], 4.0),  # kinds that share no GPU
        ([4, 1], [1, 1], [[1, 0], [0, 1]], 4.0),
        ([0, 0], [1, 1], [[1, 1], [1, 1]], 0.0),
        ([3, 6, 9], [2, 1], [[1, 1], [1, 1], [1, 1]], 6.0),  # all alike: 18 / 3
    ],
)
def test_plain_cases_take_the_time_of_plain_division(work_s, gpus, rates, seconds):
    assert fluid_s(work_s, gpus, rates) == pytest.approx(seconds)


def test_fluid_time_is_the_optimum_of_the_linear_programme():
    optimize = pytest.importorskip("scipy.optimize")
    draw = np.random.default_rng(0)
    for _ in range(40):
        kinds, makes = (int(n) for n in draw.integers(1, 4, 2))
        rates = np.round(draw.uniform(0.1, 2, (kinds, makes)), 1)
        rates *= draw.random((kinds, makes)) < 0.6
        rates[np.arange(kinds), draw.integers(makes, size=kinds)] += 0.1  # each runs somewhere
        work_s, gpus = draw.uniform(1, 100, kinds), draw.integers(1, 9, makes)
        # least T, with x[k, g] GPU-seconds: sum_g rate x = work, sum_k x <= gpus T
        done = np.zeros((kinds, kinds * makes + 1))
        held = np.zeros((makes, kinds * makes + 1))
        for k in range(kinds):
            for g in range(makes):
                done[k, k * makes + g], held[g, k * makes + g] = rates[k, g], 1.0
        held[:, -1] = -gpus
        cost = np.eye(kinds * makes + 1)[-1]
        best = optimize.linprog(cost, A_ub=held, b_ub=np.zeros(makes), A_eq=done, b_eq=work_s)
        assert fluid_s(work_s, gpus, rates) == pytest.approx(best.fun)


def test_first_come_first_served_saturates_below_a_load_of_1():
    machine, profile = preset("adlro")
    work = generate("adlro", seed=1, jobs=20_000, load=2.0)
    of_kind_s = np.bincount(work.jobs["kind"], work.truth["work_s"])
    gpus, rates = np.array([8, 4, 4]), profile.rate[:, :, 0]
    least_s = fluid_s(of_kind_s, gpus, rates)
    # behind a queue every GPU takes the mix as it comes: all jobs take one of them so many seconds
    alone_s = (of_kind_s[:, None] / rates).sum(axis=0)
    theory = 1 / (gpus / alone_s).sum() / least_s
    assert 1 / theory == pytest.approx(0.855, abs=0.002)
    # to the last start: after it a long job on a T4 may keep one GPU busy for days
    started_s = simulate(work, machine, "fcfs", profile=profile).state["start_s"].max()
    assert started_s / least_s == pytest.approx(theory, rel=0.01)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("load", [0.5, 0.9, 1.2])
def test_many_jobs_offer_the_load_asked(sizes: str, load: float):
    work = generate("adlro", seed=3, jobs=20_000, load=load, sizes=sizes)
    assert offered_load(work, *preset("adlro")) == pytest.approx(load, rel=0.03)


def test_jobs_take_one_gpu_and_fit_on_every_node():
    work, machine = generate("adlro", seed=4), adlro_cluster()
    assert len(work) == 2000
    assert (work.jobs["gpus"] == 1).all()
    assert (work.jobs["gpu_share"] == 1).all()
    assert (work.demand <= machine.capacity.min(axis=0)).all()
    assert (work.jobs["gpu_mem_gb"] <= machine.nodes["gpu_mem_gb"].min()).all()
    assert (work.jobs["gpu_mem_gb"] > 0).all()
    assert work.kinds == JOB_KINDS


def test_kinds_have_their_shares_medians_and_priorities():
    work = generate("adlro", seed=5, jobs=60_000)
    for k, name in enumerate(JOB_KINDS):
        rows, drawn = work.jobs["kind"] == k, DRAWN[name]
        assert rows.mean() == pytest.approx(drawn.share, abs=0.01)
        work_s = work.truth["work_s"][rows]
        assert np.median(work_s) == pytest.approx(drawn.median_s, rel=0.04)
        assert np.log(work_s).std() == pytest.approx(drawn.sigma, rel=0.03)
        low, high = drawn.priority
        priority = work.jobs["priority"][rows]
        assert 0 <= low <= priority.min() <= priority.max() <= high <= 1
        assert set(work.jobs["gpu_mem_gb"][rows]) == set(drawn.gpu_mem_gb)


@pytest.mark.parametrize("sizes", list(RUN_S))
def test_sizes_of_a_trace_have_its_percentiles(sizes: str):
    work = generate("adlro", seed=6, jobs=200_000, sizes=sizes)
    # log run times are steep here and there: at the 25th of Philly 0.1 % of jobs moves 1.5 %
    for percent, run_s in zip(PERCENTILES[1:-1], RUN_S[sizes][1:-1]):
        drawn_s = np.percentile(work.truth["work_s"], percent)
        assert drawn_s == pytest.approx(run_s, rel=0.08), percent
    assert work.truth["work_s"].min() >= RUN_S[sizes][0] * (1 - 1e-9)
    assert work.truth["work_s"].max() <= RUN_S[sizes][-1] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("sizes", "file", "jobs"),
    [
        ("philly", "philly/philly_jobs.csv.xz", 69_294),
        ("pai", "alibaba_gpu/pai_10k_tasks_derived.csv.xz", 7_747),
    ],
)
def test_the_percentiles_are_those_of_the_trace(sizes: str, file: str, jobs: int):
    trace = read(found("data", *file.split("/")), lenient=True)
    run_s = trace.truth["work_s"][trace.jobs["gpus"] == 1]
    assert len(run_s) == jobs
    assert np.percentile(run_s, PERCENTILES) == pytest.approx(RUN_S[sizes], rel=0.01)


def test_the_t4_of_one_study_against_the_v100_of_another_is_not_the_modelled_rate():
    """ResNet-50 and ResNet-18 at like batch sizes: 0.62 across two studies, 0.43 modelled."""
    with open(found("data", "profiles", "gavel_isolated_throughputs.csv"), newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["scale_factor"] == "1"]
    steps_hz = {row["job_type"]: float(row["v100"]) for row in rows}
    ratios = []
    with tarfile.open(found("data", "profiles", "sia_pollux_profiles_workloads.tar.xz")) as packed:
        for folder, network, batches in (
            ("imagenet", "ResNet-50", (32, 64, 128)),
            ("cifar10", "ResNet-18", (32, 64, 128, 256)),
        ):
            member = packed.extractfile(f"traces/{folder}/placements-aws.csv")
            assert member is not None
            table = list(csv.DictReader(io.StringIO(member.read().decode())))
            alone = [row for row in table if row["placement"] == "1"]
            batch = [float(row["local_bsz"]) for row in alone]
            step_s = [float(row["step_time"]) for row in alone]
            for size in batches:
                v100_hz = steps_hz[f"{network} (batch size {size})"]
                ratios.append(1 / np.interp(size, batch, step_s) / v100_hz)
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(0.62, abs=0.005)
    assert (min(ratios), max(ratios)) == pytest.approx((0.52, 0.78), abs=0.005)
    assert rate("machine-learning", "turing") == pytest.approx(0.43, abs=0.005)


def test_an_oracle_tells_the_run_time():
    work = generate("adlro", seed=7, estimate="oracle")
    assert (work.jobs["request_s"] == work.truth["work_s"]).all()


def test_a_noisy_estimate_is_off_by_a_log_normal_factor_of_median_one():
    work = generate("adlro", seed=7, jobs=40_000, estimate="noisy")
    off = np.log(work.jobs["request_s"] / work.truth["work_s"])
    assert off.mean() == pytest.approx(0, abs=0.02)
    assert off.std() == pytest.approx(0.7, rel=0.02)
    exact = generate("adlro", seed=7, estimate="noisy", noise=0.0)
    assert (exact.jobs["request_s"] == exact.truth["work_s"]).all()


def test_an_unknown_run_time_is_told_by_those_of_its_kind_that_have_ended():
    # kind 0 ends at 100, 320 and 50; what comes at 10 knows of none, at 60 of the one at 50, at 100
    # of that one and the first, whatever kind 1 does
    submit_s, work_s = np.array([0.0, 20, 10, 60, 100, 100]), np.array([100.0, 300, 40, 1, 1, 7])
    kind = np.array([0, 0, 0, 0, 0, 1])
    told = by_ended(submit_s, work_s, kind)
    after = [(600 + 40) / 2, (600 + 40 + 100 + 1) / 4]
    assert told.tolist() == [PRIOR_S, PRIOR_S, PRIOR_S, *after, PRIOR_S]


def test_what_is_told_of_a_job_does_not_hang_on_it_or_on_later_ones():
    work = generate("adlro", seed=7, estimate="unknown", jobs=300)
    submit_s, work_s, kind = work.jobs["submit_s"], work.truth["work_s"].copy(), work.jobs["kind"]
    assert (by_ended(submit_s, work_s, kind) == work.jobs["request_s"]).all()
    work_s[150:] *= 3.0
    assert (by_ended(submit_s, work_s, kind)[:151] == work.jobs["request_s"][:151]).all()
    assert (by_ended(submit_s, work_s, kind)[151:] != work.jobs["request_s"][151:]).any()


def test_the_estimate_changes_nothing_but_what_is_told():
    made = [generate("adlro", seed=8, estimate=name) for name in ("oracle", "noisy", "unknown")]
    for other in made[1:]:
        assert (other.truth == made[0].truth).all()
        assert (other.demand == made[0].demand).all()
        for name in ("submit_s", "kind", "priority", "gpu_mem_gb"):
            assert (other.jobs[name] == made[0].jobs[name]).all()


def test_a_seed_fixes_the_jobs():
    one, same = (generate("adlro", seed=9, jobs=500, sizes="pai") for _ in range(2))
    other = generate("adlro", seed=10, jobs=500, sizes="pai")
    assert content_sha256(one) == content_sha256(same) != content_sha256(other)


def test_the_example_file_is_the_preset():
    made = open_scene("adlro", jobs=50)
    file = open_scene("adlro", jobs=50, cluster=str(EXAMPLES / "adlro.yaml"))
    assert file.cluster.kinds == made.cluster.kinds
    assert (file.cluster.capacity == made.cluster.capacity).all()
    for name in ("gpu_mem_gb", "idle_w", "peak_w", "kind", "gpus"):
        assert np.allclose(file.cluster.nodes[name], made.cluster.nodes[name])
    assert np.allclose(file.profile.rate, made.profile.rate, atol=5e-5)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: generate("adlro", sizes="phily"), UnknownName, ["'phily'", "philly"]),
        (lambda: generate("adlro", estimate="exact"), UnknownName, ["'exact'", "oracle"]),
        (lambda: generate("adlro", arrivals="rare"), UnknownName, ["'rare'", "poisson"]),
        (lambda: generate("adlro", load=0.0), TraceError, ["load=0.0", "above 0"]),
        (lambda: generate("adlro", noise=-1.0), TraceError, ["noise=-1.0", "0 or more"]),
        (lambda: preset("adlro", turing=-1), TraceError, ["turing=-1", "0 or more"]),
        (lambda: adlro_cluster(volta=0, turing=0, radeon=0), TraceError, ["holds no nodes"]),
        (lambda: fluid_s([1, 1], [1], [[1], [0]]), TraceError, ["job kind 1", "add GPUs"]),
    ],
)
def test_a_mistake_names_the_value_and_the_remedy(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert all(word in str(caught.value) for word in words)
