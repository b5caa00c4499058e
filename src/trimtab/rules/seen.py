"""A world made from a snapshot: how rules and codecs look at any backend with compiled code."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Decision, Snapshot, Start, Stop
from trimtab.rules import compat
from trimtab.rules.nodes.index import index_of
from trimtab.rules.place import FIRST
from trimtab.rules.world import CONF, ENTRY, HEAD, World
from trimtab.rules.worth import shipped


def world_of(
    snapshot: Snapshot,
    room: int = 256,
    packer: Array | None = None,
    worker: Array | None = None,
    place: int = FIRST,
) -> World:
    """The snapshot's arrays as they are, copies of what a plan books in, room for `room` starts.

    `packer` and `worker` are weights for the placements of those names, in place of the shipped.
    For many jobs and nodes there is an index for `place`.
    """
    jobs, waiting = len(snapshot.jobs), len(snapshot.queue)
    nodes, resources = snapshot.free.shape
    devices = snapshot.gpu_free.shape[1]
    head, conf = np.zeros(1, HEAD), np.zeros(1, CONF)
    head["now_s"], head["jobs"], head["nodes"] = snapshot.now_s, jobs, nodes
    head["waiting"], head["heap"] = waiting, len(snapshot.running)
    head["submitted"] = snapshot.totals["submitted"]
    head["varies"] = snapshot.ahead.any()
    head["indexed"] = place
    conf["startup_s"], conf["move_s"] = snapshot.startup_s, snapshot.move_s
    conf["live_migration"] = snapshot.live_migration
    profile = snapshot.profile
    tenants = int(snapshot.jobs["tenant"].max(initial=0)) + 1
    likes = (
        int(snapshot.jobs["like"].max(initial=0)) + 1
    )  # a window of a trace keeps the trace's numbers
    return World(
        jobs=snapshot.jobs[None],
        demand=snapshot.demand[None],
        state=snapshot.state[None],
        nodes=snapshot.nodes[None],
        capacity=snapshot.capacity[None],
        capacity_sum=snapshot.capacity.sum(0)[None],
        free=snapshot.free[None].copy(),
        gpu_free=snapshot.gpu_free[None].copy(),
        gpu_mem=snapshot.gpu_mem_free[None].copy(),
        node_state=snapshot.node_state[None],
        runs=snapshot.runs[None],
        pieces=snapshot.pieces[None],
        head=head,
        conf=conf,
        rate=np.ascontiguousarray(profile.rate),
        slow=np.ascontiguousarray(profile.slow),
        scale=np.array([shape.scale for shape in profile.shapes]),
        link=np.ascontiguousarray(snapshot.link),
        mix_jobs=snapshot.mix.jobs,
        mix_demand=snapshot.mix.demand,
        mix_share=snapshot.mix.share,
        packer=shipped() if packer is None else packer,
        worker=(compat.shipped() if worker is None else worker)[None],
        limit=snapshot.limit[None],
        horizon=snapshot.horizon_s,
        ahead=snapshot.ahead[None] if snapshot.ahead.size else np.zeros((1, nodes, 0)),
        **limits_of(snapshot),
        **index_of(snapshot.nodes, snapshot.capacity, len(snapshot.horizon_s), place, waiting),
        entry=np.zeros((1, room), ENTRY),
        stop=np.zeros((1, len(snapshot.runs)), np.int64),
        score=np.zeros((1, nodes)),
        slots=np.zeros((1, nodes), np.int64),
        later_free=np.zeros((1, nodes, resources)),
        later_gpu_free=np.zeros((1, nodes, devices)),
        later_gpu_mem=np.zeros((1, nodes, devices)),
        refused=np.zeros((1, likes), np.int64),
        most=np.zeros((1, resources)),
        least=np.zeros((1, resources)),
        freed_words=np.zeros((1, (nodes + 63) // 64), np.uint64),
        freed_heads=np.zeros((1, (nodes + 4095) // 4096), np.uint64),
        queue=np.ascontiguousarray(snapshot.queue, np.int64)[None],
        turn=np.zeros((1, waiting), np.int64),
        turn_words=np.zeros((1, (waiting + 63) // 64), np.uint64),
        turn_heads=np.zeros((1, (waiting + 4095) // 4096), np.uint64),
        prefer=np.zeros((1, likes), np.int64),
        held=np.zeros((1, tenants, resources)),
        share=np.zeros((1, tenants)),
    )


def limits_of(snapshot: Snapshot) -> dict[str, Array]:
    """The snapshot's quotas and gates as arrays of a world; none where it has none."""
    arrays: dict[str, Array] = {}
    quotas = snapshot.quotas
    if quotas is not None and len(quotas.names):
        arrays = {
            "quota_cap": quotas.cap[None],
            "quota_used": snapshot.quota_used[None].copy(),
            "quota_ptr": quotas.ptr[None],
            "quota_idx": quotas.idx[None],
            "quota_nodes": quotas.nodes[None],
        }
    if len(snapshot.gates):
        none = np.full(len(snapshot.jobs), -1)
        reserved = none if snapshot.reserved is None else snapshot.reserved
        arrays |= {"gate": snapshot.gates[None], "reserved": reserved[None]}
    return arrays


def decisions_of(world: World) -> list[Decision]:
    """What a pass left in the world's entries, as decisions: stops first, then starts in order."""
    head = world.head[0]
    stops = world.runs[0]["job"][world.stop[0, : head["stops"]]]
    made: list[Decision] = [Stop(int(job)) for job in dict.fromkeys(stops.tolist())]
    entry = world.entry[0, : head["starts"]]
    jobs = entry["job"].tolist()
    nodes, devices = entry["node"].tolist(), entry["devices"].tolist()
    i = 0
    while i < len(jobs):
        end = i + 1
        while end < len(jobs) and jobs[end] == jobs[i]:
            end += 1
        masks = tuple(devices[i:end]) if any(devices[i:end]) else ()
        made.append(Start(jobs[i], tuple(nodes[i:end]), devices=masks))
        i = end
    return made
