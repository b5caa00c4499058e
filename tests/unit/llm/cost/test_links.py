"""Link laws, with the arithmetic shown."""

import numpy as np
import pytest
from numba import njit

from trimtab.llm.cost import links
from trimtab.llm.cost.kernels import LAW

LINK, CARD = 300e9, 25e9
ROW = np.array(
    [
        {
            "link_share": 0.5,
            "link_start_s": 1e-5,
            "link_chunk_s": 0.0,
            "pcie_share": 0.8,
            "node_share": 0.4,
            "node_start_s": 1e-4,
        }.get(name, 1.0)
        for name in LAW
    ]
)


@njit
def collectives_s(bytes_b, ranks, per_node, link_bps, node_link_bps, row):
    return (
        links.all_reduce_s(bytes_b, ranks, per_node, link_bps, node_link_bps, row),
        links.all_gather_s(bytes_b, ranks, per_node, link_bps, node_link_bps, row),
        links.reduce_scatter_s(bytes_b, ranks, per_node, link_bps, node_link_bps, row),
        links.all_to_all_s(bytes_b, ranks, per_node, link_bps, node_link_bps, row),
    )


def taken_s(bytes_b: float, ranks: int, per_node: int, link_bps: float = LINK) -> dict[str, float]:
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    found = collectives_s(bytes_b, float(ranks), float(per_node), link_bps, CARD, ROW)
    return dict(zip(names, found))


def sent_s(bytes_b: float, bps: float) -> float:
    return float(links.sends_s(np.array([bytes_b]), bps, ROW)[0])


def test_a_ring_in_a_node_moves_all_but_a_rank_s_own_part():
    found = taken_s(1.2e9, 4, 8)
    assert found["all_gather"] == pytest.approx(1.2e9 * 3 / 4 / (0.5 * LINK) + 1e-5)
    assert found["reduce_scatter"] == found["all_gather"]


def test_a_sum_moves_twice_what_a_gather_moves_and_starts_once():
    found = taken_s(1.2e9, 4, 8)
    assert found["all_reduce"] - 1e-5 == pytest.approx(2 * (found["all_gather"] - 1e-5))


def test_one_rank_and_no_bytes_take_no_time():
    assert set(taken_s(1e9, 1, 8).values()) == {0.0}
    assert set(taken_s(0.0, 8, 8).values()) == {0.0}


def test_across_nodes_every_rank_s_card_carries_its_part():
    # 16 ranks, 8 a node: 15/16 of the bytes twice, an eighth through each card
    card_s = 2 * 1e9 * 15 / 16 / 8 / (0.4 * CARD)
    link_s = 2 * 1e9 * 15 / 16 / (0.5 * LINK)
    assert card_s > link_s
    expected_s = card_s + 1e-5 + 2 * 1e-4
    assert taken_s(1e9, 16, 8)["all_reduce"] == pytest.approx(expected_s)


def test_one_rank_a_node_uses_the_card_alone():
    expected_s = 1e9 * 3 / 4 / (0.4 * CARD) + 1e-5 + 2 * 1e-4
    assert taken_s(1e9, 4, 1)["all_gather"] == pytest.approx(expected_s)


def test_the_same_group_is_slower_over_more_nodes():
    times_s = [taken_s(1e9, 8, near)["all_reduce"] for near in (8, 4, 2, 1)]
    assert times_s == sorted(times_s)
    assert times_s[0] < times_s[1]


def test_pcie_reaches_its_own_share():
    expected_s = 2 * 1e9 * 3 / 4 / (0.8 * 32e9) + 1e-5
    assert taken_s(1e9, 4, 4, link_bps=32e9)["all_reduce"] == pytest.approx(expected_s)


def test_all_to_all_sends_only_what_leaves_the_node_through_the_card():
    # 16 ranks, 8 a node: 8/16 leave the node, 7/16 stay inside
    expected_s = 1e9 * 8 / 16 / (0.4 * CARD) + 1e-5 + 1e-4
    assert taken_s(1e9, 16, 8)["all_to_all"] == pytest.approx(expected_s)


def test_chunks_cost_twice_the_root_of_latency_and_time():
    row = ROW.copy()
    row[LAW.index("link_chunk_s")] = 1e-5
    moved_s = 2 * 1e9 * 7 / 8 / (0.5 * LINK)
    found_s = collectives_s(1e9, 8.0, 8.0, LINK, CARD, row)[0]
    assert found_s == pytest.approx(moved_s + 2 * (1e-5 * moved_s) ** 0.5 + 1e-5)


def test_a_message_takes_its_start_and_the_share_of_its_link():
    assert sent_s(1e9, LINK) == pytest.approx(1e9 / (0.5 * LINK) + 1e-5)
    assert sent_s(1e9, 50e9) == pytest.approx(1e9 / (0.8 * 50e9) + 1e-5)
    assert sent_s(0.0, LINK) == 0.0
