"""Speed of the planner of language models: `trimtab bench plan`.

A plan is priced when its step time, memory and energy are known. The peer, llm-analysis, answers
for one plan a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from trimtab.arrays import Array
from trimtab.bench.cases import Measured, Setup, best_s, output_of
from trimtab.bench.peers import installed
from trimtab.llm.cost import intervals, serving_cost, training
from trimtab.llm.cost.cases import cases
from trimtab.llm.cost.serving_cases import serving_cases
from trimtab.llm.plan.planner import planned
from trimtab.llm.plan.question import question_of
from trimtab.llm.spec.specs import gpu, model

GPUS = 1024
PLANS = 1_000_000


def drawn(name: str, count: int) -> Array:
    """Plans of a model on 1,024 GPUs: (count,) of CASE."""
    rng = np.random.default_rng(0)
    ways = {way: rng.choice([1, 2, 4, 8], count) for way in ("tp", "pp")}
    return cases(
        model(name),
        gpu("H100"),
        GPUS,
        **ways,
        ep=8 if model(name).experts else 1,
        interleave=np.where(ways["pp"] > 1, 2, 1),
        micro_batch=rng.choice([1, 2, 4], count),
        zero=rng.integers(0, 2, count),
        recompute=rng.choice([0, 2], count),
        sequence_parallel=ways["tp"] > 1,
        global_batch=2048,
    )


def rate(name: str, count: int) -> float:
    """Plans a second, with their chance to fit."""
    rows = drawn(name, count)
    return count / best_s(lambda: intervals.p_fit(training.cost(rows), rows), 3)


def dense(setup: Setup) -> Measured:
    """Training plans of a dense model, on one core."""
    peers = {"llm-analysis": _llm_analysis()} if installed("llm_analysis") else {}
    return Measured(rate("gpt3-175b", setup.of(PLANS, PLANS // 10)), "plans/s", peers)


def experts(setup: Setup) -> Measured:
    """Training plans of a mixture of experts, on one core."""
    return Measured(rate("mixtral-8x7b", setup.of(PLANS, PLANS // 10)), "plans/s")


def served(setup: Setup) -> Measured:
    """Ways to serve, on one core."""
    count, rng = setup.of(PLANS, PLANS // 10), np.random.default_rng(0)
    tp, batch = rng.choice([1, 2, 4, 8], count), rng.choice([1, 8, 64], count)
    rows = serving_cases(model("llama-3-70b"), gpu("H100"), tp=tp, batch=batch, graphs=1.0)
    return Measured(count / best_s(lambda: serving_cost.serving_cost(rows), 3), "ways/s")


def growth(setup: Setup) -> Measured:
    """Cost of a plan among 100 times as many."""
    few = setup.of(PLANS, PLANS // 10) // 100
    return Measured(rate("llama-3-70b", few) / rate("llama-3-70b", 100 * few), "x")


def answer(gpus: int) -> Callable[[Setup], Measured]:
    """The whole answer for that many GPUs: every legal plan found, priced and ranked."""

    def seconds(setup: Setup) -> Measured:
        question = question_of(model("llama-3.1-405b"), gpu("H100"), gpus, global_batch=4096)
        return Measured(best_s(lambda: planned(question), setup.of(5, 2)), "s")

    return seconds


def command(setup: Setup) -> Measured:
    """The same from a fresh Python, with what compilation kept on disk."""
    words = ["trimtab", "plan", "llama-3.1-405b", "--gpus", "1024xH100", "--json", "-"]
    code = f"import sys; sys.argv = {words!r}; from trimtab import cli; cli.main()"
    return Measured(best_s(lambda: output_of(code), setup.of(3, 1)), "s")


def _llm_analysis(calls: int = 50) -> float:
    """Plans a second of the peer, which takes GPT-3 but no width of Llama's."""
    from llm_analysis.analysis import LLMAnalysis
    from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

    logging.disable(logging.CRITICAL)  # it writes a page a plan
    shape, device = model("gpt3-175b"), gpu("H100")
    network = ModelConfig(
        name=shape.name,
        num_layers=shape.layers,
        n_head=shape.heads,
        hidden_dim=shape.hidden,
        vocab_size=shape.vocab,
        max_seq_len=2048,
        expansion_ratio=4,
    )
    card = GPUConfig(
        name=device.name,
        mem_per_GPU_in_GB=device.memory_b / 1e9,
        hbm_bandwidth_in_GB_per_sec=device.memory_bps / 1e9,
        intra_node_bandwidth_in_GB_per_sec=device.link_bps / 1e9,
        intra_node_min_message_latency=8e-6,
        peak_fp16_TFLOPS=device.flops / 1e12,
        inter_node_bandwidth_in_GB_per_sec=50,
    )
    halves = DtypeConfig(name="w16a16e16", weight_bits=16, activation_bits=16, embedding_bits=16)
    ways = ParallelismConfig(tp_size=8, pp_size=16, dp_size=8, sp_size=8)
    try:
        made = LLMAnalysis(network, card, halves, ways)
        steps = {"batch_size_per_gpu": 1, "gradient_accumulation_steps": 16, "seq_len": 2048}
        return calls / best_s(lambda: [made.training(**steps) for _ in range(calls)], 2)
    finally:
        logging.disable(logging.NOTSET)


BY_NAME = {
    "price-dense": dense,
    "price-experts": experts,
    "price-serving": served,
    "growth-plans-100x": growth,
    "answer-1k-gpus": answer(GPUS),
    "answer-8k-gpus": answer(8 * GPUS),
    "command-1k-gpus": command,
}
