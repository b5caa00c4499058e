"""`trimtab envs`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import isnan
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from trimtab.cli.shown import JsonOption, bar, command_line, out, write_json
from trimtab.errors import TrimtabError

app = typer.Typer()

NAMES = ("Queue-v0", "Grid-v0", "Regions", "Limits-v0", "Hierarchy", "Parallelism-v0")
OF_CLUSTERS = NAMES[:3]
LIMITS, HIERARCHY = OF_LENDING = NAMES[3:5]
LENDS = "colocated"  # a trace on whose clusters services lend
ORDERS = ("sjf", "sjf+easy", "smallest-area+easy", "wfp3+easy", "unicep+easy", "f1+easy")
PLACE = "best"  # by which Queue-v0 places what it starts


@app.command(
    epilog="""
**Examples**

`trimtab envs` — every environment as it is by default

`trimtab envs --only Queue-v0 --trace log.swf.gz --load 0.9` — on a log of yours

`trimtab envs --only Limits-v0 --trace colocated:load=0.9` — limits of regions, on busier scenes

`trimtab envs --only Hierarchy --windows 5` — the manager's and the workers' place

`trimtab envs --only Queue-v0 --only Grid-v0 --jobs 128 --windows 10 --json -`
"""
)
def envs(
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(NAMES)}; may be repeated.")
    ] = None,
    trace: Annotated[str | None, typer.Option(help="A trace file, or a generator.")] = None,
    cluster: Annotated[str | None, typer.Option(help="YAML file, node list or preset.")] = None,
    load: Annotated[float | None, typer.Option(help="As for `trimtab compare`.")] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Drop bad rows, and jobs that fit no node.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Of an episode.")] = 256,
    window: Annotated[int, typer.Option(min=1, help="Waiting jobs that are seen.")] = 32,
    windows: Annotated[int, typer.Option(min=1, max=1000, help="Held-out episodes.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the random choices.")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Show what there is to learn in each environment: random and simple choices, the best rule."""
    lends = trace is None or trace.startswith(LENDS)
    names = tuple(only or (name for name in NAMES if lends or name not in OF_LENDING))
    for name in names:
        if name not in NAMES:
            raise TrimtabError(f"--only {name}: no such environment; known: {', '.join(NAMES)}")
    scene = {"trace": trace, "cluster": cluster, "load": load, "lenient": lenient}
    found: list[Any] = []
    with bar("playing", sum(3 if name == LIMITS else 4 for name in names)) as step:
        for name in names:
            step(name, 0)
            settings = scene | {"jobs": jobs, "window": min(window, jobs)}
            for standing in standings(name, settings, windows, seed):
                found.append(standing)
                step(name, 1)
    if json_file:
        write_json(json_file, [as_json(standing) for standing in found])
    if json_file != "-":
        show(found)


def standings(name: str, settings: dict[str, Any], windows: int, seed: int) -> Iterator[Any]:
    """A few policies in one environment; of a region's agents the rule is that of the queue."""
    from trimtab.envs import standings
    from trimtab.policies import named

    if name == LIMITS:
        trace = settings["trace"] or LENDS
        yield from standings.of_limits(f"trimtab/{name}", trace, windows=windows, seed=seed)
        return
    if name == HIERARCHY:
        from trimtab.policies.hierarchy.standings import of_hierarchy

        yield from of_hierarchy(settings["trace"] or LENDS, windows=windows, seed=seed)
        return
    if name not in OF_CLUSTERS:
        yield from standings.of_parallelism(f"trimtab/{name}", windows=windows, seed=seed)
        return
    places = (PLACE, "fastest") if name == "Grid-v0" else (PLACE,)
    orders = ORDERS[1:2] if name == "Regions" else ORDERS
    rules = {
        rule: partial(named, rule) for order in orders for rule in (f"{order}+{p}" for p in places)
    }
    if name == "Regions":
        yield from standings.of_regions("RegionsEnv", settings, rules, windows=windows, seed=seed)
    else:
        yield from standings.of_clusters(
            f"trimtab/{name}", settings, rules, windows=windows, seed=seed
        )


def as_json(standing: Any) -> dict[str, Any]:
    found = standing.found
    return {
        "env": standing.env,
        "policy": standing.policy,
        "reward_mean": found.mean,
        "reward_half": found.half,
        "windows": len(found.starts),
        "choices": None if isnan(found.choices) else found.choices,
    }


def show(found: list[Any]) -> None:
    """A line a policy, environment by environment."""
    table = Table(
        box=SIMPLE_HEAD,
        header_style="",
        caption="reward of an episode, mean ± 95 % interval over held-out windows",
        caption_style="dim",
    )
    for column in ("environment", "policy", "reward", "windows", "steps with\na choice"):
        left = column in ("environment", "policy")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    last = ""
    for standing in found:
        name, policy, result = standing
        half = "" if result.half is None else f" ± {result.half:.2f}"
        choices = "" if isnan(result.choices) else f"{result.choices:.0%}"
        if last and name != last:
            table.add_section()
        table.add_row(
            name.removeprefix("trimtab/") if name != last else "",
            policy,
            f"{result.mean:.2f}{half}",
            str(len(result.starts)),
            choices,
        )
        last = name
    out.print(table)
    out.print(command_line(), highlight=False, soft_wrap=True, markup=False, style="dim")
