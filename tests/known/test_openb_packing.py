"""GPU packing on Alibaba's openb trace against the values its authors published (ATC'23)."""

import csv
import gzip
import json
from functools import cache

import numpy as np
import pytest
from tests.data import FOLDER

from trimtab.errors import TraceError
from trimtab.sim import packing
from trimtab.traces.readers import openb

TRACE = FOLDER / "data" / "alibaba_gpu"
REFERENCE = FOLDER / "reference" / "scheduling"
POLICIES = {
    "01-Random": packing.RANDOM,
    "02-DotProd": packing.DOT_PRODUCT,
    "03-GpuClustering": packing.GPU_CLUSTERING,
    "04-GpuPacking": packing.GPU_PACKING,
    "05-BestFit": packing.BEST_FIT,
    "06-FGD": packing.FGD,
}
EXACT = [name for name in POLICIES if name != "01-Random"]
ENTRIES = ["openb_pod_list_default|42", "openb_pod_list_default|43"]

needs_data = pytest.mark.skipif(
    not (TRACE.is_dir() and REFERENCE.is_dir()),
    reason="openb and its reference values are not here; set TRIMTAB_DATA to the folder with "
    "data/alibaba_gpu and reference/scheduling",
)


@cache
def published(entry: str) -> dict:
    with gzip.open(REFERENCE / "openb_fgd.json.gz") as file:
        return json.load(file)[entry]["published"]


@cache
def nodes_of(cluster: str) -> dict:
    return openb.read_nodes(TRACE / f"openb_node_list_{cluster}.csv.xz")


@cache
def pods_of(list_: str) -> dict:
    return openb.read_pods(TRACE / f"{list_}.csv.xz")


@cache
def order_of(entry: str) -> openb.Order:
    return openb.read_order(REFERENCE / "openb_fgd.json.gz", entry)


@cache
def run(entry: str, policy: int, cluster: str = "gpu_node", seed: int = 0) -> packing.Packing:
    table, list_, order = nodes_of(cluster), pods_of(entry.split("|")[0]), order_of(entry)
    nodes, pods = packing.columns(table, list_)
    rows = packing.by_prefix(table["sn"], table["gpu"], order.node_prefix)
    arrivals = openb.order_rows(order, list_["name"])
    return packing.pack(nodes, pods, arrivals, policy, rows, np.random.default_rng(seed))


@needs_data
def test_fgd_places_3560_pods_where_the_authors_program_does():
    found = run(ENTRIES[0], packing.FGD)
    names = nodes_of("gpu_node")["sn"]
    with open(REFERENCE / "openb_fgd_seed42_placements.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3560
    assert [str(names[n]) for n in found.node[:3560]] == [row["node"] for row in rows]
    used = found.used_gpu_milli[:3560].tolist()
    assert used == [int(row["used_gpu_milli_after"]) for row in rows]
    frag = [f"{milli:.2f}" for milli in found.frag_gpu_milli[:3560]]
    assert frag == [f"{float(row['frag_amount_after']):.2f}" for row in rows]


@needs_data
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("policy", EXACT)
def test_allocation_equals_the_published_one_at_every_load(entry, policy):
    found = run(entry, POLICIES[policy])
    expected = published(entry)[policy]["alloc_pct"]
    assert len(expected) == 8
    assert {p: packing.at_load(found, int(p))[0] for p in expected} == expected


@needs_data
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("policy", EXACT)
def test_fragmentation_equals_the_published_one_at_every_load(entry, policy):
    found = run(entry, POLICIES[policy])
    expected = published(entry)[policy]["frag_ratio_pct"]
    assert len(expected) == 4
    ours = {p: packing.at_load(found, int(p))[1] for p in expected}
    assert ours == pytest.approx(expected, rel=1e-12)


@needs_data
@pytest.mark.parametrize("entry", ENTRIES)
def test_random_allocates_as_published_up_to_its_own_noise(entry):
    ours = [packing.at_load(run(entry, packing.RANDOM, seed=s), 130)[0] for s in range(10)]
    assert published(entry)["01-Random"]["alloc_pct"]["130"] == pytest.approx(np.mean(ours), abs=1)
    assert len(set(ours)) > 1


@needs_data
def test_nodes_without_gpus_take_no_part_in_an_order_made_without_them():
    alone, among_others = (run(ENTRIES[0], packing.FGD, c) for c in ("gpu_node", "all_node"))
    assert among_others.used_gpu_milli.tolist() == alone.used_gpu_milli.tolist()
    gpu = nodes_of("all_node")["gpu"]
    placed = among_others.node >= 0
    assert (gpu[among_others.node[placed]] > 0).all()
    assert (np.cumsum(gpu > 0)[among_others.node] - 1)[placed].tolist() == alone.node[
        placed
    ].tolist()


@needs_data
@pytest.mark.parametrize("list_", ["gpuspec20", "multigpu30", "gpushare100", "cpu300", "cpu0"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_no_node_is_overbooked_and_every_pod_gets_a_model_it_accepts(list_, policy):
    table = nodes_of("all_node")
    pods = pods_of(f"openb_pod_list_{list_}")
    order = np.random.default_rng(1).permutation(len(pods["name"]))
    found = packing.pack(*packing.columns(table, pods), order, policy)
    free_gpu_milli = [[1000] * gpu for gpu in table["gpu"]]
    for column in ("cpu_milli", "memory_mib"):
        booked = np.bincount(
            found.node[found.node >= 0], pods[column][order][found.node >= 0], 1523
        )
        assert (booked <= table[column]).all()
    for p, n, devices in zip(order, found.node, found.devices.tolist()):
        taken = [i for i in range(8) if devices >> i & 1]
        assert len(taken) == (pods["num_gpu"][p] if n >= 0 else 0)
        for i in taken:
            free_gpu_milli[n][i] -= pods["gpu_milli"][p]
            assert free_gpu_milli[n][i] >= 0
            assert pods["gpu_spec"][p] == "" or table["model"][n] in pods["gpu_spec"][p].split("|")
    assert sum(map(sum, free_gpu_milli)) + found.used_gpu_milli[-1] == found.capacity_gpu_milli


NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (openb.read_nodes, "sn,cpu_milli\na,1\n", ":1: column memory_mib is missing"),
        (openb.read_nodes, NODES, ":1: the list has no rows"),
        (openb.read_nodes, NODES + "a,1,1,0,\na,1,1,0,\n", ":3: sn=a is also in line 2"),
        (openb.read_nodes, NODES + "a,1,1,8,\n", ":2: model= is empty on a node with GPUs"),
        (openb.read_nodes, NODES + "a,1,1\n", ":2: 3 fields"),
        (openb.read_pods, PODS + "a,1,1,0,0\nb,-1,1,0,0\n", ":3: cpu_milli=-1 is negative"),
        (openb.read_pods, PODS + "a,1,x,0,0\n", ":2: memory_mib=x is not a number"),
        (openb.read_pods, PODS + "a,1,1,2,500\n", ":2: gpu_milli=500 with num_gpu=2"),
        (openb.read_pods, PODS + "a,1,1,1,0\n", ":2: gpu_milli=0 with num_gpu=1"),
        (openb.read_pods, PODS + "a,1,1,1,1001\n", ":2: gpu_milli=1001 with num_gpu=1"),
        (openb.read_order, "{", ":1: not JSON"),
        (openb.read_order, '{"a": {}, "b": {}}', ": entry=None is not in the file"),
        (openb.read_order, '{"pod_order": [1]}', ": pod_order is not a list of pod names"),
        (
            openb.read_order,
            '{"pod_order": [], "node_prefix": [1, 1]}',
            ": node_prefix=1 comes twice",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line_and_value(tmp_path, read, text, message):
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}{message}")


def test_a_missing_or_damaged_file_is_a_trace_error(tmp_path):
    damaged = tmp_path / "list.csv.gz"
    damaged.write_bytes(b"not gzip")
    for path in (tmp_path / "absent.csv", damaged):
        for read in (openb.read_nodes, openb.read_pods, openb.read_order):
            with pytest.raises(TraceError, match=str(path)):
                read(path)


def test_an_order_names_pods_with_or_without_prefix_and_copies_by_number(tmp_path):
    path = tmp_path / "order.json"
    path.write_text('{"pod_order": ["0001", "openb-pod-0000", "0001-tuned-7"]}')
    order = openb.read_order(path)
    names = np.array(["openb-pod-0000", "openb-pod-0001"])
    assert openb.order_rows(order, names).tolist() == [1, 0, 1]
    assert order.node_prefix is None
    with pytest.raises(TraceError, match=r"pod_order\[0\]=0001 is not in the pod list"):
        openb.order_rows(order, names[:1])


def test_prefixes_for_another_cluster_are_refused():
    names, gpu = np.array(["b", "a", "c"]), np.array([1, 0, 1])
    assert packing.by_prefix(names, gpu, np.array([2, 0, 1])).tolist() == [0, 2, 1]
    assert packing.by_prefix(names, gpu, np.array([1, 0])).tolist() == [2, 0]
    assert packing.by_prefix(names, gpu, None).tolist() == [1, 0, 2]
    with pytest.raises(TraceError, match="4 entries for 3 nodes, 2 of them with GPUs"):
        packing.by_prefix(names, gpu, np.arange(4))
