"""Trimtab: simulate, train, evaluate and run resource orchestrators for heterogeneous clusters."""

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import (
    Backend,
    Cluster,
    Codec,
    Decision,
    Event,
    Move,
    Policy,
    Profile,
    Reject,
    Resize,
    Shape,
    Sink,
    Snapshot,
    Start,
    Status,
    Stop,
    Wait,
    What,
    Workload,
)
from trimtab.errors import TrimtabError

__version__ = "0.1.0"
__all__ = [
    "Backend",
    "Cluster",
    "Codec",
    "Decision",
    "Event",
    "Move",
    "Policy",
    "Profile",
    "Reject",
    "Resize",
    "Shape",
    "Sink",
    "Snapshot",
    "Start",
    "Status",
    "Stop",
    "TrimtabError",
    "Wait",
    "What",
    "Workload",
    "cluster",
    "uniform_profile",
    "workload",
]
