"""Hard workloads played through the envs: gangs, GPUs, arrays, failures, cancellations, parents."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.codecs.grid import GridCodec
from trimtab.codecs.queue import QueueCodec
from trimtab.core import What
from trimtab.envs.batched import BatchedEnv
from trimtab.envs.clusters import episode_of
from trimtab.envs.single import ClusterEnv
from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import parse
from trimtab.run import run
from trimtab.sim import kernel
from trimtab.sim.backend import SimBackend, events_of
from trimtab.sim.loop import DONE, run_rule, set_rank
from trimtab.sim.world import Models, make_world, outages
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

JOBS, FIRST = 80, 37


def pool():
    """Jobs of many sizes for one node that is a pool of 64."""
    rng = np.random.default_rng(5)
    work_s = np.ceil(rng.lognormal(6, 1.5, 200))
    size = 2.0 ** rng.integers(0, 7, 200)
    submit_s = np.cumsum(np.ceil(rng.exponential(120, 200)))
    request_s = work_s * rng.uniform(1, 5, 200)
    work = workload(submit_s, work_s, size, resources=("node",), request_s=request_s)
    return work, cluster([64.0], resources=("node",)), None, None


def gpus():
    """Gangs, shared GPUs and rates that differ, on mixed nodes."""
    machine, profile = preset("mixed-gpu", a100=1, v100=3, t4=3, p100=2, cpu=2)
    work = generate("mixed-gpu", seed=2, jobs=200, cluster=machine, profile=profile, gangs=0.05)
    rows = np.flatnonzero(work.jobs["instances"] * work.jobs["gpus"] <= 16)
    kept = [name for name in work.jobs.dtype.names if name not in ("submit_s", "like")]
    part = workload(
        work.jobs["submit_s"][rows], work.truth["work_s"][rows], work.demand[rows],
        resources=work.resources, kinds=work.kinds, tenants=work.tenants,
        use=work.truth["use"][rows], **{name: work.jobs[name][rows] for name in kept},
    )  # fmt: skip
    return part, machine, profile, None


def arrays_and_failures():
    """Arrays that start piece by piece, dependencies and cancellations, on nodes that fail."""
    rng = np.random.default_rng(6)
    count = 150
    after = [
        rng.integers(max(i - 20, 0), i, 2).tolist() if i % 5 == 4 else [] for i in range(count)
    ]
    submit_s = np.cumsum(np.ceil(rng.exponential(30, count)))
    cancel_s = np.where(rng.random(count) < 0.1, submit_s + 200.0, np.inf)
    work = workload(
        submit_s, np.ceil(rng.exponential(100, count)), rng.integers(1, 4, (count, 1)),
        instances=rng.integers(1, 5, count), gang=rng.integers(0, 2, count), after=after,
        cancel_s=cancel_s,
    )  # fmt: skip
    machine = cluster([4.0, 6.0, 8.0, 4.0])
    down = outages(machine, 20_000.0, rng, mtbf_s=2000.0, mttr_s=200.0)
    return work, machine, None, Models(outages=down)


CASES = {"pool": pool, "gpus": gpus, "arrays and failures": arrays_and_failures}


def starts_of(events):
    return [
        (e.time_s, e.job, tuple(sorted(e.nodes)))
        for e in events
        if e.what == What.STARTED and e.job >= 0
    ]


def compiled_run(work, machine, profile, models, name):
    """Starts of the whole-trace run."""
    rule = parse(name)
    pieces = int(work.jobs["instances"].sum()) + 1
    world = make_world([work], [machine], profile, models, runs=pieces, pieces=pieces, log=200_000)
    set_rank(world, 0, rule.order)
    kernel.reset(world, 0)
    assert run_rule(world, 0, rule.order, rule.backfill, rule.place, rule.seed, 10**9) == DONE
    return starts_of(events_of(world.log[0, : int(world.head[0]["log"])]))


def stepped_run(work, machine, profile, models, name):
    seen = []
    run(
        SimBackend(work, machine, profile, models),
        RulePolicy(name),
        [lambda event, _: seen.append(event)],
    )
    return starts_of(seen)


def head_of(queue, jobs, order):
    key = jobs["request_s"] if order == "sjf" else jobs["submit_s"]
    return int(np.lexsort((queue, key))[0])


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
@pytest.mark.parametrize("case", CASES)
def test_a_rule_played_through_the_env_is_the_compiled_run_and_the_stepped_run(case, order):
    work, machine, profile, models = CASES[case]()
    part = episode_of(work, FIRST, JOBS)
    want = compiled_run(part, machine, profile, models, f"{order}+best")
    env = ClusterEnv(
        work, machine, profile, models, jobs=JOBS, window=JOBS, place="best", record=True
    )
    _, info = env.reset(options={"start": FIRST})
    done = False
    while not done:
        queue = env.queue()
        head = head_of(queue, env.clusters.world.jobs[0][queue], order)
        _, _, done, _, info = env.step(head if info["action_mask"][head] else JOBS)
    assert info["refused"] == 0
    assert starts_of(env.events()) == want
    assert stepped_run(part, machine, profile, models, f"{order}+best") == want
    assert len({job for _, job, _ in want}) > JOBS / 2


@pytest.mark.parametrize("codec", ["queue", "grid"])
@pytest.mark.parametrize("case", CASES)
def test_the_batched_env_is_the_single_env(case, codec):
    work, machine, profile, models = CASES[case]()
    settings = {"codec": codec, "jobs": 40, "window": 6, "place": "best", "record": True}
    first = np.array([0, 3, 17, 50])
    many = BatchedEnv(4, work, machine, profile, models, **settings)
    many_shown, many_info = many.reset(seed=0, options={"start": first})
    alone = [ClusterEnv(work, machine, profile, models, **settings) for _ in first]
    shown = [
        env.reset(options={"start": int(row)})[0] for env, row in zip(alone, first, strict=True)
    ]
    rng = np.random.default_rng(1)
    going, starts = np.ones(4, bool), {}
    while going.any():
        for c in np.flatnonzero(going):
            assert shown[c]["observation"].tobytes() == many_shown[c].tobytes()
            assert shown[c]["action_mask"].tobytes() == many_info["action_mask"][c].tobytes()
            starts[c] = starts_of(many.events(c))
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in many_info["action_mask"]])
        many_shown, rewards, ends, _, many_info = many.step(actions)
        for c in np.flatnonzero(going):
            shown[c], reward, done, _, _ = alone[c].step(actions[c])
            assert (reward, done) == (rewards[c], ends[c])
            if done:
                going[c] = False
                assert shown[c]["observation"].tobytes() == many_info["final_obs"][c].tobytes()
                assert starts_of(alone[c].events())[: len(starts[c])] == starts[c]


@pytest.mark.parametrize("codec", ["queue", "grid"])
@pytest.mark.parametrize("case", CASES)
def test_a_codec_on_snapshots_shows_what_the_env_shows_and_does_what_it_does(case, codec):
    work, machine, profile, models = CASES[case]()
    env = ClusterEnv(work, machine, profile, models, codec=codec, jobs=40, window=6, record=True)
    shown, _ = env.reset(options={"start": FIRST})
    made = QueueCodec(6) if codec == "queue" else GridCodec(len(machine), len(machine.resources), 6)
    backend = SimBackend(episode_of(work, FIRST, 40), machine, profile, models)
    rng = np.random.default_rng(2)
    seen, done = [], False
    while not done:
        while True:
            snapshot = backend.snapshot()
            mask = made.mask(snapshot)
            if mask[:-1].any():
                break
            seen += backend.wait()
        assert mask.tobytes() == shown["action_mask"].tobytes()
        assert made.encode(snapshot).tobytes() == shown["observation"].tobytes()
        action = int(rng.choice(np.flatnonzero(mask)))
        shown, _, done, _, _ = env.step(action)
        [decision] = made.decode(action, snapshot)
        assert backend.apply(decision).what == What.PLACED
        if action == made.actions - 1:
            seen += backend.wait()
    while (events := backend.wait()) is not None:
        seen += events
    assert starts_of(seen) == starts_of(env.events())
