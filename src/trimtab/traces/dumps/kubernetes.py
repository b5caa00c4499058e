"""A Kubernetes cluster from `kubectl get nodes -o json`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.columns import MAX_DEVICES
from trimtab.core import Cluster
from trimtab.errors import TraceError
from trimtab.site import Partition, Site
from trimtab.traces.dumps.nodes import Node, cluster_of, kinds_of
from trimtab.traces.dumps.understood import Understood
from trimtab.traces.readers.csv_rows import read_text
from trimtab.traces.readers.hostlist import folded, natural

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
GPU_LABELS = (
    *("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product"),
    *("cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name"),
)
ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
KINDS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
KEPT_OUT = ("NoSchedule", "NoExecute")
PASSING = "node.kubernetes.io/"  # taints that Kubernetes itself sets while a node is not well
OPEN = "untainted"  # the partition of nodes that take work without a toleration
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?")
FACTOR = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
FACTOR |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}
GIB = 1024.0**3


def from_kubernetes(files: Sequence[str | Path], *, keep_down: bool = False) -> Understood:
    """The nodes of these lists. Nodes that take no pods are left out, and said, unless kept.

    A node with a taint that keeps work out is in a partition that bears the taint's name; the
    others are in the partition `untainted`, where work goes that names none.
    """
    items = [item for path in files for item in _items(Path(path))]
    notes: list[str] = []
    gone = (
        []
        if keep_down
        else sorted((str(name) for name, _, item in items if _away(item)), key=natural)
    )
    if gone:
        notes.append(f"{folded(gone)}: cordoned or not ready, left out (--keep-down keeps them)")
    kept = {name: (where, item) for name, where, item in items if name not in gone}
    if not kept:
        raise TraceError(f"{files[0]}: no node takes pods; add --keep-down to take them as up")
    nodes = [_node(name, *kept[name]) for name in sorted(kept, key=natural)]
    taints = {name: _taints(kept[name][1]) for name in kept}
    partitions = _partitions(nodes, taints, notes)
    site = Site(
        features=tuple(node.features for node in nodes),
        gpu_kind=tuple(node.gpu_kind for node in nodes),
        partitions=partitions,
    )
    comments = {
        "nodes": "allocatable cpu, memory and GPUs; kind: the instance type, or what the node has; "
        "region: the zone",
        "partitions": "taints that keep work out; work without a toleration is in `untainted`",
    }
    source = f"Kubernetes: {', '.join(Path(path).name for path in files)}"
    return Understood(_cluster(nodes, kept, site, source), comments, notes)


def _items(path: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, where, node) of every node in a file."""
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg})"
        remedy = "give what kubectl get nodes -o json prints"
        raise TraceError(f"{path}:{error.lineno}: {problem}; {remedy}") from None
    listed = content.get("items", [content]) if isinstance(content, dict) else content
    found = []
    for number, item in enumerate(listed if isinstance(listed, list) else [], 1):
        where = f"{path}: items[{number}]"
        kind = item.get("kind", "Node") if isinstance(item, dict) else item
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if kind != "Node" or not isinstance(name, str):
            raise TraceError(f"{where}: kind={kind!r:.40} is no node with a name; list nodes alone")
        _check_shape(item, f"{where}: {name}")
        found.append((name, where, item))
    if not found:
        raise TraceError(f"{path}: holds no nodes; give what kubectl get nodes -o json prints")
    return found


def _check_shape(item: dict[str, Any], where: str) -> None:
    """Refuse a node whose parts are not the tables and lists of tables that they should be."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    labels = item["metadata"].get("labels") or {}
    tables = {"spec": spec, "status": status, "labels": labels}
    if isinstance(status, dict):
        tables |= {name: status.get(name) or {} for name in ("allocatable", "capacity")}
    for holder, name in ((spec, "taints"), (status, "conditions")):
        listed = (holder.get(name) or []) if isinstance(holder, dict) else []
        parts = listed if isinstance(listed, list) else [listed]
        tables |= {f"{name}[{number}]": part for number, part in enumerate(parts, 1)}
    for name, part in tables.items():
        if not isinstance(part, dict):
            raise TraceError(f"{where}: {name}={part!r:.40} is no table; make the list again")


def _away(item: dict[str, Any]) -> bool:
    """Whether the node takes no new pods now."""
    told = (item.get("status") or {}).get("conditions") or []
    ready = [one.get("status") for one in told if one.get("type") == "Ready"]
    return bool((item.get("spec") or {}).get("unschedulable")) or ready not in ([], ["True"])


def _node(name: str, where: str, item: dict[str, Any]) -> Node:
    status, labels = item.get("status") or {}, (item.get("metadata") or {}).get("labels") or {}
    has = status.get("allocatable") or status.get("capacity") or {}
    gpu = sum(int(_amount(has.get(gpu, "0"), f"{where}: {name}: {gpu}")) for gpu in GPUS)
    if gpu > MAX_DEVICES:
        raise TraceError(
            f"{where}: {name}: gpu={gpu} is more than {MAX_DEVICES} a node; give fewer"
        )
    cpu, memory = (_amount(has.get(one), f"{where}: {name}: {one}") for one in ("cpu", "memory"))
    model = next((str(labels[one]) for one in GPU_LABELS if labels.get(one)), "")
    return Node(
        name=name,
        cpu=cpu,
        mem_gb=memory / GIB,
        gpu=gpu,
        gpu_kind=model if gpu else "",
        features=(),
        region=next((str(labels[one]) for one in ZONES if labels.get(one)), "all"),
        weight=1,
        state="",
        partitions=(),
        also=(),
        where=where,
    )


def _amount(value: Any, where: str) -> float:
    """A quantity of Kubernetes': 3920m, 16093236Ki, 4."""
    found = AMOUNT.fullmatch(str(value))
    if not found:
        raise TraceError(f"{where}={value!r} is no quantity such as 3920m or 16Gi; mend the list")
    return float(found[1]) * FACTOR.get(found[2], 1.0)


def _taints(item: dict[str, Any]) -> tuple[str, ...]:
    """What keeps work out of the node, beside what Kubernetes sets for a while."""
    taints = (item.get("spec") or {}).get("taints") or []
    return tuple(
        "=".join(str(taint[part]) for part in ("key", "value") if taint.get(part))
        for taint in taints
        if taint.get("effect") in KEPT_OUT and not str(taint.get("key")).startswith(PASSING)
    )


def _partitions(
    nodes: Sequence[Node], taints: dict[str, tuple[str, ...]], notes: list[str]
) -> tuple[Partition, ...]:
    """A partition for the nodes of every set of taints, where there are any."""
    if not any(taints[node.name] for node in nodes):
        return ()
    hosts: dict[str, list[str]] = {}
    for node in nodes:
        hosts.setdefault("+".join(taints[node.name]) or OPEN, []).append(node.name)
    for name in hosts.keys() - {OPEN}:
        notes.append(f"{folded(hosts[name])}: tainted, partition {name}: for work that names it")
    notes.sort()
    if OPEN not in hosts:
        notes.append("every node is tainted: work that names no partition has none to run in")
    return tuple(
        Partition(name, tuple(hosts[name]), default=name == OPEN) for name in sorted(hosts)
    )


def _cluster(
    nodes: Sequence[Node], items: dict[str, tuple[str, dict[str, Any]]], site: Site, source: str
) -> Cluster:
    own = kinds_of(nodes)
    names = []
    for node, kind in zip(nodes, own):
        labels = (items[node.name][1].get("metadata") or {}).get("labels") or {}
        names.append(next((str(labels[one]) for one in KINDS if labels.get(one)), kind))
    return cluster_of(nodes, names, site, source)
