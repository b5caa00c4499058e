"""Learners' view of the engine: Gymnasium, PettingZoo and batched envs.

Importing this registers the ids.
"""

import gymnasium

# versioned: what an id shows and rewards does not change without a new number
IDS = {
    "trimtab/Queue-v0": "trimtab.envs.single:queue_env",
    "trimtab/Grid-v0": "trimtab.envs.single:grid_env",
    "trimtab/Parallelism-v0": "trimtab.envs.parallelism:ParallelismEnv",
}


def register() -> None:
    """Make the ids known to gymnasium.make, once."""
    for name, entry in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=entry)


register()
