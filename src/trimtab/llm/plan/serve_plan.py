"""How to serve a model on a pool: tensor and pipeline ranks a replica, replicas, and their batch.

    found = serve_planned(model("llama-3-70b"), gpu("H100"), 8, prompt=1024, generated=256)
    found.rows["tokens_s"][0]

Every legal replica is priced at every useful batch; those that keep the objectives of latency and
whose cache fits are ranked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from trimtab.arrays import Array
from trimtab.errors import PlanError
from trimtab.llm.cost.constants import law_of, read
from trimtab.llm.cost.intervals import NORMAL_90
from trimtab.llm.cost.serving_cases import serving_cases
from trimtab.llm.cost.serving_cost import serving_cost
from trimtab.llm.nouns import Gpu, Model
from trimtab.llm.plan.legal import divisors, fair, tensor_fault, tensor_widths
from trimtab.llm.plan.options import SERVE, ServeOptions, changed
from trimtab.llm.plan.question import default_link, half, law_notes, weights

MEMORY_SHARE = 0.9  # of the GPU that servers fill unless told otherwise
MEMORY_SPREAD = 0.03  # of ln(bytes a server needs): assumed
SERVER_SPREAD = 0.15  # of ln(seconds) between servers: assumed, one was measured
MEAN_TO_SPREAD = 1.25  # standard deviation / mean absolute error of a normal distribution
SLO_S = 0.1  # between tokens, where the user gives none: twice as fast as people read
EQUAL = 0.005
BATCHES = tuple(sorted({*(2**n for n in range(13)), *(3 * 2**n for n in range(11))}))
SERVED = np.dtype(
    [
        (name, "f8")
        for name in (
            "tp", "pp", "replicas", "gpus", "batch", "max_batch", "tokens_s", "ttft_s", "token_s",
            "request_s", "weights_b", "cache_b", "p_fit", "energy_token_j", "power_w",
        )
    ]
)  # fmt: skip


@dataclass(frozen=True)
class ServeQuestion:
    """What is to be served, on what, and how fast."""

    model: Model
    gpu: Gpu
    gpus: int
    prompt: int
    generated: int
    slo_s: float  # between two tokens of one request
    ttft_s: float  # until its first token; inf = no matter
    per_node: int
    node_link_bps: float
    weight_b: float
    cpu_load: float
    objective: dict[str, float]
    least_p_fit: float
    fixed: dict[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Served:
    """Ways to serve in order of preference."""

    question: ServeQuestion
    rows: Array  # (ways,) of SERVED; tokens_s is of all replicas
    spread: float  # standard deviation of ln(seconds)
    considered: int

    def interval(self, name: str, way: int = 0) -> tuple[float, float]:
        """Between which nine in ten servers should lie: a time, or a rate."""
        factor, value = float(np.exp(NORMAL_90 * self.spread)), float(self.rows[name][way])
        return value / factor, value * factor


def serve_question(
    model: Model, gpu: Gpu, gpus: int, options: ServeOptions = SERVE, **said: Any
) -> ServeQuestion:
    """The question with defaults filled in; `said` are fields of ServeOptions, by name."""
    wish = changed(options, said)
    _refuse_numbers(gpus, wish)
    _refuse_precision(gpu, wish.precision)
    notes: list[str] = []
    if not wish.slo_s:
        notes.append(f"{1e3 * SLO_S:.0f} ms between tokens at most: default, set --slo-ms")
    if wish.prompt + wish.generated > model.max_seq:
        words = f"{wish.prompt} + {wish.generated} tokens"
        notes.append(f"{words} are beyond the {model.max_seq} of the model")
    fixed = {"tp": wish.tp, "pp": wish.pp}
    return ServeQuestion(
        model=model,
        gpu=gpu,
        gpus=gpus,
        prompt=wish.prompt,
        generated=wish.generated,
        slo_s=wish.slo_s or SLO_S,
        ttft_s=wish.ttft_s or float("inf"),
        per_node=wish.per_node or gpu.per_node,
        node_link_bps=wish.node_link_bps or default_link(gpu, False, notes),
        weight_b=1.0 if wish.precision == "fp8" else 2.0,
        cpu_load=wish.cpu_load,
        objective=weights(wish.objective),
        least_p_fit=wish.least_p_fit,
        fixed={name: value for name, value in fixed.items() if value is not None},
        notes=tuple(notes + law_notes(gpu)),
    )


def _refuse_numbers(gpus: int, wish: ServeOptions) -> None:
    for name, value in {"gpus": gpus, "prompt": wish.prompt, "generate": wish.generated}.items():
        if value < 1:
            raise PlanError(f"{name}={value} is below 1; take a positive number")
    for name, limit_s in {"slo-ms": wish.slo_s, "ttft-ms": wish.ttft_s}.items():
        if not 0 <= limit_s < float("inf"):
            raise PlanError(f"{name}={1e3 * limit_s:g} is not a usable number; take one above 0")
    if not 0 <= wish.cpu_load <= 1:
        raise PlanError(f"cpu-load={wish.cpu_load:g} is no share of a host; take 0 to 1")
    if not 0 < wish.least_p_fit < 1:
        raise PlanError(f"p_fit={wish.least_p_fit:g} is no chance; take a number between 0 and 1")


def _refuse_precision(gpu: Gpu, precision: str) -> None:
    if precision == "fp8" and not gpu.fp8_flops:
        raise PlanError(f"precision=fp8 is beyond {gpu.name}; take {half(gpu)}")
    if precision not in ("", "fp16", "bf16", "fp8"):
        raise PlanError(f"precision={precision!r} is not served; take fp16, bf16 or fp8")


def serve_planned(question: ServeQuestion, top: int = 5) -> Served:
    """The best ways to serve; a PlanError says what none can keep."""
    rows = priced(question, replicas(question))
    fits = rows["p_fit"] >= question.least_p_fit
    if not fits.any():
        raise PlanError(misfit(question, rows))
    quick = fits & (rows["token_s"] <= question.slo_s) & (rows["ttft_s"] <= question.ttft_s)
    if not quick.any():
        raise PlanError(too_slow(question, rows[fits]))
    kept = rows[quick]
    order = np.lexsort((kept["token_s"], np.round(score(question, kept) / EQUAL)))
    _, first = np.unique(kept[["tp", "pp"]][order], return_index=True)
    best = kept[order[np.sort(first)[:top]]]
    return Served(question, best, time_spread(question.gpu), len(rows))


def replicas(question: ServeQuestion) -> list[tuple[int, int]]:
    """Every (tp, pp) whose replica the GPUs hold and nodes can be filled with."""
    model, fixed, node = question.model, question.fixed, question.per_node
    found = []
    for tp in tensor_widths(model, node):
        for pp in [n for n in range(1, question.gpus // tp + 1) if fair(model, n)]:
            size = tp * pp
            even = node % size == 0 if size <= node else size % node == 0
            wished = tp == fixed.get("tp", tp) and pp == fixed.get("pp", pp)
            if tp <= node and size <= question.gpus and wished and (even or size == question.gpus):
                found.append((tp, pp))
    if not found:
        tp, pp = fixed.get("tp", 1), fixed.get("pp", 1)
        widths = [t for t in tensor_widths(model, node) if t <= min(node, question.gpus)]
        why = tensor_fault(model, tp) or f"tp x pp = {tp} x {pp} does not lie on {question.gpus}"
        raise PlanError(f"{why}; take a tp of {', '.join(map(str, widths))} and fewer stages")
    return found


def priced(question: ServeQuestion, ways: list[tuple[int, int]]) -> Array:
    """Every replica at every useful batch: (rows,) of SERVED."""
    tp, pp = np.array(ways, "f8").T
    alone = _costs(question, tp, pp, np.ones(len(tp)))
    most = np.maximum(alone["max_batch"], 1.0)
    place, size = (grid.reshape(-1) for grid in np.meshgrid(np.arange(len(tp)), BATCHES))
    place, size = place[size <= most[place]], size[size <= most[place]]
    cost = _costs(question, tp[place], pp[place], size)
    rows = np.zeros(len(place), SERVED)
    rows["tp"], rows["pp"], rows["batch"] = tp[place], pp[place], size
    rows["replicas"] = question.gpus // (rows["tp"] * rows["pp"])
    rows["gpus"] = rows["replicas"] * rows["tp"] * rows["pp"]
    for name in ("max_batch", "request_s", "weights_b", "power_w"):
        rows[name] = cost[name]
    tokens = size * question.generated
    rows["tokens_s"] = rows["replicas"] * tokens / cost["request_s"]
    # a new prompt waits for the token that is being made
    rows["ttft_s"], rows["token_s"] = alone["prefill_s"][place] + cost["decode_s"], cost["decode_s"]
    rows["cache_b"] = size * cost["kv_token_b"] * (question.prompt + question.generated)
    rows["energy_token_j"] = cost["energy_j"] / tokens
    rows["p_fit"] = _p_fit(question, rows)
    return rows


def _costs(question: ServeQuestion, tp: Array, pp: Array, batch: Array) -> Array:
    made = serving_cases(
        question.model,
        question.gpu,
        tp=tp,
        pp=pp,
        per_node=question.per_node,
        node_link_bps=question.node_link_bps,
        batch=batch,
        prompt=question.prompt,
        generated=question.generated,
        weight_b=question.weight_b,
        graphs=1.0,
        cpu_load=question.cpu_load,
        memory_share=MEMORY_SHARE,
    )
    return serving_cost(made)


def _p_fit(question: ServeQuestion, rows: Array) -> Array:
    """Chance that weights and cache stay inside the share of memory that a server takes."""
    room_b = MEMORY_SHARE * question.gpu.memory_b
    # what a step works with: rows of the widest block of one prompt
    widest = max(question.model.ffn, question.model.active_experts * question.model.expert_ffn)
    working_b = 2.0 * question.prompt * (4.0 * question.model.hidden + 3.0 * widest / rows["tp"])
    need_b = rows["weights_b"] + rows["cache_b"] + working_b
    return ndtr(np.log(room_b / need_b) / MEMORY_SPREAD)


def score(question: ServeQuestion, rows: Array) -> Array:
    """What the objective makes of each way, as a logarithm: less is better."""
    amounts = {
        "time": 1.0 / rows["tokens_s"],
        "cost": rows["gpus"] / rows["tokens_s"],
        "energy": rows["energy_token_j"],
    }
    return sum(weight * np.log(amounts[name]) for name, weight in question.objective.items())


def time_spread(gpu: Gpu) -> float:
    """Standard deviation of ln(seconds): held-out error, other servers, other architectures."""
    figures: list[dict[str, Any]] = read()["serving"].get("figures", [])
    errors = [float(f["held_out_error"] or 0) for f in figures if f["what"].startswith("decode")]
    parts = (
        MEAN_TO_SPREAD * max(errors, default=0.1),
        SERVER_SPREAD,
        law_of(gpu.law or gpu.arch).spread,
    )
    return float(np.sqrt(np.sum(np.square(parts))))


def misfit(question: ServeQuestion, rows: Array) -> str:
    """The sentence for a model that no replica holds: what it needs and the fewest GPUs."""
    lean = rows[int(np.argmin(rows["weights_b"] + rows["cache_b"]))]
    need_gb = (lean["weights_b"] + lean["cache_b"]) / 1e9
    head = (
        f"{question.model.name} cannot be served on {question.gpus}x{question.gpu.name}: one"
        f" request over TP {lean['tp']:g}, PP {lean['pp']:g} needs {need_gb:,.0f} GB of"
        f" {MEMORY_SHARE * question.gpu.memory_b / 1e9:,.0f} GB a GPU"
    )
    count = fewest(question)
    if count:
        return f"{head}; {count} GPUs of this kind are the fewest that would hold it"
    return f"{head}; take a shorter --prompt, --precision fp8 or a larger GPU"


def fewest(question: ServeQuestion) -> int:
    """The smallest count of GPUs that holds one replica, 0 = none of those that were tried."""
    node = question.per_node
    for count in [*divisors(node), *(node * n for n in range(2, 17))]:
        wider = replace(question, gpus=count, fixed={})
        if (priced(wider, replicas(wider))["p_fit"] >= question.least_p_fit).any():
            return count
    return 0


def too_slow(question: ServeQuestion, rows: Array) -> str:
    """The sentence for objectives of latency that nothing keeps."""
    fast = rows[int(np.argmin(rows["token_s"]))]
    first = rows[int(np.argmin(rows["ttft_s"]))]
    return (
        f"no way to serve {question.model.name} on {question.gpus}x{question.gpu.name} keeps"
        f" {1e3 * question.slo_s:.0f} ms a token"
        + (f" and {1e3 * question.ttft_s:.0f} ms to the first" if question.ttft_s < 1e9 else "")
        + f": the fastest takes {1e3 * fast['token_s']:.0f} ms a token (TP {fast['tp']:g}),"
        f" {1e3 * first['ttft_s']:.0f} ms to the first (TP {first['tp']:g});"
        " raise --slo-ms or --ttft-ms, or take faster GPUs"
    )
