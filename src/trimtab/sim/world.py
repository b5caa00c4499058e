"""A simulated cluster as arrays: what the kernel reads and writes, for one cluster or thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.arrays import Array
from trimtab.build import uniform_profile
from trimtab.columns import JOB, NODE, NODE_STATE, PIECE, RUN, SO_FAR, STATE, TOTALS, TRUTH
from trimtab.core import Cluster, Mix, Profile, Workload
from trimtab.errors import TraceError
from trimtab.rules import compat
from trimtab.rules.world import CONF, ENTRY, FIELDS, HEAD, LOG, OUTAGE, World
from trimtab.rules.worth import shipped
from trimtab.sim.lending import check_lending, estimate_of, lending_arrays, lending_conf
from trimtab.site import GATE, WHOLE

CELLS = 1_000_000  # of requests and kinds of node that are looked at together

# what a run never writes, so that copies of a world share it
SHARED = (
    *("jobs", "demand", "truth", "nodes", "capacity", "capacity_sum", "child_ptr", "child_idx"),
    *("rank", "line", "patterns", "foreseen", "cast", "usual", "net_first", "net_middle"),
    *("net_last", "cancel", "outage", "mix_jobs", "mix_demand", "mix_share", "rate", "slow"),
    *("scale", "draw", "quality", "link", "curve", "horizon"),
)


@dataclass(frozen=True)
class Models:
    """Which effects the engine models; each can be off. docs/engine.md states the assumptions."""

    startup_s: float = 0.0  # before a run makes progress
    move_s: float | None = None  # that a move or resize takes; None = startup_s
    live_migration: bool = False  # a move loses nothing; else it is a stop and a start
    interference: bool = True  # neighbours slow a job by Profile.slow, load by Profile.curve
    lends: bool = True  # batch jobs may book what services leave, where the cluster lends it
    links: bool = True  # a gang across regions runs at Cluster.link
    power: bool = True
    window_s: float = 300.0  # length of a window of recent load
    windows: int = 8
    retries: int = 3  # runs a job may lose to node failures before it fails
    kill_at_request: bool = False  # end a run at its requested time
    outages: Array = field(default_factory=lambda: np.zeros(0, OUTAGE))  # node failures and repairs

    def on(self, cluster: Cluster) -> Models:
        """With live migration too where the cluster has it."""
        return replace(self, live_migration=self.live_migration or cluster.live_migration)

    @property
    def pause_s(self) -> float:
        """Seconds that a move takes; no less than a start-up where it is a stop and a start."""
        move_s = self.startup_s if self.move_s is None else self.move_s
        return move_s if self.live_migration else max(move_s, self.startup_s)


def outages(
    cluster: Cluster, horizon_s: float, rng: np.random.Generator, *, mtbf_s: float, mttr_s: float
) -> Array:
    """Failures and repairs of every node: exponential up and down times, alike for every policy."""
    rows: list[tuple[float, int, int]] = []
    for node in range(len(cluster)):
        time_s = 0.0
        while True:
            time_s += rng.exponential(mtbf_s)
            if time_s > horizon_s:
                break
            rows.append((time_s, node, 0))
            time_s += rng.exponential(mttr_s)
            rows.append((time_s, node, 1))
    return (
        np.sort(np.array(rows, OUTAGE), order=["time_s", "node"]) if rows else np.zeros(0, OUTAGE)
    )


def expected_mix(workload: Workload, cover: float = 0.95) -> Mix:
    """The most frequent requests that make up `cover` of the jobs."""
    like, first, count = np.unique(workload.jobs["like"], return_index=True, return_counts=True)
    order = np.lexsort((like, -count))
    keep = order[: int(np.searchsorted(np.cumsum(count[order]), cover * len(workload))) + 1]
    rows = first[keep]
    return Mix(
        workload.jobs[rows].copy(), workload.demand[rows].copy(), count[keep] / count[keep].sum()
    )


def fitted(workload: Workload, cluster: Cluster) -> tuple[Workload, Cluster]:
    """Both with the same resources in the cluster's order; an error says which is missing."""
    missing = [name for name in workload.resources if name not in cluster.resources]
    if missing:
        raise TraceError(
            f"{workload.source}: asks for {', '.join(missing)}, which {cluster.source} lacks "
            f"(it has {', '.join(cluster.resources)}); choose a matching --cluster"
        )
    demand = np.zeros((len(workload), len(cluster.resources)))
    for r, name in enumerate(workload.resources):
        demand[:, list(cluster.resources).index(name)] = workload.demand[:, r]
    return replace(workload, demand=demand, resources=cluster.resources), cluster


def unhostable(workload: Workload, cluster: Cluster) -> Array:
    """(J,) whether this cluster could not run a job even if it were empty."""
    _, rows, like = np.unique(workload.jobs["like"], return_index=True, return_inverse=True)
    nodes = cluster.nodes
    table = (*cluster.capacity.T, nodes["kind"], nodes["gpus"], nodes["gpu_mem_gb"])
    _, first, count = np.unique(
        np.column_stack(table), axis=0, return_index=True, return_counts=True
    )
    parts = np.array_split(rows, 1 + len(rows) * len(first) // CELLS)
    never = [_never(workload, part, cluster, first, count) for part in parts]
    return np.asarray(np.concatenate(never)[like])


def _never(workload: Workload, rows: Array, cluster: Cluster, first: Array, count: Array) -> Array:
    """The same of some jobs, where `count` nodes are like each of the `first`."""
    jobs, nodes = workload.jobs[rows][:, None], cluster.nodes[first]
    room = np.full((len(rows), len(first)), np.inf)
    for r in range(len(cluster.resources)):
        wants = workload.demand[rows, r][:, None]
        each = np.floor_divide(cluster.capacity[first, r], wants, where=wants > 0, out=room.copy())
        room = np.minimum(room, each)
    on = jobs["node_kinds"] >> nodes["kind"].astype(np.uint64) & np.uint64(1) == 1
    share, mem_gb, gpus = jobs["gpu_share"], jobs["gpu_mem_gb"], jobs["gpus"]
    each = np.where(share == 1, 1.0, 1 // share) * np.ones(room.shape)
    fit = np.floor_divide(nodes["gpu_mem_gb"], mem_gb, where=mem_gb > 0, out=each.copy())
    each = np.minimum(each, fit) * nodes["gpus"]
    room = np.minimum(room, np.floor_divide(each, gpus, where=gpus > 0, out=room.copy()))
    need = np.where(jobs["gang"][:, 0] == 1, jobs["instances"][:, 0], 1)
    return np.asarray(np.where(on, room, 0.0) @ count < need)


def hosted(work: Workload, cluster: Cluster) -> Workload:
    """The jobs that the cluster can run at all; the rest are counted as dropped. Where it can run
    none, all of them, so that the error says why.
    """
    never = unhostable(*fitted(work, cluster))
    if never.all() or not never.any():
        return work
    kept = work.only(~never)
    dropped = {**work.meta.get("dropped", {}), "fits no node of the cluster": int(never.sum())}
    return replace(kept, meta={**kept.meta, "dropped": dropped})


def check_hostable(workload: Workload, cluster: Cluster) -> None:
    """Raise TraceError for the first job that this cluster could not run even if it were empty."""
    never = np.flatnonzero(unhostable(workload, cluster))
    if not len(never):
        return
    first = int(never[0])
    rec = workload.jobs[first]
    need = int(rec["instances"]) if rec["gang"] else 1
    shown = [r for r, name in enumerate(cluster.resources) if name != WHOLE]
    wants = workload.demand[first].tolist()
    asks = {cluster.resources[r]: wants[r] for r in shown if wants[r]}
    if rec["gpu_mem_gb"] > 0:
        asks["gpu_mem_gb"] = float(rec["gpu_mem_gb"])
    capacity = cluster.capacity.max(0).tolist()
    most = {cluster.resources[r]: capacity[r] for r in shown}
    on = (int(rec["node_kinds"]) >> cluster.nodes["kind"].astype(object)) & 1 == 1
    mine = "" if on.all() else f", of which it may use {int(on.sum())}"
    if cluster.nodes["gpus"].any():
        most["gpu_mem_gb"] = float(cluster.nodes["gpu_mem_gb"].max())
    raise TraceError(
        f"{workload.source}: job {workload.name(first)} (row {first}): {need} x {asks} can never "
        f"run on {cluster.source} ({len(cluster)} nodes{mine}; most a node: {most}); drop it "
        f"(--lenient) or choose a larger --cluster"
    )


def check_profile(
    profile: Profile, workloads: Sequence[Workload], clusters: Sequence[Cluster]
) -> None:
    """Raise TraceError for a table too small for the kinds, or a number that stops the clock."""
    kinds, nodes = max(len(w.kinds) for w in workloads), max(len(c.kinds) for c in clusters)
    shapes = len(profile.shapes)
    want = {
        "rate": (kinds, nodes, shapes),
        "slow": (kinds, kinds),
        "draw": (kinds, nodes),
        "quality": (kinds, shapes),
    }
    for name, shape in want.items():
        table = getattr(profile, name)
        exact = name in ("rate", "quality")  # the last axis is the shapes
        if any(a < b for a, b in zip(table.shape, shape)) or (exact and table.shape[-1] != shapes):
            raise TraceError(
                f"profile {profile.source}: {name} has shape {table.shape}, want {shape} "
                f"for {kinds} job kinds, {nodes} node kinds and {shapes} shapes"
            )
        if not np.isfinite(table).all() or (table < 0).any():
            raise TraceError(
                f"profile {profile.source}: {name} holds a number that is not finite and >= 0; "
                "mend it"
            )
    if any(not (np.isfinite(shape.scale) and shape.scale > 0) for shape in profile.shapes):
        raise TraceError(
            f"profile {profile.source}: a shape's scale is not a finite number above 0; mend it"
        )


def check_models(models: Models, nodes: int) -> None:
    """Raise TraceError for what cannot be computed, or an outage of a node that is not there."""
    for name, low in (("startup_s", 0.0), ("move_s", 0.0), ("retries", 0), ("windows", 1)):
        value = getattr(models, name)
        if value is not None and not (np.isfinite(value) and value >= low):
            raise TraceError(f"models: {name}={value} is not a finite number >= {low:g}")
    if not (np.isfinite(models.window_s) and models.window_s > 0):
        raise TraceError(f"models: window_s={models.window_s} is not a finite number above 0")
    rows = models.outages
    bad = np.isnan(rows["time_s"]) | (rows["node"] < 0) | (rows["node"] >= nodes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise TraceError(
            f"outages: row {row}: time_s={rows['time_s'][row]}, node={rows['node'][row]}: "
            f"want a time and a node in 0..{nodes - 1}; drop the row"
        )


def make_world(
    workloads: Sequence[Workload],
    clusters: Sequence[Cluster],
    profile: Profile | None = None,
    models: Models | None = None,
    *,
    runs: int = 256,
    pieces: int = 1024,
    log: int = 0,
    mix: Mix | None = None,
    packer: Array | None = None,
    worker: Array | None = None,
) -> World:
    """Lay out one simulated cluster for each (workload, cluster) pair; shorter ones are padded.

    `packer` and `worker` are weights for the placements of those names, in place of the shipped.
    """
    first_w, first_c = workloads[0], clusters[0]
    models = (models or Models()).on(first_c)
    profile = profile or uniform_profile(len(first_w.kinds), len(first_c.kinds))
    count = len(workloads)
    jobs = max(len(w) for w in workloads)
    nodes = max(len(c) for c in clusters)
    resources = len(first_c.resources)
    devices = max(int(c.nodes["gpus"].max()) for c in clusters)
    edges = max(0 if w.after_idx is None else len(w.after_idx) for w in workloads)
    mix = mix or expected_mix(first_w)
    likes = max(int(w.jobs["like"].max()) + 1 for w in workloads)
    tenants = max(len(w.tenants) for w in workloads)
    quotas = max(0 if w.quotas is None else len(w.quotas.names) for w in workloads)
    members = max(0 if w.quotas is None else len(w.quotas.idx) for w in workloads)
    gates = max(len(c.gates) for c in clusters)
    bound, gated = (jobs if quotas else 0), (jobs if gates else 0)
    check_profile(profile, workloads, clusters)
    check_models(models, nodes)
    conf = np.zeros(1, CONF)
    for name in ("startup_s", "window_s", "retries", "power", "kill_at_request", "live_migration"):
        conf[name] = getattr(models, name)
    conf["move_s"] = models.pause_s
    conf["interference"] = models.interference and bool(np.any(profile.slow))
    conf["pattern_step_s"] = first_w.pattern_step_s
    conf["log"] = log > 0
    lending = first_c.lending if models.lends else None
    if lending is not None:
        check_lending(lending, first_c)
    conf["plans"], conf["spare_s"] = first_w.in_time
    lending_conf(conf, lending, profile, models.interference)
    pinned = max(int((w.truth["pinned"] > 0).sum()) for w in workloads)
    runs, pieces = runs + pinned, pieces + pinned
    cancels = [np.flatnonzero(np.isfinite(w.truth["cancel_s"])) for w in workloads]
    words, heads = (jobs + 63) // 64, (jobs + 4095) // 4096
    amounts, shares = (count, nodes, resources), (count, nodes, devices)
    world = World(
        jobs=np.zeros((count, jobs), JOB),
        demand=np.zeros((count, jobs, resources)),
        state=np.zeros((count, jobs), STATE),
        nodes=np.zeros((count, nodes), NODE),
        capacity=np.zeros(amounts),
        capacity_sum=np.zeros((count, resources)),
        free=np.zeros(amounts),
        gpu_free=np.zeros(shares),
        gpu_mem=np.zeros(shares),
        node_state=np.zeros((count, nodes), NODE_STATE),
        runs=np.zeros((count, runs), RUN),
        pieces=np.zeros((count, pieces), PIECE),
        head=np.zeros(count, HEAD),
        totals=np.zeros(count, TOTALS),
        arrived=np.zeros(count, TOTALS),
        so_far=np.zeros((count, jobs), SO_FAR),
        conf=conf,
        rate=np.ascontiguousarray(profile.rate),
        slow=np.ascontiguousarray(profile.slow),
        scale=np.array([shape.scale for shape in profile.shapes]),
        draw=np.ascontiguousarray(profile.draw),
        quality=np.ascontiguousarray(profile.quality),
        link=np.ascontiguousarray(first_c.link if models.links else np.ones_like(first_c.link)),
        mix_jobs=mix.jobs,
        mix_demand=mix.demand,
        mix_share=mix.share,
        packer=shipped() if packer is None else packer,
        worker=np.tile(compat.shipped() if worker is None else worker, (count, 1, 1)),
        quota_cap=np.full((count, quotas, resources + 2), np.inf),
        quota_used=np.zeros((count, quotas, resources + 2)),
        quota_ptr=np.zeros((count, bound + 1), np.int64),
        quota_idx=np.zeros((count, members), np.int64),
        quota_nodes=np.zeros((count, bound)),
        gate=np.zeros((count, gates), GATE),
        reserved=np.full((count, gated), -1),
        truth=np.zeros((count, jobs), TRUTH),
        child_ptr=np.zeros((count, jobs + 1), np.int64),
        child_idx=np.zeros((count, edges), np.int64),
        rank=np.tile(np.arange(jobs), (count, 1)),
        line=np.tile(np.arange(jobs), (count, 1)),
        words=np.zeros((count, words), np.uint64),
        heads=np.zeros((count, heads), np.uint64),
        heap=np.zeros((count, runs), np.int64),
        outage=np.tile(np.sort(models.outages, order=["time_s", "node"]), (count, 1)),
        cancel=np.zeros((count, max(len(rows) for rows in cancels)), np.int64),
        patterns=np.ascontiguousarray(first_w.patterns),
        follow=np.zeros((count, jobs if len(first_w.patterns) else 0), np.int64),
        recent=np.zeros((count, nodes, models.windows)),
        log=np.zeros((count, log), LOG),
        entry=np.zeros((count, pieces), ENTRY),
        stop=np.zeros((count, runs), np.int64),
        score=np.zeros((count, nodes)),
        slots=np.zeros((count, nodes), np.int64),
        later_free=np.zeros(amounts),
        later_gpu_free=np.zeros(shares),
        later_gpu_mem=np.zeros(shares),
        refused=np.zeros((count, likes), np.int64),
        most=np.zeros((count, resources)),
        freed_words=np.zeros((count, (nodes + 63) // 64), np.uint64),
        freed_heads=np.zeros((count, (nodes + 4095) // 4096), np.uint64),
        most_freed=np.zeros((count, resources)),
        least=np.zeros((count, resources)),
        queue=np.zeros((count, jobs), np.int64),
        turn=np.zeros((count, jobs), np.int64),
        turn_words=np.zeros((count, words), np.uint64),
        turn_heads=np.zeros((count, heads), np.uint64),
        fresh=np.zeros((count, 64), np.int64),
        prefer=np.zeros((count, likes), np.int64),
        held=np.zeros((count, tenants, resources)),
        share=np.zeros((count, tenants)),
        **lending_arrays(count, nodes, lending, first_c, profile),
    )
    if lending is not None:
        world.head["estimate"] = estimate_of(lending.estimate)
    for c in range(count):
        _lay(world, c, workloads[c], clusters[c], cancels[c])
    return world


def _lay(world: World, c: int, workload: Workload, cluster: Cluster, cancels: Array) -> None:
    """Copy a workload and cluster into rows; padding jobs have ended, padding nodes are down."""
    rows = len(workload)
    world.head[c]["jobs"], world.head[c]["nodes"] = rows, len(cluster)
    world.head[c]["resources"] = sum(name != WHOLE for name in cluster.resources)
    world.jobs[c, :rows] = workload.jobs
    world.demand[c, :rows] = workload.demand
    world.truth[c, :rows] = workload.truth
    world.nodes[c, : len(cluster)] = cluster.nodes
    world.capacity[c, : len(cluster)] = cluster.capacity
    world.capacity_sum[c] = cluster.capacity.sum(0)
    quotas, gates = workload.quotas, cluster.gates
    if quotas is not None and len(quotas.names):
        world.quota_cap[c, : len(quotas.cap)] = quotas.cap
        world.quota_ptr[c, : rows + 1] = quotas.ptr
        world.quota_ptr[c, rows + 1 :] = quotas.ptr[-1]
        world.quota_idx[c, : len(quotas.idx)] = quotas.idx
        world.quota_nodes[c, :rows] = quotas.nodes
    world.gate[c, : len(gates)] = gates
    if len(gates) and workload.reserved is not None:
        world.reserved[c, :rows] = workload.reserved
    if workload.after_ptr is not None and workload.after_idx is not None:
        owner = np.repeat(np.arange(rows), np.diff(workload.after_ptr))
        order = np.argsort(workload.after_idx, kind="stable")
        world.child_idx[c, : len(order)] = owner[order]
        world.child_ptr[c, : rows + 1] = np.searchsorted(
            workload.after_idx[order], np.arange(rows + 1)
        )
        world.child_ptr[c, rows + 1 :] = world.child_ptr[c, rows]
    cancels = cancels[np.argsort(workload.truth["cancel_s"][cancels], kind="stable")]
    world.cancel[c, : len(cancels)] = cancels
    world.cancel[c, len(cancels) :] = -1


def grown(world: World, *, runs: int = 0, pieces: int = 0, log: int = 0) -> World:
    """The same world with more room for runs, pieces or log rows."""
    clusters = len(world.head)

    def wider(name: str, size: int) -> Array:
        old = getattr(world, name)
        out = np.zeros((clusters, max(size, old.shape[1])), old.dtype)
        out[:, : old.shape[1]] = old
        return out

    old_runs, old_pieces = world.runs.shape[1], world.pieces.shape[1]
    more_runs, more_pieces = wider("runs", runs), wider("pieces", pieces)
    more_runs["job"][:, old_runs:] = -1
    for c in range(clusters):
        head = world.head[c : c + 1]
        link_free(more_runs[c], "sibling", head, "free_run", "free_runs", old_runs)
        link_free(more_pieces[c], "next", head, "free_piece", "free_pieces", old_pieces)
    return world.replaced(
        runs=more_runs,
        pieces=more_pieces,
        heap=wider("heap", runs),
        stop=wider("stop", runs),
        entry=wider("entry", pieces),
        log=wider("log", log),
    )


def copied(world: World) -> World:
    """A world of its own that goes on from here; what is never written is shared."""
    mine = (name for name in FIELDS if name not in SHARED)
    return world.replaced(**{name: np.array(getattr(world, name)) for name in mine})


def link_free(slots: Array, link: str, head: Array, first: str, count: str, start: int) -> None:
    """Chain the slots from `start` on, lowest first, and hang the old free list behind them."""
    if start < len(slots):
        slots[link][start:] = np.arange(start + 1, len(slots) + 1)
        slots[link][-1] = head[first][0]
        head[first] = start
        head[count] += len(slots) - start
