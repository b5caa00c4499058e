"""Orders of arrival drawn again by their seeds, and lists that are made."""

import gzip
import json

import numpy as np
import pytest
from tests.data import FOLDER, found

from trimtab.errors import TraceError
from trimtab.reproduce.openb.published import ALLOCATION, COLUMNS
from trimtab.sim import packing
from trimtab.traces.openb.go_rand import MASK, GoRand, _cooked
from trimtab.traces.openb.lists import (
    DEMANDS,
    drawn_pods,
    mix_of,
    openb_nodes,
    published_mix,
    varied,
)
from trimtab.traces.openb.orders import PUBLISHED_SEEDS, drawn_order
from trimtab.traces.readers import openb

TRACE = FOLDER / "data" / "alibaba_gpu"
NODES = {
    "sn": np.array(["b", "a", "c"]),
    "cpu_milli": np.full(3, 96_000),
    "memory_mib": np.full(3, 393_216),
    "gpu": np.array([2, 0, 2]),
    "model": np.array(["G2", "", "T4"]),
}


def pods(*gpu_milli: int) -> dict[str, np.ndarray]:
    return {
        "name": np.array([f"pod-{p}" for p in range(len(gpu_milli))]),
        "gpu_milli": np.array(gpu_milli),
        "num_gpu": np.ones(len(gpu_milli), np.int64),
    }


def test_the_generator_is_gos():
    # what every Go program before 1.20 printed of rand.Intn(100) without a seed, which was 1
    rng = GoRand(1)
    assert [rng.intn(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_the_jump_ends_at_the_numbers_that_gos_source_lists():
    first, *_, last = [int(one) & MASK for one in _cooked()]
    assert (first, last) == (5041579894721019882, 4152330101494654406)


def test_a_power_of_two_takes_bits_and_seeds_differ():
    assert [GoRand(1).intn(64), GoRand(2).intn(64)] == [
        GoRand(1).int63() >> 32 & 63,
        GoRand(2).int63() >> 32 & 63,
    ]
    assert sorted(GoRand(3).shuffled(50)) == sorted(GoRand(3).perm(50)) == list(range(50))
    assert GoRand(3).shuffled(50).tolist() != GoRand(4).shuffled(50).tolist()


def test_an_order_adds_copies_until_the_load_is_met():
    order = drawn_order(NODES, pods(1000, 500), 42, load=1.5)  # 6,000 milli on four GPUs
    milli = {"pod-0": 1000, "pod-1": 500}
    names = [name.partition("-tuned-")[0] for name in order.pods]
    assert sorted(names[:2]) == ["pod-0", "pod-1"]
    assert order.pods[2:] == [f"{name}-tuned-{k}" for k, name in enumerate(names[2:])]
    assert 5000 < sum(milli[name] for name in names) <= 6000
    assert sorted(order.node_prefix.tolist()) == [0, 1]  # the node without GPUs has none


def test_a_list_that_asks_for_more_than_the_load_loses_pods():
    order = drawn_order(NODES, pods(*[1000] * 9), 42, load=1.0)
    assert len(order.pods) == 4
    assert len(set(order.pods)) == 4


@pytest.mark.parametrize("seed", [42, 43])
def test_drawn_orders_are_the_authors(seed):
    with gzip.open(found("reference", "scheduling", "openb_fgd.json.gz")) as file:
        given = json.load(file)[f"openb_pod_list_default|{seed}"]
    order = drawn_order(*_lists("default"), seed)
    assert [name.removeprefix(openb.POD_PREFIX) for name in order.pods] == given["pod_order"]
    assert order.node_prefix.tolist() == given["node_prefix"]


@pytest.mark.slow
@pytest.mark.parametrize("list_", ["default", "gpuspec20", "multigpu20"])
def test_the_published_means_of_ten_orders_come_out(list_):
    nodes, table = _lists(list_)
    columns = packing.columns(nodes, table)
    for policy in ("fgd", "bestfit", "dotprod", "packing", "clustering"):
        filled = []
        for seed in PUBLISHED_SEEDS:
            order = drawn_order(nodes, table, seed)
            rows = packing.by_prefix(nodes["sn"], nodes["gpu"], order.node_prefix)
            arrival = openb.order_rows(order, table["name"])
            done = packing.pack(*columns, arrival, packing.BY_NAME[policy], rows)
            filled.append(packing.at_load(done, 130)[0])
        assert np.mean(filled) == pytest.approx(ALLOCATION[list_][COLUMNS.index(policy)], abs=6e-4)


def _lists(list_):
    return (
        openb.read_nodes(found("data", "alibaba_gpu", "openb_node_list_gpu_node.csv.xz")),
        openb.read_pods(found("data", "alibaba_gpu", f"openb_pod_list_{list_}.csv.xz")),
    )


def test_made_nodes_are_openbs_with_gpus():
    whole, part = openb_nodes(), openb_nodes(121)
    assert (len(whole["sn"]), int(whole["gpu"].sum())) == (1213, 6212)
    assert len(part["sn"]) == 121
    for model in ("G2", "T4", "P100"):
        share = (whole["model"] == model).mean()
        assert (part["model"] == model).mean() == pytest.approx(share, abs=0.01)


def test_drawn_pods_ask_for_the_load_and_have_the_mix():
    nodes, mix = openb_nodes(), published_mix()
    drawn = drawn_pods(nodes, mix, np.random.default_rng(1), load=1.3)
    asked = (drawn["gpu_milli"] * drawn["num_gpu"]).sum() / 1000 / nodes["gpu"].sum()
    assert 1.298 < asked <= 1.3
    of_list = sum(row[-1] for row in DEMANDS if row[1] == 810) / sum(row[-1] for row in DEMANDS)
    assert (drawn["gpu_milli"] == 810).mean() == pytest.approx(of_list, abs=0.01)
    again = mix_of(drawn)
    assert again.share.sum() == pytest.approx(1)
    assert len(again.share) <= len(mix.share)


def test_a_varied_mix_keeps_its_demands_and_makes_some_picky():
    nodes, mix = openb_nodes(), published_mix()
    other = varied(mix, nodes, np.random.default_rng(1), classes=1.0, demands=0.5, picky=0.25)
    assert other.share.sum() == pytest.approx(1)
    picky = other.gpu_spec != ""
    assert other.share[picky].sum() == pytest.approx(0.25 * other.share[other.num_gpu > 0].sum())
    known = set(nodes["model"])
    assert all(set(spec.split("|")) <= known for spec in other.gpu_spec[picky])


def test_what_cannot_be_drawn_is_said():
    nodes, mix = openb_nodes(10), published_mix()
    rng = np.random.default_rng(1)
    with pytest.raises(TraceError, match="nodes=0"):
        openb_nodes(0)
    with pytest.raises(TraceError, match="load=0"):
        drawn_pods(nodes, mix, rng, load=0)
    without = mix._replace(num_gpu=np.zeros_like(mix.num_gpu))
    with pytest.raises(TraceError, match="no pod of the mix asks for a GPU"):
        drawn_pods(nodes, without, rng)
