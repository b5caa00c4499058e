"""Backfilling: tables by hand, and what they promise on random workloads."""

import numpy as np
import pytest
from tests.worlds import Logged, random_cluster, random_jobs, ruled

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Start
from trimtab.policies import named
from trimtab.policies.rule import RulePolicy
from trimtab.rules.room import Room
from trimtab.run import run
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models

RULES = ("none", "easy", "conservative")


def starts(jobs, machine, rule, **models):
    return ruled(jobs, machine, named(rule), **models).starts()


# a node of 4: job 0 takes 3 until 100; the head (row 1) takes what is said; the rest come after it
def narrow(head, *rest, **columns):
    rows = [(0, 100, 3), (1, 50, head), *((1, work_s, width) for work_s, width in rest)]
    submit_s, work_s, demand = zip(*rows)
    return workload(submit_s, work_s, demand, **columns)


def test_easy_starts_what_ends_by_the_shadow_time():
    # shadow time 100. Row 2 ends at 1 + 99 = 100, row 3 would at 101 and the head leaves no core
    assert starts(narrow(4, (99, 1), (100, 1)), cluster([4]), "fcfs+easy") == [
        0.0,
        100.0,
        1.0,
        150.0,
    ]


def test_without_backfilling_the_head_blocks_all():
    assert starts(narrow(4, (99, 1), (100, 1)), cluster([4]), "fcfs") == [0.0, 100.0, 150.0, 150.0]


def test_easy_starts_what_fits_beside_the_head():
    # the head takes 3 of 4 at 100: one core is extra, so row 2 may run past it; row 3 has no core
    # now
    assert starts(narrow(3, (500, 1), (500, 1)), cluster([4]), "fcfs+easy")[:3] == [0.0, 100.0, 1.0]


def test_greedy_starts_what_fits_though_the_head_waits_longer_for_it():
    # row 2 takes the core that is free until 501, and the head (4) waits for it; row 3 has a core
    # when row 0 ends at 100
    assert starts(narrow(4, (500, 1), (1, 1)), cluster([4]), "fcfs+greedy") == [
        0.0,
        501.0,
        1.0,
        100.0,
    ]


def test_greedy_passes_over_the_rest_of_an_array():
    # two of three instances of 2 cores start on 5 cores; row 1 takes the fifth beside them, and the
    # third instance starts when they end
    jobs = workload([0, 0], [100, 10], [2, 1], instances=[3, 1], gang=0)
    assert starts(jobs, cluster([5]), "fcfs") == [0.0, 100.0]
    made = ruled(jobs, cluster([5]), named("fcfs+greedy"))
    assert made.starts() == [0.0, 0.0]
    assert made.ends() == [200.0, 10.0]


@pytest.mark.parametrize("seed", range(4))
def test_greedy_leaves_no_job_waiting_that_fits_somewhere(seed):
    rng = np.random.default_rng(seed)
    jobs, machine = random_jobs(rng, wild=False, span_s=60.0), random_cluster(rng)
    backend, policy, waited = Logged(jobs, machine), named("smallest-area+greedy+best"), 0
    while backend.wait() is not None:
        for decision in policy.decide(backend.snapshot()):
            backend.apply(decision)
        left = backend.snapshot()
        room = Room.of(left)
        for job in left.queue:
            need = left.state["left"][job] if left.jobs["gang"][job] else 1
            assert room.slots(job).sum() < need
            waited += 1
    assert waited > 100


def test_extra_cores_are_spent_once():
    # two cores free now; the head takes 3 of 4 at 100: one long job may start, a second may not
    jobs = workload([0, 1, 1, 1], [100, 50, 500, 500], [2, 3, 1, 1])
    assert starts(jobs, cluster([4]), "fcfs+easy") == [0.0, 100.0, 1.0, 150.0]


def test_easy_protects_the_head_alone_and_conservative_all_before():
    # row 1 wants 4 at 100..150; row 2 wants 3, after it; row 3 (150 s of 1 core) does not delay
    # row 1 only if it ends by 100: neither starts it. Row 4 ends at 91.
    jobs = workload([0, 1, 1, 1, 1], [100, 50, 50, 150, 90], [3, 4, 3, 1, 1])
    assert starts(jobs, cluster([4]), "fcfs+easy") == [0.0, 100.0, 150.0, 150.0, 1.0]
    # easy: a job that delays the second in line, not the head. Cores 4: row 0 takes 2 until 100,
    # the head 3.
    jobs = workload([0, 1, 1, 1], [100, 50, 50, 200], [2, 3, 4, 1])
    assert starts(jobs, cluster([4]), "fcfs+easy") == [0.0, 100.0, 201.0, 1.0]
    assert starts(jobs, cluster([4]), "fcfs+conservative") == [0.0, 100.0, 150.0, 200.0]


def test_the_shadow_time_counts_all_that_ends_then():
    # rows 0 and 1 both end at 100: the head (3) leaves 1 extra, which the long row 3 takes
    jobs = workload([0, 0, 1, 1], [100, 100, 50, 500], [1, 2, 3, 1])
    assert starts(jobs, cluster([4]), "fcfs+easy") == [0.0, 0.0, 100.0, 1.0]


def test_a_job_past_its_request_is_expected_to_end_in_a_second():
    # row 0 asked for 10 and runs 100. At 50 it is late: shadow 51. Row 2 (1 s) may start, row 3 (2
    # s) not, nor at 51, when row 2 ends and the shadow time is 52
    jobs = workload([0, 1, 50, 50], [100, 50, 1, 2], [3, 4, 1, 1], request_s=[10, 50, 1, 2])
    assert starts(jobs, cluster([4]), "fcfs+easy") == [0.0, 100.0, 50.0, 150.0]


def test_start_up_counts_towards_the_expected_end():
    # row 2 would end at 1 + 10 + 95 = 106; the shadow time is 0 + 10 + 100 = 110. Row 3: 1 + 10 +
    # 100 = 111
    jobs = narrow(4, (95, 1), (100, 1))
    assert starts(jobs, cluster([4]), "fcfs+easy", startup_s=10.0)[:3] == [0.0, 110.0, 1.0]
    assert starts(narrow(4, (100, 1)), cluster([4]), "fcfs+easy", startup_s=10.0)[2] == 170.0


def test_every_resource_binds_at_the_shadow_time():
    # (4 cpu, 16 GB): row 0 holds (3, 4) until 100; the head wants (2, 12). At 100 that leaves (2,
    # 4). rows 2 and 3 are long. (1, 8) fits now but would leave the head 8 GB; (1, 4) does both
    resources = ("cpu", "mem_gb")
    table = [[3, 4], [2, 12], [1, 8], [1, 4]]
    jobs = workload([0, 1, 1, 1], [100, 50, 500, 500], table, resources=resources)
    found = starts(jobs, cluster([[4, 16]], resources=resources), "fcfs+easy")
    assert found[1] == 100.0 and found[3] == 1.0 and found[2] > 1.0


def test_devices_bind_where_the_sum_of_gpus_would_not():
    # three GPUs: row 0 holds one until 100, row 1 half of another until 200. The head wants 2 whole
    # ones: at 100. A half fits beside row 1 (row 3); one more (row 4) would break the head's second
    # device, though 1 + 0.5 + 1 - 0.5 = 2 GPUs would be free in sum
    resources = ("cpu", "gpu")
    share = [1, 0.5, 1, 0.5, 0.5]
    gpus = [1, 1, 2, 1, 1]
    table = [[1, g * s] for g, s in zip(gpus, share)]
    jobs = workload(
        [0, 0, 1, 1, 1],
        [100, 200, 50, 500, 500],
        table,
        resources=resources,
        gpus=gpus,
        gpu_share=share,
    )
    found = starts(jobs, cluster([[16, 3]], resources=resources), "fcfs+easy")
    assert found[:4] == [0.0, 0.0, 100.0, 1.0] and found[4] > 1.0


def test_memory_of_the_device_binds_at_the_shadow_time():
    # one GPU of 16 GB: row 0 holds half of it and 4 GB until 100. The head wants half and 10 GB
    # twice: row 2 (0.25, 8 GB, long) would leave the head's half, but 8 GB
    resources = ("cpu", "gpu")
    share = [0.75, 0.5, 0.25, 0.25]
    jobs = workload(
        [0, 1, 1, 1], [100, 50, 500, 500], [[1, s] for s in share], resources=resources,
        gpus=1, gpu_share=share, gpu_mem_gb=[4, 10, 8, 6],
    )  # fmt: skip
    found = starts(jobs, cluster([[16, 1]], resources=resources, gpu_mem_gb=16), "fcfs+easy")
    assert found[:2] == [0.0, 100.0] and found[2] > 1.0 and found[3] == 1.0


def test_a_node_the_head_may_not_use_is_free_to_all():
    machine = cluster([4, 4], kind=[0, 1])
    jobs = workload([0, 1, 1], [100, 50, 500], [3, 4, 4], node_kinds=[1, 1, 3])
    assert starts(jobs, machine, "fcfs+easy") == [0.0, 100.0, 1.0]


def test_a_gang_head_may_wait_for_places_on_several_nodes():
    # nodes of 2, all taken: until 100 (node 0), 200 (node 1) and 300 (node 2). A gang of 4 x 1
    # needs two nodes: 200. Row 5 could only start with a core free: none until 100, when it must
    # end by 200
    jobs = workload(
        [0, 0, 0, 1, 1, 1],
        [100, 200, 300, 50, 100, 101],
        [2, 2, 2, 1, 1, 1],
        instances=[1, 1, 1, 4, 1, 1],
    )
    found = starts(jobs, cluster([2, 2, 2]), "fcfs+easy")
    assert found == [0.0, 0.0, 0.0, 200.0, 100.0, 250.0]


def test_conservative_reserves_for_a_gang_at_the_speed_of_its_link():
    # nodes of 1 in two regions linked at half speed. Row 0 holds node 0 until 10. The gang (row 1,
    # 20 s of work, 40 s across) may have both from 10 to 50. Row 2 (20 s) comes after it; row 3 is
    # short
    machine = cluster([1, 1], region=[0, 1], link=[[1, 0.5], [0.5, 1]])
    jobs = workload([0, 1, 1, 1], [10, 20, 20, 9], [1, 1, 1, 1], instances=[1, 2, 1, 1])
    assert starts(jobs, machine, "fcfs+conservative") == [0.0, 10.0, 50.0, 1.0]


@pytest.mark.parametrize("links, second", [(True, 80.0), (False, 40.0)])
def test_a_reservation_lasts_as_long_as_its_gang_will(links, second):
    # row 0: gang of 2 across, 40 s of work (80 at the link). Row 1 wants both nodes after it
    machine = cluster([1, 1], region=[0, 1], link=[[1, 0.5], [0.5, 1]])
    jobs = workload([0, 0], [40, 10], [1, 1], instances=2)
    for rule in RULES:
        assert starts(jobs, machine, f"fcfs+{rule}", links=links) == [0.0, second]


def test_conservative_finds_a_gap_on_the_fast_nodes_for_a_gang():
    # kinds at rates 1 and 2. Row 0 keeps node 2 (slow) until 100; row 1 has all three nodes from
    # 100 on. Row 2, a gang of 2 asking 150 s of work, needs 75 s on the two fast nodes: free until
    # 100
    machine = cluster([1, 1, 1], kind=[1, 1, 0])
    profile = uniform_profile(1, 2)
    profile.rate[0, 1, 0] = 2.0
    jobs = workload([0, 1, 1], [100, 10, 150], [1, 1, 1], instances=[1, 3, 2], node_kinds=[1, 3, 3])
    assert ruled(jobs, machine, named("fcfs+conservative"), profile=profile).starts() == [
        0.0,
        100.0,
        1.0,
    ]


# promises


def fits(seen, free, gpu_free, gpu_mem, job):
    """How many instances of the job these amounts can hold, node by node."""
    rec, room = seen.jobs[job], 0
    for node in range(len(free)):
        if (
            not (int(rec["node_kinds"]) >> int(seen.nodes["kind"][node])) & 1
            or not seen.node_state["up"][node]
        ):
            continue
        slots = min(
            (int(f // d) for f, d in zip(free[node], seen.demand[job]) if d > 0), default=99
        )
        if rec["gpus"]:
            each = [
                min(
                    int(g // rec["gpu_share"]),
                    int(m // rec["gpu_mem_gb"]) if rec["gpu_mem_gb"] else 99,
                )
                for g, m in zip(gpu_free[node], gpu_mem[node])
            ]
            slots = min(
                slots,
                sum(min(e, 1) if rec["gpu_share"] == 1 else e for e in each) // int(rec["gpus"]),
            )
        room += slots
    return room


def take(seen, amounts, job, node, count, mask):
    free, gpu_free, gpu_mem = amounts
    free[node] -= count * seen.demand[job]
    for d in range(gpu_free.shape[1]):
        if (mask >> d) & 1:
            gpu_free[node, d] -= count * seen.jobs["gpu_share"][job]
            gpu_mem[node, d] -= count * seen.jobs["gpu_mem_gb"][job]


def head_start(seen, head, begun):
    """When the head could start if nothing else started: ends freed one after the other."""
    amounts = [np.array(part) for part in (seen.free, seen.gpu_free, seen.gpu_mem_free)]
    ends = []
    for one in seen.running:
        rec, piece, places = seen.runs[one], seen.runs["piece"][one], []
        while piece >= 0:
            part = seen.pieces[piece]
            places.append((int(part["node"]), int(part["count"]), int(part["devices"])))
            piece = part["next"]
        ends.append((max(float(rec["expected_end_s"]), seen.now_s + 1), int(rec["job"]), places))
    for start in begun:
        masks = start.devices or (0,) * len(start.nodes)
        for node, mask in zip(start.nodes, masks):
            take(seen, amounts, start.job, node, 1, mask)
            end_s = seen.now_s + max(float(seen.jobs["request_s"][start.job]), 1.0)
            ends.append((end_s, start.job, [(node, 1, mask)]))
    if fits(seen, *amounts, head) >= seen.jobs["instances"][head]:
        return seen.now_s
    for end_s in sorted({end for end, _, _ in ends}):
        for other_s, job, places in ends:
            if other_s == end_s:
                for node, count, mask in places:
                    take(seen, amounts, job, node, -count, mask)
        if fits(seen, *amounts, head) >= seen.jobs["instances"][head]:
            return end_s
    return np.inf


class Watched(RulePolicy):
    """FCFS with EASY that checks every pass: what it backfills leaves the head its start."""

    backfilled = 0

    def decide(self, snapshot):
        decisions = super().decide(snapshot)
        begun = [d for d in decisions if isinstance(d, Start)]
        queue = snapshot.queue.tolist()
        at_head = 0
        while at_head < len(begun) and begun[at_head].job == queue[at_head]:
            at_head += 1
        if at_head < len(begun):
            head = queue[at_head]
            before_s = head_start(snapshot, head, begun[:at_head])
            assert before_s > snapshot.now_s
            assert head_start(snapshot, head, begun) <= before_s
            self.backfilled += len(begun) - at_head
        return decisions


@pytest.mark.parametrize("seed", range(12))
def test_what_easy_backfills_never_delays_the_heads_start(seed):
    rng = np.random.default_rng(seed)
    machine, jobs = (
        random_cluster(rng),
        random_jobs(rng, count=60, span_s=150, wild=False, exact=True),
    )
    jobs.jobs["gang"] = 1
    place = ("first", "best", "worst", "random")[seed % 4]
    policy = Watched(f"fcfs+easy+{place}", seed)
    backend = Logged(jobs, machine, None, Models(links=False))
    run(backend, policy)
    assert policy.backfilled > 3
    assert backend.total("finished") == len(jobs)


@pytest.mark.parametrize("seed", range(12))
def test_conservative_lets_no_later_job_delay_an_earlier_one(seed):
    # with right requests a job starts when it would if nobody came after it
    rng = np.random.default_rng(100 + seed)
    machine, jobs = (
        random_cluster(rng),
        random_jobs(rng, count=60, span_s=60, wild=False, exact=True),
    )
    jobs.jobs["gang"] = 1
    whole = simulate(jobs, machine, "fcfs+conservative", models=Models(links=False))
    waited = 0
    for last in range(0, len(jobs), 3):
        alone = simulate(
            jobs.window(0, last + 1), machine, "fcfs+conservative", models=Models(links=False)
        )
        assert whole.state["start_s"][last] <= alone.state["start_s"][last], last
        waited += alone.state["start_s"][last] > jobs.jobs["submit_s"][last]
    assert waited > 3


@pytest.mark.parametrize("order", ["fcfs", "sjf", "edf", "wfp3"])
def test_backfilling_runs_every_job_and_pays_on_a_crowded_cluster(order):
    rng = np.random.default_rng(5)
    machine, jobs = random_cluster(rng), random_jobs(rng, count=80, span_s=60, wild=False)
    ends = [simulate(jobs, machine, f"{order}+{rule}").state["end_s"] for rule in RULES]
    assert all(np.isfinite(part).all() for part in ends)
    assert ends[1].mean() < ends[0].mean() and ends[2].mean() < ends[0].mean()
