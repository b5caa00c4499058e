"""The command line: what it prints, writes and refuses, and that a mistake is one line."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from trimtab.cli import app

COMMAND = [sys.executable, "-m", "trimtab"]
LOG = """; MaxNodes: 8
1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 1 1 -1 -1 -1
2 5 -1 20 8 -1 -1 8 40 -1 1 1 1 1 1 -1 -1 -1
3 6 -1 3 4 -1 -1 4 4 -1 1 1 1 1 1 -1 -1 -1
"""

# the command line, which prints a line more once it has finished a run
TELLING = """
from contextlib import contextmanager
from trimtab.cli import compare, main

shown = compare.bar

@contextmanager
def bar(*words):
    with shown(*words) as step:
        yield lambda name, done: (step(name, done), done and print("one is finished", flush=True))

compare.bar = bar
main()
"""


def trimtab(*words, **more):
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=900, **more
    )


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    return path


def test_compare_prints_the_metrics_of_each_policy_as_json(log):
    done = trimtab("compare", "fcfs", "fcfs+easy", "--trace", log, "--json", "-")
    rows = json.loads(done.stdout)
    assert [(row["policy"], row["trace"], row["seed"]) for row in rows] == [
        ("fcfs", "small.swf", 0),
        ("fcfs+easy", "small.swf", 0),
    ]
    # fcfs: 2 waits for all 8 nodes until 10, 3 waits behind it until 30: waits 0, 5, 24
    # easy: 3 ends at 9 or 10, before the shadow time 20 that the request of 1 gives: waits 0, 5, 0
    assert [row["metrics"]["wait_mean_s"] for row in rows] == pytest.approx([29 / 3, 5 / 3])


def test_compare_writes_a_self_contained_report(log, tmp_path):
    page = tmp_path / "report.html"
    done = trimtab("compare", "fcfs", "sjf+easy", "--trace", log, "--report", page)
    assert done.returncode == 0, done.stderr
    assert "sjf+easy" in page.read_text()
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["compare", "fcsf"], "did you mean 'fcfs'?"),
        (["compare", "sjf+esy"], "did you mean 'easy'?"),
        (["compare", "fcfs", "--trace", "nope.swf"], "nope.swf: no such file"),
        (["compare", "fcfs", "--jobs", "-3"], "--jobs -3 is below 1"),
        (["compare", "fcfs", "--seeds", "0"], "--seeds 0"),
        (["compare", "fcfs", "--semantics", "foo"], "semantics 'foo' is unknown"),
        (["compare", "fcfs", "--estimate", "maybe"], "use requested or actual"),
        (["compare", "fgd"], "give --cluster NODES.csv"),
        (["compare", "wfp3-published"], "did you mean 'wfp3'?"),
        (["compare", "--frobnicate"], "No such option"),
        (["trace", "generate", "mixed-gpu", "--out", "x.parquet", "--set", "load"], "NAME=VALUE"),
        (["trace", "generate", "nope", "--out", "x.parquet"], "generator 'nope' is unknown"),
        (["bench", "--only", "nothing"], "'nothing' is unknown"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(words, text, command):
    code, _, said = command(*words)
    assert code == 2
    assert text in said
    assert "Traceback" not in said
    assert said.count("\n") == 1


def test_a_job_that_fits_no_gpu_and_a_gpu_without_a_speed_are_named(tmp_path):
    """Lenient, the job is dropped and counted, for a rule and a learned policy alike."""
    log, nodes = tmp_path / "jobs.txt", tmp_path / "nodes.yaml"
    log.write_text(
        "JobID|Submit|ElapsedRaw|State|AllocTRES\n"
        "1|2025-03-01T10:00:00|600|COMPLETED|cpu=1,gres/gpu:v100=1,node=1\n"
        "2|2025-03-01T10:01:00|600|COMPLETED|cpu=1,gres/gpu:v100=4,node=1\n"
    )
    nodes.write_text(
        "nodes: [{kind: v100, cpu: 8, gpu: 1}, {kind: h900, cpu: 8, gpu: 1}]\n"
        "profile: {rates: {v100: {v100: 1}}}\n"
    )
    words = ("compare", "fcfs", "adlro", "--trace", log, "--cluster", nodes)
    strict = trimtab(*words)
    assert strict.returncode == 2
    assert "job 2 (row 1)" in strict.stderr
    assert "can never run" in strict.stderr
    lenient = trimtab(*words, "--lenient", "--json", "-")
    assert [run["metrics"]["finished"] for run in json.loads(lenient.stdout)] == [1, 1]
    assert "dropped 1: fits no node of the cluster" in lenient.stderr
    assert "no speed is given for h900;" in lenient.stderr


def test_a_bad_line_costs_itself_and_is_named_where_asked(log):
    log.write_text(LOG.replace("20 8 -1 -1", "abc 8 -1 -1"))
    strict = trimtab("compare", "fcfs", "--trace", log, "--strict", "--json", "-")
    assert strict.returncode == 2
    assert f"{log}:3: run time (field 4) = 'abc'" in strict.stderr
    usual = trimtab("compare", "fcfs", "--trace", log, "--json", "-")
    assert json.loads(usual.stdout)[0]["metrics"]["finished"] == 2
    assert "dropped 1" in usual.stderr


def test_a_trace_is_converted_described_and_generated(log, tmp_path):
    made = tmp_path / "small.parquet"
    assert "3 jobs" in trimtab("trace", "convert", log, made).stderr
    told = json.loads(trimtab("trace", "describe", made, "--json", "-").stdout)
    assert told["jobs"] == 3
    like = tmp_path / "like.parquet"
    assert "50 jobs" in trimtab("trace", "generate", log, "--out", like, "--jobs", 50).stderr
    again = tmp_path / "again.parquet"
    trimtab("trace", "generate", log, "--out", again, "--jobs", 50)
    one = json.loads(trimtab("trace", "describe", like, "--json", "-").stdout)
    two = json.loads(trimtab("trace", "describe", again, "--json", "-").stdout)
    assert one == two


def test_policies_lists_every_part_of_a_rule():
    groups = json.loads(trimtab("policies", "--json", "-").stdout)
    assert {"srtf", "drf"} <= set(groups["order"])
    assert set(groups["backfill"]) == {"none", "easy", "conservative", "greedy"}
    assert {"cosine", "frag", "packer"} <= set(groups["place"])


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that can be typed, groups among them."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


@pytest.mark.parametrize(
    "path",
    [path for path in commands(get_command(app)) if path not in ((), ("trace",))],
    ids=" ".join,
)
def test_help_has_examples_and_fits_eighty_columns(path: tuple[str, ...]):
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*path, "--help"]).output
    assert "Examples" in shown
    assert f"trimtab {' '.join(path)}" in shown.partition("Examples")[2]
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_comparison_with_what_is_finished_saved(tmp_path):
    saved = tmp_path / "part.json"
    words = ["compare", "fcfs", "--trace", "queue", "--jobs", "2000", "--seeds", "10000"]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *words, "--json", str(saved)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "one is finished\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "stopped after" in told
    assert len(json.loads(saved.read_text())) >= 1
