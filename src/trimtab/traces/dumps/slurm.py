"""A Slurm cluster with its rules, from dumps or from the commands themselves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.site import Site
from trimtab.traces.dumps import rules
from trimtab.traces.dumps.nodes import Node, away, cluster_of, kinds_of, nodes_of
from trimtab.traces.dumps.records import Record, records_of
from trimtab.traces.dumps.understood import Understood
from trimtab.traces.readers.csv_rows import read_text
from trimtab.traces.readers.hostlist import folded

COMMANDS = (  # the first has to answer
    ("scontrol", "show", "node"),
    ("scontrol", "show", "partition"),
    ("scontrol", "show", "reservation"),
    ("scontrol", "show", "config"),
    ("sacctmgr", "show", "qos", "-P"),
    ("sacctmgr", "show", "assoc", "tree", "-P"),
)
ANSWER_S = 60.0
FIELDS = {  # records: the field of the cluster file that they fill, and from what
    "node": (
        "nodes",
        "cpu = CPUEfctv, or CPUTot less CoreSpecCount; mem_gb = (RealMemory less MemSpecLimit) / "
        "1024; gpu and gpu_kind = Gres; features = AvailableFeatures; kind = what the node has",
    ),
    "switch": ("regions", "the switches that nodes hang on"),
    "partition": (
        "partitions",
        "times in seconds; tier = PriorityTier, factor = PriorityJobFactor",
    ),
    "qos": ("qos", "group = Grp..., user = Max...PU, account = Max...PA, job = Max... of each job"),
    "assoc": ("accounts", "shares, limits, and the shares of their users"),
    "reservation": ("reservations", "in seconds since 1970, local times taken as UTC, as sacct's"),
    "config": ("slurm", "the parameters of ordering, backfilling and preemption, in Slurm's words"),
}


def from_slurm(files: Sequence[str | Path], *, keep_down: bool = False) -> Understood:
    """The cluster in these dumps, in any order; without any, Slurm's own client is asked.

    Nodes that are down or drained are left out, and said, unless they are to be kept.
    """
    texts = [(str(path), read_text(path)) for path in files] if files else _asked()
    notes: list[str] = []
    records = [record for name, text in texts for record in records_of(name, text)]
    nodes = nodes_of(records)
    if not nodes:
        raise TraceError(
            f"{', '.join(name for name, _ in texts)}: no dump tells of nodes; add what scontrol "
            "show node prints"
        )
    silent = [node.name for node in nodes if not node.state]
    if silent and not keep_down:
        notes.append(f"{folded(silent)}: no state is told, taken as up (sinfo tells it with %T)")
    gone = [] if keep_down else [node for node in nodes if away(node)]
    kept = [node for node in nodes if node not in gone]
    if gone:
        hosts = folded([node.name for node in gone])
        notes.append(f"{hosts}: down, drained or not answering, left out (--keep-down keeps them)")
    if not kept:
        raise TraceError(f"{texts[0][0]}: all nodes are down; add --keep-down to take them as up")
    for node in kept:
        if node.also:
            models = ", ".join(node.also)
            notes.append(
                f"{node.name}: its {models} are taken as {node.gpu_kind}: one model a node"
            )
    site = _site(records, kept, [node.name for node in gone], notes)
    source = f"Slurm: {', '.join(Path(name).name for name, _ in texts)}"
    return Understood(
        cluster_of(kept, kinds_of(kept), site, source),
        _comments(records),
        list(dict.fromkeys(notes)),
    )


def _asked() -> list[tuple[str, str]]:
    """What Slurm's client answers here."""
    if not shutil.which("scontrol"):
        raise TraceError(
            "scontrol is not on this machine; give files, such as what scontrol show node and "
            "scontrol show partition print"
        )
    texts = []
    for number, command in enumerate(COMMANDS):
        name = " ".join(command)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ANSWER_S, check=False
            )
            failed, problem = done.returncode != 0, done.stderr.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            failed, problem = True, str(error)
        if not failed and done.stdout.strip():
            texts.append((name, done.stdout))
        elif number == 0:
            raise TraceError(f"{name}: {problem or 'no answer'}; give its output as a file")
    return texts


def _site(
    records: Sequence[Record], nodes: Sequence[Node], gone: Sequence[str], notes: list[str]
) -> Site:
    slurm = rules.parameters(records)
    said = {node.name: node.partitions for node in nodes}
    qos = rules.qos(records, notes)
    accounts = rules.accounts(records, notes)
    known = {one.name for one in qos}
    partitions = rules.partitions(records, said, gone, slurm.get("PreemptType", ""), notes)
    for number, one in enumerate(partitions):
        if one.qos and one.qos not in known:
            notes.append(
                f"partition {one.name}: the limits of its QOS {one.qos} are not known; add what "
                "sacctmgr show qos -P prints"
            )
            partitions[number] = replace(one, qos="")
    return Site(
        features=tuple(node.features for node in nodes),
        gpu_kind=tuple(node.gpu_kind for node in nodes),
        weight=tuple(node.weight for node in nodes)
        if {node.weight for node in nodes} != {1}
        else (),
        partitions=tuple(partitions),
        qos=tuple(replace(one, preempts=_among(one.preempts, known)) for one in qos),
        accounts=tuple(accounts),
        reservations=tuple(rules.reservations(records, said, notes)),
        slurm=slurm,
    )


def _among(names: Iterable[str], known: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in known)


def _comments(records: Iterable[Record]) -> dict[str, str]:
    """Of each field of the cluster file, which files or commands tell it, and how."""
    files: dict[str, dict[str, None]] = {}
    for record in records:
        name = record.where.partition(":")[0]
        files.setdefault(record.what, {})[Path(name).name] = None
    return {
        FIELDS[what][0]: f"{', '.join(names)}: {FIELDS[what][1]}"
        for what, names in files.items()
        if what in FIELDS
    }
