"""Plans on GPUs of several kinds: a stage of the pipeline lies on one kind, layers go by speed.

Tensor and data parallel are the same on every stage, as launchers want them; kinds follow each
other along the pipeline in the best order. Layers are handed out so that the slowest stage is as
fast as memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import FRAMEWORKS, cases
from trimtab.llm.cost.memory import stage_memory
from trimtab.llm.cost.profiles import Training, profiles
from trimtab.llm.cost.profiles import training as knobs_of
from trimtab.llm.nouns import Question
from trimtab.llm.plan.legal import (
    ABILITIES,
    divisors,
    micro_batches,
    tensor_widths,
    zero_stages,
)
from trimtab.llm.plan.question import idle_power

MIXING_SPREAD = 0.05  # of ln(step) that kinds side by side add: assumed, no table shows it
HALVINGS = 40  # of the slowest stage's time: to a millionth of a millionth
WAYS = ("tp", "dp", "micro_batch", "zero", "recompute")


@dataclass(frozen=True)
class Mixed:
    """The best plan that uses several kinds at once."""

    kinds: tuple[Question, ...]  # in the order of the pipeline
    stages: tuple[int, ...]  # of each kind
    stage_layers: tuple[int, ...]
    plan: dict[str, int]  # tp, pp, dp, micro_batch, zero, recompute, framework
    step_s: float
    low_s: float
    high_s: float
    p_fit: float
    memory_b: tuple[float, ...]  # of the fullest GPU of each kind
    energy_j: float
    gpus: int
    considered: int


def mixed(kinds: list[Question]) -> Mixed | None:
    """The best plan over two or more of the kinds, None where none fits.

    The questions must ask for the same model, batch, sequence and objective.
    """
    able = [f for f in kinds[0].frameworks if ABILITIES[FRAMEWORKS[f]].zero_piped == (0, 1)]
    if not able:
        return None
    best: Mixed | None = None
    best_score = np.inf
    for order in permutations(kinds):
        ways = np.array(list(_ways(order)), "f8").reshape(-1, len(WAYS) + len(order))
        if not len(ways):
            continue
        found = _best_of(order, ways, able[0])
        if found is not None and mixed_score(found) < best_score:
            best, best_score = found, mixed_score(found)
    return best


def _ways(order: tuple[Question, ...]) -> Iterator[tuple[int, ...]]:
    """Every tp, dp, micro-batch, ZeRO and recomputation, and the stages it leaves each kind."""
    first = order[0]
    model, fixed = first.model, first.fixed
    again = [0, 2] if all(question.flash for question in order) else [0, 1, 2]
    again = [fixed["recompute"]] if "recompute" in fixed else again
    for tp in tensor_widths(model, min(question.per_node for question in order)):
        for dp in divisors(first.global_batch):
            stages = [question.gpus // (tp * dp) for question in order]
            wrong = tp != fixed.get("tp", tp) or dp != fixed.get("dp", dp)
            if wrong or min(stages) < 1 or not 2 <= sum(stages) <= model.layers:
                continue
            if sum(stages) != fixed.get("pp", sum(stages)) or not _whole(order, stages, tp * dp):
                continue
            for size in micro_batches(first, first.global_batch // dp, 1):
                for zero in zero_stages(ABILITIES["megatron"], sum(stages), dp):
                    if zero == fixed.get("zero", zero):
                        yield from ((tp, dp, size, zero, r, *stages) for r in again)


def _whole(order: tuple[Question, ...], stages: list[int], width: int) -> bool:
    """Whether every kind's stages end at the end of a node, where launchers can begin another."""
    used = [count * width for count in stages]
    return all(n == question.gpus or n % question.per_node == 0 for n, question in zip(used, order))


def _rows(question: Question, ways: Array, framework: int, **more: Any) -> Array:
    """CASE rows of one replica's worth of each way on one kind."""
    plan = {name: ways[:, i] for i, name in enumerate(WAYS)}
    return cases(
        question.model,
        question.gpu,
        more.pop("gpus", plan["tp"] * plan["dp"]),
        per_node=question.per_node,
        node_link_bps=question.node_link_bps,
        seq=question.seq,
        global_batch=question.global_batch,
        precision=question.precision,
        flash=float(question.flash),
        framework=framework,
        sequence_parallel=plan["tp"] > 1,
        **plan,
        **more,
    )


def _scaled(rows: Array, times: Array | float) -> Array:
    """The same rows of a model `times` as deep: dense layers and those with experts alike."""
    out = rows.copy()
    out["layers"], out["dense_layers"] = rows["layers"] * times, rows["dense_layers"] * times
    return out


def _busy_s(rows: Array) -> Array:
    """Seconds in which a whole model on one stage works through a micro-batch."""
    cost = training.cost(rows)
    steps = rows["global_batch"] / (rows["dp"] * rows["micro_batch"])
    return sum(cost[p] for p in ("compute_s", "again_s", "tp_s", "ep_s")) / steps


def _best_of(order: tuple[Question, ...], ways: Array, framework: int) -> Mixed | None:
    """The best way for kinds in this order along the pipeline."""
    stages = ways[:, len(WAYS) :].astype(int)  # (ways, kinds)
    total, most = stages.sum(1), int(stages.sum(1).max())
    kind_of = _kind_of(stages, most)  # (ways, most), -1 = no such stage
    rows = [_rows(question, ways, framework) for question in order]
    layer_s, table_s, head_s = (np.stack(x, 1) for x in zip(*(_speeds(r) for r in rows)))
    message_s = np.max([_message_s(r, order) for r in rows], axis=0)  # (ways,)
    there = kind_of >= 0
    each_s = np.where(there, np.take_along_axis(layer_s, np.maximum(kind_of, 0), 1), np.inf)
    extra_s = np.where(there, 2.0 * message_s[:, None], 0.0)
    extra_s[:, 0] += table_s[:, 0] - message_s
    last = (np.arange(len(ways)), total - 1)
    extra_s[last] += head_s[:, -1] - message_s
    caps, memory = _caps(order, ways, framework, stages)
    cap = np.where(there, np.take_along_axis(caps[:, :-1], np.maximum(kind_of, 0), 1), 0.0)
    cap[last] = np.minimum(cap[last], caps[:, -1])
    layers = balanced(each_s, extra_s, cap, order[0].model.layers)
    good = (layers.sum(1) == order[0].model.layers) & (layers.min(1, where=there, initial=1) > 0)
    if not good.any():
        return None
    stage_s = np.where(there, layers * np.where(there, each_s, 0.0) + extra_s, 0.0)
    step_s, power_w = _steps(order, ways, rows, layers, kind_of, stage_s)
    energy_j = step_s * power_w
    value = _value(
        order[0], step_s, energy_j, stages @ np.ones(len(order)) * ways[:, 0] * ways[:, 1]
    )
    best = int(np.argmin(np.where(good, value, np.inf)))
    return _made(order, ways[best], framework, layers[best], kind_of[best], memory,
                 float(step_s[best]), float(energy_j[best]), best, len(ways))  # fmt: skip


def _kind_of(stages: Array, most: int) -> Array:
    """Place in the order of the kind that each stage lies on: (ways, most), -1 = none."""
    ends = np.cumsum(stages, 1)  # (ways, kinds)
    place = (np.arange(most)[None, :, None] >= ends[:, None, :]).sum(2)
    return np.where(np.arange(most) < ends[:, -1:], place, -1)


def _speeds(rows: Array) -> tuple[Array, Array, Array]:
    """Seconds a micro-batch of one layer, of the embedding and of the logits: three columns."""
    once_s, twice_s = _busy_s(rows), _busy_s(_scaled(rows, 2.0))
    layer_s = (twice_s - once_s) / rows["layers"]
    blind = rows.copy()
    blind["vocab"] = 1.0
    table_s = np.maximum(_busy_s(blind) - rows["layers"] * layer_s, 0.0)
    head_s = np.maximum(once_s - rows["layers"] * layer_s - table_s, 0.0)
    return layer_s, table_s, head_s


def _message_s(rows: Array, order: tuple[Question, ...]) -> Array:
    """Seconds a micro-batch of one boundary between stages, over the slowest cards of the pool."""
    pair = rows.copy()
    pair["pp"], pair["gpus"], pair["per_node"] = 2.0, 2.0 * rows["gpus"], 1.0
    pair["node_link_bps"] = min(question.node_link_bps for question in order)
    steps = rows["global_batch"] / (rows["dp"] * rows["micro_batch"])
    return training.cost(pair)["pp_s"] / steps


def balanced(each_s: Array, extra_s: Array, cap: Array, layers: int) -> Array:
    """Layers a stage that make the slowest stage fastest: (ways, stages).

    A way whose caps do not hold all layers gets fewer in all.
    """
    low_s, high_s = (
        np.zeros(len(cap)),
        (layers * each_s + extra_s).max(1, where=np.isfinite(each_s), initial=0.0),
    )

    def given(limit_s: Array) -> Array:
        return np.clip(np.floor((limit_s[:, None] - extra_s) / each_s + 1e-9), 0.0, cap)

    for _ in range(HALVINGS):
        middle_s = 0.5 * (low_s + high_s)
        enough = given(middle_s).sum(1) >= layers
        high_s, low_s = np.where(enough, middle_s, high_s), np.where(enough, low_s, middle_s)
    out = given(high_s)
    finite_s = np.where(np.isfinite(each_s), each_s, 0.0)
    while (surplus := out.sum(1) > layers).any():
        slowest = np.argmax(np.where(out > 0, out * finite_s + extra_s, -1.0), 1)
        out[np.flatnonzero(surplus), slowest[surplus]] -= 1.0
    return out


@compiled
def _stages_b(
    rows: Array, stages: Array, layers: Array, frames: Array, knobs: Training, out: Array
) -> None:
    for i in range(len(rows)):
        frame = frames[int(rows[i].framework)]
        out[i] = stage_memory(rows[i], stages[i], layers[i], frame, knobs).total_b


def _bytes(rows: Array, stage: Array, layers: Array | float) -> Array:
    """Bytes on a GPU of that stage with that many layers: (rows,)."""
    out = np.zeros(len(rows))
    full = np.broadcast_to(np.asarray(layers, "f8"), (len(rows),)).copy()
    _stages_b(rows, stage.astype("f8"), full, profiles(), knobs_of(), out)
    return out


def _caps(
    order: tuple[Question, ...], ways: Array, framework: int, stages: Array
) -> tuple[Array, list[tuple[Array, Array, Array]]]:
    """Most layers on each kind's first stage and on the last stage, and the rows they come from.

    A kind's first stage holds the most micro-batches in flight; memory is linear in the layers.
    """
    total = stages.sum(1)
    starts = np.cumsum(stages, 1) - stages
    caps: list[Array] = []
    memory: list[tuple[Array, Array, Array]] = []
    for place in [*range(len(order)), len(order) - 1]:
        question = order[place]
        rows = _rows(question, ways, framework, gpus=total * ways[:, 0] * ways[:, 1], pp=total)
        stage = starts[:, place] if len(memory) < len(order) else total - 1
        one_b, two_b = _bytes(rows, stage, 1.0), _bytes(rows, stage, 2.0)
        spread = intervals.memory_spread(rows)
        room_b = knobs_of().capacity * question.gpu.memory_b
        room_b = room_b * np.exp(-float(ndtri(question.least_p_fit)) * spread)
        caps.append(np.maximum(np.floor((room_b - one_b) / (two_b - one_b)) + 1.0, 0.0))
        memory.append((rows, stage, spread))
    return np.stack(caps, 1), memory


def _steps(
    order: tuple[Question, ...],
    ways: Array,
    rows: list[Array],
    layers: Array,
    kind_of: Array,
    stage_s: Array,
) -> tuple[Array, Array]:
    """Seconds of a step and watts of all GPUs: two columns."""
    steps = order[0].global_batch / (ways[:, 1] * ways[:, 2])
    work_s = stage_s.sum(1) + (steps - 1.0) * stage_s.max(1)
    tail_s, drawn, nodes = np.zeros(len(ways)), [], np.zeros(len(ways))
    for place, question in enumerate(order):
        most = np.max(layers, axis=1, where=kind_of == place, initial=1.0)
        cost = training.cost(_scaled(rows[place], most / question.model.layers))
        tail_s = np.maximum(tail_s, cost["dp_s"] + cost["optimiser_s"])
        drawn.append(cost["power_w"] / question.gpu.tdp_w - idle_power(question.gpu))
        used = (kind_of == place).sum(1) * ways[:, 0] * ways[:, 1]
        nodes += np.ceil(used / question.per_node)
    busy_s = work_s + tail_s
    step_s = busy_s * (1.0 + knobs_of().jitter * np.log2(np.maximum(nodes, 1.0)))
    step_s += profiles()["step_s"][int(rows[0]["framework"][0])]
    power_w = np.zeros(len(ways))
    for place, question in enumerate(order):
        share = np.where(kind_of == place, stage_s * steps[:, None] / step_s[:, None], 0.0).sum(1)
        count = (kind_of == place).sum(1)
        each_w = question.gpu.tdp_w * (idle_power(question.gpu) * count + drawn[place] * share)
        power_w += each_w * ways[:, 0] * ways[:, 1]
    return step_s, power_w


def _value(question: Question, step_s: Array, energy_j: Array, gpus: Array) -> Array:
    """What the objective makes of each way, as a logarithm."""
    amounts = {"time": step_s, "cost": step_s * gpus, "energy": energy_j}
    return sum(weight * np.log(amounts[name]) for name, weight in question.objective.items())


def mixed_score(found: Mixed) -> float:
    """What the objective makes of a plan, comparable with `planner.score`."""
    one = np.ones(1)
    return float(
        _value(found.kinds[0], found.step_s * one, found.energy_j * one, found.gpus * one)[0]
    )


def _made(
    order: tuple[Question, ...],
    way: Array,
    framework: int,
    layers: Array,
    kind_of: Array,
    memory: list[tuple[Array, Array, Array]],
    step_s: float,
    energy_j: float,
    best: int,
    considered: int,
) -> Mixed:
    """The chosen way with its interval and its chance to fit."""
    used_b, chance, spread = _fit_of(order, layers, kind_of, memory, best)
    factor = float(np.exp(intervals.NORMAL_90 * np.hypot(spread, MIXING_SPREAD)))
    counts = tuple(int((kind_of == place).sum()) for place in range(len(order)))
    plan = {name: int(value) for name, value in zip(WAYS, way)}
    plan |= {"pp": sum(counts), "framework": framework, "interleave": 1, "cp": 1, "ep": 1}
    return Mixed(
        kinds=order,
        stages=counts,
        stage_layers=tuple(int(n) for n in layers[kind_of >= 0]),
        plan=plan,
        step_s=step_s,
        low_s=step_s / factor,
        high_s=step_s * factor,
        p_fit=chance,
        memory_b=tuple(used_b),
        energy_j=energy_j,
        gpus=sum(counts) * plan["tp"] * plan["dp"],
        considered=considered,
    )


def _fit_of(
    order: tuple[Question, ...],
    layers: Array,
    kind_of: Array,
    memory: list[tuple[Array, Array, Array]],
    best: int,
) -> tuple[list[float], float, float]:
    """Bytes on the fullest GPU of each kind, the chance that all fit, and ln(step)'s spread."""
    used_b, chance, spread = [], 1.0, 0.0
    for place, (rows, stage, wide) in enumerate(memory):
        kind = min(place, len(order) - 1)
        row = rows[best : best + 1]
        held = layers[int(stage[best])] if place == len(order) else layers[kind_of == kind].max()
        need_b = float(_bytes(row, stage[best : best + 1], held)[0])
        room_b = knobs_of().capacity * order[kind].gpu.memory_b
        chance = min(chance, float(ndtr(np.log(room_b / need_b) / wide[best])))
        spread = max(spread, float(intervals.step_spread(row)[0]))
        if place < len(order):
            used_b.append(need_b)
        else:
            used_b[-1] = max(used_b[-1], need_b)
    return used_b, chance, spread
