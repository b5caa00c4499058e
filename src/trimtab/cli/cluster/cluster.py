"""`trimtab cluster ...`."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from trimtab.cli.outputs import FOLDER, YAML
from trimtab.cli.shown import JsonOption, command_line, escaped, out, say, write_json
from trimtab.units import amount, duration

NOTES = 20  # so many are said; the rest are counted
app = typer.Typer(
    no_args_is_help=True,
    help="Cluster files: from Slurm or Kubernetes, and what one says.",
    epilog="**Examples**\n\n`trimtab cluster from-slurm nodes.txt partitions.txt --out c.yaml`",
)
ClusterOut = Annotated[Path, typer.Option("--out", help="The cluster file to write."), YAML]
KeepDown = Annotated[
    bool, typer.Option("--keep-down", help="Take nodes that are down or drained as up.")
]


@app.command(
    "from-slurm",
    epilog="""
**Examples**

`trimtab cluster from-slurm nodes.txt partitions.txt --out cluster.yaml` — of
`scontrol show node > nodes.txt; scontrol show partition > partitions.txt`

`trimtab cluster from-slurm *.txt` — also of scontrol show reservation and config, sacctmgr show
qos -P and assoc tree -P, sinfo

`trimtab cluster from-slurm` — asks the Slurm of this machine
""",
)
def cluster_from_slurm(
    dumps: Annotated[
        list[Path] | None, typer.Argument(help="What Slurm's commands printed, in any order.")
    ] = None,
    to: ClusterOut = Path("cluster.yaml"),
    keep_down: KeepDown = False,
) -> None:
    """Write a cluster file from what scontrol, sinfo and sacctmgr print."""
    from trimtab.traces.dumps.slurm import from_slurm

    written(from_slurm(dumps or [], keep_down=keep_down), to)


@app.command(
    "from-kubernetes",
    epilog="""
**Examples**

`kubectl get nodes -o json > nodes.json; trimtab cluster from-kubernetes nodes.json`
""",
)
def cluster_from_kubernetes(
    dumps: Annotated[list[Path], typer.Argument(help="Of `kubectl get nodes -o json`.")],
    to: ClusterOut = Path("cluster.yaml"),
    keep_down: KeepDown = False,
) -> None:
    """Write a cluster file from a list of Kubernetes' nodes."""
    from trimtab.traces.dumps.kubernetes import from_kubernetes

    written(from_kubernetes(dumps, keep_down=keep_down), to)


@app.command(
    "show",
    epilog="**Examples**\n\n`trimtab cluster show cluster.yaml`",
)
def cluster_show(
    cluster: Annotated[Path, typer.Argument(help="A cluster file.")],
    json_file: JsonOption = None,
) -> None:
    """Say what a cluster file holds: nodes by kind, partitions and the other rules."""
    from trimtab.traces.scenes.cluster_file import read_cluster
    from trimtab.traces.scenes.site_section import site_table

    made, _ = read_cluster(cluster)
    told = described(made)
    if json_file:
        write_json(json_file, told)
    if json_file != "-":
        rules = {} if made.site is None else site_table(made.site)
        for name, rows in {"kinds": told["kinds"], **rules}.items():
            if name != "slurm":
                out.print(rows_table(f"{escaped(str(cluster))}: {name}", rows))
        if told["slurm"]:
            say(f"parameters of Slurm: {', '.join(told['slurm'])}")


@app.command(
    "example",
    epilog="**Examples**\n\n`trimtab cluster example --out site`",
)
def cluster_example(
    to: Annotated[Path, typer.Option("--out", help="The folder to write."), FOLDER] = Path("site"),
    jobs: Annotated[int, typer.Option(min=1, help="How many.")] = 800,
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything.")] = 0,
) -> None:
    """Write the dumps of a small Slurm site that never was: nodes, partitions, a month of jobs."""
    from trimtab.traces.dumps.example import write_example

    for path, what in write_example(to, jobs=jobs, seed=seed).items():
        say(f"{path}: {what}")


def written(understood: Any, to: Path) -> None:
    """Save the cluster, say what was left out and what was understood."""
    from trimtab.traces.scenes.cluster_file import save_cluster

    made, comments, notes = understood
    top = f"Written by {command_line()}\nChange what you know better; {notes_said(notes)}"
    save_cluster(made, to, comments={"": top, **comments})
    for note in notes[:NOTES]:
        say(f"note: {note}")
    if len(notes) > NOTES:
        say(f"note: and {len(notes) - NOTES:,} more of the kind")
    kinds = [f"{row['nodes']} {row['kind']}" for row in described(made)["kinds"]]
    site = made.site
    rules = [
        f"{len(rows)} {noun}{'s' * (len(rows) != 1 and noun != 'QOS')}"
        for noun, rows in (
            ("partition", site.partitions),
            ("QOS", site.qos),
            ("account", site.accounts),
            ("reservation", site.reservations),
        )
        if rows
    ]
    say(f"{to}: {len(made):,} nodes ({', '.join(kinds)}){'; ' * bool(rules)}{', '.join(rules)}")


def notes_said(notes: list[str]) -> str:
    if not notes:
        return "nothing was left out."
    return "\n".join(("what was left out or is not modelled:", *(f"  {note}" for note in notes)))


def described(made: Any) -> dict[str, Any]:
    """What a cluster holds, for people and machines: kinds of node and rules."""
    from trimtab.traces.scenes.site_section import NOUNS

    site = made.site
    kinds = []
    for number, kind in enumerate(made.kinds):
        rows = [node for node in range(len(made)) if made.nodes["kind"][node] == number]
        row: dict[str, Any] = {"kind": kind, "nodes": len(rows)}
        for place, name in enumerate(made.resources):
            held = made.capacity[rows, place]
            row[name] = f"{amount(held.min())} to {amount(held.max())}"
            if len(set(held)) == 1:
                row[name] = float(held[0])
        if site is not None:
            models = {site.gpu_kind[node] for node in rows if site.gpu_kind[node]}
            features = {one for node in rows for one in site.features[node]}
            within = {
                part.name
                for part in site.partitions
                if {*part.nodes} & {made.name(n) for n in rows}
            }
            row["gpu_kind"] = ", ".join(sorted(models))
            row["features"] = ", ".join(sorted(features))
            row["partitions"] = ", ".join(sorted(within))
        if len(made.regions) > 1:
            row["regions"] = ", ".join(
                sorted({made.regions[g] for g in made.nodes["region"][rows]})
            )
        kinds.append(row)
    told: dict[str, Any] = {"nodes": len(made), "kinds": [row for row in kinds if row["nodes"]]}
    for noun in NOUNS:
        told[noun] = [] if site is None else [row_of(one) for one in getattr(site, noun)]
    return told | {"slurm": {} if site is None else dict(site.slurm)}


def row_of(one: Any) -> dict[str, Any]:
    """The fields of a partition, QOS, account or reservation, as JSON can hold them."""
    row: dict[str, Any] = {}
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        row[field.name] = list(value) if isinstance(value, tuple) else value
    return row


def rows_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """A column for whatever any of the rows has."""
    table = Table(title=title, box=SIMPLE)
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value != "")
    for name in names:
        numbers = all(isinstance(row.get(name, 0), int | float) for row in rows)
        table.add_column(
            name.replace("_s", " time") if name.endswith("_s") else name,
            justify="right" if numbers else "left",
        )
    for row in rows:
        table.add_row(*(escaped(cell(name, row.get(name, ""))) for name in names))
    return table


def cell(name: str, value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("start_s", "end_s"):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if name.endswith("_s") and value != "":
        return duration(value)
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {amount(part)}" for key, part in value.items())
    return amount(value) if isinstance(value, int | float) else str(value)
