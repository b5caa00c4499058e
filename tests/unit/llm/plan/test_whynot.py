"""Why not another plan: the numbers in the sentences are those of the cost model."""

import re

import numpy as np
import pytest

from trimtab.llm.cost import training
from trimtab.llm.plan.legal import legal_plans
from trimtab.llm.plan.planner import answered, planned
from trimtab.llm.plan.question import question_of
from trimtab.llm.plan.whynot import why_not
from trimtab.llm.spec.specs import gpu, model


def chosen(name, kind, gpus, **more):
    """The answer whose only plan is the first with these fields, whether or not it fits."""
    question = question_of(model(name), gpu(kind), gpus, least_p_fit=more.pop("p_fit", 0.9), **more)
    return answered(question, legal_plans(question)[:1], 1, 1)


def reasons(answer, most=99):
    return {reason.name: reason.why for reason in why_not(answer, most)}


def test_tensor_parallel_over_nodes_names_how_much_slower_its_all_reduce_is():
    answer = chosen(
        "llama-3.1-405b", "H200", 256, framework="megatron", tp=8, pp=16, dp=2, cp=1,
        micro_batch=1, interleave=1, zero=1, recompute="full", node_link_bps=12.5e9,
    )  # fmt: skip
    why = reasons(answer)["TP 16"]
    wide = answer.cases.copy()
    wide["tp"], wide["dp"] = 16, 1
    wide["zero"] = 0
    cost = training.cost(wide)
    # twice as many micro-batches a replica, as there are half as many replicas
    slower = (cost["tp_s"][0] / 2) / answer.costs["tp_s"][0]
    assert slower > 1.2
    assert why.startswith(f"crosses nodes of 8: all-reduce {slower:.1f}x slower")


def test_less_recomputation_says_what_memory_it_needs():
    answer = chosen(
        "llama-3-70b", "H100", 64, framework="megatron", tp=8, pp=4, dp=2, cp=1, micro_batch=2,
        interleave=1, zero=1, recompute="full",
    )  # fmt: skip
    why = reasons(answer)["no recompute"]
    plain = answer.cases.copy()
    plain["recompute"] = 0
    need_gb = training.cost(plain)["memory_b"][0] / 1e9
    assert why.startswith(f"needs {need_gb:,.0f} GB of 80 GB, P(fit) ")


def test_a_batch_too_small_says_which_multiple_it_needs():
    answer = chosen(
        "llama-3-8b", "H100", 64, framework="megatron", global_batch=32, tp=2, pp=1, dp=32, cp=1,
        micro_batch=1, zero=1, recompute="full",
    )  # fmt: skip
    found = reasons(answer)
    assert found["micro-batch 2"] == "DP 32 x micro-batch 2 needs a multiple of 64 as batch, got 32"
    assert "needs a multiple of 128 as batch, got 32" in found["DP 64 with micro-batch 2"]


def test_a_slower_neighbour_names_the_part_that_grows_most():
    answer = chosen(
        "llama-3-70b", "H200", 64, framework="megatron", tp=4, pp=4, dp=4, cp=1, micro_batch=1,
        interleave=1, zero=1, recompute="none",
    )  # fmt: skip
    why = reasons(answer)["full recompute"]
    full = answer.cases.copy()
    full["recompute"] = 2
    cost = training.cost(full)
    percent = 100 * (cost["step_s"][0] / answer.costs["step_s"][0] - 1)
    more_s = cost["again_s"][0] - answer.costs["again_s"][0]
    assert why == f"step {percent:.0f} % longer: recomputation {more_s:+.3g} s"


def test_every_kind_of_change_is_heard_before_a_second_of_one_kind():
    answer = planned(question_of(model("llama-3-70b"), gpu("H100"), 64))
    found = why_not(answer)
    names = [reason.name for reason in found]
    assert len(names) == len(set(names)) == 10
    assert any(re.fullmatch(r"TP (16|32)", name) for name in names)
    assert any("recompute" in name for name in names)
    assert [r.gain for r in found] == sorted(r.gain for r in found)


def test_no_rejected_neighbour_of_the_best_plan_is_faster_and_fits():
    answer = planned(question_of(model("llama-3-8b"), gpu("A100"), 32))
    for reason in why_not(answer, 99):
        fits = "needs" not in reason.why or "as fast" in reason.why
        assert not (fits and reason.gain < np.exp(-0.01)), reason


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2-lite"])
def test_experts_have_their_own_directions(name):
    answer = planned(question_of(model(name), gpu("H200"), 64))
    assert any(reason.name.startswith("EP ") for reason in why_not(answer, 99))
