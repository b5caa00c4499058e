"""Plans on a shared cluster: slower host and links, and the bytes that a plan moves itself."""

import pytest

from trimtab.llm.cost.cases import cases
from trimtab.llm.cost.crowded import checkpoint_s, crowded_cost, link_use_s
from trimtab.llm.cost.kernels import LOAD_SLOW
from trimtab.llm.cost.profiles import law_rows
from trimtab.llm.cost.training import cost
from trimtab.llm.spec.specs import gpu, model

GPT, A100 = model("gpt3-2.7b"), gpu("A100-SXM-80GB")


def rows(gpus, **plan):
    return cases(GPT, A100, gpus, seq=2048, global_batch=64, **plan)


def test_a_calm_cluster_costs_what_the_cost_model_says():
    made = rows(16, tp=2)
    assert (crowded_cost(made, 0.0, 1.0) == cost(made)).all()


def test_a_congested_link_slows_what_leaves_the_node_alone():
    inside, outside = rows(8, zero=3, framework=3), rows(16, zero=3, framework=3)
    assert crowded_cost(inside, 0.0, 0.2)["step_s"] == cost(inside)["step_s"]
    assert crowded_cost(outside, 0.0, 0.2)["step_s"] > cost(outside)["step_s"]


def test_a_busy_host_makes_the_host_part_of_a_step_longer():
    made = rows(8)
    # 1 + slow x 0.8 / 0.2 times the host's time, which is all of the overhead on one node
    more = 4.0 * law_rows()[int(made["arch"][0])][LOAD_SLOW]
    more_s = crowded_cost(made, 0.8, 1.0)["overhead_s"] - cost(made)["overhead_s"]
    assert more_s == pytest.approx(more * cost(made)["overhead_s"], rel=1e-6)


def test_a_checkpoint_goes_out_and_in_over_all_links():
    # 1000 bytes over 4 x 10 bytes/s, then over 2 x 10
    assert checkpoint_s(1000.0, 4, 2, 10.0) == pytest.approx(25.0 + 50.0)


def test_data_parallel_inside_a_node_uses_no_card():
    inside_s, outside_s = link_use_s(rows(8))
    assert inside_s[0] > 0 and outside_s[0] == 0


def test_a_ring_over_two_nodes_passes_each_nodes_cards_once():
    made = rows(16)
    # 12 h^2 parameters a layer, 4 bytes of gradient reduced and as many gathered, 15 of 16 parts;
    # one rank of the node's 8 sends, through 8 cards
    weights = 12 * 2560**2 * 32
    sent_b = 15 / 16 * 2 * 4 * weights / 8
    assert link_use_s(made)[1][0] == pytest.approx(sent_b / made["node_link_bps"][0])


def test_data_ranks_that_share_a_node_leave_the_cards_to_the_stages():
    made = rows(16, pp=2)
    # 64 x 2048 tokens over 8 ranks, 2 bytes there and 2 back, hidden 2560; all 8 of a node send
    sent_b = 4 * 64 * 2048 / 8 * 2560
    assert link_use_s(made)[1][0] == pytest.approx(sent_b / made["node_link_bps"][0])
