"""One truth: the compiled run, the loop, Gymnasium and the batched environment place every job
alike.
"""

import numpy as np
import pytest

from trimtab.codecs.grid import GridCodec
from trimtab.codecs.queue import QueueCodec
from trimtab.envs.batched import BatchedEnv
from trimtab.envs.single import ClusterEnv
from trimtab.policies import named
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.whole import simulate
from trimtab.traces.scenes.scene import open_scene

JOBS = 120


def scene():
    return open_scene("mixed-gpu", jobs=400, seed=3)


def env_of(codec="queue", **more):
    s = scene()
    settings = dict(
        workload=s.workload, cluster=s.cluster, profile=s.profile, jobs=JOBS, codec=codec
    )
    return {**settings, "window": JOBS if codec == "queue" else 6, **more}


def rule_action(env, order):
    """What a rule without backfilling does: start the head of its order if it fits, else wait."""
    jobs = env.queue()
    key = env.clusters.world.jobs[0]["request_s"][jobs] if order == "sjf" else jobs
    first = int(np.argmin(key))
    return first if env.action_masks()[first] else env.action_space.n - 1


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
def test_a_rule_played_through_gymnasium_starts_every_job_as_the_compiled_run(order):
    s = scene()
    env = ClusterEnv(**env_of(place="best"))
    env.reset(options={"start": 50})
    over = False
    while not over:
        _, _, ended, stuck, _ = env.step(rule_action(env, order))
        over = ended or stuck
    part = s.workload.window(50, JOBS)
    begin_s = part.jobs["submit_s"][0]
    whole = simulate(part, s.cluster, f"{order}+best", profile=s.profile)
    backend = SimBackend(part, s.cluster, s.profile)
    run(backend, named(f"{order}+best"))
    played = env.clusters.world.state[0]
    np.testing.assert_array_equal(backend.world.state[0]["start_s"], whole.state["start_s"])
    np.testing.assert_allclose(played["start_s"] + begin_s, whole.state["start_s"], rtol=1e-12)
    np.testing.assert_allclose(played["end_s"] + begin_s, whole.state["end_s"], rtol=1e-12)


@pytest.mark.parametrize("codec", ["queue", "grid"])
def test_the_batched_environment_equals_the_single_one_byte_for_byte(codec):
    batched = BatchedEnv(5, **env_of(codec))
    _, told = batched.reset(seed=11)
    singles = [ClusterEnv(**env_of(codec)) for _ in range(5)]
    for c, env in enumerate(singles):
        env.reset(options={"start": int(batched.clusters.episode["start"][c])})
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(300):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in told["action_mask"]])
        seen, reward, ended, _, told = batched.step(actions)
        for c, env in enumerate(singles):
            alone, alone_reward, alone_ended, _, _ = env.step(actions[c])
            assert (alone_reward, alone_ended) == (reward[c], ended[c])
            if alone_ended:
                ends += 1
                row = int(batched.clusters.episode["start"][c])
                alone, _ = env.reset(options={"start": row})
            np.testing.assert_array_equal(alone["observation"], seen[c])
            np.testing.assert_array_equal(alone["action_mask"], told["action_mask"][c])
    assert ends > 0


@pytest.mark.parametrize("codec", ["queue", "grid"])
def test_a_codec_sees_a_snapshot_as_the_environment_sees_its_arrays(codec):
    s = scene()
    settings = env_of(codec, place="best")
    env = ClusterEnv(**settings)
    seen, _ = env.reset(options={"start": 0})
    nodes, window = len(s.cluster), settings["window"]
    grid = GridCodec(nodes, len(s.cluster.resources), window, "best")
    made = QueueCodec(window, "best") if codec == "queue" else grid
    backend = SimBackend(s.workload.window(0, JOBS), s.cluster, s.profile)
    begin_s = s.workload.jobs["submit_s"][0]
    steps = 0
    while backend.wait() is not None:
        while True:
            snapshot = backend.snapshot()
            mask = made.mask(snapshot)
            if not mask[:-1].any():
                break
            now_s = float(env.clusters.world.head[0]["now_s"])
            assert snapshot.now_s == pytest.approx(now_s + begin_s)
            np.testing.assert_array_equal(mask, seen["action_mask"])
            np.testing.assert_allclose(made.encode(snapshot), seen["observation"], atol=1e-6)
            action = int(mask[:-1].nonzero()[0][-1])
            answers = [backend.apply(decision) for decision in made.decode(action, snapshot)]
            assert all(answer.what.name == "PLACED" for answer in answers)
            seen, _, ended, _, _ = env.step(action)
            steps += 1
    assert ended and steps >= JOBS
