"""Snapshots and decisions side by side: what differs, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Snapshot
from trimtab.run import KINDS

TABLES = (
    *("queue", "running", "jobs", "demand", "state", "nodes", "capacity", "free"),
    *("gpu_free", "gpu_mem_free", "node_state", "runs", "pieces"),
)


def copied(snapshot: Snapshot) -> Snapshot:
    """The snapshot with tables of its own."""
    return snapshot._replace(**{name: getattr(snapshot, name).copy() for name in TABLES})


def difference(before: Snapshot, after: Snapshot) -> str:
    """The first table in which what means anything differs; the runs of no job mean nothing."""
    for name in TABLES:
        if name in ("runs", "pieces"):
            continue
        old, new = getattr(before, name), getattr(after, name)
        if old.shape != new.shape or np.ascontiguousarray(old).tobytes() != new.tobytes():
            return name
    old, new = before.runs[before.running], after.runs[after.running]
    for field in ("job", "instances", "shape", "start_s", "expected_end_s"):
        if not np.array_equal(old[field], new[field], equal_nan=True):
            return f"runs: {field}"
    return ""


def first_difference(one: list[Decision], two: list[Decision]) -> str:
    for a, b in zip(one, two):
        if a != b:
            return f"{a}, then {b}"
    return f"{len(one)} decisions, then {len(two)}"


def rows(where: Array) -> list[int]:
    return np.flatnonzero(where)[:5].tolist()


def described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        low, high = (value.min(), value.max()) if value.size else (None, None)
        return f"an array {value.shape} of {value.dtype} in {low}..{high}"
    return f"a {type(value).__name__}"


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, two))
    return np.array_equal(one, two)


def listed(where: str, decisions: Any) -> list[Decision]:
    assert isinstance(decisions, Sequence), (
        f"{where}: returns {decisions!r}, want a list of decisions"
    )
    for decision in decisions:
        assert isinstance(decision, KINDS), (
            f"{where}: returns {decision!r}, which is not a decision"
        )
    return list(decisions)
