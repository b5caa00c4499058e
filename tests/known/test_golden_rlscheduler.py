"""The semantics of RLScheduler (SC'20) reproduce its simulator and its published tables."""

from functools import cache

import numpy as np
import pytest
from tests.known.logs import bounded_slowdown, expected, fingerprint, read_log, run_rlscheduler

from trimtab.errors import TraceError
from trimtab.sim import rlscheduler
from trimtab.sim.rlscheduler import FCFS, POLICIES, SJF, schedule

log_of = cache(read_log)

OURS = {  # name in the reference: ours
    "wfp": "wfp3-published",
    "uni": "unicep-published",
    "wfpnow": "wfp3",
    "uninow": "unicep",
}
SEQUENCES = [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085]  # first rows
COLUMNS = ["fcfs", "wfp3-published", "unicep-published", "sjf", "f1"]
PUBLISHED = {  # (log, backfill): average bounded slow-down in the paper's table
    ("lublin_256.swf", False): [7273.77, 19753.53, 22274.74, 277.35, 258.37],
    ("lublin_256.swf", True): [235.82, 133.87, 307.23, 73.31, 75.07],
    ("SDSC-SP2-1998-4.2-cln.swf", False): [1727.54, 3000.88, 1848.45, 2680.55, 1232.06],
    ("SDSC-SP2-1998-4.2-cln.swf", True): [1595.12, 1083.12, 548.01, 2167.84, 1098.22],
}


def simulate(trace, start, jobs, policy, backfill):
    log = log_of(trace).rows(start, jobs)
    columns = log.submit_s, log.run_s, log.request_s, log.procs
    return log, *schedule(*columns, log.nodes, POLICIES[policy], backfill, log.width())


def mean_in_order(values, order) -> float:
    """Mean as the authors take it: each value over the number of jobs, summed in order of start."""
    return float(np.cumsum(values[order] / len(values))[-1])


def metrics(log, start_s, order) -> dict:
    wait_s, slowdown, end_s = (
        start_s - log.submit_s,
        bounded_slowdown(log, start_s),
        start_s + log.run_s,
    )
    return {
        "avg_bsld": mean_in_order(slowdown, order),
        "avg_wait": wait_s.mean(),
        "avg_turnaround": (wait_s + log.run_s).mean(),
        "max_bsld": slowdown.max(),
        "last_start": start_s.max(),
        "last_end": end_s.max(),
        "util_makespan": (log.run_s * log.procs).sum()
        / ((end_s.max() - log.submit_s.min()) * log.procs_of_all),
        "starts_sha256": fingerprint(start_s),
        "first5_starts": start_s[:5].tolist(),
    }


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize(
    "policy", ["fcfs", "sjf", "smallest", "f1", "wfp", "uni", "wfpnow", "uninow"]
)
def test_every_start_and_every_digit_is_that_of_the_authors_simulator(policy, backfill):
    rows = expected("golden_rlscheduler.json")
    rows = [row for row in rows if (row["policy"], row["backfill"]) == (policy, backfill)]
    assert len(rows) >= 11
    for row in rows:
        name = OURS.get(policy, policy)
        got = metrics(*simulate(row["trace"], row["start"], row["n"], name, backfill))
        assert got == {key: row[key] for key in got}, f"rows {row['start']} + {row['n']}"


@pytest.mark.parametrize(("trace", "backfill"), PUBLISHED)
def test_the_published_table_is_reproduced(trace, backfill):
    for policy, published in zip(COLUMNS, PUBLISHED[trace, backfill]):
        means = []
        for start in SEQUENCES:
            log, start_s, order = simulate(trace, start, 1024, policy, backfill)
            means.append(mean_in_order(bounded_slowdown(log, start_s), order))
        assert f"{np.mean(means):.2f}" == f"{published:.2f}", policy


def test_nothing_else_is_picked_while_the_pivot_blocks():
    # job 0 runs 0..10 on 3 of 4. Job 1 comes to an empty queue at 1, is picked, wants 2 and blocks;
    # job 2 (1 unit, shorter) is admitted meanwhile and waits until job 1 has started at 10
    rows = np.array([(0, 10, 10, 3), (1, 5, 5, 2), (2, 1, 1, 1)], float)
    assert run_rlscheduler(*rows.T, 4, SJF, False).tolist() == [0, 10, 10]


def test_backfilling_asks_for_an_end_before_the_expected_start_of_the_pivot():
    # the pivot, job 1, is expected at 10: job 3 is over before (3 + 6), job 2 is not (2 + 8 = 10)
    rows = np.array([(0, 10, 10, 3), (1, 5, 5, 2), (2, 8, 8, 1), (3, 6, 6, 1)], float)
    assert run_rlscheduler(*rows.T, 4, FCFS, True).tolist() == [0, 10, 10, 3]


def test_the_expected_start_of_the_pivot_is_not_computed_again():
    # job 0 said 5 and takes 20: from 5 on nothing is over before 5, so job 2 waits for the pivot
    rows = np.array([(0, 20, 5, 3), (1, 5, 5, 2), (8, 1, 1, 1)], float)
    assert run_rlscheduler(*rows.T, 4, FCFS, True).tolist() == [0, 20, 20]


def test_each_compiled_function_runs_as_python(monkeypatch):
    rng = np.random.default_rng(3)
    columns = (
        np.cumsum(rng.integers(0, 3, 40)),
        *rng.integers(1, 20, (2, 40)),
        rng.integers(1, 9, 40),
    )
    cases = [(policy, backfill) for policy in POLICIES.values() for backfill in (False, True)]
    compiled = [run_rlscheduler(*columns, 8, *case).tolist() for case in cases]
    for name, function in vars(rlscheduler).copy().items():
        if hasattr(function, "py_func"):
            monkeypatch.setattr(rlscheduler, name, function.py_func)
    assert [run_rlscheduler(*columns, 8, *case).tolist() for case in cases] == compiled


def test_a_job_wider_than_the_pool_is_named():
    with pytest.raises(TraceError, match="row 1: width=9, but the pool has 8"):
        run_rlscheduler([0, 0], [1, 1], [1, 1], [1, 9], 8, FCFS, False)
