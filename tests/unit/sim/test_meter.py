"""Running totals and windows of load against books kept a second time from the log."""

import numpy as np
import pytest
from tests.worlds import Logged, Script, at_once, books, played, random_cluster, random_jobs, ruled

from trimtab.build import cluster, workload
from trimtab.core import Start, Wait
from trimtab.policies import named
from trimtab.sim.world import Models, outages

INTEGRALS = ("waiting_s", "system_s", "busy_s", "idle_s", "imbalance_s", "energy_j")


def test_waiting_idle_and_imbalance_by_hand():
    # two nodes of 1 core. Job 0: 0..10 on node 0. Job 1 waits 0..4, runs 4..14 on node 1.
    # waiting 4; idle node 1 while job 1 waits: 4; busy 10 + 10
    # spread: |load - mean| = 0.5 while one runs: 0..4 and 10..14 = 8 x 0.5
    done = played(
        workload([0, 0], [10, 10], [1, 1]),
        cluster([1, 1]),
        [(0, Start(0, (0,))), (4, Start(1, (1,)))],
    )
    found = {name: done.total(name) for name in INTEGRALS}
    assert found == {
        "waiting_s": 4.0,
        "system_s": 10.0 + 14.0,
        "busy_s": 20.0,
        "idle_s": 4.0,
        "imbalance_s": 4.0,
        "energy_j": 0.0,
    }
    assert done.total("time_s") == 14


def test_idle_nodes_count_only_while_jobs_wait():
    done = played(workload([0], [10], [1]), cluster([1, 1, 1]), at_once(1, 0))
    assert done.total("idle_s") == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", ["fcfs+easy", "srtf", "sjf+worst"])
def test_totals_are_the_integrals_of_the_log(seed, rule):
    rng = np.random.default_rng(seed)
    machine, jobs = random_cluster(rng), random_jobs(rng)
    jobs.jobs["gang"] = 1  # the log tells the end of a job, not of an array's instances
    jobs.jobs["instances"] = np.minimum(jobs.jobs["instances"], 2)
    fails = outages(machine, 600.0, rng, mtbf_s=400.0, mttr_s=30.0)
    done = ruled(jobs, machine, named(rule), outages=fails, retries=1)
    expected = books(done.workload, machine, done.seen, done.total("time_s"))
    found = {name: done.total(name) for name in INTEGRALS}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-4)
    assert done.snapshot().node_state["energy_j"].sum() == pytest.approx(
        found["energy_j"], rel=1e-12
    )


def mean_load(jobs, nodes, from_s, to_s):
    """Mean load of each 4-core node over a span, from (start, end, node) of each job."""
    load = np.zeros(nodes)
    for job, (start_s, end_s, node) in enumerate(jobs):
        load[node] += max(min(end_s, to_s) - max(start_s, from_s), 0.0) * (job % 3 + 1) / 4
    return load / (to_s - from_s)


@pytest.mark.parametrize("window_s, windows", [(10.0, 4), (7.0, 3), (1000.0, 2), (0.7, 5)])
def test_recent_load_is_the_mean_of_each_past_window(window_s, windows):
    spans = [(0.0, 13.0, 0), (5.0, 30.0, 1), (31.5, 33.0, 0), (31.5, 90.0, 0)]
    submit_s = [start_s for start_s, _, _ in spans]
    jobs = workload(submit_s, [e - s for s, e, _ in spans], [job % 3 + 1 for job in range(4)])
    backend = Logged(jobs, cluster([4, 4]), None, Models(window_s=window_s, windows=windows))
    plan = Script([(start_s, Start(job, (node,))) for job, (start_s, _, node) in enumerate(spans)])
    looked = 0
    while backend.wait() is not None:
        for decision in plan.decide(backend.snapshot()):
            backend.apply(decision)
        seen = backend.snapshot()
        last = int(np.floor(seen.now_s / window_s))
        for k in range(windows):
            window = last - windows + k
            expected = (
                mean_load(spans, 2, window * window_s, (window + 1) * window_s)
                if window >= 0
                else np.zeros(2)
            )
            assert seen.recent[:, k] == pytest.approx(expected, abs=1e-9), (seen.now_s, k)
            looked += 1
        backend.apply(Wait(seen.now_s + 3.0))
    assert looked > 20 * windows


def test_looking_does_not_change_what_is_seen():
    plain, looked_at = (
        Logged(workload([0, 3], [10, 9], [1, 1]), cluster([1, 2], idle_w=10, peak_w=25))
        for _ in "ab"
    )
    for backend in (plain, looked_at):
        while backend.wait() is not None:
            for _ in range(3 if backend is looked_at else 0):
                backend.snapshot()
            for job in backend.snapshot().queue:
                backend.apply(Start(int(job), (int(job),)))
    assert plain.snapshot().totals == looked_at.snapshot().totals
    assert plain.seen == looked_at.seen
