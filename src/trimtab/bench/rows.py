"""Speed of the engine on this machine, beside peers where they are installed: `trimtab bench`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from trimtab.bench import colocated, learning, plans, traces
from trimtab.bench.cases import BY_NAME, Measured, Setup
from trimtab.bench.chosen import chosen_of
from trimtab.errors import TraceError, UnknownName

PACKAGES = ("trimtab", "numpy", "numba", "duckdb", "simpy", "hpcsim", "polars", "llm-analysis")
GROUPS = {
    "engine": {**BY_NAME, **colocated.BY_NAME},
    "traces": traces.BY_NAME,
    "learning": learning.BY_NAME,
    "plan": plans.BY_NAME,
}


class Row(NamedTuple):
    name: str
    value: float
    unit: str
    peers: dict[str, float]

    @property
    def peer(self) -> str | None:
        """The fastest one."""
        return max(self.peers, key=self.peers.__getitem__) if self.peers else None

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.value / self.peers[self.peer]

    def as_json(self) -> dict[str, Any]:
        peer_value = None if self.peer is None else self.peers[self.peer]
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": peer_value,
        }


def group_of(group: str) -> dict[str, Callable[[Setup], Measured]]:
    """The benchmarks of a group by name."""
    if group not in GROUPS:
        # those of live fleets have rows of another form: see bench.serve and bench.faults
        known = ", ".join((*GROUPS, "serve", "faults"))
        raise UnknownName(f"group {group!r} is unknown; known: {known}")
    return GROUPS[group]


def chosen(only: Sequence[str] | None, group: str = "engine") -> list[str]:
    """The names to measure, in the table's order."""
    return list(chosen_of(only, group_of(group), "benchmark"))


def measured(
    setup: Setup,
    names: Sequence[str],
    begun: Callable[[str], None] | None = None,
    group: str = "engine",
) -> Iterator[Row]:
    """One row a name, as soon as each is finished; `begun` hears what is measured next."""
    lone = (setup.pods is None) != (setup.nodes is None)
    if lone or (setup.order is not None and setup.pods is None):
        raise TraceError(
            "openb's pods, nodes and order belong together; give --pods and --nodes with --order"
        )
    for name in names:
        if begun:
            begun(name)
        found: Measured = group_of(group)[name](setup)
        yield Row(name, found.value, found.unit, found.peers)


def header(setup: Setup) -> str:
    """How it was measured and on what."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    log = setup.swf or "made by a fixed seed"
    machine = f"{platform.machine()}, {os.cpu_count()} cores; Python {platform.python_version()}"
    return (
        f"best of a few repetitions after a warm-up, compilation excluded; log: {log}"
        f"{'; quick: smaller inputs' if setup.quick else ''}\n"
        f"{machine}, {', '.join(versions)}"
    )
