"""`trimtab plan`: which parallelism on how many GPUs, whether it fits, how fast, how sure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from trimtab.cli.plan import plan_calibrate, plan_text, plan_watch
from trimtab.cli.shown import JsonOption, command_line, say, write_json
from trimtab.errors import PlanError
from trimtab.units import seconds as seconds_text

if TYPE_CHECKING:
    from trimtab.llm.nouns import Model
    from trimtab.llm.spec.pool import Pool

app = typer.Typer()

EPILOG = """
**Examples**

`trimtab plan llama-3-70b --gpus 64xH100 --train`

`trimtab plan llama-3-70b --gpus 64xH100 --batch 1024 --seq 8192 --export megatron --out run/`

`trimtab plan llama-3-70b --gpus 64xH100 --report plan.html` — what steps and memory are made of

`trimtab plan llama-3.1-405b --gpus "up-to 1024xH100" --objective cost --price-hour 2.5`

`trimtab plan llama-3-70b --gpus 32xH100+64xA100 --objective time=0.7,energy=0.3`

`trimtab plan ./config.json --gpus 8xMI300X --tp 8 --json -` — a Hugging Face model from disk

`trimtab plan llama-3-70b --gpus 8xH100 --serve --prompt 1024 --generate 256 --slo-ms 50`

`trimtab plan llama-3-8b --gpus 64xH100 --watch --log train.log --job 4711` — propose better plans

`trimtab plan --check runs.csv --json -` — predict a table of real runs, errors beside them

`trimtab plan --calibrate --profile mine.json` — measure this machine's GPUs

`trimtab plan llama-3-8b --gpus 8xH200 --profile mine.json` — plan with what was measured

`trimtab plan --fit FOLDER` — fit the model's constants to a folder of tables
"""
UP_TO = ("up-to", "upto", "<=")
# panels of --help
WAYS = "Fix a part of the plan; default: whatever is best"
SERVING, LIVE, MODEL = "With --serve", "With --watch", "The cost model itself"
WATCHING = plan_watch.Watching()  # as it is where nothing is said


@app.command(epilog=EPILOG)
def plan(
    model: Annotated[str, typer.Argument(help="A model by name, or a config.json.")] = "",
    gpus: Annotated[str, typer.Option(help="64xH100, 8xH100+16xA100-40, or 'up-to 64xH100'.")] = "",
    train: Annotated[bool, typer.Option("--train", help="Plan a training run; default.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Plan inference instead.")] = False,
    batch: Annotated[int, typer.Option(help="Sequences a step; default by the model.")] = 0,
    seq: Annotated[int, typer.Option(help="Tokens a sequence; default by the model.")] = 0,
    objective: Annotated[
        str, typer.Option(help="time, cost, energy, or a mix: time=0.7,energy=0.3.")
    ] = "time",
    price_hour: Annotated[float, typer.Option(help="Of one GPU; cost is in its currency.")] = 0.0,
    top: Annotated[int, typer.Option(help="How many plans to show.")] = 5,
    p_fit: Annotated[float, typer.Option(help="Least chance that a plan fits.")] = 0.9,
    precision: Annotated[str, typer.Option(help="fp16, bf16, fp8 or fp32.")] = "",
    framework: Annotated[
        str, typer.Option(help="megatron, nemo, deepspeed, fsdp, torchtitan or composer.")
    ] = "",
    node_link_gbps: Annotated[
        float, typer.Option(help="Gb/s of one GPU's network card; default by generation.")
    ] = 0.0,
    gpus_per_node: Annotated[int, typer.Option(help="Default: the usual server's.")] = 0,
    profile: Annotated[
        list[Path] | None, typer.Option(help="What --calibrate writes; may be repeated.")
    ] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor parallel.", rich_help_panel=WAYS)] = None,
    pp: Annotated[int | None, typer.Option(help="Pipeline stages.", rich_help_panel=WAYS)] = None,
    dp: Annotated[int | None, typer.Option(help="Data parallel.", rich_help_panel=WAYS)] = None,
    cp: Annotated[int | None, typer.Option(help="Context parallel.", rich_help_panel=WAYS)] = None,
    ep: Annotated[int | None, typer.Option(help="Expert parallel.", rich_help_panel=WAYS)] = None,
    interleave: Annotated[
        int | None, typer.Option(help="Chunks a stage.", rich_help_panel=WAYS)
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Sequences at a time.", rich_help_panel=WAYS)
    ] = None,
    zero: Annotated[
        int | None, typer.Option(help="ZeRO stage, 0 to 3.", rich_help_panel=WAYS)
    ] = None,
    recompute: Annotated[
        str | None, typer.Option(help="none, selective or full.", rich_help_panel=WAYS)
    ] = None,
    prompt: Annotated[
        int, typer.Option(help="Tokens of a prompt.", rich_help_panel=SERVING)
    ] = 1024,
    generate: Annotated[
        int, typer.Option(help="Tokens of an answer.", rich_help_panel=SERVING)
    ] = 256,
    slo_ms: Annotated[
        float, typer.Option(help="Most between tokens.", rich_help_panel=SERVING)
    ] = 0.0,
    ttft_ms: Annotated[
        float, typer.Option(help="Most until the first token.", rich_help_panel=SERVING)
    ] = 0.0,
    cpu_load: Annotated[
        float, typer.Option(help="Of the host by others, 0..1.", rich_help_panel=SERVING)
    ] = 0.0,
    export: Annotated[
        str, typer.Option(help="megatron, deepspeed, fsdp, torchtitan, vllm or sglang.")
    ] = "",
    to: Annotated[
        Path | None, typer.Option("--out", help="Folder for the launcher's files.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page.")] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Follow the running job, propose plans.", rich_help_panel=LIVE
        ),
    ] = False,
    every: Annotated[
        float, typer.Option(help="Seconds between readings.", rich_help_panel=LIVE)
    ] = WATCHING.every_s,
    horizon_hours: Annotated[
        float, typer.Option(help="That a new plan would run for.", rich_help_panel=LIVE)
    ] = WATCHING.horizon_hours,
    margin: Annotated[
        float, typer.Option(help="Least saving / cost of the change.", rich_help_panel=LIVE)
    ] = WATCHING.margin,
    patience: Annotated[
        int, typer.Option(help="Readings in a row that must agree.", rich_help_panel=LIVE)
    ] = WATCHING.patience,
    dwell_minutes: Annotated[
        float, typer.Option(help="After a change until the next.", rich_help_panel=LIVE)
    ] = WATCHING.dwell_s / 60.0,
    restart_minutes: Annotated[
        float, typer.Option(help="That a restart takes without data.", rich_help_panel=LIVE)
    ] = WATCHING.restart_s / 60.0,
    log: Annotated[
        Path | None, typer.Option(help="The job's log: step times.", rich_help_panel=LIVE)
    ] = None,
    job: Annotated[
        str, typer.Option(help="The job's PID, or a file with it.", rich_help_panel=LIVE)
    ] = "",
    prometheus: Annotated[
        str, typer.Option(help="Address of a server to read.", rich_help_panel=LIVE)
    ] = "",
    query: Annotated[
        list[str] | None,
        typer.Option(help="cpu=, link=, memory=, gpu= or taken=PROMQL.", rich_help_panel=LIVE),
    ] = None,
    current: Annotated[
        Path | None, typer.Option(help="The plan that runs, by --json.", rich_help_panel=LIVE)
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Where what is learned is kept.", rich_help_panel=LIVE)
    ] = WATCHING.state,
    apply: Annotated[
        str,
        typer.Option(help="Command that changes the plan; none: dry run.", rich_help_panel=LIVE),
    ] = "",
    rounds: Annotated[
        int, typer.Option(help="Readings; 0 = until Ctrl-C.", rich_help_panel=LIVE)
    ] = 0,
    check: Annotated[
        Path | None, typer.Option(help="A CSV of real runs to predict.", rich_help_panel=MODEL)
    ] = None,
    fit: Annotated[
        Path | None, typer.Option(help="A folder of tables to fit to.", rich_help_panel=MODEL)
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure this machine's GPUs: a profile.", rich_help_panel=MODEL
        ),
    ] = False,
    device: Annotated[
        str, typer.Option(help="calibrate: cuda (also AMD's) or cpu.", rich_help_panel=MODEL)
    ] = "cuda",
    seconds: Annotated[
        float, typer.Option(help="calibrate: about how long.", rich_help_panel=MODEL)
    ] = plan_calibrate.SECONDS,
    json_file: JsonOption = None,
) -> None:
    """Plan how a language model lies on GPUs: the best plans, how sure, why not others, flags."""
    if check is not None:
        return check_runs(check, report, json_file)
    if fit is not None:
        return fit_constants(fit, json_file)
    if calibrate:
        if len(profile or ()) > 1:
            raise PlanError("--calibrate writes one profile; give --profile once")
        file = profile[0] if profile else plan_calibrate.PROFILE
        return plan_calibrate.calibrate(file, device, seconds, json_file)
    if train and serve:
        raise PlanError("--train and --serve are two questions; ask one at a time")
    found, shares, up_to = wanted(model, gpus, profile or [])
    machine = {
        "per_node": gpus_per_node,
        "node_link_bps": node_link_gbps * 1e9 / 8,
        "precision": precision,
        "objective": objective,
        "least_p_fit": p_fit,
    }
    if top < 1:
        raise PlanError(f"--top {top} shows nothing; take 1 or more")
    launch = Launch(export, to, report, json_file)
    if serve:
        for name, given in (("batch", batch), ("seq", seq), ("framework", framework), ("dp", dp)):
            if given:
                raise PlanError(f"--{name} is for training; with --serve leave it out")
        if watch:
            raise PlanError("--watch follows a training run; leave --serve out")
        asked = {"prompt": prompt, "generated": generate, "cpu_load": cpu_load, "tp": tp, "pp": pp}
        limits = {"slo_s": slo_ms / 1e3, "ttft_s": ttft_ms / 1e3}
        return plan_serving(found, shares, machine | asked | limits, top, launch)
    ways = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "interleave": interleave}
    ways |= {"micro_batch": micro_batch, "zero": zero}
    more = {"global_batch": batch, "seq": seq, "price_hour": price_hour, "up_to": up_to}
    more |= {"framework": framework or launch.framework(), "recompute": recompute}
    if not watch:
        return plan_training(found, shares, machine | ways | more, top, launch)
    watching = plan_watch.Watching(
        every_s=every,
        horizon_hours=horizon_hours,
        margin=margin,
        patience=patience,
        dwell_s=60.0 * dwell_minutes,
        restart_s=60.0 * restart_minutes,
        log=log,
        state=state,
        prometheus=prometheus,
        query=tuple(query or ()),
        job=job,
        current=current,
        apply=apply,
        folder=to,
        rounds=rounds,
    )
    return plan_watch.watch_plan(found, shares, machine | ways | more, watching, json_file)


class Launch(NamedTuple):
    """Where an answer goes: a launcher's files, a folder for them, a page, JSON."""

    export: str
    folder: Path | None
    report: Path | None
    json_file: str | None

    def framework(self) -> str:
        """The framework that the launcher runs, empty where it leaves the choice."""
        from trimtab.llm.exports import BY_NAME, TO_SERVE

        if self.export and self.export not in BY_NAME:
            raise PlanError(f"--export {self.export} is unknown; take one of {', '.join(BY_NAME)}")
        if self.export in TO_SERVE:
            raise PlanError(f"--export {self.export} serves; add --serve, or take megatron")
        return self.export


def wanted(model: str, gpus: str, profiles: list[Path]) -> tuple[Model, Pool, bool]:
    """The model, the pool as listed or as measured, and whether fewer GPUs may be taken."""
    from trimtab.llm.calibrate import gpu_profile
    from trimtab.llm.spec import specs

    if not model:
        raise PlanError(
            "no model is named; write for example: trimtab plan llama-3-70b --gpus 8xH100"
        )
    if not gpus:
        raise PlanError("--gpus is missing; write it like 64xH100 or 8xH100+16xA100-40")
    text = gpus.strip()
    free = next((word for word in UP_TO if text.lower().startswith(word)), "")
    pool = gpu_profile.measured_pool(text[len(free) :].lstrip(" :"), *profiles)
    return specs.model(model), pool, bool(free)


def plan_training(
    model: Model, shares: Pool, options: dict[str, Any], top: int, launch: Launch
) -> None:
    """Print or write the best training plans."""
    from trimtab.llm.plan.plan_rows import headline, mixed_headline, mixed_row, plan_row
    from trimtab.llm.plan.pool_plan import pool_asked, pool_planned

    questions = pool_asked(model, shares, **options)
    found = pool_planned(questions, top)
    answer: dict[str, Any] = {"model": model.name, "mode": "train"}
    if found.best < 0 and found.mixed is not None:
        answer["headline"] = mixed_headline(found.mixed)
        rows = [mixed_row(found.mixed)]
        answer["priced"] = found.mixed.considered
    else:
        best = found.alone[found.best]
        assert not isinstance(best, str)
        answer["headline"] = headline(best)
        rows = [plan_row(best, place) for place in range(len(best.cases))]
        answer["priced"], answer["fitting"] = best.legal, best.fitting
    answer |= {"seq": questions[0].seq, "global_batch": questions[0].global_batch}
    answer |= {"objective": dict(questions[0].objective), "plans": rows}
    answer["why_not"] = reasons(found)
    answer["notes"] = list(dict.fromkeys(n for question in questions for n in question.notes))
    files = launch_files(found, model, launch, answer["notes"])
    finish(answer, files, launch, plan_text.show_plans if found.best >= 0 else None)


def reasons(found: Any) -> list[dict[str, str]]:
    """Why not other plans, other kinds alone, or a mix of kinds."""
    from trimtab.llm.plan.whynot import why_not

    out = []
    for place, answer in enumerate(found.alone):
        if place == found.best:
            continue
        if isinstance(answer, str):
            out.append({"plan": "one kind alone", "why": answer})
        else:
            name = f"{answer.question.gpus}x{answer.question.gpu.name} alone"
            out.append({"plan": name, "why": f"{seconds_text(answer.costs['step_s'][0])} a step"})
    if found.best < 0:
        return out
    if len(found.alone) > 1:
        mix = found.mixed
        why = f"{seconds_text(mix.step_s)} a step" if mix else "no pipeline over them fits"
        out.append({"plan": "all kinds in one pipeline", "why": why})
    chosen = why_not(found.alone[found.best])
    return out + [{"plan": reason.name, "why": reason.why} for reason in chosen]


def launch_files(found: Any, model: Model, launch: Launch, notes: list[str]) -> dict[str, str]:
    """The launcher's files for the best plan; what it cannot express is an error or a note."""
    from trimtab.llm.exports import files
    from trimtab.llm.plan.plan_rows import mixed_plan_of, plan_of

    if found.best < 0:
        plan_made, gpu = mixed_plan_of(found.mixed), found.mixed.kinds[0].gpu
        order = ", then ".join(kind.gpu.name for kind in found.mixed.kinds)
        notes.append(f"ranks follow the pipeline: give the first nodes to {order}")
    else:
        plan_made, gpu = plan_of(found.alone[found.best]), found.alone[found.best].question.gpu
    try:
        return files(launch.export or plan_made.framework, model, plan_made, gpu)
    except PlanError as problem:
        if launch.export:
            raise
        notes.append(f"no launch script: {problem}")
        return {}


def plan_serving(
    model: Model, shares: Pool, options: dict[str, Any], top: int, launch: Launch
) -> None:
    """Print or write the best ways to serve; kinds of a mixed pool serve side by side."""
    from trimtab.llm.exports import TO_SERVE, files
    from trimtab.llm.plan.plan_rows import serve_headline, serve_plan_of, serve_row
    from trimtab.llm.plan.serve_plan import serve_asked, serve_planned

    if launch.export and launch.export not in TO_SERVE:
        raise PlanError(f"--export {launch.export} trains; take {' or '.join(TO_SERVE)}")
    answer: dict[str, Any] = {"model": model.name, "mode": "serve"}
    words, rows, notes, scripts = [], [], [], {}
    for share in shares:
        try:
            served = serve_planned(serve_asked(model, share.gpu, share.gpus, **options), top)
        except PlanError as problem:
            if len(shares) == 1:
                raise
            notes.append(str(problem))
            continue
        words.append(serve_headline(served))
        rows += [serve_row(served, place) for place in range(len(served.rows))]
        notes += served.question.notes
        made = files(launch.export or "vllm", model, serve_plan_of(served), share.gpu)
        prefix = f"{share.gpu.name}-" if len(shares) > 1 else ""
        scripts |= {f"{prefix}{name}".replace(" ", "-"): text for name, text in made.items()}
    if not rows:
        raise PlanError(notes[0])
    answer |= {"headline": "; ".join(words), "plans": rows, "why_not": []}
    answer |= {"prompt": options["prompt"], "generated": options["generated"]}
    answer["notes"] = list(dict.fromkeys(notes))
    finish(answer, scripts, launch, plan_text.show_ways)


def finish(
    answer: dict[str, Any], files: dict[str, str], launch: Launch, table: Callable[..., None] | None
) -> None:
    """Write the files and the JSON that were asked for, and print the rest."""
    answer["launch"] = files
    if launch.folder is not None:
        plan_text.write_files(launch.folder, files)
    if launch.report is not None:
        from trimtab.report.pages.planned import write_planned

        write_planned(launch.report, answer, plan_text.short_names(answer), command_line())
        say(f"report: {launch.report}")
    if launch.json_file:
        write_json(launch.json_file, answer)
    if launch.json_file == "-":
        return
    plan_text.line(answer["headline"], style="bold")
    plan_text.show_notes(tuple(answer["notes"]))
    if table is not None:
        table(answer["plans"])
    plan_text.show_reasons(answer["why_not"])
    if launch.folder is None:
        plan_text.show_launch(files)


def check_runs(path: Path, report: Path | None, json_file: str | None) -> None:
    """Predict a table of real runs and print the errors beside what was measured."""
    from trimtab.llm.fit import check

    rows, summary = check.checked(path)
    if json_file:
        write_json(json_file, rows)
    if json_file != "-":
        plan_text.show_checked(rows)
    words = plan_text.checked_words(summary)
    if report is not None:
        from trimtab.report.pages.planned import write_checked

        write_checked(report, rows, words, path.name, command_line())
        say(f"report: {report}")
    say(words)


def fit_constants(folder: Path, json_file: str | None) -> None:
    """Fit all constants to a folder of tables and show how well they explain each."""
    from trimtab.llm.fit import fit, fit_training

    if not folder.is_dir():
        raise PlanError(f"--fit {folder}: no such folder; give the one that holds the tables")
    figures = [figure._asdict() for figure in fit.fit(folder)]
    rows = figures + fit_training.fit(folder)
    if json_file:
        write_json(json_file, [finite(row) for row in rows])
    if json_file != "-":
        plan_text.show_fits(rows)


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row without numbers that JSON cannot hold."""
    return {name: None if value != value else value for name, value in row.items()}
