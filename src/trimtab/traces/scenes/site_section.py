"""The `site:` section of a cluster file: partitions, QOS, accounts, reservations, parameters.

    site:
      partitions:
        - {name: gpu, nodes: "gpu[01-04]", default: true, max_s: 172800, tier: 2, qos: short}
        - {name: all, nodes: all}
      qos: [{name: short, priority: 100, user: {gpu: 8, jobs: 20}}]
      accounts: [{name: physics, shares: 3, users: {ana: 2, bo: 1}}]
      reservations: [{name: course, nodes: gpu01, start_s: 1741600000, end_s: 1741680000}]
      slurm: {PriorityWeightAge: "1000", SchedulerParameters: "bf_interval=30"}

The fields are those of the nouns in `trimtab.site`, and what is left out has their defaults. Nodes
are a list of hosts as Slurm writes it, kinds of node, or all.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trimtab.errors import TraceError
from trimtab.site import Account, Partition, Qos, Reservation, Site
from trimtab.traces.readers.hostlist import expanded, folded
from trimtab.traces.scenes.yaml_fields import (
    check_names,
    checked_number,
    checked_text,
    checked_texts,
    short,
)

NOUNS = {
    "partitions": Partition,
    "qos": Qos,
    "accounts": Account,
    "reservations": Reservation,
}
COUNTED = ("jobs", "nodes")  # what limits may count beside resources


class Known(NamedTuple):
    """What the section may name."""

    nodes: Mapping[str, Sequence[str]]  # of a kind, of a node itself, or all
    limited: tuple[str, ...]


def read_site(
    section: Any, where: str, names: Sequence[str], kinds: Sequence[str], resources: Sequence[str]
) -> Site:
    """The rules in the section, of a cluster with these nodes, each of its kind."""
    check_names(section, (*NOUNS, "slurm"), where)
    nodes: dict[str, list[str]] = {"all": list(names)}
    for name, kind in zip(names, kinds):
        nodes.setdefault(kind, []).append(name)
    known = Known(nodes | {name: [name] for name in names}, (*resources, *COUNTED))
    found: dict[str, Any] = {}
    for noun, shape in NOUNS.items():
        items = section.get(noun) or []
        if not isinstance(items, list):
            raise TraceError(f"{where}: {noun}={items!r} is no list; write - {{name: ...}} lines")
        found[noun] = tuple(
            _row(shape, item, f"{where}: {noun}: {_label(item, number)}", known)
            for number, item in enumerate(items, 1)
        )
    made = Site(**found, slurm=_parameters(section.get("slurm") or {}, f"{where}: slurm"))
    _check(made, where)
    return made


def site_table(site: Site) -> dict[str, Any]:
    """The section that `read_site` reads back to the same rules."""
    table: dict[str, Any] = {
        noun: [_told(row) for row in getattr(site, noun)] for noun in NOUNS if getattr(site, noun)
    }
    return table | ({"slurm": dict(site.slurm)} if site.slurm else {})


def _told(row: Any) -> dict[str, Any]:
    """The fields that are not as usual."""
    table: dict[str, Any] = {}
    for one in dataclasses.fields(row):
        value = getattr(row, one.name)
        usual = one.default_factory() if callable(one.default_factory) else one.default
        if value == usual:
            continue
        if one.name == "nodes":
            value = folded(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Mapping):
            value = {name: short(part) for name, part in value.items()}
        elif isinstance(value, float):
            value = short(value)
        table[one.name] = value
    return table


def _label(item: Any, number: int) -> str:
    named = isinstance(item, dict) and isinstance(item.get("name"), str)
    return str(item["name"]) if named else f"number {number}"


def _row(shape: type[Any], item: Any, where: str, known: Known) -> Any:
    """One partition, QOS, account or reservation with every field checked."""
    fields = {one.name: one for one in dataclasses.fields(shape)}
    check_names(item, tuple(fields), where)
    for name, one in fields.items():
        missing = one.default is one.default_factory is dataclasses.MISSING
        if missing and name not in item:
            raise TraceError(f"{where}: {name} is missing; add {name}: ...")
    return shape(
        **{
            name: _value(str(fields[name].type), name, value, f"{where}: {name}", known)
            for name, value in item.items()
        }
    )


def _value(kind: str, name: str, value: Any, where: str, known: Known) -> Any:
    if name == "nodes":
        return _hosts(value, where, known)
    if kind == "str":
        return checked_text(value, where)
    if kind == "bool":
        if not isinstance(value, bool):
            raise TraceError(f"{where}={value!r} is neither true nor false; write one of them")
        return value
    if kind.startswith("tuple"):
        return tuple(checked_texts(value, where))
    if kind in ("int", "float"):
        amount = checked_number(value, where, 0.0)
        if kind == "int" and amount != int(amount):
            raise TraceError(f"{where}={value!r} is not a whole number; give one")
        return int(amount) if kind == "int" else amount
    limited = known.limited if kind == "Limits" else None
    check_names(value, limited if limited is not None else tuple(value or ()), where)
    return {part: checked_number(most, f"{where}: {part}", 0.0) for part, most in value.items()}


def _hosts(value: Any, where: str, known: Known) -> tuple[str, ...]:
    """Names of nodes from a list of hosts, kinds among them."""
    texts = [value] if isinstance(value, str) else checked_texts(value, where)
    found: dict[str, None] = {}
    for text in texts:
        for host in [text] if text in known.nodes else expanded(text, where):
            if host not in known.nodes:
                near = difflib.get_close_matches(host, known.nodes, n=1, cutoff=0.5)
                guess = f"did you mean {near[0]!r}? " if near else ""
                raise TraceError(
                    f"{where}: {host!r} is no node or kind of the file; {guess}mend it"
                )
            found |= dict.fromkeys(known.nodes[host])
    return tuple(found)


def _parameters(section: Any, where: str) -> dict[str, str]:
    """Slurm's parameters as texts; YAML makes numbers and truths of some."""
    check_names(section, tuple(section) if isinstance(section, dict) else (), where)
    made = {}
    for name, value in section.items():
        if not isinstance(value, str | bool | int | float):
            raise TraceError(f"{where}: {name}={value!r} is no text; put it in quotes")
        made[str(name)] = ("YES" if value else "NO") if isinstance(value, bool) else str(value)
    return made


def _check(site: Site, where: str) -> None:
    """Every name is there once, and what is named exists."""
    names = {}
    for noun in NOUNS:
        listed = [row.name for row in getattr(site, noun)]
        again = sorted({name for name in listed if listed.count(name) > 1})
        if again:
            raise TraceError(f"{where}: {noun}: {again[0]!r} stands there twice; keep one")
        names[noun] = {name: "" for name in listed}
    for one in site.partitions:
        _named(one.qos, names["qos"], f"{where}: partitions: {one.name}: qos", "QOS")
    for quality in site.qos:
        for other in quality.preempts:
            _named(other, names["qos"], f"{where}: qos: {quality.name}: preempts", "QOS")
    for account in site.accounts:
        place = f"{where}: accounts: {account.name}: parent"
        _named(account.parent, names["accounts"], place, "account")


def _named(name: str, known: dict[str, str], where: str, what: str) -> None:
    check_names({name: where} if name else {}, tuple(known), where, what)
