"""PPO learns on a log, then plays what it has not seen beside rules.

python ppo_on_your_log.py [LOG [LOAD]], then what it prints at the end. Needs
pip install 'trimtab[sb3]'. Without a log, the ADLRO scene on four GPUs.
"""

import sys

import gymnasium
from sb3_contrib import MaskablePPO

from trimtab.envs.evaluate import evaluate
from trimtab.envs.sb3 import VecEnv
from trimtab.envs.sb3_rows import RowPolicy
from trimtab.policies import named

STEPS = 120_000  # under two minutes on two cores
FOUR = {"trace": "adlro:load=1.2,jobs=5000", "cluster": "adlro:volta=2,turing=1,radeon=1"}


def main(log=None, load=None, steps=STEPS):
    scene = FOUR if log is None else {"trace": log, "load": load and float(load), "lenient": True}
    settings = {**scene, "jobs": 64, "window": 32}
    clusters = VecEnv(16, part="train", **settings)
    model = MaskablePPO(
        RowPolicy, clusters, n_steps=256, batch_size=1024, n_epochs=5, gamma=0.999,
        learning_rate=1e-3, seed=0,
    )  # fmt: skip
    held_out = gymnasium.make("trimtab/Queue-v0", part="test", **settings)
    before = evaluate(model, held_out)
    model.learn(steps)
    model.save("ppo.zip")
    print(f"{'before':10} {before}\n{'after':10} {evaluate(model, held_out)}")
    for choice in ("random", "oldest", "shortest", named("sjf+easy+best")):
        print(f"{getattr(choice, 'name', choice):10} {evaluate(choice, held_out)}")
    words = [f"--{name} {scene[name]}" for name in ("trace", "cluster", "load") if scene.get(name)]
    # jobs that it has not learned on: the last fifth of a log, other draws of a generator
    words += [f"--start {held_out.unwrapped.clusters.first}" if log else "--first-seed 1"]
    print("trimtab compare sb3:ppo.zip fcfs+easy+best sjf+best", *words)


if __name__ == "__main__":
    main(*sys.argv[1:3])
