"""What scontrol, sinfo and sacctmgr print, and slurm.conf, as records of fields.

Whoever printed them, the fields of nodes and partitions bear the names that `scontrol show` has, so
that all below reads one form. Several dumps may stand in one file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from trimtab.errors import TraceError
from trimtab.traces.dumps.json_shapes import json_records
from trimtab.traces.readers.hostlist import expanded
from trimtab.traces.readers.slurm_text import NOTHING

STARTS = {
    "nodename": "node",
    "partitionname": "partition",
    "reservationname": "reservation",
    "switchname": "switch",
}
KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:().-]*)=")
SETTING = re.compile(r"([A-Za-z]\w*)\s*=\s?(.*)")
CONFIG = ("Configuration data as of", "Account Gather", "Cgroup Support", "Slurm", "MPI Plugins")
WORD = re.compile(r"[A-Z][A-Z_:()/]*")
CUT = 20  # sinfo -O cuts what is longer, unless told another width
SINFO = {  # column: (of a node, of a partition), in the words of scontrol
    "NODELIST": ("NodeName", "Nodes"),
    "HOSTNAMES": ("NodeName", "Nodes"),
    "CPUS": ("CPUTot", ""),
    "MEMORY": ("RealMemory", ""),
    "GRES": ("Gres", ""),
    "AVAIL_FEATURES": ("AvailableFeatures", ""),
    "FEATURES": ("AvailableFeatures", ""),
    "STATE": ("State", ""),
    "WEIGHT": ("Weight", ""),
    "PARTITION": ("Partitions", "PartitionName"),
    "AVAIL": ("", "State"),
    "TIMELIMIT": ("", "MaxTime"),
    "DEFAULTTIME": ("", "DefaultTime"),
    "PRIO_TIER": ("", "PriorityTier"),
    "PRIO_JOB_FACTOR": ("", "PriorityJobFactor"),
    "PREEMPT_MODE": ("", "PreemptMode"),
    "OVERSUBSCRIBE": ("", "OverSubscribe"),
    "SHARE": ("", "OverSubscribe"),
    "GROUPS": ("", "AllowGroups"),
}
PRINTED = (
    "scontrol show node|partition|reservation|topology|config, sinfo, sacctmgr show qos|assoc -P"
)


class Record(NamedTuple):
    what: str  # node, partition, reservation, switch, qos, assoc or config
    fields: dict[str, str]  # by name in small letters: slurm.conf has them in any
    where: str  # file and line

    def said(self, *names: str) -> str:
        """The first of these fields that says something, else ""."""
        texts = (self.fields.get(name.lower(), "") for name in names)
        return next((text for text in texts if text not in NOTHING), "")

    def mistake(self, name: str, problem: str) -> TraceError:
        value = self.fields.get(name.lower(), "")
        return TraceError(f"{self.where}: {name}={value} {problem}")


def records_of(name: str, text: str) -> list[Record]:
    """All records in the text of a file, or of a command, of that name."""
    if text.lstrip().startswith(("{", "[")):
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            problem = f"is not JSON ({error.msg})"
            raise TraceError(f"{name}:{error.lineno}: {problem}; make the dump again") from None
        found = [Record(what, fields, where) for what, fields, where in json_records(name, content)]
    else:
        found = list(
            _with_defaults(list(_of_lines(name, text)))
        )  # whole: records grow line by line
    if not found and "No reservations in the system" not in text:
        raise TraceError(f"{name}: holds nothing to read; give what {PRINTED} print")
    return found


def _of_lines(name: str, text: str) -> Iterator[Record]:
    header: _Header | None = None
    record: Record | None = None  # whose fields may go on in lines that are indented
    config = Record("config", {}, name)
    for number, line in _whole_lines(text):
        where = f"{name}:{number}"
        word = line.strip()
        if not word or word.startswith("#"):
            header = record = None
            continue
        key = KEY.match(word)
        if header is None and (header := _header_of(word)):
            record = None
        elif key and key[1].lower() in STARTS:
            record, header = Record(STARTS[key[1].lower()], {}, where), None
            _add(record, word)
            yield record
        elif header is not None:
            if set(word) <= set("-| "):
                raise TraceError(f"{where}: is a table for the screen; add -P to the command")
            yield from header.rows(line, where)
        elif record is not None and line[0].isspace():
            _add(record, word)
        elif setting := SETTING.fullmatch(word):
            config.fields.setdefault(setting[1].lower(), setting[2].split("#")[0].strip())
            config = config._replace(where=where) if len(config.fields) == 1 else config
            record = None
        elif not word.startswith((*CONFIG, "No ", "include ", "Include ")):
            raise TraceError(f"{where}: {word[:60]!r} is nothing that {PRINTED} print; drop it")
    if config.fields:
        yield config


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; one that ends in a backslash goes on in the next."""
    held, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        yield first, held + line
        held, first = "", 0


def _add(record: Record, line: str) -> None:
    if "#" in line and "OS=" not in line:
        line = line.split("#")[0]
    found = list(KEY.finditer(line))
    ends = [one.start() for one in found[1:]] + [len(line)]
    for one, end in zip(found, ends):
        record.fields.setdefault(one[1].lower(), line[one.end() : end].strip().strip('"'))


def _with_defaults(records: list[Record]) -> Iterator[Record]:
    """Fill what a slurm.conf says once, under NodeName=DEFAULT."""
    defaults: dict[str, dict[str, str]] = {}
    for record in records:
        named = record.fields.get(f"{record.what}name", "")
        if named.upper() == "DEFAULT":
            defaults[record.what] = defaults.get(record.what, {}) | record.fields
        else:
            yield record._replace(fields=defaults.get(record.what, {}) | record.fields)


class _Header(NamedTuple):
    """The first line of a table."""

    what: str  # qos, assoc or sinfo
    names: list[str]
    bars: bool
    fixed: bool  # columns of 20 characters

    def rows(self, line: str, where: str) -> Iterator[Record]:
        texts = self._split(line)
        if len(texts) != len(self.names):
            fields = f"{len(texts)} fields where the header has {len(self.names)}"
            remedy = "use sinfo -N -o '%N|%c|%m|%G|%f|%P|%T'" if self.what == "sinfo" else "use -P"
            raise TraceError(f"{where}: {line.strip()[:60]!r} has {fields}; {remedy}")
        if self.fixed and max(map(len, texts)) >= CUT:
            longest = max(texts, key=len)
            raise TraceError(
                f"{where}: {longest!r} fills its column and may be cut; give each field of sinfo -O"
                " a width (Features:200), or use -o"
            )
        if self.what == "sinfo":
            yield from _sinfo(dict(reversed(list(zip(self.names, texts)))), where)
            return
        named: dict[str, str] = {}
        for name, text in zip(self.names, texts):
            named.setdefault(name.replace(" ", "").lower(), text)
        yield Record(self.what, named, where)

    def _split(self, line: str) -> list[str]:
        if self.bars:
            texts = [text.rstrip() for text in line.split("|")]
            return texts[: len(self.names)] if texts[-1] == "" else texts
        last = len(self.names) - 1
        texts = line.split(None, last if self.names[-1] == "REASON" else -1)
        # a partition without nodes
        return [*texts, ""] if len(texts) == last and self.names[-1] == "NODELIST" else texts


def _header_of(line: str) -> _Header | None:
    bars = "|" in line
    names = [name.strip() for name in line.split("|")] if bars else line.split()
    names = names[:-1] if bars and not names[-1] else names
    if {"Account", "User"} <= {*names} and {"Share", "Fairshare", "FairShare"} & {*names}:
        return _Header("assoc", names, bars, False)
    if {"Name", "Priority"} <= {*names} and bars:
        return _Header("qos", names, bars, False)
    if not all(WORD.fullmatch(name) for name in names) or not (
        {"NODELIST", "HOSTNAMES", "PARTITION"} & {*names}
    ):
        return None
    starts = [one.start() for one in re.finditer(r"\S+", line)]
    fixed = len(starts) > 1 and all(start % CUT == 0 for start in starts)
    return _Header("sinfo", names, bars, fixed and not bars)


def _sinfo(row: dict[str, str], where: str) -> Iterator[Record]:
    """A line of sinfo as the nodes and the partition that it tells of."""
    node, partition = {}, {}
    for column, text in row.items():
        of_node, of_partition = SINFO.get(column, ("", ""))
        text = text.strip()
        if of_node:
            node[of_node.lower()] = text.rstrip("*") if column == "PARTITION" else text
        if of_partition:
            partition[of_partition.lower()] = text
    hosts = row.get("NODELIST") or row.get("HOSTNAMES") or ""
    if row.get("PARTITION", "").endswith("*"):
        partition |= {"partitionname": partition["partitionname"].rstrip("*"), "default": "YES"}
    if "partitionname" in partition:
        partition["nodes"] = hosts
        least, _, most = row.get("JOB_SIZE", "").partition("-")
        partition |= {"minnodes": least, "maxnodes": most} if most else {}
        yield Record("partition", partition, where)
    for host in expanded(hosts, f"{where}: NODELIST"):
        yield Record("node", node | {"nodename": host}, where)
