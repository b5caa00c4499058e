"""Trimtab: simulate, train, evaluate and run resource orchestrators for heterogeneous clusters."""

from trimtab.core import (
    Cluster,
    Event,
    Move,
    Profile,
    Reject,
    Resize,
    Shape,
    Snapshot,
    Start,
    Stop,
    Wait,
    What,
    Workload,
    cluster,
    workload,
)

__version__ = "0.1.0"
__all__ = [
    "Cluster",
    "Event",
    "Move",
    "Profile",
    "Reject",
    "Resize",
    "Shape",
    "Snapshot",
    "Start",
    "Stop",
    "Wait",
    "What",
    "Workload",
    "cluster",
    "workload",
]
