"""Queues with a known mean wait: M/M/1, M/M/c, M/G/1, and Little's law on the running totals."""

import math

import numpy as np
import pytest

from trimtab.build import cluster
from trimtab.core import Status
from trimtab.sim.pool import NO_BACKFILL, run_pool
from trimtab.sim.whole import simulate
from trimtab.traces.scenes.synthetic import generate

BATCHES = 40
WARM = 0.05  # of the jobs, which still feel the empty start


def mean_and_error(wait_s):
    """Mean after the warm-up, and its standard error from batch means."""
    kept = wait_s[int(len(wait_s) * WARM) :]
    means = np.array([part.mean() for part in np.array_split(kept, BATCHES)])
    return means.mean(), means.std(ddof=1) / math.sqrt(BATCHES)


def pool_waits(jobs, servers):
    count = len(jobs)
    start_s, _ = run_pool(
        jobs.jobs["submit_s"], jobs.truth["work_s"], jobs.jobs["request_s"], np.ones(count),
        np.arange(count), servers, NO_BACKFILL, np.ones(count), np.zeros(count + 1), [],
    )  # fmt: skip
    return start_s - jobs.jobs["submit_s"]


def erlang_c_wait(servers, load, mean_s):
    """Mean wait of M/M/c: C(c, a) / (c / mean - rate)."""
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return waits * mean_s / (servers * (1 - load))


def close(found, theory, most_error):
    """Within four standard errors, which are small enough to tell something."""
    mean_s, error_s = found
    assert error_s < most_error * theory
    assert abs(mean_s - theory) < 4 * error_s, (mean_s, theory, error_s)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_mean_wait_of_m_m_1_is_that_of_theory(load):
    jobs = generate("poisson-mmc", seed=1, jobs=500_000, servers=1, load=load, mean_s=10.0)
    # rho / (1 - rho) x mean service: 10 s and 40 s
    close(mean_and_error(pool_waits(jobs, 1)), load / (1 - load) * 10.0, 0.03)


@pytest.mark.parametrize("load", [0.6, 0.9])
def test_the_mean_wait_of_m_m_4_is_erlangs(load):
    jobs = generate("poisson-mmc", seed=2, jobs=500_000, servers=4, load=load, mean_s=10.0)
    close(mean_and_error(pool_waits(jobs, 4)), erlang_c_wait(4, load, 10.0), 0.05)


def test_erlang_c_agrees_with_m_m_1_and_a_table():
    assert erlang_c_wait(1, 0.8, 10.0) == pytest.approx(40.0)
    # c = 2, rho = 0.5: C = 1/3, wait = 1/3 x 1 / (2 - 1)
    assert erlang_c_wait(2, 0.5, 1.0) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "law, scv", [("lognormal", 2.0), ("hyperexponential", 4.0), ("fixed", 0.0)]
)
def test_the_mean_wait_of_m_g_1_is_pollaczek_khinchines(law, scv):
    more = {} if law == "fixed" else {"scv": scv}
    jobs = generate(
        "queue", seed=3, jobs=1_000_000, servers=1, load=0.7, law=law, mean_s=10.0, **more
    )
    # rate E[S^2] / (2 (1 - rho)) = rho mean (1 + scv) / (2 (1 - rho))
    close(mean_and_error(pool_waits(jobs, 1)), 0.7 * 10.0 * (1 + scv) / (2 * 0.3), 0.05)


@pytest.mark.parametrize("servers, load", [(1, 0.7), (4, 0.8)])
def test_the_engine_keeps_the_same_queues(servers, load):
    jobs = generate("poisson-mmc", seed=4, jobs=60_000, servers=servers, load=load, mean_s=10.0)
    whole = simulate(jobs, cluster(np.ones(servers)), "fcfs")
    assert (whole.state["status"] == Status.FINISHED).all()
    wait_s = whole.state["start_s"] - jobs.jobs["submit_s"]
    close(mean_and_error(wait_s), erlang_c_wait(servers, load, 10.0), 0.08)
    assert wait_s.tolist() == pytest.approx(pool_waits(jobs, servers).tolist())


def test_littles_law_holds_on_the_totals():
    jobs = generate("poisson-mmc", seed=5, jobs=20_000, servers=4, load=0.9, mean_s=10.0)
    whole = simulate(jobs, cluster(np.ones(4)), "fcfs")
    state, totals = whole.state, whole.totals
    rate_hz = len(jobs) / totals["time_s"]
    in_system_s = (state["end_s"] - jobs.jobs["submit_s"]).mean()
    waits_s = (state["start_s"] - jobs.jobs["submit_s"]).mean()
    assert totals["system_s"] / totals["time_s"] == pytest.approx(rate_hz * in_system_s, rel=1e-9)
    assert totals["waiting_s"] / totals["time_s"] == pytest.approx(rate_hz * waits_s, rel=1e-9)
    # the utilisation law: busy servers = rate x mean service
    assert totals["busy_s"] / totals["time_s"] == pytest.approx(
        rate_hz * jobs.truth["work_s"].mean(), rel=1e-9
    )
    assert totals["busy_s"] / totals["time_s"] / 4 == pytest.approx(0.9, rel=0.03)
