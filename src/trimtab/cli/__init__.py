"""The command line. Options are the keyword arguments of what they call; mistakes print one
line.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from trimtab.errors import TrimtabError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Simulate, compare and run resource orchestrators for heterogeneous clusters.",
)
trace_app = typer.Typer(
    no_args_is_help=True, help="Describe, convert and generate workload traces."
)
app.add_typer(trace_app, name="trace")
out, err = Console(), Console(stderr=True)

DEMO = ("fcfs", "sjf", "fcfs+easy", "sjf+easy+best", "wfp3+easy+fastest", "las+easy+fastest")
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write JSON to this file; `-` = standard output.")
]
LenientOption = Annotated[
    bool, typer.Option("--lenient", help="Drop bad rows and say how many and why.")
]


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except TrimtabError as mistake:
        err.print(f"[bold red]error:[/] {escaped(str(mistake))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        err.print("stopped", highlight=False)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away, as `head` does
        sys.exit(141)
    except OSError as problem:
        err.print(f"[bold red]error:[/] {escaped(str(problem))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except Exception as problem:
        if hasattr(
            problem, "format_message"
        ):  # click's own: a missing argument, a bad option value
            err.print(
                f"[bold red]error:[/] {escaped(problem.format_message())}",
                highlight=False,
                soft_wrap=True,
            )
            sys.exit(2)
        raise


def escaped(text: str) -> str:
    return text.replace("[", "\\[")


@app.command(
    epilog="""
**Examples**

`trimtab compare` — six rules on a mixed GPU cluster

`trimtab compare fcfs+easy sjf+easy --trace log.swf.gz --seeds 1 --json -`

`trimtab compare sjf sjf+easy --trace lublin_256.swf --start 1981 --jobs 1024 --semantics
rlscheduler`

`trimtab compare fgd bestfit --trace pods.csv --cluster nodes.csv --order order.json`

`trimtab compare sjf+easy+fastest las+best --seeds 10 --report report.html`
"""
)
def compare(
    policies: Annotated[
        list[str] | None, typer.Argument(help="Names; `trimtab policies` lists them.")
    ] = None,
    trace: Annotated[str, typer.Option(help="A trace file, or a generator.")] = "mixed-gpu",
    cluster: Annotated[
        str | None, typer.Option(help="YAML file, openb node list or preset.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --first-seed on.")] = 1,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    start: Annotated[int, typer.Option(help="First row of a trace file.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="How many rows; for a generator, how many jobs.")
    ] = None,
    semantics: Annotated[
        str, typer.Option(help="easy: ours, textbook EASY; rlscheduler: as in SC'20.")
    ] = "easy",
    estimate: Annotated[
        str, typer.Option(help="requested: as users asked; actual: an oracle.")
    ] = "requested",
    order: Annotated[
        str | None, typer.Option(help="JSON with pod_order and node_prefix: pack pods.")
    ] = None,
    startup_s: Annotated[float, typer.Option(help="Seconds before a run makes progress.")] = 0.0,
    mtbf_h: Annotated[
        float | None, typer.Option(help="Mean hours between failures of a node.")
    ] = None,
    mttr_h: Annotated[float, typer.Option(help="Mean hours to repair.")] = 1.0,
    lenient: LenientOption = False,
    json_file: JsonOption = None,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML report.")] = None,
) -> None:
    """Compare policies on a trace: a table, JSON for machines, an HTML report with plots."""
    from trimtab.compare import Question, answers, as_json

    for name, value, low in (
        ("startup_s", startup_s, 0.0),
        ("mttr_h", mttr_h, 0.0),
        ("mtbf_h", mtbf_h or 1.0, 1e-9),
    ):
        if not value >= low:
            raise TrimtabError(
                f"--{name.replace('_', '-')} {value} is below {low:g}; give a larger number"
            )
    question = Question(
        policies=policies or DEMO,
        trace=trace,
        cluster=cluster,
        seeds=seeds,
        first_seed=first_seed,
        start=start,
        jobs=jobs,
        semantics=semantics,
        estimate=estimate,
        order=order,
        lenient=lenient,
        startup_s=startup_s,
        mtbf_s=None if mtbf_h is None else 3600.0 * mtbf_h,
        mttr_s=3600.0 * mttr_h,
        log=report is not None,
    )
    results: list[Any] = []
    interrupted = False
    try:
        with bar("comparing", len(question.policies) * seeds) as step:
            for result in answers(question, lambda name, ended, of: step(name, 0)):
                results.append(result)
                step(result.policy, 1)
    except KeyboardInterrupt:
        interrupted = True
    name = Path(trace).name if Path(trace).exists() else trace
    if json_file:
        write_json(json_file, [as_json(result, name) for result in results])
    if results:
        told = dropped_rows(results[0].workload.meta)
        if told:
            err.print(f"{name}{told}", highlight=False, soft_wrap=True)
    if results and json_file != "-":
        show_results(results)
    if results and report is not None and results[0].semantics != "packing":
        from trimtab.report.html import write_report

        write_report(
            report,
            results,
            title=f"{len(set(question.policies))} policies on {name}",
            command=command_line(),
        )
        err.print(f"report: {report}", highlight=False, soft_wrap=True)
    if interrupted:
        err.print(
            f"stopped after {len(results)} of {len(question.policies) * seeds} runs; "
            "what is finished is above"
        )
        raise typer.Exit(130)


def show_results(results: list[Any]) -> None:
    """The table of a comparison on the terminal."""
    from trimtab.compare import metrics_of
    from trimtab.report.table import as_rich, summary

    if results[0].semantics == "packing":
        table = Table(title="GPU packing")
        for column in ("policy", "seed", "GPU allocation", "fragmented", "placed", "dropped"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for result in results:
            m = metrics_of(result)
            table.add_row(
                result.policy,
                str(result.seed),
                f"{m['gpu_allocation']:.2%}",
                f"{m['gpu_fragmented']:.2%}",
                f"{m['placed']:.0f}",
                f"{m['dropped']:.0f}",
            )
        out.print(table)
        return
    work, cluster = results[0].workload, results[0].cluster
    seeds = sorted({result.seed for result in results})
    out.print(as_rich(summary(results)))
    out.print(
        f"{work.source}: {len(work):,} jobs on {len(cluster):,} nodes "
        f"({', '.join(cluster.kinds)}); "
        f"seeds {seeds[0]}..{seeds[-1]}; {command_line()}",
        highlight=False,
        soft_wrap=True,
        style="dim",
    )


def command_line() -> str:
    return shlex.join(["trimtab", *sys.argv[1:]])


def write_json(where: str, content: Any) -> None:
    """To a file, whole or not at all, or to standard output."""
    text = json.dumps(content, indent=1, allow_nan=False)
    if where == "-":
        print(text)
        return
    path = Path(where)
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n")
    part.replace(path)


@contextmanager
def bar(what: str, total: int) -> Iterator[Any]:
    """A progress bar on standard error; silent where that is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(
            f"{what} (the first run on a machine compiles the engine)", total=total
        )
        yield lambda name, done: progress.update(task, advance=done, description=f"{what} {name}")


@app.command(
    epilog="""
**Examples**

`trimtab bench --quick`

`trimtab bench --only swf-fcfs --only swf-fcfs-easy --swf log.swf.gz --json -`
"""
)
def bench(
    only: Annotated[list[str] | None, typer.Option(help="One row; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller inputs, about 20 s.")] = False,
    swf: Annotated[str | None, typer.Option(help="A log in place of the made one.")] = None,
    pods: Annotated[str | None, typer.Option(help="An openb pod list in place of ours.")] = None,
    nodes: Annotated[str | None, typer.Option(help="The openb node list to it.")] = None,
    order: Annotated[str | None, typer.Option(help="JSON with pod_order and node_prefix.")] = None,
    json_file: JsonOption = None,
) -> None:
    """Measure the speed of the engine on this machine, beside peers that are installed."""
    from trimtab.bench import Setup, chosen, header, measured

    setup, names = Setup(quick=quick, swf=swf, pods=pods, nodes=nodes, order=order), chosen(only)
    rows: list[Any] = []
    interrupted = False
    try:
        with bar("measuring", len(names)) as step:
            for row in measured(setup, names, lambda name: step(name, 0)):
                rows.append(row)
                step(row.name, 1)
    except KeyboardInterrupt:
        interrupted = True
    if json_file:
        write_json(json_file, [row.as_json() for row in rows])
    if rows and json_file != "-":
        show_speeds(rows, header(setup))
    if interrupted:
        err.print(f"stopped after {len(rows)} of {len(names)} rows; what is finished is above")
        sys.exit(130)  # outside standalone mode typer.Exit would become a return value


def show_speeds(rows: list[Any], header: str) -> None:
    """The table of a benchmark on the terminal."""
    out.print(header, highlight=False, soft_wrap=True, style="dim")
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)  # fits 80 characters
    for column in ("name", "value", "unit", "peer", "its value", "ratio"):
        left = column in ("name", "unit", "peer")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        peer = ("", "", "")
        if row.peer is not None:
            peer = (row.peer, three_digits(row.peers[row.peer]), f"{three_digits(row.ratio)} x")
        table.add_row(row.name, three_digits(row.value), row.unit, *peer)
    out.print(table)


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@app.command()
def policies(json_file: JsonOption = None) -> None:
    """List what there is: orders, backfills, places, packers, and policies of other packages."""
    from trimtab.compare import PACKERS
    from trimtab.policies import BY_NAME, plugged_in
    from trimtab.rules.names import ABOUT, BACKFILLS, ORDERS, PLACES

    groups = {
        "order": {name: ABOUT[name] for name in ORDERS},
        "backfill": {name: ABOUT[name] for name in BACKFILLS},
        "place": {name: ABOUT[name] for name in PLACES},
        "packing": {
            name: "fills an openb cluster in a given order; see compare --order" for name in PACKERS
        },
        "policy": {**BY_NAME, **plugged_in()},
    }
    if json_file:
        write_json(json_file, groups)
        return
    table = Table(title="order[+backfill][+place], such as sjf+easy+fastest")
    for column in ("part", "name", "what it does"):
        table.add_column(column)
    for part, names in groups.items():
        for name, about in names.items():
            table.add_row(part, name, about)
    out.print(table)


@trace_app.command(
    "describe",
    epilog="**Example**\n\n`trimtab trace describe log.swf.gz`",
)
def trace_describe(
    trace: Annotated[str, typer.Argument(help="A trace file, or a generator.")],
    cluster: Annotated[str | None, typer.Option(help="For the offered load.")] = None,
    lenient: LenientOption = False,
    json_file: JsonOption = None,
) -> None:
    """Say what a trace holds: jobs, arrivals, run times, requests, demands, dependencies."""
    from trimtab.traces.describe import describe
    from trimtab.traces.scene import open_scene

    scene = open_scene(trace, cluster, lenient=lenient)
    told = describe(scene.workload, scene.cluster, scene.profile)
    if json_file:
        write_json(json_file, told)
        return
    table = Table(title=scene.name, show_header=False)
    for name, value in told.items():
        table.add_row(name, readable(value))
    out.print(table)


def readable(value: Any) -> str:
    if isinstance(value, dict):
        shown = [f"{name} {readable(part)}" for name, part in list(value.items())[:12]]
        more = len(value) - 12
        return "  ".join(shown) + (f"  and {more} more" if more > 0 else "")
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@trace_app.command(
    "convert",
    epilog="**Example**\n\n`trimtab trace convert log.swf.gz log.parquet --start 0 --jobs 1000`",
)
def trace_convert(
    trace: Annotated[str, typer.Argument(help="A trace file.")],
    to: Annotated[Path, typer.Argument(help="A .parquet file.")],
    start: Annotated[int, typer.Option(help="First row.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="How many rows.")] = None,
    lenient: LenientOption = False,
) -> None:
    """Read a trace, check it and save it as Parquet."""
    from trimtab.traces import read
    from trimtab.traces.parquet import save

    work = read(trace, lenient=lenient)
    work = work.window(start, jobs) if start or jobs is not None else work
    save(work, to)
    err.print(f"{to}: {len(work):,} jobs{dropped_rows(work.meta)}", highlight=False, soft_wrap=True)


def dropped_rows(meta: dict[str, Any]) -> str:
    """How many rows a reader dropped and why, or nothing."""
    return "".join(f"; dropped {n:,}: {why}" for why, n in meta.get("dropped", {}).items() if n)


@trace_app.command(
    "generate",
    epilog="""
**Examples**

`trimtab trace generate mixed-gpu --out jobs.parquet --jobs 10000 --seed 1`

`trimtab trace generate mixed-gpu --out busy.parquet --set load=1.2 --set arrivals=bursty`

`trimtab trace generate log.swf.gz --out like.parquet --jobs 100000` — fitted to a trace
""",
)
def trace_generate(
    name: Annotated[str, typer.Argument(help="A generator, or a trace file to fit to.")],
    to: Annotated[Path, typer.Option("--out", help="A .parquet file.")],
    jobs: Annotated[int | None, typer.Option(help="How many.")] = None,
    seed: Annotated[int, typer.Option(help="Fixes everything.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of the generator's arguments.")
    ] = None,
) -> None:
    """Make a workload: Poisson, diurnal or bursty arrivals; sizes by law or fitted to a trace."""
    import numpy as np

    from trimtab.traces import read, synthetic
    from trimtab.traces.parquet import save

    params: dict[str, Any] = {} if jobs is None else {"jobs": jobs}
    params.update(parsed(text) for text in settings or ())
    if name in synthetic.BY_NAME or not Path(name).exists():
        work = synthetic.generate(name, seed=seed, **params)
    else:
        work = synthetic.like(read(name), rng=np.random.default_rng(seed), **params)
    save(work, to)
    err.print(f"{to}: {len(work):,} jobs", highlight=False, soft_wrap=True)


def parsed(text: str) -> tuple[str, Any]:
    """NAME=VALUE with the value as JSON where it is, else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise TrimtabError(f"--set {text!r} is not NAME=VALUE; write for example --set load=0.9")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


if __name__ == "__main__":
    main()
