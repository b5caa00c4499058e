"""A scene at a stated load: fewer nodes, or arrivals further apart or closer together.

Offered load is `describe.offered_load`. A cluster of nodes is cut down. A pool cannot be, for wide
jobs would no longer fit, so there the arrivals are stretched or compressed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Profile, Workload
from trimtab.errors import TraceError
from trimtab.traces.scenes.describe import offered_load

HALVINGS = 60  # of the interval in which a stretch is sought: to the last bit


def at_load(
    work: Workload, nodes: Cluster, profile: Profile, load: float
) -> tuple[Workload, Cluster]:
    """The work and the cluster such that the one offers the other `load`; TraceError if none is.

    Offered is the work of the scarcest resource over the span of arrivals, against what services
    leave free. `meta["notes"]` says what was done.
    """
    if not load > 0:
        raise TraceError(f"--load {load:g} is not above 0; give for example 0.9")
    if not offered(work, nodes, profile) > 0:
        raise TraceError(
            f"--load {load:g}: the jobs of {work.source} arrive at once or run for no time, which "
            "offers no load that could be set; give a longer part of the trace"
        )
    if len(nodes) == 1:
        return stretched_to(work, nodes, profile, load), nodes
    return cut_to(work, nodes, profile, load)


def offered(work: Workload, nodes: Cluster, profile: Profile, stretch: float = 1.0) -> float:
    """The load of the scarcest resource, against what services leave free."""
    taken = service_shares(work, nodes)
    shares = offered_load(work, nodes, profile, stretch)
    return max(share / max(1 - taken.get(name, 0.0), 1e-9) for name, share in shares.items())


def cut_to(
    work: Workload, nodes: Cluster, profile: Profile, load: float
) -> tuple[Workload, Cluster]:
    """So many nodes of each kind that the work offers them `load`.

    Nodes are left out evenly over the regions, and services with them.
    """
    now = offered(work, nodes, profile)
    if now > load:
        raise TraceError(
            f"--load {load:g}: {work.source} offers {now:.3g} to all of {nodes.source}; "
            f"give a larger --load or a larger --cluster"
        )
    chosen = []
    for kind in range(len(nodes.kinds)):
        rows = np.flatnonzero(nodes.nodes["kind"] == kind)
        rows = rows[np.argsort(nodes.nodes["region"][rows], kind="stable")]
        chosen.append(rows[_evenly(len(rows), now / load)])
    rows = np.sort(np.concatenate(chosen))
    source = f"{len(rows):,} of {nodes.source}, at load {load:g}"
    left = replace(nodes.only(rows), source=source)
    told = f"--load {load:g}: {len(rows):,} of {len(nodes):,} nodes are left, evenly over kinds"
    return noted(thinned(work, len(rows) / len(nodes)), told), left


def stretched_to(work: Workload, pool: Cluster, profile: Profile, load: float) -> Workload:
    """The arrivals so far apart that they offer the pool `load`."""
    low, high = 1e-6, 1e6
    most, least = (offered(work, pool, profile, factor) for factor in (low, high))
    if not least <= load <= most:
        raise TraceError(
            f"--load {load:g}: the arrivals of {work.source} can be moved to offer {pool.source} "
            f"{least:.3g} to {most:.3g}, not more or less; give a load between them"
        )
    for _ in range(HALVINGS):
        factor = float(np.sqrt(low * high))
        if offered(work, pool, profile, factor) > load:
            low = factor
        else:
            high = factor
    return stretched(work, factor, f"--load {load:g}")


def stretched(work: Workload, factor: float, why: str) -> Workload:
    """Arrivals `factor` times as far apart. Deadlines and cancellations keep their distance.

    What was recorded means nothing then and is left out.
    """
    jobs, truth = work.jobs.copy(), work.truth.copy()
    first_s = jobs["submit_s"][0]
    shift_s = (jobs["submit_s"] - first_s) * (factor - 1)
    jobs["submit_s"] += shift_s
    jobs["deadline_s"] += shift_s
    truth["cancel_s"] += shift_s
    done = "stretched" if factor > 1 else "compressed"
    told = f"{why}: arrivals are {done}, {factor:.4g} times as far apart as in the log"
    if "recorded" in work.meta:
        told += "; what was recorded does not compare"
    meta = {key: value for key, value in work.meta.items() if key != "recorded"}
    source = f"{work.source}, arrivals {done} by {factor:.4g}"
    return noted(replace(work, jobs=jobs, truth=truth, meta=meta, source=source), told)


def noted(work: Workload, told: str) -> Workload:
    """The work with one more sentence on how it differs from the trace."""
    return replace(work, meta={**work.meta, "notes": [*work.meta.get("notes", ()), told]})


def service_shares(work: Workload, nodes: Cluster) -> dict[str, float]:
    """Share of the cluster that services take, by resource that both have."""
    demand = work.demand[work.truth["service"] == 1].sum(axis=0)
    total = dict(zip(nodes.resources, nodes.capacity.sum(axis=0)))
    return {
        name: float(demand[r] / total[name])
        for r, name in enumerate(work.resources)
        if total.get(name, 0) > 0
    }


def thinned(work: Workload, share: float) -> Workload:
    """The work with that share of its services, taken evenly; all else stays."""
    services = np.flatnonzero(work.truth["service"] == 1)
    if share >= 1 or not len(services):
        return work
    keep = np.ones(len(work), bool)
    keep[services] = False
    keep[services[_evenly(len(services), share)]] = True
    return work.only(keep)


def _evenly(count: int, share: float) -> Array:
    """Places of about `share` of so many things, at least one of them."""
    kept = min(max(round(count * share), 1 if count else 0), count)
    return (np.arange(kept) * count) // max(kept, 1)
