"""The machine behind a log of processors: its size, and whether its jobs take whole nodes.

Where jobs take whole nodes, all alike, one pool of interchangeable `node` units is exact. Where
they share them, one pool of `cpu` units stands for the processors: the log does not say on which
node each of a job's processors was. With memory of nodes and requests of jobs both known, nodes are
modelled one by one, and a job is a gang with one instance a processor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.build import cluster
from trimtab.core import Cluster
from trimtab.errors import TraceError
from trimtab.traces.readers.swf_text import stated

WHOLE, SHARED = "whole", "shared"
PRACTICALLY_ALL = 0.98  # of the jobs hold whole nodes where they cannot share one
LACKS = "the header has no MaxNodes or MaxProcs"
KB_A_GB = 2.0**20
ASKED = re.compile(r"(nodes|procs|mem-gb)=(\d+(?:\.\d+)?)")


class Machine(NamedTuple):
    nodes: int
    procs: int
    node_mem_gb: float  # 0 = not known
    told: str  # where the numbers come from

    @property
    def guessed(self) -> bool:
        return self.told.startswith(LACKS)


def machine_of(
    header: Mapping[str, str], asked: str | None, procs: Array, most_at_once: int
) -> Machine:
    """The machine as asked for, else as the header has it, else as large as its jobs show it.

    `most_at_once` is how many processors ran jobs at once, 0 where the log has no starts.
    """
    own = _asked(asked)
    nodes = int(own.get("nodes", stated(header, "MaxNodes")))
    most = int(own.get("procs", stated(header, "MaxProcs")))
    mem_gb = float(own.get("mem-gb", stated(header, "MaxMemory") / KB_A_GB))
    if own and nodes > most > 0:
        raise TraceError(
            f"--machine {asked}: {nodes} nodes are more than {most} processors; a node has at "
            "least one: give both, such as nodes=151,procs=2004"
        )
    if nodes and most:
        told = "MaxNodes and MaxProcs of the header"
    elif nodes or most:
        name = "MaxNodes" if nodes else "MaxProcs"
        told = f"{name} of the header, one processor a node"
        nodes = most = nodes or most
    else:
        nodes, told = _guess(procs, most_at_once)
        most = nodes
    return Machine(nodes, most, mem_gb, f"--machine {asked}" if own else told)


def _asked(text: str | None) -> dict[str, float]:
    """The parts of `nodes=151,procs=2004,mem-gb=48`."""
    found: dict[str, float] = {}
    for part in text.split(",") if text is not None else ():
        match = ASKED.fullmatch(part.strip())
        value = float(match[2]) if match else 0.0
        if match is None or value <= 0 or (match[1] != "mem-gb" and value != int(value)):
            raise TraceError(
                f"--machine {text}: {part!r} is no size of a machine; give nodes and procs as "
                "whole numbers above 0, and mem-gb of a node, such as "
                "nodes=151,procs=2004,mem-gb=48"
            )
        found[match[1]] = value
    return found


def _guess(procs: Array, most_at_once: int) -> tuple[int, str]:
    largest = int(np.ceil(procs.max()))
    if most_at_once >= largest:
        return most_at_once, f"{LACKS}: {most_at_once} processors were in use at once, as recorded"
    return largest, f"{LACKS}: {largest} is the most a job asks for"


def most_in_use(start_s: Array, end_s: Array, amount: Array) -> int:
    """The most that was held at once by what started and ended then; an end goes first."""
    known = ~(np.isnan(start_s) | np.isnan(end_s))
    start_s, end_s, amount = start_s[known], end_s[known], amount[known]
    time_s, change = np.concatenate((start_s, end_s)), np.concatenate((amount, -amount))
    return int(np.cumsum(change[np.lexsort((change, time_s))]).max(initial=0))


def sharing(machine: Machine, held: Array, asked: str | None) -> tuple[str, str]:
    """Whether jobs that held so many processors took whole nodes or shared them, and why."""
    each = machine.procs / machine.nodes
    if asked is not None:
        if asked not in (WHOLE, SHARED):
            raise TraceError(f"--nodes {asked}: is unknown; give {WHOLE} or {SHARED}")
        return asked, f"--nodes {asked}"
    if machine.guessed:
        return SHARED, "nothing says how many processors a node has"
    if each == 1:
        return WHOLE, "a node has one processor"
    if each == int(each):
        share = float(np.mean(held % each == 0))
        told = f"{share:.0%} of the jobs held a multiple of the {each:.0f} processors of a node"
        return (WHOLE if share >= PRACTICALLY_ALL else SHARED), told
    share = float(np.mean(held < each))
    return SHARED, f"{share:.0%} of the jobs held less than the {each:.1f} processors of a node"


def whole_nodes(procs: Array, machine: Machine) -> Array:
    # one division of exact products: dividing by procs / nodes could round a whole number up
    return np.ceil(procs * machine.nodes / machine.procs)


def too_large(procs: Array, mem_gb: Array, machine: Machine, nodes: str) -> Array:
    """(J,) whether an empty machine could not run the job. `mem_gb` is a processor's, 0 = none."""
    if nodes == WHOLE:
        return whole_nodes(procs, machine) > machine.nodes
    large = procs > machine.procs
    if machine.node_mem_gb and mem_gb.any():
        needs = np.where(mem_gb > 0, mem_gb, 1.0)
        room = np.where(mem_gb > 0, machine.node_mem_gb // needs, np.inf)  # processors a node
        cores = _cores(machine)
        fits = np.minimum(room, cores.min()) * len(cores)
        large |= np.where(room >= cores.max(), False, fits < procs)
    return large


def asks(procs: Array, mem_gb: Array, machine: Machine, nodes: str) -> dict[str, Any]:
    """Demand, resources and instances of the jobs."""
    if nodes == WHOLE:
        return {"demand": whole_nodes(procs, machine)[:, None], "resources": ("node",)}
    if machine.node_mem_gb and mem_gb.any():
        return gang_asks(procs, mem_gb)
    return {"demand": procs[:, None], "resources": ("cpu",)}


def gang_asks(procs: Array, mem_gb: Array | None) -> dict[str, Any]:
    """The same where a job is a gang with an instance a processor, with its memory if given."""
    one = np.ones(len(procs))
    if mem_gb is None:
        return {"demand": one[:, None], "resources": ("cpu",), "instances": procs}
    demand = np.stack((one, mem_gb), axis=1)
    return {"demand": demand, "resources": ("cpu", "mem_gb"), "instances": procs}


def machine_cluster(machine: Machine, resources: tuple[str, ...], source: str) -> Cluster:
    """The machine for jobs that ask for these resources."""
    named = f"{source}: {machine.nodes} nodes, {machine.procs} processors ({machine.told})"
    if "mem_gb" in resources:
        memory = np.full(machine.nodes, machine.node_mem_gb)
        return cluster(
            np.stack((_cores(machine), memory), axis=1),
            resources=("cpu", "mem_gb"),
            kinds=("node",),
            names=[f"node-{node}" for node in range(machine.nodes)],
            source=named,
        )
    units = machine.nodes if resources == ("node",) else machine.procs
    return cluster([[units]], resources=resources, kinds=("pool",), names=["pool"], source=named)


def _cores(machine: Machine) -> Array:
    """(nodes,) processors of each, as even as whole numbers can be."""
    return np.diff(np.linspace(0, machine.procs, machine.nodes + 1).round())
