"""What a policy costs where services lend: one number of four metrics, beside the harm it does."""

from __future__ import annotations

import math
from collections.abc import Mapping

HARM = "harm_added"
# what `cost` is made of; what is added keeps a metric near 0 from deciding alone
PARTS = {"awt_s": 1.0, "ldi": 0.0, "dag_jct_mean_s": 0.0, "late": 0.005}


def cost(metrics: Mapping[str, float]) -> float:
    """Mean log of waiting, imbalance, completion time of jobs and share of tasks not in time."""
    whole_s = metrics.get("dag_jct_mean_s", metrics["jct_mean_s"])
    values = {**metrics, "late": 1.0 - metrics["tsr"], "dag_jct_mean_s": whole_s}
    logs = [math.log(max(values[name] + more, 1e-9)) for name, more in PARTS.items()]
    return math.fsum(logs) / len(logs)
