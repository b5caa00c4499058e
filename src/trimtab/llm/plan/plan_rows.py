"""Answers as flat dictionaries for JSON, as sentences, and as plans that exports take."""

from __future__ import annotations

import math
from typing import Any

from trimtab.llm.cost.cases import FRAMEWORKS, PRECISIONS, RECOMPUTES
from trimtab.llm.cost.training import COST
from trimtab.llm.nouns import Plan
from trimtab.llm.plan.mixed import Mixed
from trimtab.llm.plan.plan import COUNTS
from trimtab.llm.plan.planner import Answer, amount, layout_words
from trimtab.llm.plan.question import half
from trimtab.llm.plan.serve_plan import Served
from trimtab.units import joules, seconds

PARTS = tuple(name for name in COST.names or () if name.endswith("_s"))
BYTES = tuple(name for name in COST.names or () if name.endswith("_b"))


def rounded(value: Any) -> float:
    """A number for JSON, six digits of it; what is not finite becomes 0."""
    return float(f"{float(value):.6g}") if math.isfinite(float(value)) else 0.0


def plan_of(answer: Answer, place: int = 0) -> Plan:
    """The plan of that place as exports take it."""
    row = answer.cases[place]
    counts: dict[str, Any] = {name: int(row[name]) for name in COUNTS}
    return Plan(
        **counts,
        zero=int(row["zero"]),
        recompute=RECOMPUTES[int(row["recompute"])],
        sequence_parallel=bool(row["sequence_parallel"]),
        precision=PRECISIONS[int(row["precision"])],
        framework=FRAMEWORKS[int(row["framework"])],
    )


def mixed_plan_of(found: Mixed) -> Plan:
    """The mixed plan as exports take it."""
    question, plan = found.kinds[0], found.plan
    return Plan(
        gpus=found.gpus,
        per_node=math.gcd(*(kind.per_node for kind in found.kinds), found.gpus),
        **{name: plan[name] for name in ("tp", "pp", "dp", "micro_batch", "zero")},
        global_batch=question.global_batch,
        seq=question.seq,
        recompute=RECOMPUTES[plan["recompute"]],
        sequence_parallel=plan["tp"] > 1,
        precision=PRECISIONS[question.precision],
        framework=FRAMEWORKS[plan["framework"]],
        stage_layers=found.stage_layers,
    )


def serve_plan_of(served: Served, place: int = 0) -> Plan:
    """The way to serve of that place as exports take it."""
    question, row = served.question, served.rows[place]
    replicas = int(row["replicas"])
    return Plan(
        gpus=int(row["gpus"]),
        per_node=question.per_node,
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        dp=replicas,
        micro_batch=int(row["batch"]),
        global_batch=int(row["batch"]) * replicas,
        seq=question.prompt + question.generated,
        precision="fp8" if question.weight_b == 1 else half(question.gpu),
        framework="vllm",
    )


def plan_row(answer: Answer, place: int) -> dict[str, Any]:
    """One plan with its prediction, interval, P(fit) and what time and memory go to."""
    case, cost, question = answer.cases[place], answer.costs[place], answer.question
    plan = plan_of(answer, place)
    row: dict[str, Any] = {"gpu": question.gpu.name}
    row |= {name: getattr(plan, name) for name in COUNTS}
    for name in ("zero", "recompute", "sequence_parallel", "precision", "framework"):
        row[name] = getattr(plan, name)
    row["step_s"] = rounded(cost["step_s"])
    row["step_s_low"], row["step_s_high"] = map(
        rounded, (answer.low_s[place], answer.high_s[place])
    )
    row["p_fit"] = rounded(answer.p_fit[place])
    row["memory_b"], row["gpu_memory_b"] = rounded(cost["memory_b"]), rounded(case["memory_b"])
    row["tokens_per_s"] = rounded(cost["tokens_s_gpu"] * case["gpus"])
    row["tokens_per_s_per_gpu"] = rounded(cost["tokens_s_gpu"])
    row["tflops_per_gpu"] = rounded(cost["model_flop"] / case["gpus"] / cost["step_s"] / 1e12)
    row["mfu"], row["hfu"] = rounded(cost["mfu"]), rounded(cost["hfu"])
    row["energy_j"], row["power_w"] = rounded(cost["energy_j"]), rounded(cost["power_w"])
    row["energy_token_j"] = rounded(cost["energy_j"] / (case["global_batch"] * case["seq"]))
    one = slice(place, place + 1)
    money = amount(question, "cost", answer.cases["gpus"][one], answer.costs[one])[0]
    row["cost" if question.price_hour else "gpu_s"] = rounded(money)
    row["time_parts_s"] = {name: rounded(cost[name]) for name in PARTS if name != "step_s"}
    row["memory_parts_b"] = {name: rounded(cost[name]) for name in BYTES if name != "memory_b"}
    return row


def mixed_row(found: Mixed) -> dict[str, Any]:
    """The mixed plan the same way."""
    plan, question = mixed_plan_of(found), found.kinds[0]
    row: dict[str, Any] = {"gpu": "+".join(kind.gpu.name for kind in found.kinds)}
    row |= {name: getattr(plan, name) for name in COUNTS}
    for name in ("zero", "recompute", "sequence_parallel", "precision", "framework"):
        row[name] = getattr(plan, name)
    row["stage_layers"] = list(found.stage_layers)
    row["stages_per_gpu"] = list(found.stages)
    tokens = question.global_batch * question.seq
    row["step_s"] = rounded(found.step_s)
    row["step_s_low"], row["step_s_high"] = rounded(found.low_s), rounded(found.high_s)
    row["p_fit"] = rounded(found.p_fit)
    row["memory_b"] = [rounded(used) for used in found.memory_b]
    row["tokens_per_s"] = rounded(tokens / found.step_s)
    row["tokens_per_s_per_gpu"] = rounded(tokens / found.step_s / found.gpus)
    row["energy_j"], row["energy_token_j"] = (
        rounded(found.energy_j),
        rounded(found.energy_j / tokens),
    )
    return row


def serve_row(served: Served, place: int) -> dict[str, Any]:
    """One way to serve with its prediction, interval and P(fit)."""
    row: dict[str, Any] = {"gpu": served.question.gpu.name}
    for name in ("tp", "pp", "replicas", "gpus", "batch", "max_batch"):
        row[name] = int(served.rows[name][place])
    for name in ("tokens_s", "ttft_s", "token_s", "request_s"):
        row[name] = rounded(served.rows[name][place])
        row[f"{name}_low"], row[f"{name}_high"] = map(rounded, served.interval(name, place))
    for name in ("p_fit", "weights_b", "cache_b", "energy_token_j", "power_w"):
        row[name] = rounded(served.rows[name][place])
    return row


def headline(answer: Answer) -> str:
    """The best plan in one sentence."""
    case, cost, question = answer.cases[0], answer.costs[0], answer.question
    used = f"{case['gpus']:.0f}x{question.gpu.name}"
    idle = question.gpus - int(case["gpus"])
    if idle:
        used += f" ({idle} of {question.gpus} {'given back' if question.up_to else 'idle'})"
    return (
        f"{question.model.name} on {used}: {layout_words(case)} with"
        f" {FRAMEWORKS[int(case['framework'])]}; {seconds(cost['step_s'])} a step"
        f" ({seconds(answer.low_s[0])} to {seconds(answer.high_s[0])} in 9 of 10 runs),"
        f" {cost['tokens_s_gpu']:,.0f} tokens/s a GPU, MFU {100 * cost['mfu']:.0f} %;"
        f" fits with P {answer.p_fit[0]:.2f}"
        f" ({cost['memory_b'] / 1e9:.0f} of {case['memory_b'] / 1e9:.0f} GB);"
        f" {joules(cost['energy_j'])} a step"
    )


def mixed_headline(found: Mixed) -> str:
    """The mixed plan in one sentence."""
    question, places, parts = found.kinds[0], iter(found.stage_layers), []
    for kind, count in zip(found.kinds, found.stages):
        layers = " ".join(str(next(places)) for _ in range(count))
        parts.append(
            f"{count} stage{'s' if count > 1 else ''} of {layers} layers on {kind.gpu.name}"
        )
    return (
        f"{question.model.name} on {found.gpus} GPUs of {len(found.kinds)} kinds:"
        f" {layout_words(found.plan)}; {', '.join(parts)}; {seconds(found.step_s)} a step"
        f" ({seconds(found.low_s)} to {seconds(found.high_s)} in 9 of 10 runs);"
        f" fits with P {found.p_fit:.2f}; {joules(found.energy_j)} a step"
    )


def serve_headline(served: Served) -> str:
    """The best way to serve in one sentence."""
    row, question = served.rows[0], served.question
    low, high = served.interval("tokens_s")
    replicas = f"{row['replicas']:.0f} replica{'s' if row['replicas'] > 1 else ''}"
    return (
        f"{question.model.name} on {row['gpus']:.0f}x{question.gpu.name}: {replicas} of"
        f" TP {row['tp']:.0f}, PP {row['pp']:.0f}, {row['batch']:.0f} requests at once each;"
        f" {row['tokens_s']:,.0f} tokens/s ({low:,.0f} to {high:,.0f} in 9 of 10 runs),"
        f" {seconds(row['ttft_s'])} to the first token, {seconds(row['token_s'])} between tokens;"
        f" cache fits with P {row['p_fit']:.2f} (at most {row['max_batch']:.0f} requests);"
        f" {row['energy_token_j']:.2g} J a token"
    )
