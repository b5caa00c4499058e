"""Limits read off the first half of a log: logs whose limits we know, made with them."""

import numpy as np
import pytest
from tests.unit.traces.readers.test_swf import line

from trimtab.build import cluster, workload
from trimtab.errors import TraceError
from trimtab.recorded import as_recorded
from trimtab.reproduce.limits import evidence, evidence_text, most_waiting, running, usable
from trimtab.reproduce.logs import beside
from trimtab.sim.whole import simulate
from trimtab.site import labelled

WEEK_S = 7 * 86400


def drawn(jobs: int, units: int, load: float = 0.9):
    """Submit times, run times and widths that offer so many units this load."""
    rng = np.random.default_rng(7)
    run_s, width = np.ceil(rng.lognormal(8.5, 1.0, jobs)), rng.choice([1, 2, 4, 8, 16], jobs)
    rate_hz = load * units * jobs / float((run_s * width).sum())
    submit_s = np.floor(np.cumsum(rng.exponential(1 / rate_hz, jobs)))
    return submit_s, run_s, width


@pytest.fixture
def narrowed(tmp_path):
    """A log of a machine of 100 processors by its header, on which 80 could be used."""
    submit_s, run_s, width = drawn(3_000, 80)
    done = simulate(workload(submit_s, run_s, width), cluster([[80.0]]), "fcfs+easy")
    rows = [
        line(number=n + 1, submit=int(s), wait=int(start - s), run=int(r), request=int(r),
             procs=int(w), alloc=int(w))
        for n, (s, start, r, w) in enumerate(
            zip(submit_s, done.state["start_s"], run_s, width, strict=True)
        )
    ]  # fmt: skip
    path = tmp_path / "narrowed.swf"
    path.write_text("; MaxNodes: 100\n; MaxProcs: 100\n" + "".join(rows))
    return str(path)


def test_the_share_of_the_machine_is_found_in_the_first_half_and_explains_the_second(narrowed):
    half = beside(narrowed)["later"]
    wait = half["wait_mean_s"]
    assert half["jobs"] == 1_500
    assert half["share"] == pytest.approx(0.8, abs=0.0126)  # a step
    assert wait["plain"] < 0.7 * wait["recorded"]
    assert abs(wait["gap"]) < 0.2
    assert half["machine"] == f"nodes={half['share'] * 100:.0f},procs={half['share'] * 100:.0f}"


def test_the_second_half_does_not_move_what_is_read_off_the_first(narrowed, tmp_path):
    head, rows = [], []
    with open(narrowed) as file:
        for text in file:
            (head if text.startswith(";") else rows).append(text)
    late = [" ".join((*text.split()[:2], "0", *text.split()[3:])) + "\n" for text in rows[1_500:]]
    other = tmp_path / "other.swf"
    other.write_text("".join((*head, *rows[:1_500], *late)))
    assert beside(str(other))["later"]["share"] == beside(narrowed)["later"]["share"]


def test_a_ceiling_of_jobs_a_user_is_told_from_a_small_machine():
    # one user, six jobs of 100 s at once, two at a time on a machine of 100: every instant of
    # waiting is at his most jobs and with free processors, 2 x (100 + 200) s of it
    work = workload(
        np.zeros(6), np.full(6, 100.0), np.ones(6), tenants=("ann", "bob"), tenant=np.zeros(6, int),
        labels={"user": labelled(["ann"] * 5 + ["bob"])},
        meta={"recorded": {"start_s": np.array([0, 0, 100, 100, 200, 0.0]),
                           "end_s": np.array([100, 100, 200, 200, 300, 100.0])}},
    )  # fmt: skip
    recorded = as_recorded(work, cluster([[100.0]]))
    found = evidence(recorded, np.inf)
    assert (found["free"], found["quiet"]) == (1.0, 0.0)
    assert found["user jobs"] == found["user processors"] == 1.0
    assert "user jobs" in evidence_text(found)
    small = as_recorded(work, cluster([[3.0]]))
    # bob's processor is taken for the first 100 of 400 s: two jobs that wait find none free then
    assert evidence(small, np.inf)["free"] == pytest.approx(1 - 3 * 100 / 400, abs=0.05)


def test_the_users_who_waited_most_are_told_by_part():
    work = workload(np.zeros(4), np.ones(4), np.ones(4), tenants=("ann", "bob"),
                    tenant=np.array([0, 1, 0, 1]))  # fmt: skip
    # ann waited 30 of 40 s first and 10 of 100 later, bob the rest
    wait_s, first = np.array([30.0, 10, 10, 90]), np.array([True, True, False, False])
    assert most_waiting(work, wait_s, first, ~first) == [[0.75, 0.1], [0.25, 0.9]]


def test_a_part_that_is_no_share_is_refused(narrowed):
    with pytest.raises(TraceError, match="--first 1"):
        beside(narrowed, first=1.5)


def test_hours_without_a_start_are_told():
    recorded = {"start_s": np.array([0.0, 8_000.0]), "end_s": np.array([10.0, 8_010.0])}
    work = workload(np.array([0.0, 100.0]), [10, 10], [1, 1], meta={"recorded": recorded})
    found = evidence(as_recorded(work, cluster([[4.0]])), np.inf)
    assert (found["free"], found["quiet"]) == (1.0, 1.0)


def test_what_ends_goes_before_what_starts():
    level = running(np.array([0, 0, 1]), np.array([0.0, 5, 0]), np.array([5.0, 9, 9]), np.ones(3))
    asked = [(0, 0.0), (0, 5.0), (0, 9.0), (1, 4.0), (1, 9.0)]
    group, time_s = (np.array(column) for column in zip(*asked, strict=True))
    assert level.at(group, time_s).tolist() == [1, 1, 0, 1, 0]


def test_the_share_is_that_of_the_nearest_weeks_not_of_the_longest_queue():
    # three weeks of 20 jobs; below 0.97 of the machine all wait an hour; one week waited a day
    submit_s = np.repeat(np.arange(3.0) * WEEK_S, 20)
    truth_s = np.repeat([3600.0, 3600.0, 86400.0], 20)

    def waits_at(share):
        return np.full(60, 3600.0 if share < 0.97 else 0.0)

    assert usable(waits_at, truth_s, submit_s) == pytest.approx(0.9625)
    assert usable(waits_at, truth_s[:10], submit_s[:10]) is None
