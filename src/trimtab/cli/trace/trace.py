"""`trimtab trace ...`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.outputs import FOLDER, PARQUET, Place, check
from trimtab.cli.shown import (
    JsonOption,
    LenientOption,
    MachineOption,
    NodesOption,
    StrictOption,
    bar,
    dropped_rows,
    escaped,
    out,
    parsed,
    resumable,
    say,
    steps_bar,
    write_json,
)
from trimtab.errors import TrimtabError
from trimtab.units import duration, readable

TWIN = "alibaba2018-like"
WHOLE = {"machines": True, "days": False, "dirt": False, "instances": True}  # its settings
app = typer.Typer(
    no_args_is_help=True, help="Describe, convert, generate, sample and prepare traces."
)


@app.command(
    "describe",
    epilog="**Examples**\n\n`trimtab trace describe log.swf.gz`",
)
def trace_describe(
    trace: Annotated[str, typer.Argument(help="A trace file, or a generator.")],
    cluster: Annotated[str | None, typer.Option(help="For the offered load.")] = None,
    nodes: NodesOption = None,
    machine: MachineOption = None,
    lenient: LenientOption = False,
    strict: StrictOption = False,
    json_file: JsonOption = None,
) -> None:
    """Say what a trace holds: jobs, arrivals, run times, requests, demands, dependencies."""
    from trimtab.recorded import as_dict
    from trimtab.traces.readers.bad_rows import tolerance
    from trimtab.traces.scenes.describe import describe
    from trimtab.traces.scenes.scene import described

    work, rack, profile = described(
        trace, cluster, lenient=tolerance(lenient, strict), nodes=nodes, machine=machine
    )
    told = describe(work, rack, profile) | as_dict(work, rack)
    if json_file:
        write_json(json_file, told)
        return
    table = Table(title=escaped(Path(trace).name), show_header=False)
    for name, value in told.items():
        table.add_row(name, escaped(shown(name, value)))
    out.print(table)


def shown(name: str, value: Any) -> str:
    """A value as people read it: seconds in the unit that suits them, the rest as it is."""
    if isinstance(value, list):
        return "\n".join(shown(name, each) for each in value)
    if isinstance(value, dict) and "wait_mean_s" in value:
        parts = dict(value)
        who = f"{parts.pop('name')}: " if "name" in parts else ""
        return who + ", ".join(
            f"{key.removesuffix('_s')} {shown(key, v)}" for key, v in parts.items()
        )
    if isinstance(value, dict) and name.endswith("_s"):
        return ", ".join(f"{key} {shown(name, each)}" for key, each in value.items())
    if name.endswith("_s") and isinstance(value, int | float):
        return duration(float(value))
    return readable(value)


@app.command(
    "convert",
    epilog="**Examples**\n\n`trimtab trace convert log.swf.gz log.parquet --start 0 --jobs 1000`",
)
def trace_convert(
    trace: Annotated[str, typer.Argument(help="A trace file.")],
    to: Annotated[Path, typer.Argument(help="A .parquet file."), PARQUET],
    start: Annotated[int, typer.Option(help="First row.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="How many rows.")] = None,
    nodes: NodesOption = None,
    machine: MachineOption = None,
    lenient: LenientOption = False,
    strict: StrictOption = False,
) -> None:
    """Read a trace, check it and save it as Parquet."""
    from trimtab.traces import read
    from trimtab.traces.readers.bad_rows import tolerance
    from trimtab.traces.readers.parquet import save

    work = read(trace, lenient=tolerance(lenient, strict), nodes=nodes, machine=machine)
    work = work.window(start, jobs) if start or jobs is not None else work
    save(work, to)
    say(f"{to}: {len(work):,} jobs{dropped_rows(work.meta)}")


@app.command(
    "generate",
    epilog="""
**Examples**

`trimtab trace generate mixed-gpu --out jobs.parquet --jobs 10000 --seed 1`

`trimtab trace generate mixed-gpu --out busy.parquet --set load=1.2 --set arrivals=bursty`

`trimtab trace generate log.swf.gz --out like.parquet --jobs 100000` — fitted to a trace

`trimtab trace generate alibaba2018-like --machines 400 --days 2 --seed 1` — a folder of six tables
""",
)
def trace_generate(
    name: Annotated[str, typer.Argument(help="A generator, or a trace file to fit to.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="A .parquet file; a folder for alibaba2018-like.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="How many.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything.")] = 0,
    machines: Annotated[
        int | None, typer.Option(help="Of alibaba2018-like: how many (4000).")
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Of alibaba2018-like: how many (8); day 0 is nearly empty.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of the generator's arguments.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Make a workload, or a whole cluster trace like Alibaba's of 2018, from one seed."""
    params: dict[str, Any] = {"jobs": jobs, "machines": machines, "days": days}
    params = {key: value for key, value in params.items() if value is not None}
    params.update(parsed(text) for text in settings or ())
    if name == TWIN:
        to = to or Path(TWIN)
        check([Place("--out", to, FOLDER)], [])
        generate_twin(to, seed, params, json_file)
        return
    if to is None:
        raise TrimtabError(f"{name}: where to? add --out jobs.parquet")
    check([Place("--out", to, PARQUET)], [Place("", Path(name))] * Path(name).is_file())
    import numpy as np

    from trimtab.traces import read
    from trimtab.traces.readers.parquet import save
    from trimtab.traces.scenes import synthetic

    with suited(name, settings):
        if name in synthetic.BY_NAME or not Path(name).exists():
            work = synthetic.generate(name, seed=seed, **params)
        else:
            work = synthetic.like(read(name), rng=np.random.default_rng(seed), **params)
    save(work, to)
    say(f"{to}: {len(work):,} jobs")


@contextmanager
def suited(name: str, settings: list[str] | None) -> Iterator[None]:
    """Turn what a generator makes of a value of the wrong kind into a mistake of the caller's."""
    try:
        yield
    except (TypeError, ValueError) as problem:
        if not settings:
            raise
        given = " ".join(f"--set {text}" for text in settings)
        raise TrimtabError(f"{name}: {given} does not suit it ({problem})") from problem


def generate_twin(to: Path, seed: int, params: dict[str, Any], json_file: str | None) -> None:
    """A folder with the six tables; what it made a table."""
    from trimtab.traces.twin import write_twin

    for key, value in params.items():
        if key not in WHOLE:
            raise TrimtabError(f"{TWIN}: {key}={value!r} is unknown; known: {', '.join(WHOLE)}")
        if type(value) is not int and (WHOLE[key] or type(value) is not float):
            wanted = "a whole number" if WHOLE[key] else "a number"
            raise TrimtabError(f"{TWIN}: {key}={value!r} is not {wanted}; give one")
    with resumable(), steps_bar() as progress:
        made = write_twin(to, seed=seed, progress=progress, **params)
    if json_file:
        write_json(json_file, made)
    if json_file != "-":
        table = Table(title=f"{escaped(str(to))}: tables like Alibaba's of 2018", box=SIMPLE)
        for column in ("table", "rows", "dirty"):
            table.add_column(column, justify="left" if column == "table" else "right")
        for table_name, rows in made["rows"].items():
            dirty = sum(made["dirt"].get(table_name, {}).values())
            table.add_row(table_name, f"{rows:,}", f"{dirty:,}")
        out.print(table)
        source, prepared = shlex.quote(str(to)), shlex.quote(f"{to}-prepared")
        say(f"next: trimtab trace prepare {source} --out {prepared}")


@app.command(
    "sample",
    epilog="""
**Examples**

`trimtab trace sample --every 5 --seconds 600 --out load.parquet` — this machine

`trimtab trace sample http://localhost:9090 --seconds 86400 --out load.parquet` — the last day

`trimtab trace sample planetlab.tar.xz --out load.parquet`

`trimtab trace prepare load.parquet --out prepared` — then, for any of these
""",
)
def trace_sample(
    source: Annotated[
        str,
        typer.Argument(
            help="`live` = this machine; a Prometheus address; a PlanetLab or Bitbrains file."
        ),
    ] = "live",
    to: Annotated[Path, typer.Option("--out", help="A .parquet file."), PARQUET] = Path(
        "load.parquet"
    ),
    every: Annotated[float, typer.Option(help="Seconds between samples.")] = 5.0,
    seconds: Annotated[
        float, typer.Option(help="How long: from now, or the time up to now.")
    ] = 60.0,
) -> None:
    """Collect the load of machines: CPU, memory, network, disk and GPU use, a row a sample."""
    import time

    from trimtab.traces.load.samples_file import read_samples, save_samples

    for option, value in (("--every", every), ("--seconds", seconds)):
        if not 0 < value < math.inf:
            raise TrimtabError(f"{option} {value:g} is no time; give seconds above 0")
    if source == "live":
        samples = watched(every, seconds)
    elif source.startswith(("http://", "https://")):
        from trimtab.traces.load.prometheus import query_range

        now_s = time.time()
        samples = query_range(source, start_s=now_s - seconds, end_s=now_s, step_s=every)
    else:
        samples = read_samples(source)
    save_samples(samples, to)
    count, machines = len(samples.time_s), len(samples.names)
    say(f"{to}: {count:,} samples of {machines:,} machine{'s' * (machines != 1)}")


def watched(every_s: float, seconds: float) -> Any:
    """Samples of this machine; Ctrl-C ends it early and keeps what there is."""
    import time

    import numpy as np

    from trimtab.load.probe import Probe
    from trimtab.load.samples import Samples

    probe, held = Probe(), []
    try:
        with bar("sampling", max(int(seconds / every_s), 1)) as step:
            for one in probe.watch(every_s, until_s=time.time() + seconds):
                held.append(one)
                step(probe.name, 1)
    except KeyboardInterrupt:
        say(f"stopped after {len(held)} samples")
    finally:
        probe.close()
    if not held:
        raise TrimtabError(f"--seconds {seconds:g} ends before the first sample; give more")
    columns = [np.concatenate(parts) for parts in zip(*(one[:8] for one in held))]
    return Samples._make([*columns, *held[0][8:]])
