"""The metrics that need arithmetic shown: intervals, throughput, useful utilisation, HyperScore."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.report.made import pool
from tests.worlds import played, random_cluster, random_jobs, random_profile

from trimtab.build import cluster, workload
from trimtab.columns import STATE, TOTALS
from trimtab.core import Profile, Shape, Start, Status, Stop
from trimtab.errors import TraceError, UnknownName
from trimtab.metrics import (
    RECORDED,
    Result,
    best_rate,
    hyperscore,
    interval,
    mean_v,
    measure,
    scores,
    t_975,
    v_of,
)
from trimtab.rules.names import parse
from trimtab.sim.whole import left_in, simulate, simulate_pool

PAPER = {  # ADLRO table 1: JCT in seconds, jobs an hour, share of the GPUs; no energy
    "fcfs": (25.8, 6.2, 0.581),
    "static": (22.1, 7.5, 0.654),
    "adlro": (19.5, 9.1, 0.798),
}
LOG = """; MaxNodes: 8
1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 1 1 -1 -1 -1
2 5 -1 20 8 -1 -1 8 40 -1 1 1 1 1 1 -1 -1 -1
3 6 -1 3 4 -1 -1 4 4 -1 1 1 1 1 1 -1 -1 -1
"""


def test_the_interval_of_three_values_uses_students_t_with_two_degrees_of_freedom():
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.3027 * 1.0 / math.sqrt(3))  # 2.484


def test_one_value_has_no_interval():
    assert interval([7.0]) == (7.0, None)


@pytest.mark.parametrize(
    ("freedom", "tabled"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (9, 2.2622),
        (30, 2.0423),
        (40, 2.0211),
        (60, 2.0003),
        (120, 1.9799),
    ],
)
def test_t_is_that_of_the_tables(freedom, tabled):
    assert t_975(freedom) == pytest.approx(tabled, abs=1e-4)


def test_t_does_not_jump_where_the_table_ends():
    assert t_975(31) == pytest.approx(2.0395, abs=1e-4)


def speeds(rate, *shapes):
    """A profile of (K, kinds of node[, S]) rates without interference."""
    table = np.asarray(rate, dtype=np.float64)
    table = table[..., None] if table.ndim == 2 else table
    kinds, node_kinds, _ = table.shape
    shapes = shapes or (Shape(),)
    return Profile(
        rate=table,
        slow=np.zeros((kinds, kinds)),
        draw=np.ones((kinds, node_kinds)),
        quality=np.ones((kinds, len(shapes))),
        shapes=shapes,
    )


def two_gpus():
    """A fast and a slow node of one GPU each."""
    return cluster([[1], [1]], resources=["gpu"], kind=[0, 1], kinds=["fast", "slow"])


def ran(rule, work, machine, profile):
    whole = simulate(work, machine, rule, profile=profile)
    return as_result(rule, work, machine, whole, profile)


def as_result(name, work, machine, whole, profile=None):
    return Result(
        name, 0, work, machine, whole.state, whole.totals, profile=profile,
        arrived=whole.arrived, so_far=whole.so_far,
    )  # fmt: skip


def later(work, by_s):
    """The same jobs with every time so much later."""
    jobs, truth = work.jobs.copy(), work.truth.copy()
    jobs["submit_s"] += by_s
    jobs["deadline_s"] += by_s
    truth["cancel_s"] += by_s
    return replace(work, jobs=jobs, truth=truth)


@pytest.mark.parametrize("rule", ["fcfs+easy+fastest", "las+best", "sjf"])
@pytest.mark.parametrize("seed", range(3))
def test_no_metric_hangs_on_where_the_clock_begins(rule, seed):
    rng = np.random.default_rng(seed)
    machine, work, profile = random_cluster(rng), random_jobs(rng), random_profile()
    now = measure(ran(rule, work, machine, profile))
    then = measure(ran(rule, later(work, 1e6), machine, profile))
    assert now["energy_j"] > 0 and now["ldi"] > 0 and now["span_s"] > 0
    assert then == pytest.approx(now, rel=1e-9)


def test_what_is_called_arriving_ends_with_the_last_arrival():
    # two jobs of 100 s on a fast and a slow GPU, which is used as much; the last comes at 10.
    # By then 20 and 5 s of work are done, which take 10 and 2.5 s on the fast one, of 2 x 10
    work = workload([0, 0, 10], [100] * 3, [[1]] * 3, resources=["gpu"], gpus=1)
    found = measure(ran("fcfs+fastest", work, two_gpus(), speeds([[2.0, 0.5]])))
    assert found["arriving_utilization"] == pytest.approx(1.0)
    assert found["arriving_useful_utilization"] == pytest.approx(12.5 / 20)
    assert (found["span_s"], found["arriving_throughput_per_h"]) == (10, 0)
    # ends at 50 and 200; the third takes the fast one from 50 to 100
    assert (found["drain_s"], found["makespan_s"]) == (190, 200)


def test_work_that_was_thrown_away_is_held_and_not_useful():
    # 4 s are lost at second 4; of the 10 s until the last arrival 6 are kept
    work, machine = workload([0, 10], [20, 1], [1, 1]), cluster([1])
    plan = [(0, Start(0, (0,))), (4, Stop(0)), (4, Start(0, (0,))), (24, Start(1, (0,)))]
    done = left_in(played(work, machine, plan).world, None, 0.0)
    found = measure(as_result("by hand", work, machine, done))
    assert found["arriving_utilization"] == pytest.approx(1.0)
    assert found["arriving_useful_utilization"] == pytest.approx(0.6)
    assert found["uti"] == pytest.approx(0.0)  # nobody waited before the last arrival


@pytest.mark.parametrize("seed", range(3))
def test_a_pool_and_the_engine_stand_alike_at_the_last_arrival(seed):
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 300, 60)).astype(float)
    work = workload(submit_s, rng.integers(1, 90, 60).astype(float), rng.integers(1, 6, 60))
    machine, rule = cluster([8]), parse("fcfs+easy")
    one, other = simulate(work, machine, "fcfs+easy"), simulate_pool(work, machine, rule)
    for name in ("held_s", "done_s"):
        assert one.so_far[name] == pytest.approx(other.so_far[name])
    for name in ("time_s", "waiting_s", "system_s", "busy_s", "contended_s", "held_s"):
        assert one.arrived[name] == pytest.approx(other.arrived[name]), name
        assert one.totals[name] == pytest.approx(other.totals[name]), name


def test_of_what_a_log_recorded_only_that_is_told_which_it_knows():
    # waits of 1 and 3 s, ends at 11 and 25; nothing is known of the third
    work = workload([0, 2, 4], [10, 20, 5], [1, 1, 1])
    state = np.zeros(3, STATE)
    state["start_s"], state["end_s"] = [1, 5, np.nan], [11, 25, np.nan]
    state["status"] = Status.FINISHED
    told = measure(Result(RECORDED, 0, work, cluster([4]), state, np.zeros(1, TOTALS)[0]))
    assert (told["wait_mean_s"], told["wait_max_s"], told["jct_mean_s"]) == (2, 3, 17)
    assert told["bsld_max"] == pytest.approx(23 / 20)
    assert (told["makespan_s"], told["span_s"], told["drain_s"]) == (25, 4, 21)
    unknown = (
        "utilization",
        "arriving_utilization",
        "uti",
        "ldi",
        "tsr",
        "energy_j",
        "preemptions",
    )
    assert not set(unknown) & told.keys()


def test_throughput_counts_finished_jobs_an_hour_of_the_makespan():
    result = pool()  # three jobs end by 25 s
    assert measure(result)["throughput_per_h"] == pytest.approx(3 * 3600 / 25)
    result.state["status"][2] = Status.FAILED
    assert measure(result)["throughput_per_h"] == pytest.approx(2 * 3600 / 25)


def test_useful_utilisation_is_the_raw_one_where_every_node_is_alike():
    found = measure(pool())
    # 2 x 10 + 2 x 20 + 4 x 5 units of 4 x 25
    assert found["useful_utilization"] == pytest.approx(0.8)
    assert found["utilization"] == pytest.approx(0.8)


def test_useful_utilisation_tells_a_slow_gpu_from_a_fast_one_and_the_raw_one_does_not():
    profile = speeds([[2.0, 0.5]])
    slow_only = workload([0], [10], [[1]], resources=["gpu"], gpus=1, node_kinds=0b10)
    both = replace(slow_only, jobs=slow_only.jobs.copy())
    both.jobs["node_kinds"] = 0b11
    slow, fast = (ran("fcfs+fastest", work, two_gpus(), profile) for work in (slow_only, both))
    # the slow GPU takes 20 s and the fast one 5 s; the other stands idle
    assert measure(slow)["makespan_s"] == pytest.approx(20.0)
    assert measure(fast)["makespan_s"] == pytest.approx(5.0)
    assert measure(slow)["utilization"] == measure(fast)["utilization"] == pytest.approx(0.5)
    # the same job where it may run on the fast one needed 5 of 2 x 20 s
    free = replace(slow, workload=both)
    assert measure(free)["useful_utilization"] == pytest.approx(0.125)
    assert measure(fast)["useful_utilization"] == pytest.approx(0.5)


def test_the_best_rate_is_of_the_node_kinds_that_a_job_may_use_and_that_are_there():
    profile = speeds([[2.0, 0.5, 9.0], [1.0, 3.0, 9.0]])  # none is of the third kind of node
    work = workload(
        [0, 0, 0, 0], [1, 1, 1, 1], [[1]] * 4, resources=["gpu"], gpus=1,
        kind=[0, 0, 1, 0], kinds=["a", "b"], node_kinds=[0b111, 0b110, 0b111, 0b100],
    )  # fmt: skip
    machine = cluster([[1], [1]], resources=["gpu"], kind=[0, 1], kinds=["fast", "slow", "none"])
    result = replace(pool(), workload=work, cluster=machine, profile=profile)
    assert best_rate(result, 0).tolist() == [2.0, 0.5, 3.0, 0.0]


def test_three_times_the_rate_on_four_times_the_gpus_is_no_better_rate():
    profile = speeds([[[1.0, 3.0]]], Shape(), Shape("wide", scale=4.0))
    work = workload([0, 0], [1, 1], [[1]] * 2, resources=["gpu"], gpus=1, shapes=[0b11, 0b10])
    result = replace(
        pool(), workload=work, cluster=cluster([[4]], resources=["gpu"]), profile=profile
    )
    assert best_rate(result, 0).tolist() == [1.0, 0.75]


def test_a_log_of_processors_counts_processors():
    result = pool()
    work = replace(result.workload, meta={"procs": np.array([1, 2, 3]), "max_procs": 4})
    # 1 x 10 + 2 x 20 + 3 x 5 of 4 x 25
    found = measure(replace(result, workload=work))
    assert found["useful_utilization"] == found["utilization"] == pytest.approx(0.65)


def test_a_run_in_which_nothing_finished_has_zeros_and_no_nan():
    result = pool()
    result.state["status"], result.state["end_s"] = Status.REJECTED, np.nan
    result.state["start_s"] = np.nan
    found = measure(replace(result, profile=speeds([[0.0]])))
    assert found["throughput_per_h"] == found["useful_utilization"] == 0.0
    assert all(math.isfinite(value) for value in found.values())


def metrics(jct_mean_s=10.0, throughput_per_h=5.0, useful_utilization=0.5, energy_j=0.0):
    return {
        "jct_mean_s": jct_mean_s,
        "throughput_per_h": throughput_per_h,
        "useful_utilization": useful_utilization,
        "energy_j": energy_j,
    }


def test_the_papers_own_table_scores_110_and_125_and_150():
    found = scores({policy: {0: metrics(*cells)} for policy, cells in PAPER.items()}, "fcfs")
    got = [found.of(policy, 0)["hyperscore"] for policy in PAPER]
    assert got == pytest.approx([110.0, 125.3, 150.1], abs=0.05)
    assert found.of("fcfs", 0)["v"] == 1.0
    # cube root of (25.8 / 19.5) (9.1 / 6.2) (79.8 / 58.1)
    v = (25.8 / 19.5 * 9.1 / 6.2 * 79.8 / 58.1) ** (1 / 3)
    assert found.of("adlro", 0)["v"] == pytest.approx(v)
    assert found.left_out == {"energy_j": "zero or not measured"}


def test_the_curve_is_v_to_the_fifth_over_itself_plus_two():
    for v in (0.1, 0.5, 1.0, 1.3, 4.0):
        assert hyperscore(v) == pytest.approx(100 * (1 + (v**5 / (v**5 + 2)) ** 2.1))


def test_the_score_rises_with_v_from_100_to_200_and_cannot_reorder_policies():
    vs = [0.0, 0.05, 0.3, 0.9, 1.0, 1.1, 2.0, 5.0, 20.0]
    got = [hyperscore(v) for v in vs]
    assert got == sorted(set(got))
    assert got[0] == 100.0
    assert hyperscore(1e-300) == pytest.approx(100.0)
    assert hyperscore(1e300) == pytest.approx(200.0)


def test_the_score_is_steepest_at_1_26_and_has_88_of_its_100_points_at_2():
    slope = {
        v: hyperscore(v + 1e-4) - hyperscore(v - 1e-4) for v in [i / 100 for i in range(5, 400)]
    }
    assert max(slope, key=slope.get) == pytest.approx(1.26)
    assert hyperscore(2.0) == pytest.approx(188.0, abs=0.1)


@pytest.mark.parametrize("v", [-1.0, math.nan])
def test_a_v_that_is_no_mean_of_ratios_is_refused(v):
    with pytest.raises(ValueError, match="is not a number >= 0"):
        hyperscore(v)


def test_less_is_better_for_time_and_energy_and_more_for_the_rest():
    ours, theirs = metrics(5.0, 10.0, 0.25, 40.0), metrics(10.0, 5.0, 0.5, 10.0)
    # 2, 2, 1/2 and 1/4
    assert v_of(ours, theirs, ["jct_mean_s", "throughput_per_h"]) == pytest.approx(2.0)
    assert v_of(ours, theirs, list(ours)) == pytest.approx((2 * 2 / 2 / 4) ** (1 / 4))


def test_seeds_are_paired_with_the_reference_of_the_same_seed():
    found = scores(
        {
            "fcfs": {0: metrics(10.0), 1: metrics(40.0)},
            "sjf": {0: metrics(5.0), 1: metrics(5.0), 2: metrics(1.0)},
        },
        "fcfs",
    )
    assert found.v["sjf"] == pytest.approx({0: 2 ** (1 / 3), 1: 8 ** (1 / 3)})
    assert found.of("sjf", 2) == {}  # the reference has no such seed


def test_the_mean_of_v_is_one_of_logarithms_with_its_interval():
    v, low, high = mean_v([1.0, 4.0])
    assert v == pytest.approx(2.0)
    # ln V = 0 and ln 4: half = t x sd / sqrt 2 = 12.7062 x ln 4 / 2
    half = 12.7062 * math.log(4) / 2
    assert (math.log(low), math.log(high)) == pytest.approx(
        (math.log(2) - half, math.log(2) + half)
    )
    assert mean_v([3.0])[1:] == (None, None)
    assert mean_v([3.0, 0.0]) == (0.0, None, None)


def test_the_reference_stands_at_1_without_spread():
    found = scores({"fcfs": {seed: metrics(10.0 + seed) for seed in range(3)}}, "fcfs")
    assert mean_v(list(found.v["fcfs"].values())) == (1.0, 1.0, 1.0)


def test_energy_counts_where_it_is_measured():
    found = scores({"fcfs": {0: metrics(energy_j=8.0)}, "sjf": {0: metrics(energy_j=0.5)}}, "fcfs")
    assert found.metrics == (
        "jct_mean_s",
        "throughput_per_h",
        "useful_utilization",
        "energy_j",
    )
    assert found.v["sjf"][0] == pytest.approx(2.0)  # fourth root of 16
    assert "left out" not in found.sentence()


def test_a_metric_that_is_zero_for_one_of_them_is_left_out_for_all():
    found = scores(
        {
            "fcfs": {0: metrics(energy_j=8.0)},
            "sjf": {0: metrics(5.0)},
            "las": {0: metrics(energy_j=4.0)},
        },
        "fcfs",
    )
    assert found.left_out == {"energy_j": "zero for a policy"}
    assert "energy_j left out: zero for a policy" in found.sentence()
    assert found.v["las"][0] == 1.0
    none = scores({"fcfs": {0: metrics(useful_utilization=0.0)}, "sjf": {0: metrics()}}, "fcfs")
    assert none.left_out["useful_utilization"] == "zero for the reference"


def test_a_policy_that_finishes_nothing_has_v_0_and_spoils_no_other():
    idle = metrics(0.0, 0.0, 0.0)  # no finished job: a mean JCT of 0 is not a good one
    found = scores({"fcfs": {0: metrics()}, "sjf": {0: metrics(5.0)}, "never": {0: idle}}, "fcfs")
    assert found.of("never", 0) == {"v": 0.0, "hyperscore": 100.0}
    assert found.of("sjf", 0)["v"] == pytest.approx(2 ** (1 / 3))


def test_a_reference_that_finishes_nothing_is_refused():
    with pytest.raises(TraceError, match=r"never finished no job with seed 0.*choose another"):
        scores({"never": {0: metrics(0.0, 0.0, 0.0)}, "sjf": {0: metrics()}}, "never")


def test_a_reference_without_a_result_is_refused():
    with pytest.raises(UnknownName, match="'lifo' has no result; known: fcfs"):
        scores({"fcfs": {0: metrics()}}, "lifo")


def compare(*words):
    command = [sys.executable, "-m", "trimtab", "compare", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    return path


def test_compare_scores_every_row_against_a_reference_that_it_runs_too(log):
    done = compare("sjf", "fcfs+easy", "--trace", log, "--hyperscore", "fcfs", "--json", "-")
    rows = {got["policy"]: got["metrics"] for got in json.loads(done.stdout)}
    assert list(rows) == ["fcfs", "sjf", "fcfs+easy"]
    assert "fcfs: not among the policies, so it is run too" in done.stderr
    assert "energy_j left out: zero or not measured" in done.stderr
    assert rows["fcfs"]["v"] == 1.0
    assert rows["fcfs"]["hyperscore"] == pytest.approx(hyperscore(1.0))
    # fcfs: JCT 10, 25, 27, ended at 33; easy: job 3 goes ahead, JCT 10, 25, 3, ended at 30
    v = (62 / 38 * 33 / 30 * 33 / 30) ** (1 / 3)
    assert rows["fcfs+easy"]["v"] == pytest.approx(v)


def test_compare_shows_both_columns_beside_what_was_asked_for(log):
    words = ["fcfs", "fcfs+easy", "--trace", log, "--hyperscore", "fcfs", "--metrics", "awt_s"]
    done = compare(*words)
    assert done.returncode == 0, done.stderr
    head, _, table = done.stdout.partition("─")
    assert head.split() == ["AWT", "policy", "s", "V", "HyperScore"]  # units on their own line
    assert ["fcfs", "9.67", "1", "110"] in [line.split() for line in table.splitlines()]
    assert "run too" not in done.stderr


def test_compare_scores_under_the_semantics_of_rlscheduler(log):
    words = ["fcfs", "sjf", "--trace", log, "--semantics", "rlscheduler", "--hyperscore", "fcfs"]
    done = compare(*words, "--json", "-")
    assert all("hyperscore" in got["metrics"] for got in json.loads(done.stdout))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fcfs", "--hyperscore", "fcsf"], "--hyperscore fcsf: "),
        (["fcfs", "--hyperscore", "fcsf"], "did you mean 'fcfs'?"),
        (["fcfs", "--hyperscore", "fgd"], "policy fgd packs pods that never leave"),
        (["fgd", "--hyperscore", "fcfs"], "policy fgd packs pods that never leave"),
        (["fcfs", "--order", "o.json", "--hyperscore", "fcfs"], "--order o.json packs pods"),
        (["fcfs", "--metrics", "v"], "--metrics v: against what? Add --hyperscore REFERENCE"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(words, text, command):
    code, _, said = command("compare", *words)
    assert code == 2
    assert text in said
    assert said.count("\n") == 1
