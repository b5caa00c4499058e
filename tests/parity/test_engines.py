"""One rule, one outcome: stepped by the loop, compiled whole, in a batch, on a pool."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import Logged, random_cluster, random_jobs, random_profile

from trimtab.build import cluster, workload
from trimtab.core import Status
from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import BACKFILLS, ORDERS, PLACES, parse
from trimtab.run import run
from trimtab.sim import kernel, loop
from trimtab.sim.backend import events_of
from trimtab.sim.pool import run_pool
from trimtab.sim.whole import order_keys, simulate
from trimtab.sim.world import Models, fitted, grown, make_world, outages

FIRST_DYNAMIC = ORDERS["wfp3"]
STATIC = [name for name, number in ORDERS.items() if number < FIRST_DYNAMIC]
CHOICES = [name for name in PLACES if name != "least-loaded"]  # the same as worst
CASES = [
    (order, backfill, CHOICES[(3 * o + b) % len(CHOICES)], 10 * o + b)
    for o, order in enumerate(ORDERS)
    for b, backfill in enumerate(BACKFILLS)
] + [("fcfs", "easy", place, 200 + p) for p, place in enumerate(CHOICES)]


def case(seed):
    """A cluster, jobs and models with everything that may happen."""
    rng = np.random.default_rng(seed)
    machine, jobs = random_cluster(rng), random_jobs(rng)
    models = Models(
        startup_s=float(rng.choice([0.0, 3.0])),
        interference=bool(rng.integers(2)),
        kill_at_request=bool(rng.integers(2)),
        retries=1,
        outages=outages(machine, 500.0, rng, mtbf_s=600.0, mttr_s=40.0),
    )
    return jobs, machine, models


@pytest.mark.parametrize("order, backfill, place, seed", CASES)
def test_the_compiled_run_is_the_stepped_run_event_for_event(order, backfill, place, seed):
    jobs, machine, models = case(seed)
    if place == "affinity":  # a gang wider than all nodes of its kind would wait for ever
        jobs.jobs["instances"][jobs.jobs["gang"] == 1] = 1
    rule = f"{order}+{backfill}+{place}"
    stepped = Logged(jobs, machine, random_profile(), models)
    run(stepped, RulePolicy(rule, seed=7))
    whole = simulate(jobs, machine, rule, profile=random_profile(), models=models, seed=7, log=True)
    assert events_of(whole.log) == stepped.seen
    assert len(stepped.seen) > 2 * len(jobs) * 0.9
    assert whole.totals == stepped.snapshot().totals
    assert stepped.total("refused") == 0  # a rule plans nothing that the engine refuses


@pytest.mark.parametrize("rule", ["fcfs+easy", "srtf+easy", "drf+conservative+best"])
def test_pools_that_have_to_grow_change_nothing(rule):
    jobs, machine, models = case(3)
    found = parse(rule)
    logs = []
    for runs, pieces, log in ((1, 3, 1), (512, 2048, 65_536)):
        jobs_, machine_ = fitted(jobs, machine)
        world = make_world(
            [jobs_], [machine_], random_profile(), models, runs=runs, pieces=pieces, log=log
        )
        loop.set_rank(world, 0, found.order)
        kernel.reset(world, 0)
        world, grew = driven(world, 0, found)
        assert (grew > 0) == (runs == 1)
        logs.append(events_of(world.log[0, : int(world.head[0]["log"])]))
    assert logs[0] == logs[1]


def driven(world, c, rule, limit=50):
    """The world with cluster c at its end, and how often it had to grow."""
    grew = 0
    while True:
        if rule.backfill == BACKFILLS["conservative"]:
            code = loop.run_conservative(world, c, rule.order, rule.place, rule.seed, limit)
        else:
            code = loop.run_rule(world, c, rule.order, rule.backfill, rule.place, rule.seed, limit)
        if code == loop.DONE:
            return world, grew
        if code == loop.GROW:
            grew += 1
            world = grown(
                world,
                runs=world.runs.shape[1] + 1,
                pieces=world.pieces.shape[1] + 2,
                log=max(world.log.shape[1], loop.log_needs(world, c) + 16),
            )


@pytest.mark.parametrize(
    "rule", ["fcfs+easy+cosine", "las+best", "drf+easy", "edf+conservative", "sjf+affinity"]
)
def test_a_cluster_in_a_batch_is_the_same_cluster_alone(rule):
    found = parse(rule, seed=5)
    worlds = []
    for seed, nodes, count in ((1, 5, 40), (2, 3, 25), (3, 7, 60)):
        rng = np.random.default_rng(seed)
        worlds.append((random_jobs(rng, count=count), random_cluster(rng, nodes=nodes)))
    fails = outages(worlds[2][1], 300.0, np.random.default_rng(9), mtbf_s=500.0, mttr_s=30.0)
    models = Models(startup_s=2.0, retries=2, outages=fails)
    pairs = [fitted(jobs, machine) for jobs, machine in worlds]
    batch = make_world(
        [j for j, _ in pairs], [m for _, m in pairs], random_profile(), models, log=1
    )
    for c in range(3):
        loop.set_rank(batch, c, found.order)
        kernel.reset(batch, c)
    for c in (2, 0, 1):
        batch, _ = driven(batch, c, found)
    for c, (jobs, machine) in enumerate(pairs):
        mine = fails[fails["node"] < len(machine)]
        alone = make_world(
            [jobs], [machine], random_profile(), replace(models, outages=mine), log=1
        )
        loop.set_rank(alone, 0, found.order)
        kernel.reset(alone, 0)
        alone, _ = driven(alone, 0, found)
        logs = [w.log[i, : int(w.head[i]["log"])] for w, i in ((alone, 0), (batch, c))]
        assert events_of(logs[0]) == events_of(logs[1]), c
        assert (alone.head[0]["idle"], alone.head[0]["batch_left"]) == (batch.head[c]["idle"], 0)
        assert alone.totals[0]["idle_s"] == pytest.approx(batch.totals[c]["idle_s"])


def pool_case(seed, *, arrays, dag, late):
    """Jobs of whole cores for one node of 16, in whole seconds."""
    rng = np.random.default_rng(seed)
    count = 80
    work_s = rng.integers(1, 60, count).astype(float)
    factor = rng.choice([0.5, 1.0, 2.0] if late else [1.0, 2.0], count)
    return workload(
        np.sort(rng.integers(0, 450, count)).astype(float),
        work_s,
        rng.integers(1, 9, count).astype(float),
        request_s=np.ceil(work_s * factor),
        priority=rng.integers(0, 4, count),
        deadline_s=rng.integers(0, 2000, count),
        instances=rng.integers(1, 5, count) if arrays else 1,
        gang=0,
        after=[
            sorted(set(rng.integers(0, j, 2).tolist())) if dag and j and rng.random() < 0.2 else []
            for j in range(count)
        ],
    )


@pytest.mark.parametrize("order", STATIC)
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@pytest.mark.parametrize(
    "arrays, dag, late", [(False, False, True), (True, False, True), (True, True, False)]
)
def test_the_pool_starts_and_ends_every_job_when_the_engine_does(
    order, backfill, arrays, dag, late
):
    jobs = pool_case(ORDERS[order], arrays=arrays, dag=dag, late=late)
    machine = cluster([16])
    whole = simulate(jobs, machine, f"{order}+{backfill}")
    assert (whole.state["status"] == Status.FINISHED).all()
    keys = order_keys(jobs, ORDERS[order])
    rank = np.empty(len(jobs), np.int64)
    rank[np.argsort(keys, kind="stable")] = np.arange(len(jobs))
    start_s, end_s = run_pool(
        jobs.jobs["submit_s"], jobs.truth["work_s"], jobs.jobs["request_s"], jobs.demand[:, 0],
        rank, 16, BACKFILLS[backfill], jobs.jobs["instances"], jobs.after_ptr, jobs.after_idx,
    )  # fmt: skip
    assert start_s.tolist() == whole.state["start_s"].tolist()
    assert end_s.tolist() == whole.state["end_s"].tolist()


def test_gangs_on_one_node_are_wide_jobs_of_the_pool():
    jobs = pool_case(1, arrays=True, dag=False, late=True)
    jobs.jobs["gang"] = 1
    jobs.demand[:] = np.minimum(jobs.demand, 4)
    machine = cluster([16])
    whole = simulate(jobs, machine, "fcfs+easy")
    width = jobs.demand[:, 0] * jobs.jobs["instances"]
    ones = np.ones(len(jobs))
    start_s, _ = run_pool(
        jobs.jobs["submit_s"], jobs.truth["work_s"], jobs.jobs["request_s"], width,
        np.arange(len(jobs)), 16, BACKFILLS["easy"], ones, np.zeros(len(jobs) + 1), [],
    )  # fmt: skip
    assert start_s.tolist() == whole.state["start_s"].tolist()
