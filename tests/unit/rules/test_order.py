"""Every order on one small queue, and what the preempting and the sharing ones do besides."""

import numpy as np
import pytest
from tests.worlds import ruled

from trimtab.build import cluster, workload
from trimtab.core import What
from trimtab.errors import UnknownName
from trimtab.policies import named
from trimtab.rules.names import BACKFILLS, ORDERS, PLACES, Rule, parse
from trimtab.sim.whole import simulate

INF = np.inf
# one slot, so that jobs run one by one; job 0 holds it until 10 while the others arrive
#            submit  request  cpu  priority  deadline
QUEUE = [
    (0, 10, 1, 0, INF),
    (1, 30, 8, 1, 100),
    (2, 10, 16, 3, 400),
    (3, 20, 2, 2, 50),
]  # fmt: skip


def turns(rule, rows=QUEUE):
    """The order in which the jobs of a one-slot queue start."""
    submit_s, request_s, cpu, priority, deadline_s = np.array(rows, float).T
    demand = np.stack([np.ones(len(rows)), cpu], axis=1)
    jobs = workload(
        submit_s,
        request_s,
        demand,
        resources=("slot", "cpu"),
        priority=priority,
        deadline_s=deadline_s,
    )
    done = ruled(jobs, cluster([[1, 100]], resources=("slot", "cpu")), named(rule))
    return [job for _, job in done.facts(What.STARTED)]


@pytest.mark.parametrize(
    "rule, order",
    [
        ("fcfs", [1, 2, 3]),
        ("sjf", [2, 3, 1]),  # 10, 20, 30
        ("ljf", [1, 3, 2]),
        ("smallest", [3, 1, 2]),  # 2, 8, 16 cores
        ("smallest-area", [3, 2, 1]),  # 20 x 2 = 40, 10 x 16 = 160, 30 x 8 = 240
        ("f1", [1, 2, 3]),  # 870 log10(submit) outweighs the rest: 0, 262, 415
        ("priority", [2, 3, 1]),
        ("edf", [3, 1, 2]),  # 50, 100, 400
        # at 10: (9/30)^3 8 = 0.2, (8/10)^3 16 = 8.2, (7/20)^3 2 = 0.09; at 20: (19/30)^3 8 = 2.0,
        # (17/20)^3 2 = 1.2
        ("wfp3", [2, 1, 3]),
        # at 10: 9 / (3 x 30) = 0.10, 8 / (4 x 10) = 0.20, 7 / (1 x 20) = 0.35; at 30: 29 / 90 =
        # 0.32, 28 / 40 = 0.70
        ("unicep", [3, 2, 1]),
        ("srtf", [2, 3, 1]),
        ("las", [1, 2, 3]),  # all in the first queue: by age
        ("drf", [1, 2, 3]),  # one tenant: by age
    ],
)
def test_the_queue_is_served_in_the_rules_order(rule, order):
    assert turns(rule) == [0, *order]


def test_f1_weighs_size_by_the_log_of_the_request():
    # submitted together: log10(30) 8 = 11.8, log10(10) 16 = 16, log10(20) 2 = 2.6
    assert turns("f1", [(0, 10, 1, 0, INF), *((5, *row[1:]) for row in QUEUE[1:])]) == [0, 3, 1, 2]


@pytest.mark.parametrize("rule", [name for name in ORDERS if name not in ("wfp3", "unicep")])
def test_equals_are_served_by_age(rule):
    same = [(0, 10, 1, 0, INF), *((t, 10, 4, 1, 99) for t in (2, 3, 4))]
    same = [(row[0] if rule != "f1" else min(row[0], 2), *row[1:]) for row in same]
    assert turns(rule, same) == [0, 1, 2, 3]


# shortest remaining time first


@pytest.mark.parametrize("request_s, starts", [(60.0, [0.0, 100.0]), (59.0, [0.0, 40.0])])
def test_srtf_preempts_only_what_is_strictly_longer(request_s, starts):
    # at 40 the running job has 60 left
    jobs = workload([0, 40], [100, request_s], [1, 1], checkpoint_s=0)
    done = ruled(jobs, cluster([1]), named("srtf"))
    assert done.starts() == starts
    assert max(done.ends()) == 100 + request_s


def test_srtf_stops_the_longest_and_no_more_than_it_needs():
    jobs = workload([0, 0, 5], [100, 200, 10], [1, 1, 1], checkpoint_s=0)
    done = ruled(jobs, cluster([2]), named("srtf"))
    assert done.facts(What.STOPPED) == [(5.0, 1)]
    assert done.ends() == [100.0, 210.0, 15.0]


def test_srtf_stops_nobody_for_a_gang_that_still_would_not_fit():
    # the gang of 3 is shorter than job 1 but not than job 0: one core would be free, three are
    # wanted
    jobs = workload([0, 0, 5], [12, 200, 30], [2, 1, 1], instances=[1, 1, 3])
    done = ruled(jobs, cluster([3]), named("srtf"))
    assert [time_s for time_s, _ in done.facts(What.STOPPED)] == [12.0]
    assert done.starts()[2] == 12.0


def test_srtf_stops_nobody_for_an_array_none_of_which_would_fit():
    jobs = workload([0, 0, 5], [12, 200, 30], [1, 1, 2], gang=[1, 1, 0], checkpoint_s=0)
    done = ruled(jobs, cluster([2]), named("srtf"))
    assert done.facts(What.STOPPED) == [(12.0, 1)]


def test_srtf_with_backfilling_does_not_stop_and_start_for_ever():
    # nodes of 2, each with a short job on one core; two long jobs on the other cores; one core
    # free. An array wants 2 cores at once: stopping long jobs never frees two on one node
    jobs = workload(
        [0] * 5 + [1],
        [5, 5, 5, 500, 500, 50],
        [1, 1, 1, 1, 1, 2],
        gang=[1] * 5 + [0],
        checkpoint_s=0,
    )
    done = ruled(jobs, cluster([2, 2, 2]), named("srtf+easy+worst"))
    assert done.facts(What.STOPPED) == []
    assert done.starts()[5] == 5.0
    whole = simulate(jobs, cluster([2, 2, 2]), "srtf+easy+worst")
    assert whole.state["end_s"].tolist() == done.ends()


def test_srtf_starts_no_more_of_an_array_than_it_has():
    # one core free: one of two instances starts; stopping the long job frees three more for the
    # other one
    jobs = workload([0, 1], [500, 10], [3, 1], instances=[1, 2], gang=[1, 0], checkpoint_s=0)
    done = ruled(jobs, cluster([4]), named("srtf"))
    assert done.total("refused") == 0
    assert done.starts() == [0.0, 1.0] and done.ends()[1] == 11.0


# least attained service


@pytest.mark.parametrize(
    "submit_s, start_s, end_s", [(899.0, 2000.0, 2000.0), (900.0, 900.0, 2010.0)]
)
def test_las_lets_a_fresh_job_preempt_one_past_the_first_queue(submit_s, start_s, end_s):
    # 4 cores x 900 s = 3600 core-seconds: from then on the first job is in the second queue
    jobs = workload([0, submit_s], [2000, 10], [4, 4], checkpoint_s=0)
    done = ruled(jobs, cluster([4]), named("las"))
    assert done.starts() == [0.0, start_s]
    assert done.ends()[0] == end_s


def test_las_counts_service_over_all_runs_of_a_job():
    # job 1 (800 s) preempts job 0 at 900, which resumes at 1700. At 1750 its present run has lasted
    # 50 s, all its runs 950 s: 3800 core-seconds, so a newcomer preempts it at once
    jobs = workload([0, 900, 1750], [20_000, 800, 10], [4, 4, 4], checkpoint_s=0)
    done = ruled(jobs, cluster([4]), named("las"))
    assert done.starts() == [0.0, 900.0, 1750.0]
    assert done.ends() == [20_810.0, 1700.0, 1760.0]


def test_las_preempts_nobody_in_its_own_queue():
    jobs = workload([0, 100], [5000, 5000], [4, 4], checkpoint_s=0)
    done = ruled(jobs, cluster([4]), named("las"))
    assert done.facts(What.STOPPED) == []


# dominant resource fairness


def fair(rule, table, machine, tenant):
    jobs = workload(
        np.zeros(len(table)),
        100,
        table,
        resources=("cpu", "mem_gb"),
        tenant=tenant,
        tenants=("a", "b"),
    )
    done = ruled(jobs, cluster([machine], resources=("cpu", "mem_gb")), named(rule))
    assert done.total("refused") == 0
    return [job for time_s, job in done.facts(What.STARTED) if time_s == 0]


def test_drf_gives_the_shares_of_the_papers_example():
    # Ghodsi et al. (2011): 9 CPUs, 18 GB; a asks <1, 4>, b asks <3, 1>: a gets 3 tasks, b 2, both
    # 2/3
    table = [[1, 4]] * 6 + [[3, 1]] * 6
    begun = fair("drf", table, [9, 18], [0] * 6 + [1] * 6)
    assert begun == [0, 6, 1, 7, 2]  # 4/18 | 3/9 | 8/18 | 6/9 | 12/18


@pytest.mark.parametrize("rule, begun", [("drf", [0, 2]), ("drf+easy", [0, 2, 3])])
def test_drf_with_backfilling_starts_each_job_once(rule, begun):
    # a: jobs 0, 1 and 3; b: job 2. After 0 and 2 job 1 wants all 4 CPUs and blocks; 3 ends by then
    assert fair(rule, [[1, 0], [4, 0], [1, 0], [1, 0]], [4, 1], [0, 0, 1, 0]) == begun


# names


def test_a_rule_is_an_order_a_backfill_and_a_place_in_any_order():
    assert parse("sjf") == Rule(ORDERS["sjf"], 0, 0, 0)
    assert parse("wfp3+fastest+easy", seed=3) == Rule(
        ORDERS["wfp3"], BACKFILLS["easy"], PLACES["fastest"], 3
    )


@pytest.mark.parametrize(
    "name, part, near",
    [
        ("fcsf", "fcsf", "fcfs"),
        ("fcfs+esay", "esay", "easy"),
        ("sjf+easy+fastst", "fastst", "fastest"),
    ],
)
def test_an_unknown_part_of_a_rule_suggests_the_nearest_name(name, part, near):
    with pytest.raises(UnknownName) as caught:
        parse(name)
    assert f"rule {part!r}" in str(caught.value)
    assert f"did you mean {near!r}?" in str(caught.value)


def test_an_unknown_policy_suggests_the_nearest_name():
    with pytest.raises(UnknownName, match="policy 'srft' is unknown; did you mean 'srtf'"):
        named("srft")
