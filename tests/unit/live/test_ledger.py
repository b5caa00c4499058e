"""The ledger shows the newest fact of every job with the unconfirmed promises on top."""

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.columns import JOB, NODE_STATE, STATE
from trimtab.core import Event, Move, Reject, Start, Status, Stop, What
from trimtab.errors import UnknownName
from trimtab.live import backend_named
from trimtab.live.fake import FakeBackend
from trimtab.live.ledger import Ledger
from trimtab.live.mirror import Held
from trimtab.live.promise import Fact, Report

CORES = 4.0


def ledger_of(jobs=3, nodes=2, cpu=2.0, **ask) -> Ledger:
    """A ledger of `nodes` nodes of 4 cores, with jobs of 2 cores that wait."""
    machine = cluster(np.full(nodes, CORES))
    made = Ledger(machine, uniform_profile(1, 1), patience_s=60.0, jobs=jobs)
    rows = workload(np.zeros(jobs), 100.0, np.full(jobs, cpu), **ask)
    for job in range(jobs):
        made.absorb(Report(1, Event(0.0, What.SUBMITTED, job), (waiting(rows, job),)), 0.0)
    made.rows = rows
    return made


def state(status=Status.QUEUED, left=1, start_s=np.nan, end_s=np.nan):
    row = np.zeros((), STATE)
    row["status"], row["left"], row["run"] = status, left, -1
    row["active"] = status == Status.RUNNING
    row["start_s"], row["end_s"] = start_s, end_s
    return row


def waiting(rows, job, heard=-1):
    ask = (rows.jobs[job], rows.demand[job])
    return Fact(job, state(left=int(rows.jobs["instances"][job])), (), ask, heard)


def running(job, nodes, start_s, left=0, heard=-1):
    held = Held(nodes, (0,) * len(nodes), 0, start_s, start_s + 100.0, start_s)
    row = state(Status.RUNNING if left == 0 else Status.QUEUED, left, start_s)
    return Fact(job, row, (held,), None, heard)


def ended(job, start_s, end_s, status=Status.FINISHED):
    return Fact(job, state(status, 0, start_s, end_s))


def free(ledger, now_s=0.0):
    return ledger.snapshot(now_s).free[:, 0].tolist()


def queue(ledger, now_s=0.0):
    return ledger.snapshot(now_s).queue.tolist()


def runs(ledger):
    seen = ledger.snapshot(ledger.mirror.now_s)
    return sorted(seen.runs["job"][seen.running].tolist())


def test_a_promise_shows_in_the_very_next_snapshot():
    ledger = ledger_of()
    answer = ledger.promise(Start(0, (1,)), 10.0)
    assert (answer.what, answer.job, answer.nodes) == (What.PLACED, 0, (1,))
    assert (queue(ledger, 10.0), runs(ledger), free(ledger, 10.0)) == ([1, 2], [0], [4.0, 2.0])
    assert ledger.outgoing() == [(1, Start(0, (1,)))]
    assert ledger.outgoing() == []


def test_what_is_promised_to_one_cannot_be_promised_to_another():
    ledger = ledger_of(cpu=3.0)
    ledger.promise(Start(0, (1,)), 0.0)
    answer = ledger.promise(Start(1, (1,)), 0.0)
    assert (answer.what, answer.reason) == (What.REFUSED, "cpu: wants 3, free 1")
    assert ledger.promise(Start(0, (0,)), 0.0).reason == "job: not waiting"
    assert ledger.outgoing() == [(1, Start(0, (1,)))]


@pytest.mark.parametrize("heard", [-1, 1])
def test_a_report_that_shows_the_start_makes_the_promise_a_fact(heard):
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    started = Event(15.0, What.STARTED, 0, (1,))
    told = ledger.absorb(Report(2, started, (running(0, (1,), 15.0, heard=heard),)), 17.0)
    assert told == [Event(17.0, What.STARTED, 0, (1,))]
    assert not ledger.promises
    assert free(ledger, 17.0) == [4.0, 2.0]
    assert ledger.snapshot(17.0).state["start_s"][0] == 15.0


def test_a_listing_made_before_the_decision_arrived_does_not_undo_the_promise():
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    listing = Report(5, None, tuple(waiting(ledger.rows, job) for job in range(3)), whole=True)
    assert ledger.absorb(listing, 12.0) == []
    assert (queue(ledger, 12.0), free(ledger, 12.0)) == ([1, 2], [4.0, 2.0])


def test_a_promise_past_its_time_that_the_listing_shows_is_kept():
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    told = ledger.absorb(Report(5, None, (running(0, (1,), 15.0),), whole=True), 90.0)
    assert [(event.what, event.job) for event in told] == [(What.STARTED, 0)]
    assert (queue(ledger, 90.0), runs(ledger)) == ([1, 2], [0])


def test_a_promise_past_its_time_that_the_listing_does_not_show_is_withdrawn():
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    listing = tuple(waiting(ledger.rows, job) for job in range(3))
    assert ledger.absorb(Report(5, None, listing, whole=True), 70.0) == []  # 60 s are not over 60 s
    told = ledger.absorb(Report(6, None, listing, whole=True), 71.0)
    assert [(event.what, event.job, event.nodes) for event in told] == [(What.REFUSED, 0, (1,))]
    assert "no word from the cluster in 60 s" in told[0].reason
    assert ledger.news and ledger.withdrawn == 1
    assert (queue(ledger, 71.0), runs(ledger), free(ledger, 71.0)) == ([0, 1, 2], [], [4.0, 4.0])


def test_a_refusal_by_the_cluster_returns_the_job_to_the_queue():
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    refusal = Event(15.0, What.REFUSED, 0, (1,), 0, "node: 1 is down")
    assert ledger.absorb(Report(2, refusal, (), answers=1), 16.0)[0].reason == "node: 1 is down"
    assert (queue(ledger, 16.0), free(ledger, 16.0)) == ([0, 1, 2], [4.0, 4.0])
    assert ledger.absorb(Report(3, refusal, (), answers=1), 17.0) == []  # told once


def test_reports_out_of_order_end_a_job_once_and_leave_it_ended():
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    finish = Report(4, Event(60.0, What.FINISHED, 0), (ended(0, 15.0, 60.0),))
    told = ledger.absorb(finish, 61.0)
    assert [event.what for event in told] == [What.STARTED, What.FINISHED]
    late = Report(2, Event(15.0, What.STARTED, 0, (1,)), (running(0, (1,), 15.0),))
    assert ledger.absorb(late, 62.0) == []
    assert ledger.absorb(finish, 63.0) == []
    listing = Report(9, None, (ended(0, 15.0, 60.0),), whole=True)
    assert ledger.absorb(listing, 64.0) == []
    assert (runs(ledger), free(ledger, 64.0)) == ([], [4.0, 4.0])


def test_a_lost_end_is_told_by_the_listing():
    ledger = ledger_of()
    ledger.promise(Start(0, (1,)), 10.0)
    ledger.absorb(Report(2, None, (running(0, (1,), 15.0),)), 16.0)
    told = ledger.absorb(Report(3, None, (ended(0, 15.0, 60.0),), whole=True), 90.0)
    assert [event.what for event in told] == [What.STARTED, What.FINISHED]
    assert ledger.snapshot(90.0).state["end_s"][0] == 60.0
    assert free(ledger, 90.0) == [4.0, 4.0]


def test_a_lost_submission_is_told_by_the_listing_and_wakes_the_policy():
    ledger = ledger_of(jobs=1)
    rows = workload(np.zeros(5), 100.0, np.ones(5))
    told = ledger.absorb(Report(2, None, (waiting(rows, 4),), whole=True), 5.0)
    assert [(event.what, event.job) for event in told] == [(What.SUBMITTED, 4)]
    assert ledger.news
    assert queue(ledger, 5.0) == [0, 4]  # the tables grew


def test_a_start_in_the_room_of_an_unconfirmed_stop_is_shown_at_once_and_sent_after_it():
    ledger = ledger_of(cpu=4.0)
    ledger.absorb(Report(2, None, (running(0, (1,), 0.0),)), 0.0)
    assert ledger.promise(Stop(0), 10.0).what == What.STOPPED
    assert ledger.promise(Start(1, (1,)), 10.0).what == What.PLACED
    assert ledger.outgoing() == [(1, Stop(0))]
    assert (queue(ledger, 10.0), runs(ledger)) == ([0, 2], [1])
    stopped = Event(15.0, What.STOPPED, 0, reason="preempted")
    ledger.absorb(Report(3, stopped, (waiting(ledger.rows, 0),)), 15.0)
    assert ledger.outgoing() == [(2, Start(1, (1,)))]


def test_a_stop_that_never_arrived_takes_back_what_counted_on_its_room():
    ledger = ledger_of(cpu=4.0)
    ledger.absorb(Report(2, None, (running(0, (1,), 0.0),)), 0.0)
    ledger.promise(Stop(0), 10.0)
    ledger.promise(Start(1, (1,)), 10.0)
    told = ledger.absorb(Report(9, None, (running(0, (1,), 0.0),), whole=True), 80.0)
    refused = [(event.job, event.reason) for event in told if event.what == What.REFUSED]
    assert refused[0][0] == 0 and "withdrawn" in refused[0][1]
    assert refused[1] == (1, "the room it counted on was not freed")
    assert ledger.outgoing() == [(1, Stop(0))]
    assert (queue(ledger, 80.0), runs(ledger), free(ledger, 80.0)) == ([1, 2], [0], [4.0, 0.0])


def test_an_old_run_does_not_confirm_a_start_that_was_sent_later():
    ledger = ledger_of()
    ledger.absorb(Report(2, None, (running(0, (1,), 0.0),)), 0.0)
    ledger.promise(Stop(0), 10.0)
    ledger.promise(Start(0, (1,)), 10.0)
    stale = Report(3, None, (running(0, (1,), 0.0),))
    ledger.absorb(stale, 11.0)
    assert [made.number for made in ledger.promises[0]] == [1, 2]
    assert ledger.outgoing() == [(1, Stop(0))]


def test_of_an_array_only_the_instances_that_show_are_confirmed():
    ledger = ledger_of(jobs=1, nodes=3, instances=4, gang=0)
    ledger.promise(Start(0, (0, 0)), 10.0)
    ledger.promise(Start(0, (1,)), 11.0)
    assert (queue(ledger, 11.0), free(ledger, 11.0)) == ([0], [0.0, 2.0, 4.0])
    ledger.absorb(Report(2, None, (running(0, (0, 0), 15.0, left=2),)), 15.0)
    assert [made.number for made in ledger.promises[0]] == [2]
    assert ledger.snapshot(15.0).state["left"][0] == 1
    assert free(ledger, 15.0) == [0.0, 2.0, 4.0]


def test_a_rejected_job_leaves_the_queue_and_returns_if_the_cluster_never_heard():
    ledger = ledger_of()
    assert ledger.promise(Reject(1), 0.0).what == What.REJECTED
    assert queue(ledger) == [0, 2]
    listing = tuple(waiting(ledger.rows, job) for job in range(3))
    ledger.absorb(Report(5, None, listing, whole=True), 61.0)
    assert queue(ledger, 61.0) == [0, 1, 2]


def test_a_move_books_the_target_and_frees_the_source():
    ledger = ledger_of()
    ledger.absorb(Report(2, None, (running(0, (1,), 0.0),)), 0.0)
    assert ledger.promise(Move(0, (0,)), 5.0).nodes == (0,)
    assert free(ledger, 5.0) == [2.0, 4.0]
    assert ledger.promise(Move(0, (0, 1)), 5.0).reason == "instances: 2 given, 1 to start"


def test_the_gpus_of_a_start_are_named_before_it_is_sent():
    machine = cluster([[8, 2]], resources=("cpu", "gpu"), gpu_mem_gb=16.0)
    ledger = Ledger(machine, uniform_profile(1, 1))
    half = {"gpus": 1, "gpu_share": 0.5, "resources": ("cpu", "gpu")}
    rows = workload([0, 0, 0], 10.0, [[1, 0.5]] * 3, **half)
    for job in range(3):
        ledger.absorb(Report(1, None, (waiting(rows, job),)), 0.0)
        ledger.promise(Start(job, (0,)), 0.0)
    # the first two share device 0, the fullest that fits; the third takes device 1
    assert [sent.devices for _, sent in ledger.outgoing()] == [(1,), (1,), (2,)]
    assert ledger.snapshot(0.0).gpu_free.tolist() == [[0.0, 0.5]]


def test_totals_and_recent_load_are_integrated_from_what_the_nodes_report():
    ledger = ledger_of(jobs=2)
    nodes = np.zeros(2, NODE_STATE)
    nodes["up"], nodes["load"], nodes["power_w"] = 1, [0.5, 1.0], [100.0, 200.0]
    ledger.absorb(Report(2, None, (), nodes), 100.0)
    seen = ledger.snapshot(400.0)
    # from 100 to 400: two jobs wait, load 1.5 in all, 300 W, spread (1.0 - 0.5) / 2
    assert seen.totals["waiting_s"] == 2 * 400.0
    assert seen.totals["busy_s"] == 1.5 * 300.0
    assert seen.totals["energy_j"] == 300.0 * 300.0
    assert seen.totals["imbalance_s"] == 0.25 * 300.0
    # the first window of 300 s had load for its last 200 s
    assert seen.recent[:, -1] == pytest.approx([0.5 * 200 / 300, 1.0 * 200 / 300])


def test_a_snapshot_cannot_be_written_to():
    seen = ledger_of().snapshot(0.0)
    for name in ("queue", "free", "state", "jobs", "runs", "node_state"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(seen, name)[...] = 0


def test_an_unknown_row_is_refused_not_raised():
    ledger = ledger_of()
    assert ledger.promise(Start(99, (0,)), 0.0).reason == "job: there is no row 99"
    assert ledger.promise(Stop(-1), 0.0).reason == "job: there is no row -1"


def test_job_rows_not_submitted_yet_are_blank():
    assert ledger_of(jobs=1).snapshot(0.0).jobs[0] != np.zeros((), JOB)
    ledger = Ledger(cluster([4.0]), uniform_profile(1, 1), jobs=2)
    assert (ledger.snapshot(0.0).jobs == np.zeros(2, JOB)).all()


def test_backends_are_found_by_name_and_an_unknown_one_suggests_the_nearest():
    rows = workload([0.0], 10.0, [1.0])
    assert isinstance(backend_named("fake")(rows, cluster([4.0])), FakeBackend)
    assert backend_named("sim").__name__ == "SimBackend"
    with pytest.raises(UnknownName, match="backend 'fakee' is unknown; did you mean 'fake'"):
        backend_named("fakee")
