"""Learners' view of the engine: Gymnasium, PettingZoo and batched envs.

Importing this registers the ids.
"""

import gymnasium

# versioned: what an id shows and rewards does not change without a new number
IDS = {
    "trimtab/Queue-v0": "trimtab.envs.single:queue_env",
    "trimtab/Grid-v0": "trimtab.envs.single:grid_env",
    "trimtab/Limits-v0": "trimtab.envs.limits:LimitsEnv",
    "trimtab/Parallelism-v0": "trimtab.envs.parallelism:ParallelismEnv",
}


# the same, many at once, for gymnasium.make_vec
VECTORS = {
    "trimtab/Queue-v0": "trimtab.envs.batched:queue_envs",
    "trimtab/Grid-v0": "trimtab.envs.batched:grid_envs",
    "trimtab/Limits-v0": "trimtab.envs.limits:LimitsVectorEnv",
}


def register() -> None:
    """Make the ids known to gymnasium.make and make_vec, once."""
    for name, entry in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=entry, vector_entry_point=VECTORS.get(name))


register()
