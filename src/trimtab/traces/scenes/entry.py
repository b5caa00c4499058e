"""Which partitions take a job: those it names that are up and whose limits it keeps."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.site import ACCOUNT, PARTITION, QOS, Partition, Site
from trimtab.traces.scenes.door import Door


class Entry(NamedTuple):
    """Job j may use partition named[row[j]][i] where bit i of taken[j] is set."""

    named: list[tuple[Partition, ...]]
    row: Array  # (J,)
    taken: Array  # (J,) of up to 63 bits

    def takes(self, one: Partition) -> Array:
        """(J,) whether the partition takes each job."""
        found = np.zeros(len(self.row), bool)
        for row, named in enumerate(self.named):
            for i, other in enumerate(named):
                if other is one:
                    found |= (self.row == row) & (self.taken >> i & 1 == 1)
        return found

    def default_s(self) -> Array:
        """(J,) time limit of a job that names none: its first partition's, or inf."""
        of = [min(named[0].default_s, named[0].max_s) if named else np.inf for named in self.named]
        return np.array(of)[self.row]


def entered(door: Door, site: Site, nodes: Array, source: str) -> Entry:
    """Who may enter which partition; refuses the jobs that none takes."""
    if site.partitions:
        door.refuse_unknown(PARTITION, (one.name for one in site.partitions), "partition", source)
    given = door.said(PARTITION)
    named = [_named(text, site) for text in given.names]
    taken = np.zeros(len(given.row), np.int64)
    for row, parts in enumerate(named):
        jobs = np.flatnonzero((given.row == row) & door.keep)
        problems = [_problems(door, one, jobs, nodes) for one in parts]
        for i, found in enumerate(problems):
            none = ~np.any([bad for _, bad, _ in found], axis=0)
            taken[jobs[none]] |= 1 << i
        for field, bad, problem in problems[0] if problems else ():
            lost = np.zeros(len(taken), bool)
            lost[jobs] = bad
            remedy = "name a partition that takes it"
            value = partial(_value, door, nodes, field)
            door.refuse(lost & (taken == 0), field, value, problem, remedy)
    return Entry(named, given.row, taken)


def _named(text: str, site: Site) -> tuple[Partition, ...]:
    """The partitions of a label: those named, the default one, or all where none is the default."""
    if text:
        of = {one.name: one for one in site.partitions}
        return tuple(of[name] for name in text.split(",") if name in of)
    return tuple(one for one in site.partitions if one.default)[:1] or site.partitions


def _problems(
    door: Door, one: Partition, jobs: Array, nodes: Array
) -> list[tuple[str, Array, str]]:
    """(field, which of these jobs, problem) for everything that keeps jobs out of the partition."""
    asks_s, count = door.work.jobs["request_s"][jobs], nodes[jobs]
    asks_s = np.where(np.isfinite(asks_s), asks_s, one.default_s)
    asks_s = np.where(np.isfinite(asks_s), asks_s, one.max_s)
    where = f"partition {one.name}"
    found = [
        (PARTITION, np.full(len(jobs), not one.up), f"is down: {where} takes no jobs"),
        ("request_s", asks_s > one.max_s, f"is above the {one.max_s:g} of {where}"),
        ("nodes", count < one.min_nodes, f"is below the {one.min_nodes:g} of {where}"),
        ("nodes", count > one.max_nodes, f"is above the {one.max_nodes:g} of {where}"),
    ]
    for label, allow, deny in (
        (ACCOUNT, one.accounts, one.deny_accounts),
        (QOS, one.allow_qos, one.deny_qos),
    ):
        given = door.said(label)
        out = [(bool(allow) and name not in allow) or name in deny for name in given.names]
        found.append((label, np.array(out, bool)[given.row[jobs]], f"may not use {where}"))
    return found


def _value(door: Door, nodes: Array, field: str, job: int) -> str:
    """What the job asks for there, as an error shows it."""
    if field == "nodes":
        return f"{nodes[job]:g}"
    if field == "request_s":
        return f"{door.work.jobs['request_s'][job]:g}"
    return repr(door.said(field).of(job))
