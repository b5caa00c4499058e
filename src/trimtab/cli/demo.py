"""`trimtab demo`: what ships, beside the strongest rules, in a minute."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from trimtab.cli.compare import show_results
from trimtab.cli.shown import JsonOption, ReportOption, bar, command_line, out, say, write_json
from trimtab.errors import TrimtabError

app = typer.Typer()

TRACE = "adlro:load=0.9,estimate=noisy,jobs=600"
STARTUP_S = 30.0
LEARNED = ("adlro",)
BASELINES = ("gavel", "fluid", "mct")
RULES = ("srtf+fastest", "sjf+fastest", "fcfs")
NEXT = (
    "your own queue:  trimtab compare adlro gavel fcfs+easy --trace LOG --cluster CLUSTER",
    "prepare a trace: trimtab trace prepare FOLDER --out prepared   # extra: prepare",
    "serve requests:  trimtab serve                                 # extra: serve",
    "plan a model:    trimtab plan llama-3-70b --gpus 64xH100",
)


@app.command(
    epilog="""
**Examples**

`trimtab demo`

`trimtab demo --seeds 10 --report report.html`

`trimtab demo --json -` — as `trimtab compare --json` writes it
"""
)
def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many draws of 600 jobs.")] = 5,
    json_file: JsonOption = None,
    report: ReportOption = None,
) -> None:
    """Compare the learned scheduler that ships with the strongest rules on 16 unlike GPUs."""
    from trimtab.compare import answers, as_json
    from trimtab.comparison import Question

    results: list[Any] = []
    policies = (*LEARNED, *BASELINES, *RULES)
    with compiled_meanwhile(), bar("comparing", len(policies) * seeds) as step:
        # all seeds of a policy after each other: the rules come last, when they are compiled
        for policy in policies:
            question = Question(
                (policy,), TRACE, seeds=seeds, startup_s=STARTUP_S, log=report is not None
            )
            for result in answers(question, lambda name, ended, of: step(name, 0)):
                results.append(result)
                step(policy, 1)
    if json_file:
        write_json(json_file, [as_json(result, TRACE) for result in results])
    if json_file == "-":
        return
    show_results(results)
    if report is not None:
        from trimtab.report.compare.html import write_report

        title = f"{len(policies)} policies on 16 GPUs of three makes"
        write_report(report, results, title=title, command=command_line())
        say(f"report: {report}")
    out.print("\n".join(("", *NEXT)), highlight=False, soft_wrap=True, markup=False)


@contextmanager
def compiled_meanwhile() -> Iterator[None]:
    """Compile the rules in a second process while the learned policies run in this one."""
    spawn = multiprocessing.get_context("spawn")
    other = spawn.Process(target=_play_rules, daemon=True)
    other.start()
    try:
        yield
    finally:
        other.terminate()
        other.join()


def _play_rules() -> None:
    from trimtab.compare import answers
    from trimtab.comparison import Question

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    for log in (False, True):
        try:
            list(answers(Question(RULES, "adlro:jobs=8", startup_s=STARTUP_S, log=log)))
        except TrimtabError:
            return  # the first process says it
