"""`trimtab explain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from trimtab.cli.shown import JsonOption, out, say, write_json
from trimtab.errors import TrimtabError

app = typer.Typer()


@app.command(
    epilog="""
**Examples**

`trimtab explain` — the first decisions of the hierarchy ten minutes into a co-located scene

`trimtab explain hierarchy:run --trace colocated:load=0.9 --at 1800 --most 5`

`trimtab explain --job 412 --json why.json` — of one job, as data
"""
)
def explain(
    policy: Annotated[str, typer.Argument(help="The hierarchy, or one of yours.")] = "hierarchy",
    trace: Annotated[str, typer.Option(help="A co-located scene.")] = "colocated:machines=24",
    at: Annotated[float, typer.Option(help="Seconds from which decisions are explained.")] = 600.0,
    job: Annotated[int, typer.Option(help="A row of the trace; -1 = whichever begins.")] = -1,
    most: Annotated[int, typer.Option(min=1, help="So many decisions.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the scene.")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Say why: the region's goal, the terms of the score, and the best other machines."""
    from trimtab.policies import named
    from trimtab.policies.hierarchy.explain import explained
    from trimtab.policies.hierarchy.policy import HierarchyPolicy
    from trimtab.sim.backend import SimBackend
    from trimtab.sim.world import fitted
    from trimtab.traces.scenes.scene import open_scene

    made = named(policy, seed)
    if not isinstance(made, HierarchyPolicy):
        raise TrimtabError(
            f"explain {policy}: only the hierarchy can say why; give hierarchy or hierarchy:FOLDER"
        )
    scene = open_scene(trace, seed=seed)
    work, cluster = fitted(scene.workload, scene.cluster)
    backend = SimBackend(work, cluster, scene.profile)
    found = list(explained(made, backend, from_s=at, job=job, most=most))
    if not found:
        raise TrimtabError(
            f"explain {policy}: nothing of {trace} begins from second {at:g} on; give another "
            "--at or --job"
        )
    if json_file:
        write_json(json_file, [as_data(why, cluster) for why in found])
    if json_file != "-":
        for why in found:
            show(why, work, cluster)
        say(f"{trace}, seed {seed}")


def as_data(why: Any, cluster: Any) -> dict[str, Any]:
    """One explanation as JSON has it."""
    places = [
        {**place._asdict(), "name": cluster.name(place.node), "residual": place.residual}
        for place in (why.chosen, *why.others)
    ]
    told = why._asdict() | {"region": cluster.regions[why.region]}
    return told | {"chosen": places[0], "others": places[1:]}


def show(why: Any, work: Any, cluster: Any) -> None:
    """One table: the chosen machine and the next best, a column each."""
    where = cluster.regions[why.region]
    to = cluster.name(why.chosen.node)
    title = f"second {why.time_s:.0f}: job {work.name(why.job)} to {to}"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", header_style="")
    table.add_column("term x weight")
    for place in (why.chosen, *why.others):
        table.add_column(cluster.name(place.node), justify="right")
    places = (why.chosen, *why.others)
    for name in why.chosen.parts:
        if any(place.parts[name] for place in places):
            table.add_row(name, *(f"{place.parts[name]:+.3f}" for place in places))
    table.add_row("residual of these", *(f"{place.residual:+.3f}" for place in places))
    table.add_row("score", *(f"{place.score:+.3f}" for place in places), style="bold")
    out.print(table)
    promised = ", ".join(f"{name} {value:+.3f}" for name, value in why.worth.items() if value)
    care = f"limit {why.limit:.3f}, margin {why.margin:.2f}, patience {why.patience_s:.0f} s"
    if why.overstay:
        care += f", room is free again after {why.overstay:.2f} planned times"
    if why.taper:
        care += f", {-100 * why.taper:+.2f} % of a node for each longer horizon"
    lines = [
        f"waited {why.waited_s:.0f} s; {why.fitting} machines had room",
        f"{where}: {why.goal}, for {why.goal_why}" + (f" ({promised})" if promised else ""),
        f"{why.estimate or 'nothing lent'}: {care}",
    ]
    if why.guard:
        lines.append(f"the best rule acted: {why.guard}")
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    out.print()
