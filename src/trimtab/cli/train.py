"""`trimtab train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.outputs import FOLDER
from trimtab.cli.shown import (
    JsonOption,
    command_line,
    out,
    parsed,
    progress_bar,
    resumable,
    say,
    write_json,
)
from trimtab.errors import TrimtabError
from trimtab.units import readable

app = typer.Typer()


@app.command(
    epilog="""
**Examples**

`trimtab train dqn --out run --steps 300000` — on the ADLRO scene; the network is run/dqn.onnx

`trimtab train dqn --out paper --set mode=paper --set trunk=cnn --set learning_rate=1e-4`

`trimtab train dqn --out run --set trunk=cnn --set imitate=sjf+fastest --set gamma=0.95`

`trimtab train dqn --out mine --trace jobs.parquet --cluster cluster.yaml --seed 3`

`trimtab train forecast --out mine --trace colocated:own=bitbrains.tar.xz` — how services' use goes
on; compare --trace colocated:forecast=mine takes it

`trimtab train packer --out mine --trace pods.csv --cluster nodes.csv` — a placement of shared GPUs

`trimtab train rlscheduler --out mine` — a peer of the hierarchy on colocated; compare
rlscheduler:mine+peak@0.9 takes it

`trimtab train hierarchy --out mine --set on=ray` — plays on a Ray cluster, the same results

`trimtab train router --out run --set kind=balanced` — Slim Scheduler's router; run/router.npz

`trimtab train slim --out slim-run --set data=pictures --set compile=true` — a slimmable network

`trimtab train dqn --out run --set help` — every setting with its default

The same command again goes on where the last one stopped; a larger --steps trains longer.
"""
)
def train(
    learner: Annotated[
        str,
        typer.Argument(
            help="What to train: adlro, dqn, encoder, forecast, goals, hierarchy, manager, packer, "
            "router, slim, or a peer: belgacem, cheng, deeprm, ghasemi, islam-dqn, "
            "islam-reinforce, rjoub, rlscheduler."
        ),
    ],
    to: Annotated[
        Path, typer.Option("--out", help="Folder of the checkpoint, network and log."), FOLDER
    ] = Path("trained"),
    steps: Annotated[int | None, typer.Option(help="How long; see --set help.")] = None,
    trace: Annotated[str | None, typer.Option(help="A trace file, or a generator.")] = None,
    cluster: Annotated[str | None, typer.Option(help="YAML file, node list or preset.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE; `help` lists them.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Train a policy: resumable, with a log for TensorBoard (tensorboard --logdir OUT/log)."""
    from trimtab import learners
    from trimtab.policies import networks

    if settings and "help" in settings:
        for name, default in learners.settings_of(learner).items():
            out.print(f"{name}={default}", highlight=False)
        return
    given: dict[str, Any] = dict(parsed(text) for text in settings or ())
    plain = {"steps": steps, "trace": trace, "cluster": cluster, "seed": seed}
    known = learners.settings_of(learner)
    for name, value in plain.items():
        if value is None or (name == "seed" and "seed" in given):
            continue
        if name in given:
            raise TrimtabError(f"--{name} and --set {name} are both given; give one")
        if name not in known and name != "seed":
            raise TrimtabError(f"{learner} has no --{name}; leave it out")
        if name in known:
            given[name] = value
    checked = learners.checked(learner, given)
    last = follow(learners.trainer(learner)(to, command=command_line(), **checked), learner)
    if last is None:
        say(f"{to}: trained so far already; give a larger --steps to go on")
        return
    if json_file:
        write_json(json_file, {name: value for name, value in last.items() if value == value})
    say(f"{to}: {told(last)}")
    if learner in networks.WRITTEN:
        say(f"beside other policies: trimtab compare {shlex.quote(f'{learner}:{to}')} sjf+fastest")


def follow(rows: Any, name: str) -> dict[str, Any] | None:
    """Show how far it is until it is over. Returns the last that was told."""
    last: dict[str, Any] | None = None
    with resumable(), progress_bar() as progress:
        task = progress.add_task(f"{name} (the first run compiles the engine)", total=None)
        for row in rows:
            last = row._asdict()
            done, total = last.get("step"), last.get("steps")
            progress.update(task, completed=done, total=total, description=f"{name} {told(last)}")
            if last["loss"] == last["loss"]:  # something was measured: a line of the learning curve
                progress.console.print(told(last), highlight=False, markup=False, soft_wrap=True)
    return last


def told(row: dict[str, Any]) -> str:
    known = {name: value for name, value in row.items() if value == value}
    return "  ".join(f"{name} {readable(value)}" for name, value in known.items())
