"""The index of many nodes and a scan of them all choose the same, to the last tie."""

import numpy as np
import pytest
from tests.worlds import Logged

from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import PLACES, parse
from trimtab.rules.nodes import index
from trimtab.rules.nodes.index import index_of
from trimtab.rules.plan import decide
from trimtab.rules.seen import world_of
from trimtab.run import run
from trimtab.sim.backend import SimBackend, events_of
from trimtab.sim.lend import set_limit
from trimtab.sim.lending import estimate_of
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models, outages
from trimtab.traces.scenes.scene import open_scene


@pytest.fixture
def always(monkeypatch):
    """Few nodes get an index too."""
    monkeypatch.setattr(index, "LEAST", 1)
    monkeypatch.setattr(index, "LOOKS", 0)
    monkeypatch.setattr(index, "MEAN", 0)


def crowded(seed, machines=72, **more):
    """A few minutes in which more comes than there is room for, services redrawn by seed."""
    told = {"machines": machines, "regions": 2, "span_s": 240, "load": 1.3, "late": 1, **more}
    return open_scene("colocated:" + ",".join(f"{k}={v}" for k, v in told.items()), seed=seed)


CASES = (
    "smallest-area+greedy+calm+p95@0.9",
    "smallest-area+greedy+swift+trend@1.1",
    "smallest-area+greedy+swift+now+feedback@0.02",
    "fcfs+easy+swift+forecast@0.9",
    "sjf+calm+peak@0.8",
    "wfp3+greedy+swift+deviation@1",
    "smallest-area+greedy+worker+trend@1",
    "sjf+easy+worker+p95@0.9",
)
# cosine, now, peak, speed, neighbours, general, memory, pull, least: of two regions
WORKER = np.array(
    [[0.3, 0.5, 0.4, 0.5, 0.1, 0.2, -0.1, 0.1, -0.6], [-0.1, 1, 0, 1, 0, 0, 0.2, 0, -9]]
)


@pytest.mark.parametrize("rule", CASES)
def test_a_day_with_failures_goes_the_same_way(rule, monkeypatch):
    seed = len(rule)
    scene = crowded(seed, missing=0.1)
    rng = np.random.default_rng(seed)
    fails = outages(scene.cluster, 2000.0, rng, mtbf_s=1500.0, mttr_s=60.0)
    batch = scene.workload.truth["service"] == 0
    scene.workload.truth["cancel_s"][batch & (rng.random(len(batch)) < 0.05)] = 700.0
    models = Models(startup_s=1.0, outages=fails)
    logs = []
    for least in (10**9, 1):
        monkeypatch.setattr(index, "LEAST", least)
        monkeypatch.setattr(index, "MEAN", 0)
        monkeypatch.setattr(index, "NOTED", 100.0)  # trees are kept, not made anew
        whole = simulate(
            scene.workload, scene.cluster, rule, profile=scene.profile, models=models, log=True,
            worker=WORKER,
        )  # fmt: skip
        logs.append(whole)
    assert len(logs[0].log) > 1000
    assert logs[0].log.tobytes() == logs[1].log.tobytes()
    assert logs[0].totals == logs[1].totals


@pytest.mark.parametrize(
    "rule", ["smallest-area+greedy+swift+p95@0.9", "smallest-area+greedy+calm+trend@1"]
)
def test_an_index_made_for_each_decision_is_the_one_kept_all_along(rule, always):
    scene = crowded(7, machines=40, span_s=120)
    stepped = Logged(scene.workload, scene.cluster, scene.profile)
    run(stepped, RulePolicy(rule))
    whole = simulate(scene.workload, scene.cluster, rule, profile=scene.profile, log=True)
    assert events_of(whole.log) == stepped.seen
    assert whole.totals == stepped.snapshot().totals


def waiting_room(rng, estimate):
    """A snapshot at which hundreds of jobs wait, on nodes many of which are the same."""
    scene = crowded(int(rng.integers(100)), machines=120)
    work = scene.workload
    batch = work.truth["service"] == 0
    work.jobs["submit_s"][batch] = 500.0
    jobs = work.jobs[batch]
    jobs["gang"] = rng.random(len(jobs)) < 0.3
    work.jobs[batch] = jobs
    work.demand[batch] *= rng.choice([0.0, 0.25, 1.0], (int(batch.sum()), 2), p=(0.1, 0.3, 0.6))
    work.demand[:] = np.floor(work.demand * 4) / 4
    backend = SimBackend(work, scene.cluster, scene.profile)
    set_limit(backend.world, 0, -1, 0.9, estimate)
    while not len(backend.snapshot().queue):
        backend.wait()
    return backend.snapshot()


@pytest.mark.parametrize(
    "rule",
    [
        "smallest-area+greedy+swift+p95",
        "fcfs+greedy+calm+trend",
        "sjf+greedy+worker+trend",
    ],
)
def test_ties_and_overbooked_nodes_are_no_exception(rule, always):
    on, rng = parse(rule, 0), np.random.default_rng(5)
    snapshot = waiting_room(rng, estimate_of(on.estimate))
    assert len(snapshot.queue) > 300
    for _ in range(20):
        world = world_of(snapshot, 4096, place=on.place)
        world = world.replaced(node_state=np.array(world.node_state), worker=WORKER[None])
        alike = rng.integers(0, 3, world.free.shape[1])  # most nodes of a bucket are one of three
        world.free[0] = np.floor(world.capacity[0] * (alike[:, None] - 0.2) / 2 * 4) / 4
        for name in ("kept", "read", "reserved"):
            world.node_state[name] = 0.0
        world.node_state["up"] = rng.random(len(alike)) < 0.9
        world.free[0] -= rng.choice([0.0, 0.25, 8.0], world.free[0].shape)
        own = {
            name: np.array(getattr(world, name)) for name in ("free", "head", "entry", "refused")
        }
        scanned = world.replaced(
            tree=np.zeros((0, 0, 0)), touched=np.zeros((1, 0), np.int64), **own
        )
        for each in (world, scanned):
            decide(each, on.order, on.backfill, on.place, 0, len(snapshot.queue))
        starts = int(world.head[0]["starts"])
        assert starts > 50 and starts == int(scanned.head[0]["starts"])
        assert world.entry[0, :starts].tobytes() == scanned.entry[0, :starts].tobytes()
        assert (world.free == scanned.free).all()


def test_few_nodes_and_nodes_all_unlike_are_scanned():
    scene = crowded(1, machines=300)
    nodes, capacity = scene.cluster.nodes, scene.cluster.capacity
    swift = PLACES["swift"]
    assert index_of(nodes, capacity, 6, swift)["tree"].shape[1] == 6
    assert not index_of(nodes[:200], capacity[:200], 6, swift)
    assert not index_of(nodes, capacity, 6, swift, jobs=100)
    assert index_of(nodes, capacity, 6, swift, jobs=1000)
    assert not index_of(nodes, capacity, 6, PLACES["best"])
    assert not index_of(nodes, capacity + np.arange(300)[:, None], 6, swift)
