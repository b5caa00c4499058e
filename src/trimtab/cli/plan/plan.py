"""`trimtab plan`: which parallelism on how many GPUs, whether it fits, how fast, how sure.

`trimtab plan MODEL ...` is short for `trimtab plan train MODEL ...`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from trimtab.cli.options import with_options
from trimtab.cli.plan import plan_answers, plan_calibrate, plan_check, plan_watch
from trimtab.cli.plan.plan_answers import Output
from trimtab.cli.plan.plan_calibrate import Calibrating
from trimtab.cli.plan.plan_watch import Watching
from trimtab.cli.shown import JsonOption, ReportOption
from trimtab.errors import PlanError
from trimtab.llm.plan.options import ServeOptions, TrainOptions

if TYPE_CHECKING:
    from trimtab.llm.nouns import Model
    from trimtab.llm.spec.pool import Pool

UP_TO = ("up-to", "upto", "<=")
# A command's older name, as a switch of `trimtab plan`; the first that is there counts.
SWITCHES = ("check", "fit", "calibrate", "serve", "watch", "train")

EXAMPLES = {
    "": """
`trimtab plan llama-3-70b --gpus 64xH100` — the best plans to train it

`trimtab plan serve llama-3-70b --gpus 8xH100` — to serve it

`trimtab plan watch llama-3-8b --gpus 64xH100 --log train.log` — while it trains

`trimtab plan check runs.csv` — predictions beside your own runs
""",
    "train": """
`trimtab plan train llama-3-70b --gpus 64xH100` — or without `train`, as below

`trimtab plan llama-3-70b --gpus 64xH100 --batch 1024 --seq 8192 --export megatron --out run/`

`trimtab plan llama-3-70b --gpus 64xH100 --report plan.html` — what steps and memory are made of

`trimtab plan llama-3.1-405b --gpus "up-to 1024xH100" --objective cost --price-hour 2.5`

`trimtab plan llama-3-70b --gpus 32xH100+64xA100 --objective time=0.7,energy=0.3`

`trimtab plan ./config.json --gpus 8xMI300X --tp 8 --json -` — a Hugging Face model from disk

`trimtab plan llama-3-8b --gpus 8xH200 --profile mine.json` — with what `calibrate` measured
""",
    "serve": """
`trimtab plan serve llama-3-70b --gpus 8xH100 --prompt 1024 --generate 256 --slo-ms 50`

`trimtab plan serve llama-3-70b --gpus 8xH100 --export vllm --out run/`
""",
    "watch": """
`trimtab plan watch llama-3-8b --gpus 64xH100 --log train.log --job 4711` — propose better plans

`trimtab plan watch llama-3-8b --gpus 64xH100 --log train.log --apply ./restart.sh`
""",
    "check": """
`trimtab plan check runs.csv --json -` — predict a table of real runs, errors beside them
""",
    "calibrate": """
`trimtab plan calibrate --profile mine.json` — measure this machine's GPUs

`trimtab plan llama-3-8b --gpus 8xH200 --profile mine.json` — plan with what was measured
""",
    "fit": """
`trimtab plan fit tables/` — fit the model's constants to a folder of tables
""",
}


def epilog(name: str) -> str:
    return f"\n**Examples**\n{EXAMPLES[name]}"


def as_command(words: list[str], commands: tuple[str, ...]) -> list[str]:
    """The words with the command that they ask for in front: a model alone is to be trained, and
    `--serve` is what `serve` was called before there were commands.
    """
    if words[:1] == ["--help"] or (words and words[0] in commands):
        return words
    said = [name for name in SWITCHES if f"--{name}" in {word.split("=")[0] for word in words}]
    if {"train", "serve"} <= set(said):
        raise PlanError("--train and --serve are two questions; ask one at a time")
    if said[:2] == ["serve", "watch"]:
        raise PlanError("--watch follows a training run; leave --serve out")
    rest = []
    for word in words:
        switch, _, value = word.partition("=")
        # the file of --check and the folder of --fit become what the command is given
        rest += ([value] if value else []) if switch in {f"--{name}" for name in said} else [word]
    return [said[0] if said else "train", *rest]


class PlanGroup(TyperGroup):
    """The commands of `trimtab plan`, with `train` where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, as_command(args, tuple(self.commands)))


app = typer.Typer(cls=PlanGroup, rich_markup_mode="markdown")


@dataclass(frozen=True)
class Target:
    """What is planned for."""

    model: str = field(
        default="", metadata={"help": "A model by name, or a config.json.", "argument": True}
    )
    gpus: str = field(
        default="", metadata={"help": "64xH100, 8xH100+16xA100-40, or 'up-to 64xH100'."}
    )
    profile: tuple[Path, ...] = field(
        default=(),
        metadata={"help": "What `trimtab plan calibrate` writes; may be repeated."},
    )


@app.callback(epilog=epilog(""))
def plan() -> None:
    """Plan how a language model lies on GPUs.

    `trimtab plan MODEL ...` is short for `trimtab plan train MODEL ...`.
    """


@app.command(epilog=epilog("train"))
@with_options
def train(target: Target, options: TrainOptions, output: Output) -> None:
    """The best plans to train a model, how sure, why not others, and the launcher's flags."""
    model, pool, up_to = found(target)
    plan_answers.plan_training(model, pool, replace(options, up_to=up_to), output)


@app.command(epilog=epilog("serve"))
@with_options
def serve(target: Target, options: ServeOptions, output: Output) -> None:
    """The best ways to serve a model, how fast, how sure, and the server's command."""
    model, pool, _ = found(target)
    plan_answers.plan_serving(model, pool, options, output)


@app.command(epilog=epilog("watch"))
@with_options
def watch(
    target: Target, options: TrainOptions, watching: Watching, json_file: JsonOption = None
) -> None:
    """Follow a running job and propose a better plan when one pays."""
    model, pool, up_to = found(target)
    plan_watch.watch_plan(model, pool, replace(options, up_to=up_to), watching, json_file)


@app.command(epilog=epilog("check"))
def check(
    runs: Annotated[Path, typer.Argument(help="A CSV of real runs to predict.")],
    report: ReportOption = None,
    json_file: JsonOption = None,
) -> None:
    """Predict a table of real runs, errors beside them."""
    plan_check.check_runs(runs, report, json_file)


@app.command(epilog=epilog("calibrate"))
@with_options
def calibrate(calibrating: Calibrating, json_file: JsonOption = None) -> None:
    """Measure this machine's GPUs and write a profile to plan with."""
    if len(calibrating.profile) > 1:
        raise PlanError("one profile is written; give --profile once")
    file = calibrating.profile[0] if calibrating.profile else plan_calibrate.PROFILE
    plan_calibrate.calibrate(file, calibrating.device, calibrating.seconds, json_file)


@app.command(epilog=epilog("fit"))
def fit(
    folder: Annotated[Path, typer.Argument(help="A folder of tables to fit to.")],
    json_file: JsonOption = None,
) -> None:
    """Fit the cost model's constants to a folder of tables."""
    plan_check.fit_constants(folder, json_file)


def found(target: Target) -> tuple[Model, Pool, bool]:
    """The model, the pool as listed or as measured, and whether fewer GPUs may be taken."""
    from trimtab.llm.calibrate import gpu_profile
    from trimtab.llm.spec import specs

    if not target.model:
        raise PlanError(
            "no model is named; write for example: trimtab plan llama-3-70b --gpus 8xH100"
        )
    if not target.gpus:
        raise PlanError("--gpus is missing; write it like 64xH100 or 8xH100+16xA100-40")
    text = target.gpus.strip()
    free = next((word for word in UP_TO if text.lower().startswith(word)), "")
    pool = gpu_profile.measured_pool(text[len(free) :].lstrip(" :"), *target.profile)
    return specs.model(target.model), pool, bool(free)
