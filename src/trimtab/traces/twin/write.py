"""Write the six tables of a twin, hour by hour."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.traces.alibaba2018.source import Progress
from trimtab.traces.twin import files, shapes, tasks
from trimtab.traces.twin.columns import Chunk
from trimtab.traces.twin.dirt import soiled
from trimtab.traces.twin.instances import instance_chunks, machine_deck
from trimtab.traces.twin.inventory import Inventory, container_chunk, inventory, machine_chunk
from trimtab.traces.twin.plan import Options, Plan, planned, stream
from trimtab.traces.twin.usage import Weather, container_chunks, machine_chunks, weather

TABLES = (*files.SINGLE, *files.PARTED)


class World(NamedTuple):
    """What all hours share."""

    plan: Plan
    shapes: shapes.Shapes
    stock: Inventory
    sky: Weather
    deck: np.ndarray  # machines, as often as they are chosen


def write_twin(
    out: Path,
    *,
    machines: int = 4000,
    days: float = 8.0,
    seed: int = 0,
    dirt: float = 0.01,
    instances: int | None = None,
    tables: Sequence[str] = TABLES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a synthetic twin of Alibaba's cluster trace of 2018 into the folder `out`.

    Returns the rows of each table and the dirty ones of each kind; twin.json keeps them as "made".
    `instances` thins or thickens the rate of jobs so that about so many rows of batch_instance come
    out; machines and days stay as given. An hour's file holds the instances of the jobs that arrive
    in that hour. What an earlier run with the same options finished is kept, to the byte.
    Only `tables` are written. `progress(table, done, of)` hears of every hour done.
    """
    out, progress = Path(out), progress or _unheard
    plan = planned(Options(machines, float(days), seed, float(dirt), instances))
    files.opened(out, plan.options)
    world = World(
        plan,
        shapes.made(stream(plan, "shapes")),
        inventory(plan),
        weather(plan),
        machine_deck(plan),
    )
    for table in (name for name in files.SINGLE if name in tables):
        files.write(files.path_of(out, table), table, _whole(world, table, progress))
    for table in (name for name in files.PARTED if name in tables):
        for period in range(plan.periods):
            path = files.path_of(out, table, period)
            files.write(path, table, _part(world, table, period))
            progress(table, period + 1, plan.periods)
    made = _made(out, plan, tables)
    files.closed(out, plan.options, made)
    return made


def _whole(world: World, table: str, progress: Progress) -> Iterator[tuple[Chunk, dict[str, int]]]:
    """Chunks of a table of one file."""
    periods = world.plan.periods if table == "batch_task" else 1
    for period in range(periods):
        yield from _part(world, table, period)
        progress(table, period + 1, periods)


def _part(world: World, table: str, period: int) -> Iterator[tuple[Chunk, dict[str, int]]]:
    """Chunks of one hour of a table, with their dirt."""
    for number, chunk in enumerate(CHUNKS[table](world, period)):
        yield soiled(world.plan, table, chunk, period, number)


def _machines(world: World, period: int) -> Iterator[Chunk]:
    yield machine_chunk(world.plan, world.stock)


def _containers(world: World, period: int) -> Iterator[Chunk]:
    yield container_chunk(world.plan, world.stock)


def _tasks(world: World, period: int) -> Iterator[Chunk]:
    yield tasks.task_chunk(tasks.tasks_of(world.plan, world.shapes, period))


def _instances(world: World, period: int) -> Iterator[Chunk]:
    # the tasks are drawn again rather than kept: they cost a hundredth of their instances
    drawn = tasks.tasks_of(world.plan, world.shapes, period)
    yield from instance_chunks(world.plan, drawn, world.deck, period)


CHUNKS: dict[str, Callable[[World, int], Iterator[Chunk]]] = {
    "machine_meta": _machines,
    "container_meta": _containers,
    "batch_task": _tasks,
    "machine_usage": lambda world, period: machine_chunks(world.plan, world.sky, period),
    "container_usage": lambda world, period: container_chunks(
        world.plan, world.sky, world.stock, period
    ),
    "batch_instance": _instances,
}


def _made(out: Path, plan: Plan, tables: Sequence[str]) -> dict[str, Any]:
    """Rows and dirt of every table, added up from the footers of its files."""
    rows: dict[str, int] = {}
    dirt: dict[str, dict[str, int]] = {}
    for table in tables:
        periods = range(plan.periods) if table in files.PARTED else (None,)
        total: Counter[str] = Counter()
        rows[table] = 0
        for period in periods:
            counts = files.counts(files.path_of(out, table, period))
            rows[table] += counts["rows"]
            total.update(counts["dirt"])
        dirt[table] = dict(sorted(total.items()))
    return {"rows": rows, "dirt": dirt}


def _unheard(table: str, done: int, of: int) -> None:
    """Nobody listens."""
