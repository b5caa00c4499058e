"""`trimtab reproduce`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from trimtab.cli.outputs import FOLDER
from trimtab.cli.shown import JsonOption, ReportOption, bar, command_line, out, say, write_json
from trimtab.errors import TrimtabError, UnknownName, suggestion

app = typer.Typer()

MARK = {True: ("holds", "green"), False: ("does not hold", "red"), None: ("cannot tell", "yellow")}


@app.command(
    epilog="""
**Examples**

`trimtab reproduce adlro --quick` — under a minute

`trimtab reproduce adlro --out kept --json adlro.json --report adlro.html` — all of it; what is
finished stays in `kept`, and the same command goes on from there

`trimtab reproduce adlro --only loads --policies adlro,fluid,gavel --seeds 5`

`trimtab reproduce adlro --drift --quick` — what happens when speeds or jobs change

`trimtab reproduce adlro --ablation --out kept` — what each part of the paper's DQN is worth

`trimtab reproduce colocated --quick` — batch jobs beside services, rules at equal harm

`trimtab reproduce hierarchy --quick` — the hierarchy, its peers, rules and ablations at equal harm

`trimtab reproduce hierarchy --only figures --out kept --data work=prepared` — Figures 1 and 3, as
pictures in `kept`

`trimtab reproduce hierarchy --only forecast` — what its load encoder foresees, beside simpler
estimates

`trimtab reproduce hierarchy --only manager --out kept` — whether choosing goals pays

`trimtab reproduce hierarchy --data own=bitbrains.tar.xz,daily=cluster_usage.csv,work=prepared` —
on recorded use and work

`trimtab reproduce llm --quick` — learned plans of parallelism beside rules and the optimum

`trimtab reproduce llm --only planetlab_7days.tar.xz --only full` — on a recorded trace

`trimtab reproduce openb --data FOLDER` — pods on shared GPUs in the published orders
`trimtab reproduce rollout --logs swf --out kept` — play-outs in RLScheduler's setting and on
weeks of the other logs in the folder

`trimtab reproduce slim --quick` — the network, routers against random ones and under an objective

`trimtab reproduce slim --live` — a real fleet on this machine beside its simulation

`trimtab reproduce slim --only objective --only AzureLLMInferenceTrace_conv.csv.xz` — with its
arrivals too
"""
)
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="adlro, colocated, hierarchy, llm, openb, rollout, slim.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, jobs, loads and policies.")
    ] = False,
    drift: Annotated[
        bool,
        typer.Option("--drift", help="Scenarios in which speeds or jobs change, for adlro alone."),
    ] = False,
    ablation: Annotated[
        bool,
        typer.Option("--ablation", help="Train the paper's network part by part, for adlro alone."),
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="A real fleet beside the simulated one, for slim alone."),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="How many; 10 (slim 5), with --quick less.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="A run; 600 (slim: 6,000 requests, llm: 4M epochs), with --quick less."),
    ] = None,
    policies: Annotated[
        str | None, typer.Option(help="Names between commas, in place of the paper's and ours.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A part of it, such as loads or objective; may be repeated."),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(help="What batches cost: cpu, h200 or a file, for slim alone."),
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            help="Folder of openb's node and pod lists; for hierarchy settings of the scene."
        ),
    ] = "",
    logs: Annotated[
        list[str] | None,
        typer.Option(help="A log or a folder of them, for rollout alone; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; as many as processors.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--out", help="Folder that keeps finished runs, to go on later."),
        FOLDER,
    ] = None,
    json_file: JsonOption = None,
    report: ReportOption = None,
) -> None:
    """Measure what a paper claims: its figures beside ours, with intervals, and checked claims.

    Exits with 0 also where a claim does not hold.
    """
    from trimtab.reproduce import BY_NAME

    if paper not in BY_NAME:
        known = ", ".join(BY_NAME)
        guess = suggestion(paper, BY_NAME)
        raise UnknownName(f"paper {paper!r} is unknown; {guess}known: {known}")
    asides = {"drift": (drift, "adlro"), "ablation": (ablation, "adlro"), "live": (live, "slim")}
    aside = [name for name, (wanted, _) in asides.items() if wanted]
    for name in aside:
        if paper != asides[name][1]:
            raise TrimtabError(f"--{name} {paper}: there is one for {asides[name][1]} alone")
    if len(aside) > 1:
        raise TrimtabError("--drift and --ablation are two measurements; give one at a time")
    module = import_module(".".join([BY_NAME[paper], *(aside or ["paper"])]))
    # routers and planners are no policies of clusters; their setups know them
    own_names = aside or paper in ("llm", "openb", "slim")
    names = between_commas(policies) if own_names else checked_names(policies)
    own: dict[str, Any] = {}
    for name, value, of in (
        ("profile", profile, ("slim",)), ("data", data, ("openb", "hierarchy")),
        ("logs", logs, ("rollout",)),
    ):  # fmt: skip
        if value and paper not in of:
            shown = value if isinstance(value, str) else " ".join(value)
            raise TrimtabError(f"--{name} {shown}: there is one for {' and '.join(of)} alone")
        own |= {name: value} if value else {}
    setup = module.Setup(seeds=seeds, jobs=jobs, quick=quick, policies=names, parts=only, **own)
    for line in setup.left_out():
        say(line)
    trials = module.planned(setup)
    # some measure a machine that others would disturb
    found = run_trials(trials, getattr(module, "WORKERS", workers), keep)
    measured = {**module.outcome(setup, found), "command": command_line()}
    figures = measured.pop("figures", {})
    if json_file:
        write_json(json_file, measured)
    if json_file != "-":
        show(measured, module.NOTES)
    if figures and keep is not None:
        from trimtab.cli.reproduce.figures import write_figures

        say(f"figures: {' '.join(map(str, write_figures(figures, keep)))}")
    if report is not None:
        title = getattr(module, "TITLE", f"{paper}: the paper's table beside ours")
        write_page(report, title, measured, module.NOTES, figures)
        say(f"report: {report}")


def checked_names(policies: str | None) -> list[str] | None:
    """The policies between commas; raises for one that is unknown before anything long begins."""
    from trimtab.policies import check

    names = between_commas(policies)
    for name in names or ():
        check(name)
    return names


def between_commas(policies: str | None) -> list[str] | None:
    return [name.strip() for name in (policies or "").split(",") if name.strip()] or None


def run_trials(trials: Sequence[Any], workers: int | None, keep: Path | None) -> dict[str, Any]:
    """Outcomes by key, behind a progress bar; Ctrl-C ends it with one line."""
    from trimtab.reproduce.trials import finished

    found: dict[str, Any] = {}
    runs = finished(trials, workers, keep)
    try:
        with bar("reproducing", len(trials)) as step:
            for trial, outcome in runs:
                found[trial.key] = outcome
                step(trial.name, 1)
    except KeyboardInterrupt:
        runs.close()
        more = (
            "add --out DIR to keep what is finished"
            if keep is None
            else f"give the same command again to go on from {keep}"
        )
        say(f"stopped after {len(found)} of {len(trials)} runs; {more}")
        raise typer.Exit(130) from None
    return found


def show(measured: Mapping[str, Any], notes: Mapping[str, str]) -> None:
    """Tables, what they mean, and the claims."""
    from trimtab.cli.reproduce.views import views

    told: set[str] = set()
    for view in views(measured["tables"]):
        table = Table(title=view.title, box=SIMPLE_HEAD, title_justify="left", header_style="")
        for i, name in enumerate(view.head):
            table.add_column(name, justify="left" if i == 0 else "right", no_wrap=i == 0)
        for line in view.lines:
            style = "bold" if line[0] in ("adlro", "packer") else ""
            table.add_row(*(Text(cell, style=style) for cell in line))
        out.print(table)
        if view.table in notes and view.table not in told:
            out.print(Text(notes[view.table], style="dim"))
            told.add(view.table)
    if measured["claims"]:
        show_claims(measured["claims"])
    seeds = measured["seeds"]
    last = f"{measured['trace']}; seeds {seeds[0]} to {seeds[-1]}; {measured['command']}"
    out.print(last, highlight=False, soft_wrap=True, markup=False, style="dim")


def show_claims(claims: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="claims", box=SIMPLE_HEAD, title_justify="left", header_style="")
    for name in ("claim", "", "evidence"):
        table.add_column(name)
    for claim in claims:
        word, style = MARK[claim["holds"]]
        table.add_row(Text(claim["claim"]), Text(word, style=style), Text(claim["evidence"]))
    out.print(table)


def write_page(
    path: Path, title: str, measured: Mapping[str, Any], notes: Mapping[str, str],
    figures: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    from trimtab.cli.reproduce.figures import on_page
    from trimtab.cli.reproduce.views import curves, frontiers, views
    from trimtab.report.pages.reproduced import write_reproduced

    verdicts = [(c["claim"], MARK[c["holds"]][0], c["evidence"]) for c in measured["claims"]]
    write_reproduced(
        path,
        title=title,
        facts={
            "Trace": measured["trace"],
            "Seeds": ", ".join(map(str, measured["seeds"])),
            "Command": measured["command"],
            "Processors": str(os.cpu_count()),
        },
        curves=curves(measured["tables"]),
        frontiers=frontiers(measured["tables"]),
        figures=on_page(figures or {}),
        sections=[(view.title, notes.get(view.table, ""), view.head, view.lines)
                  for view in views(measured["tables"])],
        claims=verdicts,
    )  # fmt: skip
