"""Stable-Baselines3 and sb3-contrib train on our environments unmodified."""

import gymnasium
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

import trimtab.envs  # noqa: F401  registers the ids
from trimtab.build import cluster, workload
from trimtab.envs.sb3_rows import RowPolicy
from trimtab.policies.sb3 import SB3Policy


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


@pytest.mark.parametrize("policy", ["MultiInputPolicy", RowPolicy])
def test_maskable_ppo_learns_short_jobs_first_on_two_nodes(policy):
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
        policy, env, n_steps=240, batch_size=60, learning_rate=2e-3, gamma=1.0, seed=0
    )
    model.learn(6000)
    learned = total(
        env,
        lambda s: int(
            model.predict(s, action_masks=s["action_mask"].astype(bool), deterministic=True)[0]
        ),
    )
    assert best >= learned > chance + 0.6 * (best - chance)


def test_row_policy_scores_a_job_alike_in_every_place_and_is_read_from_its_file(tmp_path):
    env = gymnasium.make("trimtab/Queue-v0", jobs=30, window=6)
    model = MaskablePPO(RowPolicy, env, n_steps=64, batch_size=32, seed=0)
    rows = torch.rand(1, 6, 8)
    rows[..., 0] = 1.0  # all wait
    turn = [3, 1, 5, 0, 4, 2]

    def logits(seen):
        shown = {"observation": seen, "action_mask": torch.ones(1, 7)}
        return model.policy.get_distribution(shown).distribution.logits[0].detach()

    here, there = logits(rows), logits(rows[:, turn])
    assert torch.allclose(here[[*turn, 6]], there, atol=1e-6)
    assert here[:6].unique().numel() == 6
    model.save(tmp_path / "rows.zip")
    read = SB3Policy(tmp_path / "rows.zip")
    assert (read.actions, read.network.action_net.start[0].in_features) == (7, 64)
