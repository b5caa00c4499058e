"""Kubernetes' nodes: quantities, labels, taints, and who takes no pods."""

import json
from typing import Any

import pytest

from trimtab.errors import TraceError
from trimtab.site import Partition
from trimtab.traces.dumps.kubernetes import from_kubernetes


def node(name: str, *, labels: Any = None, spec: Any = None, ready: str = "True", **has: str):
    has = {"cpu": "3920m", "memory": "16Gi"} | {k.replace("__", "/"): v for k, v in has.items()}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {"allocatable": has, "conditions": [{"type": "Ready", "status": ready}]},
    }


GPUS = {"nvidia.com__gpu": "8", "cpu": "95690m", "memory": "1073741824Ki"}
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "topology.kubernetes.io/zone": "eu-1a",
    "node.kubernetes.io/instance-type": "p4d.24xlarge",
}
TAINT = {"taints": [{"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}]}


@pytest.fixture
def file(tmp_path):
    def write(content: Any):
        path = tmp_path / "nodes.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def read(path):
    return from_kubernetes([path])


@pytest.mark.parametrize("wrap", [lambda items: {"kind": "List", "items": items}, list])
def test_quantities_labels_and_zones_become_nodes(file, wrap):
    items = [node("cpu-10"), node("cpu-9"), node("gpu-1", labels=LABELS, **GPUS)]
    made, _, notes = read(file(wrap(items)))
    assert made.names.tolist() == ["cpu-9", "cpu-10", "gpu-1"]
    assert made.capacity[0].tolist() == pytest.approx([3.92, 16, 0], abs=1e-5)
    assert made.capacity[2].tolist() == pytest.approx([95.69, 1024, 8], abs=1e-5)
    assert [made.kinds[k] for k in made.nodes["kind"]] == ["cpu", "cpu", "p4d.24xlarge"]
    assert [made.regions[g] for g in made.nodes["region"]] == ["all", "all", "eu-1a"]
    assert made.site.gpu_kind == ("", "", "NVIDIA-A100-SXM4-80GB")
    assert made.site.partitions == () and notes == []


@pytest.mark.parametrize(
    ("text", "mem_gb"), [("1Ti", 1024), ("2G", 2e9 / 2**30), ("1048576Ki", 1), ("1073741824", 1)]
)
def test_memory_is_read_in_any_unit(file, text, mem_gb):
    made, _, _ = read(file([node("a", memory=text)]))
    assert made.capacity[0, 1] == pytest.approx(mem_gb, abs=1e-5)


def test_a_taint_makes_a_partition_that_only_work_which_names_it_enters(file):
    flaky = {"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]}
    soft = {"taints": [{"key": "old", "effect": "PreferNoSchedule"}]}
    items = [node("a", spec=flaky), node("b", spec=soft), node("g", spec=TAINT, **GPUS)]
    made, _, notes = read(file(items))
    assert made.site.partitions == (
        Partition("nvidia.com/gpu=yes", ("g",)),
        Partition("untainted", ("a", "b"), default=True),
    )
    assert notes == ["g: tainted, partition nvidia.com/gpu=yes: for work that names it"]
    _, _, notes = read(file(items[2:]))
    assert "work that names no partition has none" in notes[-1]


def test_nodes_that_take_no_pods_are_left_out_and_said(file):
    items = [node("a1"), node("a2", spec={"unschedulable": True}), node("a3", ready="Unknown")]
    path = file(items)
    made, _, notes = read(path)
    assert made.names.tolist() == ["a1"]
    assert notes == ["a[2-3]: cordoned or not ready, left out (--keep-down keeps them)"]
    assert len(from_kubernetes([path], keep_down=True).cluster) == 3
    with pytest.raises(TraceError, match="no node takes pods; add --keep-down"):
        read(file(items[1:]))


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("{", [":1: is not JSON", "kubectl get nodes -o json"]),
        ("{}", ["kind='Node' is no node with a name"]),
        ([], ["holds no nodes"]),
        ([{"kind": "Pod", "metadata": {"name": "p"}}], ["items[1]: kind='Pod'", "nodes alone"]),
        ([node("a", spec=[1])], ["items[1]: a: spec=[1] is no table"]),
        ([node("a", spec={"taints": [3]})], ["a: taints[1]=3 is no table"]),
        ([{"metadata": 3}], ["is no node with a name"]),
        ([3], ["items[1]: kind=3"]),
        ([node("a", cpu="many")], ["items[1]: a: cpu='many' is no quantity such as 3920m"]),
        ([node("a", nvidia__gpu="1", memory="")], ["a: memory=''"]),
        ([node("a", **{"nvidia.com__gpu": "65"})], ["a: gpu=65 is more than 64"]),
    ],
)
def test_what_is_no_list_of_nodes_is_refused_by_place_value_and_remedy(file, content, parts):
    path = file(content)
    with pytest.raises(TraceError) as caught:
        read(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)
