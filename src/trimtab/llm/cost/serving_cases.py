"""A way to serve as a row of numbers: a case with batch, lengths and the load of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost.cases import CASE, cases

SERVING_FIELDS = (
    "batch",  # sequences at once on one replica
    "prompt",  # tokens
    "generated",  # tokens
    "weight_b",  # bytes a weight
    "kv_b",  # bytes a number of the cache
    "graphs",  # 1 = decode runs from captured graphs and samples the batch at once
    "chunk",  # prompt tokens a step; 0 = all prompts in one step
    "cpu_load",  # of the host by others, 0..1
    "memory_share",  # of the GPU that the server may fill
)
DEFAULTS = {
    "batch": 1.0, "prompt": 512.0, "generated": 128.0, "weight_b": 2.0, "kv_b": 2.0,
    "graphs": 0.0, "chunk": 2048.0, "cpu_load": 0.0, "memory_share": 0.9,
}  # fmt: skip
SERVING_CASE = np.dtype([*CASE.descr, *((name, "f8") for name in SERVING_FIELDS)])


def serving_cases(
    model: Any,
    gpu: Any,
    *,
    tp: Any = 1,
    pp: Any = 1,
    per_node: Any = None,
    node_link_bps: Any = None,
    **serve: Any,
) -> Array:
    """One row a way to serve `model` on `gpu` (as of `specs`).

    Every keyword is a number or a column, and they broadcast.
    """
    unknown = sorted(set(serve) - set(SERVING_FIELDS))
    if unknown:
        raise PlanError(f"serving field {unknown[0]!r} does not exist; take {SERVING_FIELDS}")
    columns = {name: np.asarray(serve.get(name, DEFAULTS[name]), "f8") for name in SERVING_FIELDS}
    shape = np.broadcast_shapes(*(c.shape for c in columns.values()), np.shape(tp), np.shape(pp))
    ways = [np.broadcast_to(np.asarray(value, "f8"), shape or (1,)) for value in (tp, pp)]
    for name, way in zip(("tp", "pp"), ways):
        if not (way > 0).all():
            raise PlanError(f"{name}={way.min():g} must be a positive number; correct it")
    base = cases(
        model,
        gpu,
        ways[0] * ways[1],
        tp=ways[0],
        pp=ways[1],
        per_node=per_node,
        node_link_bps=node_link_bps,
    )
    made = np.zeros(base.shape, SERVING_CASE)
    for name in CASE.names or ():
        made[name] = base[name]
    for name, column in columns.items():
        made[name] = column
    return checked(made)


def checked(made: Array) -> Array:
    """The rows as they are, or a PlanError that names the first number that cannot be served."""
    for name in ("batch", "prompt", "weight_b", "kv_b", "memory_share"):
        wrong = made[name][~(made[name] > 0)]
        if len(wrong):
            raise PlanError(f"{name}={wrong[0]:g} must be a positive number; correct it")
    for name, most in (("generated", np.inf), ("chunk", np.inf), ("cpu_load", 1.0)):
        wrong = made[name][~((made[name] >= 0) & (made[name] <= most))]
        if len(wrong):
            raise PlanError(f"{name}={wrong[0]:g} is not in 0..{most:g}; correct it")
    for name, by in (("heads", "tp"), ("layers", "pp")):
        # heads must divide evenly; of layers every stage needs one
        short = np.mod(made[name], made[by]) != 0 if by == "tp" else made[name] < made[by]
        if short.any():
            row = made[short][0]
            raise PlanError(
                f"{name}={row[name]:g} cannot be split over {by}={row[by]:g}; lower {by}"
            )
    return made


def narrowed(rows: Array) -> Array:
    """The rows as products see them: narrow weights read faster and, where it can be, multiplied
    in 8 bits.
    """
    made = rows.copy()
    made["memory_bps"] *= 2.0 / rows["weight_b"]
    eight = (rows["weight_b"] == 1.0) & (rows["fp8_flops"] > 0.0)
    made["flops"] = np.where(eight, rows["fp8_flops"], rows["flops"])
    return made
