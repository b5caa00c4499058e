"""A cluster that lends what services leave, as arrays of a world: see `sim.lend` for what it does.

The horizons are those of COLOCATION: estimates are asked for at each job's own requested time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Lending, Limit, Profile, Workload
from trimtab.errors import TraceError, UnknownName, suggestion
from trimtab.rules import encoder
from trimtab.rules.forecast import HORIZON_S, LONG, MARGIN, weights_at
from trimtab.rules.names import ESTIMATES, MOST_LIMIT, RELIEVE, Rule
from trimtab.rules.world import World
from trimtab.sim.lend import set_care, set_learned, set_limit

SAME = -1  # estimate: as it is
COPIED = ("every", "late", "stale", "missing", "crowded", "grace_s", "evict_to", "back_off_s")


def estimate_of(name: str) -> int:
    """The number of an estimate; "" leaves it as it is."""
    if name and name not in ESTIMATES:
        raise UnknownName(f"estimate {name!r} is unknown; {suggestion(name, ESTIMATES)}")
    return ESTIMATES[name] if name else SAME


def check_lending(lending: Lending, cluster: Cluster) -> None:
    """Raise TraceError for a setting that means nothing."""
    estimate_of(lending.estimate)
    rows = None if lending.usual is None else np.asarray(lending.usual)
    if rows is not None and (rows.ndim != 2 or len(rows) != len(cluster.regions)):
        raise TraceError(
            f"{cluster.source}: lending: usual is not a row for each of {len(cluster.regions)} "
            "regions; give one of past days for each, or none"
        )
    for name, low, high in (
        ("limit", 0.0, MOST_LIMIT),
        ("readings", 1, 10_000),
        ("every", 1, 10_000),
        ("late", 0, 10_000),
        ("missing", 0.0, 1.0),
        ("stale", 0, 10**9),
        ("crowded", 0.0, math.inf),
        ("grace_s", 0.0, math.inf),
        ("evict_to", 0.0, 1.0),
        ("back_off_s", 0.0, 1e9),
        ("usual_step_s", 1e-6, 1e9),
    ):
        value = getattr(lending, name)
        if not low <= value <= high:
            raise TraceError(
                f"{cluster.source}: lending: {name}={value} is not in {low:g}..{high:g}; mend it"
            )


def lending_arrays(
    count: int, nodes: int, lending: Lending | None, cluster: Cluster, profile: Profile
) -> dict[str, Array]:
    """The arrays of `count` such clusters; without rows where nothing is lent."""
    horizons = len(HORIZON_S) if lending else 0
    late, readings = (lending.late + 1, lending.readings) if lending else (0, 0)
    regions = len(cluster.regions) if lending else 0
    return {
        "limit": np.full((count, regions), lending.limit if lending else 1.0),
        "margin": np.full((count, regions), MARGIN),
        "patience_s": np.full((count, regions), -1.0),
        "overstay": np.zeros((count, regions)),
        "taper": np.zeros((count, regions)),
        "horizon": np.array(HORIZON_S[:horizons]),
        "ahead": np.zeros((count, nodes, horizons)),
        "curve": np.ascontiguousarray(profile.curve, np.float64),
        "past": np.zeros((count, nodes, late)),
        "reading": np.zeros((count, nodes, readings)),
        "shared": np.zeros((count, regions, LONG if lending else 0)),
        "cast": weights_at(lending.forecast) if lending else np.zeros((0, 0)),
        **encoder_arrays(count, nodes, regions, lending),
        "foretold": np.zeros((count, nodes, horizons)),
        "said": np.zeros((count, nodes, 2 * horizons)),
        "learned": np.tile(np.repeat([0.0, 1.0], horizons), (count, regions, 1)),
        "foreseen": np.zeros((count, 0, nodes * horizons)),
    }


def encoder_arrays(
    count: int, nodes: int, regions: int, lending: Lending | None
) -> dict[str, Array]:
    """What the estimate `encoder` needs."""
    if lending is None:
        return {}
    first, middle, last = encoder.weights_at(lending.encoder)
    usual = np.zeros((regions, 0)) if lending.usual is None else lending.usual
    return {
        "usual": np.ascontiguousarray(np.tile(usual, (count, 1, 1))),
        "outlook": np.zeros((count, regions, encoder.OUTLOOK)),
        "net_first": first,
        "net_middle": middle,
        "net_last": last,
        "embedded": np.zeros((count, nodes, first.shape[1])),
    }


def lending_conf(conf: Array, lending: Lending | None, profile: Profile, slows: bool) -> None:
    """Write what compiled code asks at every turn. `slows` = load slows jobs down."""
    curve = profile.curve
    conf["curved"] = slows and bool(len(curve)) and bool((curve[:, 1] < 1).any())
    conf["knee"] = curve[:, 0].min(initial=np.inf)
    conf["lends"] = lending is not None
    if lending is not None:
        conf["read_seed"] = lending.seed
        conf["usual_step_s"] = lending.usual_step_s
        for name in COPIED:
            conf[name] = getattr(lending, name)


def peaks(work: Workload, cluster: Cluster) -> Array:
    """(T, N x H) what services will use of every node at most from each step of use on: truth.

    Of services that are pinned and never end.
    """
    used = service_use(work, cluster)
    steps, nodes = used.shape
    made = np.empty((steps, len(HORIZON_S) * nodes))
    for h, horizon_s in enumerate(HORIZON_S):
        width = min(math.ceil(horizon_s / work.pattern_step_s) + 1, steps)
        made[:, h * nodes : (h + 1) * nodes] = ahead_max(used, width)
    return made


def ahead_max(values: Array, width: int) -> Array:
    """(T, ..) the largest of each row and the `width` - 1 after it, which go round."""
    most, span = values, 1
    while span < width:  # the largest of 2, 4, 8 .. and then of what is missing
        step = min(span, width - span)
        most = np.maximum(most, np.roll(most, -step, axis=0))
        span += step
    return most


def service_use(work: Workload, cluster: Cluster) -> Array:
    """(T, N) what pinned services use of each node's driving resource, by step of use."""
    truth = work.truth
    rows = np.flatnonzero((truth["service"] == 1) & (truth["pinned"] > 0))
    used = np.zeros((work.patterns.shape[1], len(cluster)))
    node = truth["pinned"][rows] - 1
    held = work.demand[rows, cluster.nodes["driver"][node]] * truth["use"][rows]
    steady = truth["pattern"][rows] < 0
    np.add.at(used.T, node[steady], held[steady][:, None])
    moving = np.flatnonzero(~steady)
    np.add.at(
        used.T, node[moving], held[moving][:, None] * work.patterns[truth["pattern"][rows[moving]]]
    )
    return used


def lends(world: World) -> bool:
    return bool(world.conf[0]["lends"])


def foreseeing(world: World, work: Workload, cluster: Cluster) -> World:
    """The world with what services will use laid open, for the estimate `oracle`."""
    return world.replaced(foreseen=np.ascontiguousarray(peaks(work, cluster)[None]))


def set_lending(
    world: World,
    work: Workload,
    cluster: Cluster,
    estimate: str,
    limit: float,
    patience_s: float = math.nan,
) -> World:
    """The world under a rule's own estimate, limit and patience, where it names any."""
    if not estimate and math.isnan(patience_s):
        return world
    if not lends(world):
        told = f"an estimate ({estimate})" if estimate else f"{RELIEVE}"
        raise TraceError(
            f"{work.source}: {told} says what batch jobs may borrow of services, and "
            f"{cluster.source} lends nothing; leave it out, or run it on colocated"
        )
    if estimate == "oracle" and not world.foreseen.shape[1]:
        world = foreseeing(world, work, cluster)
    if estimate:
        share = float(world.limit[0, 0]) if math.isnan(limit) else limit
        set_limit(world, 0, -1, share, estimate_of(estimate))
    set_care(world, 0, -1, math.nan, patience_s, math.nan, math.nan)
    return world


def obey(world: World, decision: Limit) -> None:
    """Set the limit of a region, and what else the decision says."""
    kind = estimate_of(decision.estimate)
    set_limit(world, 0, decision.region, float(decision.share), kind)
    if len(decision.learned):
        set_learned(world, 0, decision.region, np.array(decision.learned, np.float64))
    set_care(
        world, 0, decision.region, float(decision.margin), float(decision.patience_s),
        float(decision.overstay), float(decision.taper),
    )  # fmt: skip


def lending_of(rule: Rule) -> dict[str, Any]:
    """What a rule says of lending, as `set_lending` takes it."""
    return {"estimate": rule.estimate, "limit": rule.limit, "patience_s": rule.patience_s}
