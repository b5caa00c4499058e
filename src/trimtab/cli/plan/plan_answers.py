"""What `trimtab plan train` and `plan serve` answer: plans, reasons, launch files, a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli.outputs import FOLDER
from trimtab.cli.plan import plan_text
from trimtab.cli.shown import JsonOption, ReportOption, command_line, say, write_json
from trimtab.errors import PlanError
from trimtab.units import seconds

if TYPE_CHECKING:
    from trimtab.llm.nouns import Model
    from trimtab.llm.plan.options import ServeOptions, TrainOptions
    from trimtab.llm.spec.pool import Pool


@dataclass(frozen=True)
class Output:
    """Where an answer goes: a launcher's files, a folder for them, a page, JSON."""

    top: int = field(default=5, metadata={"help": "How many plans to show."})
    export: str = field(
        default="",
        metadata={"help": "megatron, deepspeed, fsdp, torchtitan, vllm or sglang."},
    )
    folder: Path | None = field(
        default=None,
        metadata={"help": "Folder for the launcher's files.", "option": "--out", "writes": FOLDER},
    )
    report: ReportOption = None
    json_file: JsonOption = None

    def framework(self) -> str:
        """The framework that the launcher runs, empty where it leaves the choice."""
        from trimtab.llm.exports import BY_NAME, TO_SERVE

        if self.export and self.export not in BY_NAME:
            raise PlanError(f"--export {self.export} is unknown; take one of {', '.join(BY_NAME)}")
        if self.export in TO_SERVE:
            raise PlanError(
                f"--export {self.export} serves; say `trimtab plan serve`, or take megatron"
            )
        return self.export


def plan_training(model: Model, shares: Pool, options: TrainOptions, launch: Output) -> None:
    """Print or write the best training plans."""
    from trimtab.llm.plan.plan_rows import headline, mixed_headline, mixed_row, plan_row
    from trimtab.llm.plan.pool_plan import pool_planned, pool_questions

    _check_top(launch)
    wish = replace(options, framework=options.framework or launch.framework())
    questions = pool_questions(model, shares, wish)
    found = pool_planned(questions, launch.top)
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
            out.append({"plan": name, "why": f"{seconds(answer.costs['step_s'][0])} a step"})
    if found.best < 0:
        return out
    if len(found.alone) > 1:
        mix = found.mixed
        why = f"{seconds(mix.step_s)} a step" if mix else "no pipeline over them fits"
        out.append({"plan": "all kinds in one pipeline", "why": why})
    chosen = why_not(found.alone[found.best])
    return out + [{"plan": reason.name, "why": reason.why} for reason in chosen]


def launch_files(found: Any, model: Model, launch: Output, notes: list[str]) -> dict[str, str]:
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


def plan_serving(model: Model, shares: Pool, options: ServeOptions, launch: Output) -> None:
    """Print or write the best ways to serve; kinds of a mixed pool serve side by side."""
    from trimtab.llm.exports import TO_SERVE, files
    from trimtab.llm.plan.plan_rows import serve_headline, serve_plan_of, serve_row
    from trimtab.llm.plan.serve_plan import serve_planned, serve_question

    _check_top(launch)
    if launch.export and launch.export not in TO_SERVE:
        raise PlanError(f"--export {launch.export} trains; take {' or '.join(TO_SERVE)}")
    answer: dict[str, Any] = {"model": model.name, "mode": "serve"}
    words, rows, notes = [], [], []
    scripts: dict[str, str] = {}
    for share in shares:
        try:
            served = serve_planned(
                serve_question(model, share.gpu, share.gpus, options), launch.top
            )
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
    answer |= {"prompt": options.prompt, "generated": options.generated}
    answer["notes"] = list(dict.fromkeys(notes))
    finish(answer, scripts, launch, plan_text.show_ways)


def _check_top(launch: Output) -> None:
    if launch.top < 1:
        raise PlanError(f"--top {launch.top} shows nothing; take 1 or more")


def finish(
    answer: dict[str, Any], files: dict[str, str], launch: Output, table: Callable[..., None] | None
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
