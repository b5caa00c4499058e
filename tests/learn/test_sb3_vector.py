"""A masked learner of sb3-contrib learns on many clusters at once, and its model is a policy."""

import numpy as np
from sb3_contrib import MaskablePPO

from trimtab.build import cluster, uniform_profile, workload
from trimtab.envs.evaluate import evaluate
from trimtab.envs.sb3 import VecEnv
from trimtab.envs.single import ClusterEnv
from trimtab.play import play
from trimtab.policies import named
from trimtab.traces.scenes.scene import Scene

WORK_S = np.array([60.0, 5.0, 55.0, 4.0, 50.0, 3.0, 45.0, 2.0, 40.0, 1.0, 35.0, 6.0])


def settings():
    """Twelve jobs at once on two nodes of one unit: short ones first is the known optimum."""
    return dict(
        workload=workload(np.zeros(12), WORK_S, np.ones(12)), cluster=cluster([1.0, 1.0]),
        jobs=12, window=12, scale=1000.0,
    )  # fmt: skip


def test_maskable_ppo_learns_short_jobs_first_on_the_vector_and_plays_so_in_the_loop(tmp_path):
    env = ClusterEnv(**settings())
    # sorted, each node serves every second job, which waits for those before it
    ordered = np.sort(WORK_S)
    best = -sum(float(ordered[i % 2 : i : 2].sum()) for i in range(12)) / 1000
    chance = np.mean([evaluate("random", env, seed=seed).mean for seed in range(20)])
    assert np.isclose(evaluate("shortest", env).mean, best)
    model = MaskablePPO(
        "MultiInputPolicy", VecEnv(8, **settings()), n_steps=36, batch_size=72, learning_rate=2e-3,
        gamma=1.0, seed=0,
    )  # fmt: skip
    model.learn(6000)
    learned = evaluate(model, env).mean
    assert best >= learned > chance + 0.6 * (best - chance)
    model.save(tmp_path / "ppo.zip")
    given = settings()
    scene = Scene(given["workload"], given["cluster"], uniform_profile(1, 1), "two nodes", False)
    played = play(named(f"sb3:{tmp_path / 'ppo.zip'}"), scene)
    assert np.isclose(-float(played.totals["waiting_s"]) / 1000, learned)
