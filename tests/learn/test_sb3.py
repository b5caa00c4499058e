"""Stable-Baselines3 and sb3-contrib train on our environments unmodified."""

import gymnasium
import numpy as np
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

import trimtab.envs  # noqa: F401  registers the ids
from trimtab.build import cluster, workload


def two_nodes():
    """Twelve jobs at once on two nodes of one unit: short ones first is the known optimum of mean
    wait.
    """
    work_s = np.array([60.0, 5.0, 55.0, 4.0, 50.0, 3.0, 45.0, 2.0, 40.0, 1.0, 35.0, 6.0])
    work = workload(np.zeros(12), work_s, np.ones(12))
    settings = dict(
        workload=work,
        cluster=cluster([1.0, 1.0]),
        jobs=12,
        window=12,
        reward={"waiting_s": -1.0},
        scale=1000.0,
    )
    return gymnasium.make("trimtab/Queue-v0", **settings), work_s


def total(env, choose) -> float:
    seen, _ = env.reset(options={"start": 0})
    reward, over = 0.0, False
    while not over:
        seen, r, ended, stuck, _ = env.step(choose(seen))
        reward += r
        over = ended or stuck
    return reward


def test_ppo_trains_unmodified():
    env = gymnasium.make("trimtab/Queue-v0", jobs=30, window=6)
    PPO("MultiInputPolicy", env, n_steps=64, batch_size=32, seed=0).learn(256)


def test_maskable_ppo_learns_short_jobs_first_on_two_nodes():
    env, work_s = two_nodes()
    rng = np.random.default_rng(0)
    chance = np.mean(
        [
            total(env, lambda s: int(rng.choice(np.flatnonzero(s["action_mask"][:-1]))))
            for _ in range(20)
        ]
    )
    # optimum: sorted ascending, each node serves every second job; waits are sums of those before
    # it
    ordered = np.sort(work_s)
    best = -sum(float(ordered[i % 2 : i : 2].sum()) for i in range(12)) / 1000
    model = MaskablePPO(
        "MultiInputPolicy", env, n_steps=240, batch_size=60, learning_rate=2e-3, gamma=1.0, seed=0
    )
    model.learn(6000)
    learned = total(
        env,
        lambda s: int(
            model.predict(s, action_masks=s["action_mask"].astype(bool), deterministic=True)[0]
        ),
    )
    assert best >= learned > chance + 0.6 * (best - chance)
