import numpy as np
import pytest
from tests.unit.report.made import logged, pool

from trimtab.build import cluster, workload
from trimtab.core import What
from trimtab.metrics import Result, measure
from trimtab.report.compare import series
from trimtab.sim.log import MOVED, NODE_DOWN, NODE_FAILED, NODE_UP, PREEMPTED
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models, outages
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

SUB, RUN, END, STOP, FAIL = What.SUBMITTED, What.STARTED, What.FINISHED, What.STOPPED, What.FAILED


def as_list(of):
    return list(zip(of.time_s.tolist(), of.value.tolist()))


def two_nodes():
    return cluster([4, 4], resources=["cpu"], kind=[0, 1], kinds=["a", "b"])


def test_steps_join_changes_at_one_time():
    made = series.steps(np.array([5.0, 0.0, 5.0]), np.array([-1, 1, 3]))
    assert as_list(made) == [(0.0, 1), (5.0, 3)]


def test_bins_hold_exact_time_means():
    made = series.Steps(np.array([0.0, 4.0, 6.0]), np.array([1.0, 3.0, 0.0]))
    # 0..5: (4 x 1 + 1 x 3) / 5; 5..10: 1 x 3 / 5; before 0 the value is 0
    assert series.averaged(made, np.array([-5.0, 0.0, 5.0, 10.0])).tolist() == [0.0, 1.4, 0.6]


def test_a_gang_ends_on_all_its_nodes_when_the_job_does():
    work = workload([0], [7], [2], resources=["cpu"], instances=2)
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (1, RUN, 0, 0, 1, 5),
        (1, RUN, 0, 1, 1, 5),
        (8, END, 0, -1, 0, -1),
    ]
    found = series.pieces(logged(rows, work, two_nodes()))
    assert found[["start_s", "end_s", "node"]].tolist() == [(1.0, 8.0, 0), (1.0, 8.0, 1)]


def test_a_preempted_job_runs_in_two_pieces_and_waits_between():
    work = workload([0, 3], [4, 2], [4, 4], resources=["cpu"])
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (0, RUN, 0, 0, 1, 0),
        (3, SUB, 1, -1, 0, -1),
        (3, STOP, 0, -1, 0, -1, PREEMPTED),
        (3, RUN, 1, 0, 1, 0),
        (5, END, 1, -1, 0, -1),
        (5, RUN, 0, 0, 1, 0),
        (6, END, 0, -1, 0, -1),
    ]
    result = logged(rows, work, two_nodes())
    found = series.pieces(result)
    assert found[["job", "start_s", "end_s"]].tolist() == [
        (0, 0.0, 3.0),
        (1, 3.0, 5.0),
        (0, 5.0, 6.0),
    ]
    assert as_list(series.queue_length(result)) == [(0.0, 0), (3.0, 1), (5.0, 0), (6.0, 0)]
    # 4 of 8 units from 0 to 6; all of them on the first node, which is all of kind a
    assert series.averaged(series.allocated(result), np.array([0.0, 6.0])).tolist() == [0.5]
    assert series.averaged(series.allocated(result, 0), np.array([0.0, 6.0])).tolist() == [1.0]
    assert len(series.allocated(result, 1).time_s) == 0


def test_a_node_failure_ends_the_runs_on_it_and_shows_as_downtime():
    work = workload([0, 0], [9, 20], [2, 2], resources=["cpu"])
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (0, SUB, 1, -1, 0, -1),
        (0, RUN, 0, 0, 1, 0),
        (0, RUN, 1, 1, 1, 1),
        (4, FAIL, -1, 0, 0, -1, NODE_DOWN),
        (4, STOP, 0, 0, 0, 0, NODE_FAILED),
        (6, RUN, -1, 0, 0, -1, NODE_UP),
        (6, RUN, 0, 0, 1, 0),
        (15, END, 0, -1, 0, -1),
        (20, END, 1, -1, 0, -1),
    ]
    result = logged(rows, work, two_nodes())
    assert series.downtime(result).tolist() == [(4.0, 6.0, 0)]
    found = series.pieces(result)
    assert found[["job", "start_s", "end_s"]].tolist() == [
        (0, 0.0, 4.0),
        (1, 0.0, 20.0),
        (0, 6.0, 15.0),
    ]
    assert series.averaged(
        series.queue_length(result), np.array([0.0, 4.0, 6.0, 20.0])
    ).tolist() == [0, 1, 0]


def test_a_moved_job_leaves_its_old_nodes_and_does_not_wait():
    work = workload([0], [9], [2], resources=["cpu"], instances=2)
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (0, RUN, 0, 0, 2, 3),
        (4, RUN, 0, 0, 1, 3, MOVED),
        (4, RUN, 0, 1, 1, 3, MOVED),
        (9, END, 0, -1, 0, -1),
    ]
    result = logged(rows, work, two_nodes())
    found = series.pieces(result)[["node", "count", "start_s", "end_s"]].tolist()
    assert found == [(0, 2, 0.0, 4.0), (0, 1, 4.0, 9.0), (1, 1, 4.0, 9.0)]
    assert series.queue_length(result).value.max() == 0


def test_runs_of_an_array_last_its_mean_run_and_it_waits_for_its_last_instance():
    work = workload([0], [5], [4], resources=["cpu"], instances=3, gang=0)
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (0, RUN, 0, 0, 1, 0),
        (0, RUN, 0, 1, 1, 1),
        (5, RUN, 0, 0, 1, 0),
        (10, END, 0, -1, 0, -1),
    ]
    result = logged(rows, work, two_nodes(), attained_s=15.0)
    assert series.pieces(result)["end_s"].tolist() == [5.0, 5.0, 10.0]
    assert as_list(series.queue_length(result)) == [(0.0, 1), (5.0, 0), (10.0, 0)]


def test_a_service_without_an_end_runs_to_the_end_of_the_log():
    work = workload([0, 0], [np.inf, 6], [1, 1], resources=["cpu"], service=[1, 0])
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (0, SUB, 1, -1, 0, -1),
        (0, RUN, 0, 0, 1, 0),
        (0, RUN, 1, 0, 1, 1),
        (6, END, 1, -1, 0, -1),
    ]
    result = logged(rows, work, two_nodes())
    assert series.pieces(result)["end_s"].tolist() == [6.0, 6.0]
    assert series.waits_s(result).tolist() == [0.0]


def test_a_job_waits_from_the_end_of_its_parent():
    work = workload([0, 0], [4, 2], [4, 4], resources=["cpu"], after=[[], [0]])
    rows = [
        (0, SUB, 0, -1, 0, -1),
        (0, SUB, 1, -1, 0, -1),
        (0, RUN, 0, 0, 1, 0),
        (4, END, 0, -1, 0, -1),
        (7, RUN, 1, 0, 1, 0),
        (9, END, 1, -1, 0, -1),
    ]
    result = logged(rows, work, two_nodes())
    assert series.averaged(
        series.queue_length(result), np.array([0.0, 4.0, 7.0, 9.0])
    ).tolist() == [0, 1, 0]


def test_without_a_log_starts_and_ends_give_the_series():
    result = pool()
    # the third job waits from 2 to 20; of 4 units 4 are held to 10, 2 to 20, 4 to 25
    assert as_list(series.queue_length(result)) == [(0.0, 0), (2.0, 1), (20.0, 0)]
    assert as_list(series.allocated(result)) == [(0.0, 1.0), (10.0, 0.5), (20.0, 1.0), (25.0, 0.0)]
    assert series.power(result) is None
    with pytest.raises(ValueError, match="log=True"):
        series.pieces(result)


def test_without_a_log_node_kinds_are_not_told_apart():
    result = pool()
    machine = two_nodes()
    result = Result("x", 0, workload([0], [1], [1]), machine, result.state[:1], result.totals)
    assert series.allocated(result, 0) is None


def test_ecdf_counts_ties_once():
    x, share = series.ecdf(np.array([3.0, 1.0, 3.0, 2.0]))
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert share.tolist() == [0.25, 0.5, 1.0]


def test_lanes_take_the_lowest_gap_that_holds_a_job_whole_else_split_it():
    start_s = np.array([0.0, 0.0, 0.0, 5.0, 6.0])
    end_s = np.array([5.0, 9.0, 5.0, 9.0, 9.0])
    width = np.array([1.0, 1.0, 2.0, 1.0, 2.0])
    row, low, high = series.lanes(start_s, end_s, width, 4.0)
    # at 5 units 0 and 2..4 are free: width 1 goes to 0; then width 2 finds 2..4 whole
    assert list(zip(row.tolist(), low.tolist(), high.tolist())) == [
        (0, 0.0, 1.0), (1, 1.0, 2.0), (2, 2.0, 4.0), (3, 0.0, 1.0), (4, 2.0, 4.0),
    ]  # fmt: skip
    row, low, high = series.lanes(
        np.zeros(4) + [0, 0, 0, 5], np.array([5.0, 9, 5, 9]), np.array([1.0, 1, 1, 2]), 3.0
    )
    assert [(r, a, b) for r, a, b in zip(row, low, high) if r == 3] == [
        (3, 0.0, 1.0),
        (3, 2.0, 3.0),
    ]


def test_lanes_never_overlap_and_hold_all_that_was_booked():
    rng = np.random.default_rng(1)
    work = workload(
        np.sort(rng.uniform(0, 300, 80)), rng.uniform(1, 40, 80), rng.integers(1, 9, 80)
    )
    result = pool_run(work, 8)
    state, width = result.state, work.demand[:, 0]
    row, low, high = series.lanes(state["start_s"], state["end_s"], width, 8.0)
    assert np.bincount(row, high - low).tolist() == width.tolist()
    start_s, end_s = state["start_s"][row], state["end_s"][row]
    together = (start_s[:, None] < end_s) & (start_s < end_s[:, None])
    crossing = (low[:, None] < high) & (low < high[:, None])
    assert (together & crossing).sum() == len(row)  # each with itself alone


def pool_run(work, units):
    machine = cluster([units])
    whole = simulate(work, machine, "fcfs+easy", log=True)
    return Result("fcfs+easy", 0, work, machine, whole.state, whole.totals, whole.log)


@pytest.mark.parametrize("rule", ["fcfs+easy", "srtf", "las+worst"])
def test_series_integrate_to_the_engines_totals(rule):
    machine, profile = preset("mixed-gpu", a100=1, v100=3, t4=2, p100=1, cpu=2)
    work = generate("mixed-gpu", seed=3, jobs=250, cluster=machine)
    down = outages(machine, 1e6, np.random.default_rng(1), mtbf_s=4e4, mttr_s=4e3)
    whole = simulate(work, machine, rule, profile=profile, models=Models(outages=down), log=True)
    result = Result(rule, 0, work, machine, whole.state, whole.totals, whole.log)
    time_s = float(whole.totals["time_s"])
    all_s = work.jobs["submit_s"][0] + np.array([0.0, time_s])
    waited_s = series.averaged(series.queue_length(result), all_s)[0] * time_s
    assert waited_s == pytest.approx(float(whole.totals["waiting_s"]), rel=1e-9)
    metrics, first_s = measure(result), work.jobs["submit_s"][0]
    made = series.averaged(
        series.allocated(result), np.array([first_s, first_s + metrics["makespan_s"]])
    )
    assert made[0] == pytest.approx(metrics["utilization"], rel=1e-9)
    assert series.power_error(result, series.power(result)) < 1e-9
    assert len(series.downtime(result)) > 0


def test_series_of_arrays_graphs_and_cancellations_integrate_to_the_engines_totals():
    rng = np.random.default_rng(5)
    jobs = 120
    submit_s = np.sort(rng.uniform(0, 400, jobs))
    after = [[int(rng.integers(j))] if j and rng.random() < 0.3 else [] for j in range(jobs)]
    cancel_s = np.where(rng.random(jobs) < 0.1, submit_s + rng.uniform(1, 60, jobs), np.inf)
    work = workload(
        submit_s, rng.uniform(1, 60, jobs), rng.integers(1, 4, jobs), after=after,
        cancel_s=cancel_s, instances=rng.integers(1, 4, jobs), gang=rng.integers(0, 2, jobs),
    )  # fmt: skip
    machine = cluster([4, 4, 4])
    whole = simulate(work, machine, "sjf+easy", log=True)
    result = Result("sjf+easy", 0, work, machine, whole.state, whole.totals, whole.log)
    time_s = float(whole.totals["time_s"])
    all_s = work.jobs["submit_s"][0] + np.array([0.0, time_s])
    waited_s = series.averaged(series.queue_length(result), all_s)[0] * time_s
    assert waited_s == pytest.approx(float(whole.totals["waiting_s"]), rel=1e-9)
    share = series.averaged(series.allocated(result), all_s)[0]
    held = float((whole.state["attained_s"] * work.demand[:, 0]).sum()) / (12 * time_s)
    assert share == pytest.approx(held, rel=1e-9)
    assert series.allocated(result).value.max() <= 1.0
