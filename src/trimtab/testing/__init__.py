"""Checks for other people's plug-ins: each drives the thing and names the rule that it breaks.

check_policy(MyPolicy())                   or check_policy(MyPolicy), made from a seed
check_policy("dqn:run/dqn.onnx")           or any other name that `trimtab compare` takes
check_backend(MyBackend)                   called with a workload and a cluster
check_codec(MyCodec(...), jobs, machine)
"""

from trimtab.testing.backend import check_backend
from trimtab.testing.cases import small_cluster, small_workload
from trimtab.testing.codec import check_codec
from trimtab.testing.policy import check_policy

__all__ = ["check_backend", "check_codec", "check_policy", "small_cluster", "small_workload"]
