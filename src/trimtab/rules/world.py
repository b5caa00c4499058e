"""A cluster as arrays, seen by compiled code through one pointer.

`World` holds plain numpy arrays as attributes: the debugger, `.py_func` and the rest of Python use
those. Compiled code receives the address of a table of their places and shapes, and
`world.free[c, node, r]` reads through it: passing sixty arrays to every small function would cost
more than the function does.

The first axis of every array but the shared tables is the cluster, so that one layout serves one
simulation, live use (a world made from a snapshot) and thousands of clusters at once.
"""

from hashlib import sha256
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from trimtab.columns import JOB, NODE, NODE_STATE, PIECE, RUN, SO_FAR, STATE, TOTALS, TRUTH
from trimtab.site import GATE

HEAD = np.dtype(
    [
        ("now_s", "f8"),
        ("alarm_s", "f8"),  # decide again then, even if nothing happens
        ("pattern_s", "f8"),  # next change of the services' use
        ("load_sum", "f8"),
        ("load_square", "f8"),
        ("power_w", "f8"),
        ("held", "f8"),  # allocated share of the cluster, mean over resources
        ("first_s", "f8"),  # first submit: totals begin here
        ("last", "i8"),  # the last such job, -1 = none
        ("jobs", "i8"),  # real rows: what is behind them is padding
        ("nodes", "i8"),
        ("resources", "i8"),  # that are counted: one that keeps jobs apart stands behind them
        ("submitted", "i8"),  # rows before this one have been
        ("outage", "i8"),  # the next row of World.outage
        ("cancel", "i8"),  # the next row of World.cancel
        ("waiting", "i8"),
        ("active", "i8"),  # jobs with a run and nothing left to start
        ("batch_left", "i8"),  # jobs that have not ended, services apart
        ("services", "i8"),  # runs whose use follows a pattern
        ("follows", "i8"),  # jobs whose use would: rows of World.follow
        ("heap", "i8"),  # runs
        ("free_run", "i8"),  # list of free slots
        ("free_runs", "i8"),
        ("free_piece", "i8"),
        ("free_pieces", "i8"),
        ("idle", "i8"),  # nodes up with nothing on them
        ("log", "i8"),  # rows written
        ("why", "i8"),  # the last refusal
        ("why_node", "i8"),
        ("why_wants", "f8"),
        ("why_free", "f8"),
        ("why_resource", "i8"),
        ("starts", "i8"),  # entries planned in this pass
        ("stops", "i8"),
        ("full", "i8"),  # 1 = the plan needs more room
        ("later_s", "f8"),  # what nodes and gates are looked at for, where it is after now
        ("pass_no", "i8"),
        ("most_whole", "i8"),  # of any node in this pass: devices nobody uses
        ("most_share", "f8"),  # of any device
        # what the last pass left behind: while only jobs arrive, it need not be found again
        ("calm", "i8"),  # 1 = nothing but arrivals since
        ("blocked", "i8"),  # rank of the job at the head that did not fit
        ("known", "i8"),  # 1 = the next three have been found: only once a job fits behind the head
        ("shadow_s", "f8"),
        ("room", "i8"),
        ("need", "i8"),
        ("fresh", "i8"),  # arrivals since
        # the same of a greedy pass: what waits fits only on nodes where room was made since
        ("settled", "i8"),
        ("freed", "i8"),  # how many those are, World.freed_words which
        # of an index of the nodes
        ("indexed", "i8"),  # the place whose order it has
        ("touches", "i8"),  # changes of a node so far
        # where the cluster lends
        ("estimate", "i8"),  # of rules.names.ESTIMATES
        ("varies", "i8"),  # 1 = the estimate hangs on how long a job runs: World.ahead is not all 0
        ("service", "f8"),  # that services use now, of all nodes
        ("harmed", "f8"),  # of that, on overloaded nodes
        ("own_harm", "f8"),  # of that, on nodes that services alone overload
        ("due_s", "f8"),  # not after the next eviction
        ("moved_s", "f8"),  # when a run last began
        ("step", "i8"),  # of use, that has begun
        ("back_first", "i8"),  # jobs whose evicted instances back off, -1 = none
        ("back_last", "i8"),
        ("pinned", "i8"),  # jobs that will start where they are pinned
    ]
)
OUTAGE = np.dtype([("time_s", "f8"), ("node", "i8"), ("up", "i8")])
LOG = np.dtype(
    [
        ("time_s", "f8"),
        ("what", "i8"),
        ("job", "i8"),
        ("node", "i8"),
        ("count", "i8"),
        ("shape", "i8"),
        ("run", "i8"),
        ("reason", "i8"),
    ]
)
CONF = np.dtype(
    [
        ("startup_s", "f8"),
        ("move_s", "f8"),  # of Models.pause_s
        ("window_s", "f8"),
        ("pattern_step_s", "f8"),
        ("retries", "i8"),
        ("interference", "i8"),
        ("power", "i8"),
        ("kill_at_request", "i8"),
        ("live_migration", "i8"),  # 1 = a move loses nothing; 0 = it is a stop and a start
        ("log", "i8"),
        ("halt", "i8"),  # 1 = break off: set from outside while compiled code runs
        ("lends", "i8"),  # 1 = batch jobs may book what services reserve and do not use
        ("curved", "i8"),  # 1 = some kind of job slows down with the load of its node
        ("knee", "f8"),  # the least load at which one does
        ("every", "i8"),
        ("late", "i8"),
        ("stale", "i8"),
        ("missing", "f8"),
        ("read_seed", "i8"),
        ("crowded", "f8"),
        ("grace_s", "f8"),
        ("evict_to", "f8"),
        ("back_off_s", "f8"),
        ("usual_step_s", "f8"),
        ("plans", "f8"),  # a job is in time within so many of its requests
        ("spare_s", "f8"),  # and so many seconds more
    ]
)
BUCKET = np.dtype(  # of an index: nodes alike
    [
        ("first", "i8"),  # row of World.bucket_node
        ("count", "i8"),
        ("base", "i8"),  # row of World.tree
        ("leaves", "i8"),  # of its tree, a power of 2
    ]
)
ENTRY = np.dtype([("job", "i8"), ("node", "i8"), ("devices", "u8")])
F8, I8, U8 = np.dtype("f8"), np.dtype("i8"), np.dtype("u8")

# C clusters, J jobs, N nodes, R resources, D devices, M runs, P pieces, K job kinds, S shapes
FIELDS: dict[str, tuple[np.dtype[Any], int]] = {
    "jobs": (JOB, 2),  # (C, J)
    "demand": (F8, 3),  # (C, J, R)
    "state": (STATE, 2),  # (C, J)
    "nodes": (NODE, 2),  # (C, N)
    "capacity": (F8, 3),  # (C, N, R)
    "capacity_sum": (F8, 2),  # (C, R) of all nodes
    "free": (F8, 3),  # (C, N, R)
    "gpu_free": (F8, 3),  # (C, N, D)
    "gpu_mem": (F8, 3),  # (C, N, D) free memory of each device
    "node_state": (NODE_STATE, 2),  # (C, N)
    "runs": (RUN, 2),  # (C, M)
    "pieces": (PIECE, 2),  # (C, P)
    "head": (HEAD, 1),  # (C,)
    "totals": (TOTALS, 1),  # (C,)
    "arrived": (TOTALS, 1),  # (C,) the same as they stood when job head.last was submitted
    "so_far": (SO_FAR, 2),  # (C, J) at that instant
    "conf": (CONF, 1),  # (1,)
    "rate": (F8, 3),  # (K, kinds of node, S)
    "slow": (F8, 2),  # (K, K)
    "scale": (F8, 1),  # (S,)
    "draw": (F8, 2),  # (K, kinds of node)
    "quality": (F8, 2),  # (K, S)
    "link": (F8, 2),  # (regions, regions)
    "mix_jobs": (JOB, 1),  # (T,)
    "mix_demand": (F8, 2),  # (T, R)
    "mix_share": (F8, 1),  # (T,)
    "packer": (F8, 2),  # (classes, features) weights of the placement of that name
    "worker": (F8, 3),  # (C, regions or 1, weights) of the placement of that name
    # no rows of any, where the cluster does not lend
    "limit": (F8, 2),  # (C, regions)
    "margin": (F8, 2),  # (C, regions) deviations that a learned estimate adds
    "overstay": (F8, 2),  # (C, regions) of planned times, until room counts as left; 0 = never
    "taper": (F8, 2),  # (C, regions) of a node, with each longer horizon
    "patience_s": (F8, 2),  # (C, regions) of crowded nodes, -1 = none is relieved
    "horizon": (F8, 1),  # (H,) seconds ahead
    "ahead": (F8, 3),  # (C, N, H) kept from jobs that long, beyond what free leaves out
    "curve": (F8, 2),  # (K, 2)
    # no rows of any, where there are no quotas or no gates
    "quota_cap": (F8, 3),  # (C, Q, R + 2) of resources, then of jobs and of nodes
    "quota_used": (F8, 3),  # (C, Q, R + 2)
    "quota_ptr": (I8, 2),  # (C, J + 1) with quota_idx: the quotas that each job counts in
    "quota_idx": (I8, 2),
    "quota_nodes": (F8, 2),  # (C, J) that a gang, or an instance of an array, counts for
    "gate": (GATE, 2),  # (C, V)
    "reserved": (I8, 2),  # (C, J) the gate that a job may pass, -1 = none
    # the simulator's alone
    "truth": (TRUTH, 2),  # (C, J)
    "child_ptr": (I8, 2),  # (C, J + 1) with child_idx: the jobs that wait for each one
    "child_idx": (I8, 2),
    "rank": (I8, 2),  # (C, J) place in the static queue order
    "line": (I8, 2),  # (C, J) job of each rank
    "words": (U8, 2),  # (C, J / 64) ranks that wait, as bits
    "heads": (U8, 2),  # (C, J / 4096) words that are not empty
    "heap": (I8, 2),  # (C, M) runs by end
    "outage": (OUTAGE, 2),  # (C, F) by time
    "cancel": (I8, 2),  # (C, X) jobs by cancel time
    "patterns": (F8, 2),  # (rows, steps)
    "follow": (I8, 2),  # (C, J) jobs whose use follows one of them
    "recent": (F8, 3),  # (C, N, W) ring of window means
    "log": (LOG, 2),  # (C, L)
    "past": (F8, 3),  # (C, N, L) ring of what services used, by step
    "reading": (F8, 3),  # (C, N, P) ring of readings of it
    "shared": (F8, 3),  # (C, regions, Q) ring of their mean share of use, by step
    "cast": (F8, 2),  # (H, features + 1) weights of the estimate `forecast`
    "foretold": (F8, 3),  # (C, N, H) what a learned estimate says now
    "said": (F8, 3),  # (C, N, 2 H) by the encoder alone: medians of the rise, then deviations
    "learned": (F8, 3),  # (C, regions, 2 H) added to those medians, then factors of the deviations
    "usual": (F8, 3),  # (C, regions, K) share of use by time of day
    "outlook": (F8, 3),  # (C, regions, ..) of it, now and ahead
    "net_first": (F8, 2),  # of the estimate `encoder`, biases last
    "net_middle": (F8, 2),
    "net_last": (F8, 2),
    "embedded": (F8, 3),  # (C, N, hidden) its view of each node
    "foreseen": (F8, 3),  # (C, T, N x H) estimates given by step; no rows where nobody gives any
    # room for one scheduling pass
    "entry": (ENTRY, 2),  # (C, P) starts, an entry an instance
    "stop": (I8, 2),  # (C, M) runs to stop
    "score": (F8, 2),  # (C, N)
    "slots": (I8, 2),  # (C, N)
    "later_free": (F8, 3),  # (C, N, R) at the shadow time
    "later_gpu_free": (F8, 3),
    "later_gpu_mem": (F8, 3),
    "refused": (I8, 2),  # (C, J) by likeness: the pass in which such a request last failed
    "most": (F8, 2),  # (C, R) of any node in this pass: what is free
    # an index of the nodes, for one place; no rows of any where a scan costs less
    "bucket": (BUCKET, 2),  # (C, B)
    "bucket_node": (I8, 2),  # (C, N) by bucket, then number
    "bucket_at": (I8, 2),  # (C, N) where a node stands there
    "bucket_of": (I8, 2),  # (C, N)
    "tree": (F8, 3),  # (C, H, rows x (1 + R)) largest ease, and most room of each resource
    "tree_seen": (I8, 2),  # (C, H) touches that it has taken in, -1 = none
    "tree_path": (I8, 2),  # (C, 128) scratch
    "touched": (I8, 2),  # (C, Q) ring of nodes on which something changed
    # of greedy passes
    "freed_words": (U8, 2),  # (C, N / 64) nodes where room was made since the last, as bits
    "freed_heads": (U8, 2),
    "most_freed": (F8, 2),  # (C, R) the most that is free on any of them
    "least": (F8, 2),  # (C, R) the least that any job asks which the last passes left waiting
    "queue": (I8, 2),  # (C, J) jobs that wait
    "turn": (I8, 2),  # (C, J) the same in the order of a pass
    "turn_words": (U8, 2),
    "turn_heads": (U8, 2),
    "fresh": (I8, 2),  # (C, 64) jobs that arrived since the last pass
    "prefer": (
        I8,
        2,
    ),  # (C, J) by likeness: 1 + the node kind fixed for such a job, 0 = not known yet
    "held": (F8, 3),  # (C, tenants, R) of the cluster
    "share": (F8, 2),  # (C, tenants) dominant share
}
SLOTS = 4  # words of the table an array takes: its address and up to three lengths


class World:
    """Arrays by name. Compiled code gets `_address`; `replaced` makes a World of other arrays."""

    def __getattr__(self, name: str) -> Any:  # for type checkers: the arrays are set by name
        raise AttributeError(name)

    def __init__(self, **arrays: np.ndarray[Any, Any]) -> None:
        table = np.zeros((len(FIELDS), SLOTS), np.int64)
        for i, (name, (dtype, ndim)) in enumerate(FIELDS.items()):
            array = arrays.get(name)
            if array is None:
                array = np.zeros((0,) * ndim, dtype)
            if array.dtype != dtype or array.ndim != ndim or not array.flags.c_contiguous:
                raise TypeError(
                    f"World.{name}: {array.dtype} x {array.ndim}, want contiguous {dtype} x {ndim}"
                )
            # record attributes in plain Python too: `.py_func` reads as the compiled code does
            setattr(self, name, array.view(np.recarray) if dtype.names else array)
            table[i, 0] = array.ctypes.data
            table[i, 1 : 1 + ndim] = array.shape
        self._table = table
        self._address = table.ctypes.data

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, ({name: np.asarray(getattr(self, name)) for name in FIELDS},)

    def halt(self) -> None:
        """Have compiled code that runs on this world break off; see `compiled.interruptible`."""
        self.conf["halt"] = 1

    def replaced(self, **arrays: np.ndarray[Any, Any]) -> "World":
        return World(**{name: arrays.get(name, getattr(self, name)) for name in FIELDS})


def _rebuilt(arrays: dict[str, np.ndarray[Any, Any]]) -> World:
    """A copied or unpickled world points at its own arrays."""
    return World(**arrays)


def layout(fields: dict[str, tuple[np.dtype[Any], int]]) -> str:
    """One word for where everything stands: another layout is another type to the compiler."""
    told = repr([(name, dtype.descr, ndim) for name, (dtype, ndim) in fields.items()])
    return sha256(told.encode()).hexdigest()[:16]


class WorldType(types.Type):  # type: ignore[misc]
    """Named after its layout: machine code is kept by type, and reads where fields stood."""

    def __init__(self) -> None:
        super().__init__(name=f"TrimtabWorld {layout(FIELDS)}")


world_type = WorldType()
ARRAYS = {name: types.Array(from_dtype(dtype), ndim, "C") for name, (dtype, ndim) in FIELDS.items()}
PLACES = {name: i for i, name in enumerate(FIELDS)}


@typeof_impl.register(World)
def _typeof(value: World, context: Any) -> WorldType:
    return world_type


@register_model(WorldType)
class _WorldModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.IntType(64))


@unbox(WorldType)
def _unbox(typ: Any, obj: Any, c: Any) -> Any:
    attribute = c.pyapi.object_getattr_string(obj, "_address")
    value = c.pyapi.long_as_longlong(attribute)
    c.pyapi.decref(attribute)
    return NativeValue(value, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@intrinsic
def world_at(typingctx: Any, address: Any) -> Any:
    """The world whose table is at this address: cheaper to pass from Python than the object."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    return world_type(types.int64), codegen


@infer_getattr
class _Attributes(AttributeTemplate):  # type: ignore[misc]
    key = WorldType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        return ARRAYS.get(attr)


@lower_getattr_generic(WorldType)
def _getattr(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    """The array of that name: place and lengths loaded from the table, constant during a call."""
    array_type = ARRAYS[attr]
    table = builder.inttoptr(value, ir.IntType(64).as_pointer())
    unchanging = builder.module.add_metadata([])

    def word(i: int) -> Any:
        at = PLACES[attr] * SLOTS + i
        loaded = builder.load(builder.gep(table, [ir.Constant(ir.IntType(64), at)]))
        loaded.set_metadata("invariant.load", unchanging)
        return loaded

    array = make_array(array_type)(context, builder)
    itemsize = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
    step = ir.Constant(ir.IntType(64), itemsize)
    shape = [word(1 + i) for i in range(array_type.ndim)]
    strides = []
    for length in reversed(shape):
        strides.append(step)
        step = builder.mul(step, length)
    populate_array(
        array,
        data=builder.inttoptr(word(0), array.data.type),
        shape=shape,
        strides=list(reversed(strides)),
        itemsize=ir.Constant(ir.IntType(64), itemsize),
        meminfo=None,
    )
    return array._getvalue()
