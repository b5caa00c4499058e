"""FCFS and SJF, with and without EASY, reproduce the reference results digit for digit."""

from functools import cache

import numpy as np
import pytest
from tests.known.logs import bounded_slowdown, expected, fingerprint, mean_by_block, read_log

from trimtab.sim.pool import EASY, NO_BACKFILL, run_pool

log_of = cache(read_log)


def simulate(row):
    """The log rows that a reference row names, and their start and end times."""
    log = log_of(row["trace"]).rows(row["start"], row["jobs"])
    order, _, backfill = row["policy"].partition("+")
    request_s = log.run_s if row["estimate"] == "actual" else log.request_s
    keys = (log.submit_s,) if order == "fcfs" else (log.submit_s, log.request_s)
    jobs = len(log.submit_s)
    rank = np.empty(jobs, np.int64)
    rank[np.lexsort(keys)] = np.arange(jobs)
    start_s, end_s = run_pool(
        log.submit_s, log.run_s, request_s, log.width(), rank, log.nodes,
        EASY if backfill else NO_BACKFILL, np.ones(jobs), np.zeros(jobs + 1), [],
    )  # fmt: skip
    return log, start_s, end_s


def metrics(log, start_s, end_s) -> dict[str, float]:
    wait_s, slowdown = start_s - log.submit_s, bounded_slowdown(log, start_s)
    makespan_s = end_s.max() - log.submit_s.min()
    return {
        "bsld_mean": mean_by_block(slowdown),
        "bsld_max": slowdown.max(),
        "wait_mean_s": mean_by_block(wait_s),
        "jct_mean_s": mean_by_block(wait_s + log.run_s),
        "makespan_s": makespan_s,
        "utilization": (log.run_s * log.procs).sum() / (makespan_s * log.procs_of_all),
    }


@pytest.mark.parametrize("policy", ["fcfs", "fcfs+easy", "sjf", "sjf+easy"])
@pytest.mark.parametrize("trace", ["lublin_256.swf", "SDSC-SP2-1998-4.2-cln.swf"])
def test_every_start_and_every_digit_is_that_of_the_reference(trace, policy):
    rows = [
        row for row in expected("golden.json") if (row["trace"], row["policy"]) == (trace, policy)
    ]
    assert rows
    for row in rows:
        log, start_s, end_s = simulate(row)
        where = f"rows {row['start']} + {row['jobs']}, estimate {row['estimate']}"
        assert start_s[:5].tolist() == row["first_starts_s"], where
        assert fingerprint(start_s) == row["starts_sha256_16"], where
        assert metrics(log, start_s, end_s) == row["metrics"], where


def test_no_reference_row_is_left_out():
    rows = expected("golden.json")
    assert {row["trace"] for row in rows} == {"lublin_256.swf", "SDSC-SP2-1998-4.2-cln.swf"}
    assert {row["policy"] for row in rows} == {"fcfs", "fcfs+easy", "sjf", "sjf+easy"}
