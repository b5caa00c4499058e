"""Machines and containers: what they are, where they stand, and the rows that say so.

A machine has 96 cores and memory 100. Its failure domain 1 (a rack, of 1 to 47 machines) lies in
one to three domains 2, as in the real trace: a machine's pair is fixed. Containers fill machines
evenly, by the machine with the fewest reserved cores, and 0.7 % of the machines have none.
"""

import heapq
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.traces.alibaba2018.published import (
    CONTAINER_MACHINES,
    CONTAINERS,
    CORES,
    MACHINES,
    MEMORY,
    PUBLISHED,
)
from trimtab.traces.twin.columns import Chunk, Text, numbered, same
from trimtab.traces.twin.plan import Plan, stream

MACHINES_A_DOMAIN_1 = 10  # at least: a small twin has fewer domains, not emptier ones
DOMAINS_1_A_DOMAIN_2 = 3
SPREAD_SHARE = (0.25, 0.60, 0.15)  # of the domains 1 that may lie in one, two, three domains 2
# Machines in a domain 1: quantiles of the real ones at these shares.
DOMAIN_SHARES, DOMAIN_SIZES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1), (1, 3, 7, 9, 16, 37, 47)
MORE_ROWS = 3.4  # later rows a machine or container has, on the mean
# Cores a container reserves, in hundredths; mean 5.06 cores, so that 17.7 of them reserve 93.5 %.
REQUEST_SHARE = {400: 0.76, 800: 0.213, 1600: 0.02, 100: 0.007}
DOUBLE_LIMIT_SHARE = 0.036  # the others' limit is their request
CONTAINERS_AN_APP = 8.0


class Inventory(NamedTuple):
    """Machine m is named m + 1, container c is c + 1; N machines, C containers."""

    domain_1: np.ndarray  # (N,) from 1
    domain_2: np.ndarray  # (N,) from 1
    host: np.ndarray  # (C,) machine
    request: np.ndarray  # (C,) 100 is a core
    limit: np.ndarray  # (C,)
    memory: np.ndarray  # (C,) of 100
    app: np.ndarray  # (C,) from 1


def inventory(plan: Plan) -> Inventory:
    """Draw the machines' domains and place the containers."""
    domain_1, domain_2 = _domains(plan)
    rng = stream(plan, "container_meta")
    machines = plan.options.machines
    count = max(1, round(CONTAINERS / MACHINES * machines))
    hosts = rng.permutation(machines)[: max(1, round(CONTAINER_MACHINES / MACHINES * machines))]
    shares = np.array(list(REQUEST_SHARE.values()))
    request = rng.choice(list(REQUEST_SHARE), count, p=shares / shares.sum())
    limit = np.where(rng.random(count) < DOUBLE_LIMIT_SHARE, 2 * request, request)
    memory = np.round(request / 100 * rng.lognormal(-0.55, 0.35, count), 2)
    # apps of very different size: a container joins one in proportion to a heavy-tailed weight
    weight = np.cumsum(rng.pareto(1.2, max(1, round(count / CONTAINERS_AN_APP))) + 0.1)
    app = 1 + np.searchsorted(weight, rng.random(count) * weight[-1])
    return Inventory(domain_1, domain_2, _placed(request, hosts), request, limit, memory, app)


def machine_chunk(plan: Plan, stock: Inventory) -> Chunk:
    """Rows of machine_meta: each machine at time 0, and again at later times."""
    rng = stream(plan, "machine_meta", 1)
    machine, time_s = _events(plan, plan.options.machines, rng)
    rows = len(machine)
    domains = numbered("", 1 + np.arange(stock.domain_2.max()))
    return {
        "machine_id": Text(machine, numbered("m_", 1 + np.arange(plan.options.machines))),
        "time_stamp": time_s,
        "failure_domain_1": stock.domain_1[machine],
        "failure_domain_2": Text((stock.domain_2[machine] - 1).astype(np.int32), domains),
        "cpu_num": np.full(rows, CORES),
        "mem_size": np.full(rows, MEMORY),
        "status": same("USING", rows),
    }


def container_chunk(plan: Plan, stock: Inventory) -> Chunk:
    """Rows of container_meta."""
    rng = stream(plan, "container_meta", 1)
    one, time_s = _events(plan, len(stock.host), rng)
    apps = numbered("app_", 1 + np.arange(stock.app.max()))
    return {
        "container_id": Text(one, numbered("c_", 1 + np.arange(len(stock.host)))),
        "machine_id": Text(stock.host[one], numbered("m_", 1 + np.arange(plan.options.machines))),
        "time_stamp": time_s,
        "app_du": Text((stock.app[one] - 1).astype(np.int32), apps),
        "status": Text((time_s > 0).astype(np.int32), pa.array(["started", "running"])),
        "cpu_request": stock.request[one],
        "cpu_limit": stock.limit[one],
        "mem_size": stock.memory[one],
    }


def _events(plan: Plan, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which one each row is of, and its time: 0 first, then more at any time of the trace."""
    more = rng.geometric(1 / (1 + MORE_ROWS), count) - 1
    one = np.repeat(np.arange(count, dtype=np.int32), 1 + more)
    end_s = max(2, int(plan.options.days * 86400))
    time_s = rng.integers(1, end_s, len(one))
    time_s[np.concatenate(([0], np.cumsum(1 + more)[:-1]))] = 0
    # no two rows of one at one time: a repeated row is dirt
    key = np.unique(one.astype(np.int64) * end_s + time_s)
    return (key // end_s).astype(np.int32), key % end_s


def _domains(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Both failure domains of every machine, none of them empty."""
    rng = stream(plan, "machine_meta")
    machines = plan.options.machines
    racks = min(int(PUBLISHED["failure_domains_1"]), -(-machines // MACHINES_A_DOMAIN_1))
    rooms = min(int(PUBLISHED["failure_domains_2"]), -(-racks // DOMAINS_1_A_DOMAIN_2))
    weight = np.interp(rng.random(racks), DOMAIN_SHARES, DOMAIN_SIZES)
    drawn = rng.choice(racks, machines - racks, p=weight / weight.sum())
    domain_1 = rng.permutation(np.concatenate((np.arange(racks), drawn)))
    spread = 1 + rng.choice(len(SPREAD_SHARE), racks, p=SPREAD_SHARE)
    # the rooms of a rack are next to each other; racks go round so that no room is left out
    room = (domain_1 + rng.integers(0, spread[domain_1])) % rooms
    first = np.unique(domain_1, return_index=True)[1]
    room[first] = domain_1[first] % rooms
    return 1 + domain_1, 1 + room


def _placed(request: np.ndarray, hosts: np.ndarray) -> np.ndarray:
    """A host for each container, the largest first, each on the host with the least reserved."""
    reserved = [(0, int(host)) for host in hosts]
    heapq.heapify(reserved)
    host = np.empty(len(request), np.int32)
    for container in np.argsort(-request, kind="stable").tolist():
        cores, least = reserved[0]
        host[container] = least
        heapq.heapreplace(reserved, (cores + int(request[container]), least))
    return host
