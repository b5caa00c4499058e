"""Environments: Gymnasium (`trimtab/Queue-v0`, `trimtab/Grid-v0`), batched, PettingZoo (an agent a
region).
"""

import gymnasium

gymnasium.register("trimtab/Queue-v0", "trimtab.envs.single:ClusterEnv", kwargs={"codec": "queue"})
gymnasium.register(
    "trimtab/Grid-v0", "trimtab.envs.single:ClusterEnv", kwargs={"codec": "grid", "window": 8}
)
