"""A site's reservations as gates: which nodes are kept for whom, by the clock of a trace."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Workload
from trimtab.errors import TraceError
from trimtab.site import ACCOUNT, GATE, RESERVATION, USER, Labels, Reservation, Site
from trimtab.traces.scenes.door import Door


class Gates(NamedTuple):
    """Reservations that matter to a trace, and which job may pass which."""

    gate: Array  # (V,) GATE without kinds
    nodes: list[Array]  # (N,) bool each
    reserved: Array  # (J,)


def gates_of(door: Door, site: Site, cluster: Cluster) -> Gates:
    """The site's reservations by the trace's clock; refuses who names one and may not use it."""
    work, given = door.work, door.said(RESERVATION)
    door.refuse_unknown(
        RESERVATION, (one.name for one in site.reservations), "reservation", cluster.source
    )
    rows: list[tuple[float, float, int]] = []
    nodes: list[Array] = []
    reserved = np.full(len(work), -1, np.int64)
    for one in site.reservations:
        says = np.array([name == one.name for name in given.names], bool)[given.row]
        epoch_s = _epoch_s(work, cluster)
        late = one.end_s - epoch_s <= work.jobs["submit_s"]
        remedy = "read the log of that time"
        problem = f"ended before the job came (second {one.end_s - epoch_s:g} of the log)"
        door.refuse(says & late, RESERVATION, repr(one.name), problem, remedy)
        for label, allow in ((USER, one.users), (ACCOUNT, one.accounts)):
            who = door.said(label)
            out = np.array([bool(allow) and name not in allow for name in who.names], bool)
            door.refuse(
                says & out[who.row] & ~_also(door, one, label), label,
                partial(_named, who), f"may not use reservation {one.name}",
                f"it is for {', '.join(allow)}",
            )  # fmt: skip
        on = np.isin(cluster.node_names(), one.nodes)
        if not on.any() or one.end_s - epoch_s <= work.jobs["submit_s"][0]:
            continue
        reserved[says] = len(rows)
        rows.append((one.start_s - epoch_s, one.end_s - epoch_s, 0))
        nodes.append(on)
    return Gates(np.array(rows, GATE), nodes, reserved)


def _named(who: Labels, job: int) -> str:
    return repr(who.of(job))


def _also(door: Door, one: Reservation, label: str) -> Array:
    """Jobs that the other list of a reservation lets in: one of both is enough."""
    other, allow = (ACCOUNT, one.accounts) if label == USER else (USER, one.users)
    who = door.said(other)
    return np.array([name in allow for name in who.names], bool)[who.row]


def _epoch_s(work: Workload, cluster: Cluster) -> float:
    if "epoch_s" not in work.meta:
        raise TraceError(
            f"{work.source}: does not say when its time 0 was (meta epoch_s), which the "
            f"reservations of {cluster.source} need; take them out of the cluster file"
        )
    return float(work.meta["epoch_s"])
