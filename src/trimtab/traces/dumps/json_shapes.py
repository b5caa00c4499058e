"""The JSON of scontrol and sinfo, of 21.08 to 24.11, in the words of `scontrol show`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.readers.hostlist import folded
from trimtab.traces.readers.sacct_json import plain

NODE = {
    "name": "NodeName",
    "cpus": "CPUTot",
    "effective_cpus": "CPUEfctv",
    "specialized_cores": "CoreSpecCount",
    "threads": "ThreadsPerCore",
    "real_memory": "RealMemory",
    "specialized_memory": "MemSpecLimit",
    "gres": "Gres",
    "features": "AvailableFeatures",
    "partitions": "Partitions",
    "state": "State",
    "weight": "Weight",
}
RESERVATION = {
    "name": "ReservationName",
    "start_time": "StartTime",
    "end_time": "EndTime",
    "node_list": "Nodes",
    "users": "Users",
    "accounts": "Accounts",
    "groups": "Groups",
    "flags": "Flags",
}
Shape = tuple[str, dict[str, str], str]  # what, fields, where


def json_records(name: str, content: Any) -> Iterator[Shape]:
    """(what, fields, where) of every node, partition and reservation."""
    known = {"nodes": _node, "sinfo": _sinfo, "partitions": _partition}
    known |= {"reservations": _reservation}
    here = [key for key in known if isinstance(content, dict) and key in content]
    if not here:
        raise TraceError(
            f"{name}: has none of {', '.join(known)}; give what scontrol show node --json or sinfo "
            "--json print"
        )
    for key in here:
        if not isinstance(content[key], list):
            raise TraceError(f"{name}: {key}={content[key]!r:.40} is no list; make the dump again")
        for number, item in enumerate(content[key], 1):
            where = f"{name}: {key}[{number}]"
            try:
                yield from known[key](item, where)
            except (KeyError, TypeError, AttributeError) as error:
                problem = f"lacks {error} or holds it in another form"
                raise TraceError(f"{where}: {problem}; use scontrol show node instead") from None


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    return plain(value)


def _renamed(item: dict[str, Any], names: dict[str, str]) -> dict[str, str]:
    return {ours.lower(): _text(item[theirs]) for theirs, ours in names.items() if theirs in item}


def _node(item: dict[str, Any], where: str) -> Iterator[Shape]:
    fields = _renamed(item, NODE) | {"nodename": str(item["name"])}
    flags = [str(flag) for flag in item.get("state_flags") or ()]  # until 22.05 they stand apart
    fields["state"] = "+".join([fields.get("state", "").replace(",", "+"), *flags])
    yield "node", fields, where


def _sinfo(item: dict[str, Any], where: str) -> Iterator[Shape]:
    """A line of sinfo, from 23.02 on: nodes that are alike, and their partition."""
    hosts = [str(host) for host in item["nodes"]["nodes"]]
    node = {"cputot": _one(item["cpus"], where, "cpus")}
    node |= {"realmemory": _one(item["memory"], where, "memory")}
    node |= {"gres": str(item["gres"]["total"])}
    node |= {"availablefeatures": str(item["features"]["total"])}
    node |= {"state": _text(item["node"]["state"]).replace(",", "+")}
    part = item.get("partition") or {}
    if part.get("name"):
        node["partitions"] = str(part["name"])
        for _, fields, _ in _partition(part, where):
            yield "partition", fields | {"nodes": folded(hosts)}, where
    for host in hosts:
        yield "node", node | {"nodename": host}, where


def _one(amount: dict[str, Any], where: str, name: str) -> str:
    least, most = amount["minimum"], amount["maximum"]
    if least != most:
        raise TraceError(f"{where}: {name} is {least} to {most}; use sinfo --Node --json")
    return str(least)


def _partition(item: dict[str, Any], where: str) -> Iterator[Shape]:
    nodes, most = item.get("nodes") or {}, item.get("maximums") or {}
    least, default = item.get("minimums") or {}, item.get("defaults") or {}
    state = item.get("state") or (item.get("partition") or {}).get("state") or "UP"
    priority, flags = item.get("priority") or {}, item.get("flags") or []
    flags = [*flags, *((item.get("partition") or {}).get("flags") or [])]
    yield (
        "partition",
        {
            "partitionname": str(item["name"]),
            "nodes": str(nodes.get("configured") or nodes.get("allowed") or ""),
            "state": _text(state),
            "maxtime": plain(most.get("time")),
            "maxnodes": plain(most.get("nodes")),
            "minnodes": plain(least.get("nodes")),
            "defaulttime": plain(default.get("time")),
            "prioritytier": plain(priority.get("tier")),
            "priorityjobfactor": plain(priority.get("job_factor")),
            "qos": str((item.get("qos") or {}).get("assigned") or ""),
            "allowaccounts": _text((item.get("accounts") or {}).get("allowed")),
            "denyaccounts": _text((item.get("accounts") or {}).get("deny")),
            "allowqos": _text((item.get("qos") or {}).get("allowed")),
            "denyqos": _text((item.get("qos") or {}).get("deny")),
            "default": "YES" if {"DEFAULT", "default"} & {str(flag) for flag in flags} else "NO",
        },
        where,
    )


def _reservation(item: dict[str, Any], where: str) -> Iterator[Shape]:
    yield "reservation", _renamed(item, RESERVATION), where
