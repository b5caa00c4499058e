"""Pieces and periods as Ray tasks, on the cores of one machine or of a cluster.

Every machine must see the trace and the out folder under the same paths: a shared folder is
assumed, and a machine that does not see it says so. Results are those of `steps.Threads` to the
byte: a piece or a period is the same work wherever it is done. Packed files are read by the driver.
"""

import logging
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import ray

from trimtab.errors import TraceError, TrimtabError
from trimtab.traces.alibaba2018.rows import Piece
from trimtab.traces.prepare.join import Routed, join_period
from trimtab.traces.prepare.plan import Plan
from trimtab.traces.prepare.route import described, route_piece

STORE_BYTES = 80 << 20  # what travels is small: names of pieces and places of rows
LEAST_BYTES = 256 << 20  # of a worker
PIECES_HELD = 6  # a piece takes about so many times its size while it is cleaned
IN_FLIGHT = 2  # tasks a worker: the next one waits beside the one that runs

# (out, when it was begun): the engine of this worker process, which all its tasks share
_engines: dict[tuple[Path, int], duckdb.DuckDBPyConnection] = {}


class OnRay:
    """Runs on the Ray cluster at `address`, on the one already joined, or on one started here."""

    def __init__(self, address: str | None = None) -> None:
        if ray.is_initialized():
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            ray.init(include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
            return
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError) as error:
            raise TraceError(
                f"no Ray cluster at address={address!r} ({error}); start one with "
                f"`ray start --head`, or leave the address out to use this machine"
            ) from None

    def route(self, plan: Plan, todo: Iterable[Piece]) -> Iterator[str]:
        """The names of the pieces as they are done, in any order."""
        yield from _each(plan, _route, ((_from_root(piece),) for piece in todo))

    def join(self, plan: Plan, todo: list[tuple[int, dict[str, Routed]]]) -> Iterator[int]:
        """The periods as they are done, in any order."""
        yield from _each(plan, _join, ((n, _placed(held)) for n, held in todo))


def _from_root(piece: Piece) -> Piece:
    """The piece by its full path: a worker stands in another folder."""
    return piece._replace(path=piece.path.absolute())


def _placed(held: dict[str, Routed]) -> dict[str, Routed]:
    """The rows of a period by their full paths."""
    return {
        table: one._replace(places=[(path.absolute(), batch) for path, batch in one.places])
        for table, one in held.items()
    }


def workers_a_machine(plan: Plan, cpus: int) -> int:
    """As many as there are CPUs, or fewer where each would have too little of the memory."""
    least = max(LEAST_BYTES, PIECES_HELD * plan.piece_bytes)
    return max(1, min(cpus, plan.memory_bytes // least))


def _each(plan: Plan, work: Callable[..., Any], todo: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Results of `work(plan, *item)` as they come; few are given out ahead of the workers."""
    machines = [int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]]
    cpus = max([1, *machines])
    workers = workers_a_machine(plan, cpus)
    task = ray.remote(num_cpus=max(1, cpus // workers), max_retries=3)(work)
    memory_bytes = max(plan.memory_bytes // workers, LEAST_BYTES)
    share = ray.put(replace(plan, out=plan.out.absolute(), memory_bytes=memory_bytes))
    most = IN_FLIGHT * max(1, sum(machines) * workers // cpus)
    going: list[Any] = []
    try:
        for item in todo:
            going.append(task.remote(share, *item))
            if len(going) >= most:
                done, going = ray.wait(going)
                yield from (_result(one, plan) for one in done)
        while going:
            done, going = ray.wait(going)
            yield from (_result(one, plan) for one in done)
    except BaseException:
        for one in going:
            ray.cancel(one)
        raise


def _result(task: Any, plan: Plan) -> Any:
    """What a task returned; its own mistakes as they were raised, without Ray's traceback."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, TrimtabError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[0]
        raise TraceError(
            f"{plan.out}: a Ray worker was lost ({first}); run the same again, with less --memory "
            f"if the machine ran out of it: what is done is kept"
        ) from None


def _route(plan: Plan, piece: Piece) -> str:
    _check_seen(piece.path)
    return route_piece(plan, piece, _engine(plan))


def _join(plan: Plan, period: int, held: dict[str, Routed]) -> int:
    return join_period(plan, period, held, _engine(plan))


def _engine(plan: Plan) -> duckdb.DuckDBPyConnection:
    """This process's own, opened once; an out folder that was begun anew gets a new one."""
    begun = plan.work / "plan.json"
    _check_seen(begun)
    key = (plan.out, begun.stat().st_mtime_ns)
    if key not in _engines:
        while _engines:
            _engines.popitem()[1].close()
        db = plan.connect()
        db.execute("SET threads = 1")  # a task has one CPU
        described(db, plan)
        _engines[key] = db
    return _engines[key]


def _check_seen(path: Path) -> None:
    if not path.exists():
        raise TraceError(
            f"{path}: is not there on machine {platform.node()}; put the trace and --out in a "
            f"folder that all machines of the Ray cluster share under the same path"
        )
