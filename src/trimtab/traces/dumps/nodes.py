"""Slurm's nodes: what jobs can have of each, and what a person would call its kind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimtab.build import cluster
from trimtab.columns import MAX_DEVICES
from trimtab.core import Cluster
from trimtab.site import Site
from trimtab.traces.dumps.records import Record
from trimtab.traces.readers.hostlist import expanded, natural
from trimtab.traces.readers.slurm_text import FACTOR

RESOURCES = ("cpu", "mem_gb", "gpu")
# of Slurm's states, long and short, those in which no new job starts
AWAY = frozenset(
    ("DOWN", "DRAIN", "DRAINED", "DRAINING", "DRNG", "FAIL", "FAILING", "FAILG", "ERROR")
    + ("FUTURE", "FUTR", "UNKNOWN", "UNK", "NOT_RESPONDING", "NO_RESPOND", "INVAL", "INVALID_REG")
)
GRES = re.compile(r"gpu(?::([^:]+))??(?::no_consume)?(?::(\d+)([KMGT]?))?", re.IGNORECASE)
ALIKE = 1.1  # memory of one kind of node: what is left of it differs a little from one to another


class Node(NamedTuple):
    name: str
    cpu: float
    mem_gb: float
    gpu: int
    gpu_kind: str
    features: tuple[str, ...]
    region: str
    weight: float
    state: str
    partitions: tuple[str, ...]
    also: tuple[str, ...]  # GPU models beside `gpu_kind`
    where: str


def nodes_of(records: Iterable[Record]) -> list[Node]:
    """The nodes by name.

    What several records tell of a node counts together; the first that tells a field wins.
    """
    fields: dict[str, dict[str, str]] = {}
    where: dict[str, str] = {}
    partitions: dict[str, dict[str, None]] = defaultdict(dict)
    regions = _regions(records)
    for record in records:
        if record.what != "node":
            continue
        for name in expanded(record.said("NodeName"), f"{record.where}: NodeName"):
            where.setdefault(name, record.where)
            told = {key: text for key, text in record.fields.items() if text}
            fields[name] = told | fields.get(name, {})
            partitions[name] |= dict.fromkeys(filter(None, told.get("partitions", "").split(",")))
    made = [
        _node(name, Record("node", told, where[name]), (*partitions[name],), regions)
        for name, told in fields.items()
    ]
    return sorted(made, key=lambda node: natural(node.name))


def away(node: Node) -> bool:
    """Whether Slurm starts no jobs there now."""
    words = re.split(r"[+,\s]+", node.state.upper())
    bare = {word.rstrip("*~#!%$@^-") for word in words}
    return node.state.endswith("*") or any("*" in word for word in words) or bool(AWAY & bare)


def cluster_of(nodes: Sequence[Node], names: Sequence[str], site: Site, source: str) -> Cluster:
    """A cluster of these nodes, whose kinds have these names, node by node."""
    kinds, regions = list(dict.fromkeys(names)), list(dict.fromkeys(node.region for node in nodes))
    return cluster(
        [[node.cpu, node.mem_gb, node.gpu] for node in nodes],
        resources=RESOURCES,
        kind=[kinds.index(name) for name in names],
        kinds=kinds,
        region=[regions.index(node.region) for node in nodes],
        regions=regions,
        names=[node.name for node in nodes],
        source=source,
        site=site,
    )


def kinds_of(nodes: Sequence[Node]) -> list[str]:
    """A name for each node's hardware: a100, cpu, or cpu-64c-512g where one word is not enough.

    Nodes whose memory differs by less than a tenth are one kind.
    """
    level = _levels(node.mem_gb for node in nodes)
    words = [
        (
            node.gpu_kind.lower() or ("gpu" if node.gpu else "cpu"),
            f"{node.gpu}x",
            f"{node.cpu:g}c",
            f"{level[node.mem_gb]:.0f}g",
        )
        for node in nodes
    ]
    alike: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for word in words:
        alike[word[0]].add(word)
    # of each family the columns in which its members differ
    columns = {
        family: [place for place in (1, 2, 3) if len({one[place] for one in members}) > 1]
        for family, members in alike.items()
    }
    return ["-".join((word[0], *(word[place] for place in columns[word[0]]))) for word in words]


def gpus_of(gres: str) -> dict[str, int] | None:
    """GPUs by model of `gpu:a100:8(S:0-1),nvme:2`, "" for no model; None where it is unreadable."""
    found: dict[str, int] = defaultdict(int)
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        if not re.match(r"gpu(:|$)", item.strip(), re.IGNORECASE):
            continue
        parts = GRES.fullmatch(item.strip())
        if not parts:
            return None
        model, count, unit = parts[1] or "", int(parts[2] or 1), parts[3] or ""
        found[model] += int(count * FACTOR[unit])
    return dict(found)


def _node(name: str, record: Record, partitions: tuple[str, ...], regions: dict[str, str]) -> Node:
    threads = whole(record, 1, "ThreadsPerCore")
    cpu = whole(record, 0, "CPUEfctv")
    if not cpu:
        spec = record.said("CPUSpecList")
        listed = len(expanded(f"[{spec}]", f"{record.where}: CPUSpecList")) if spec else 0
        cores = whole(record, 0, "CoreSpecCount")
        cpu = _cpus(record, threads) - (cores * threads or listed)
    mem_mb = whole(record, 0, "RealMemory") - whole(record, 0, "MemSpecLimit")
    for field, value, column in (("CPUTot", cpu, "%c"), ("RealMemory", mem_mb, "%m")):
        if value <= 0:
            remedy = f"give scontrol show node, or sinfo -N with {column}"
            raise record.mistake(field, f"leaves node {name} nothing; {remedy}")
    gpus = gpus_of(record.said("Gres"))
    if gpus is None:
        raise record.mistake("Gres", f"of node {name} is not such as gpu:a100:8; mend it")
    if sum(gpus.values()) > MAX_DEVICES:
        problem = f"is more than {MAX_DEVICES} GPUs on node {name}; give fewer"
        raise record.mistake("Gres", problem)
    models = sorted(gpus, key=lambda model: (-gpus[model], model))
    return Node(
        name=name,
        cpu=cpu,
        mem_gb=mem_mb / 1024,
        gpu=sum(gpus.values()),
        gpu_kind=models[0] if models else "",
        features=tuple(_features(record)),
        region=regions.get(name, "all"),
        weight=whole(record, 1, "Weight"),
        state=record.said("State"),
        partitions=partitions,
        also=tuple(models[1:]),
        where=record.where,
    )


def whole(record: Record, default: int, name: str) -> int:
    """A field that is a whole number."""
    text = record.said(name)
    if not text:
        return default
    if text.endswith("+") and text[:-1].isdigit():
        raise record.mistake(name, "stands for nodes that differ; use sinfo -N, a line a node")
    if not text.isdigit():
        raise record.mistake(name, "is not a whole number; make the dump again")
    return int(text)


def _cpus(record: Record, threads: int) -> int:
    """CPUs as Slurm counts them: of scontrol, or of a slurm.conf, which may tell sockets alone."""
    told = whole(record, 0, "CPUTot") or whole(record, 0, "CPUs") or whole(record, 0, "Procs")
    if told:
        return told
    sockets = whole(record, 0, "Sockets") or (
        whole(record, 1, "Boards") * whole(record, 1, "SocketsPerBoard")
    )
    named = record.said("Sockets", "SocketsPerBoard", "CoresPerSocket")
    return sockets * whole(record, 1, "CoresPerSocket") * threads if named else 0


def _features(record: Record) -> list[str]:
    text = record.said("AvailableFeatures", "Features", "Feature", "ActiveFeatures")
    return [part for part in text.split(",") if part]


def _regions(records: Iterable[Record]) -> dict[str, str]:
    """The switch that each node hangs on, where a dump of the topology is among the records."""
    found: dict[str, str] = {}
    for record in records:
        leaf = record.said("Level") in ("", "0") and not record.said("Switches")
        if record.what == "switch" and leaf:
            for host in expanded(record.said("Nodes"), f"{record.where}: Nodes"):
                found.setdefault(host, record.said("SwitchName"))
    return found


def _levels(values: Iterable[float]) -> dict[float, float]:
    """The least of those that are alike, for each value."""
    found: dict[float, float] = {}
    least = 0.0
    for value in sorted(set(values)):
        if value > least * ALIKE:
            least = value
        found[value] = least
    return found
