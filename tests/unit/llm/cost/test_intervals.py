"""Spreads of step time and memory."""

import numpy as np
import pytest

from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import FRAMEWORKS, cases
from trimtab.llm.spec import specs

LLAMA, A100 = specs.model("llama-3-70b"), specs.gpu("A100-SXM-80GB")


def plan(model=LLAMA, gpu=A100, gpus=64, **fields):
    return cases(model, gpu, gpus, tp=8, global_batch=64, **fields)


def test_the_interval_is_even_in_the_logarithm():
    made = plan()
    cost = training.cost(made)
    low_s, high_s = intervals.interval(cost, made)
    assert np.sqrt(low_s * high_s) == pytest.approx(cost["step_s"])


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": specs.gpu("MI300X")},
        {"gpu": specs.gpu("V100")},
        {"framework": FRAMEWORKS.index("torchtitan")},
        {"precision": 2},
        {"cp": 2},
        {"model": specs.model("mixtral-8x7b")},
        {"node_link_bps": 6e9},
    ],
)
def test_it_widens_outside_of_what_was_calibrated(other):
    assert intervals.step_spread(plan(**other))[0] > intervals.step_spread(plan())[0]


def test_a_plan_at_the_capacity_fits_every_second_time():
    made = plan()
    cost = training.cost(made)
    cost["memory_b"] = cost["capacity_b"]
    assert intervals.p_fit(cost, made)[0] == pytest.approx(0.5)


def test_the_chance_to_fit_falls_with_the_micro_batch():
    made = plan(micro_batch=np.array([1, 2, 4, 8, 16]), zero=1)
    chance = intervals.p_fit(training.cost(made), made)
    assert (np.diff(chance) <= 0).all()
    assert chance[-1] < 0.01


def test_spreads_may_be_given():
    narrow = {"training": {"spread": 0.0}, "memory": {"spread": 0.0}}
    assert intervals.step_spread(plan(), narrow)[0] == 0
    assert intervals.memory_spread(plan(), narrow)[0] == 0


def test_only_experts_on_other_nodes_are_that_uncertain():
    near, far = (cases(LLAMA, A100, 64, tp=tp, global_batch=64) for tp in (8, 16))
    assert intervals.step_spread(far) == intervals.step_spread(near)
    mixtral = specs.model("mixtral-8x7b")
    near, far = (cases(mixtral, A100, 64, tp=tp, ep=8, global_batch=64) for tp in (1, 2))
    assert intervals.step_spread(far) > 1.5 * intervals.step_spread(near)
