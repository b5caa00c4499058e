"""`trimtab reproduce`: what it prints, writes and refuses, and that it goes on where it stopped."""

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from trimtab.policies import BY_NAME

COMMAND = [sys.executable, "-m", "trimtab"]
SMALL = [
    *("reproduce", "adlro", "--quick", "--only", "loads", "--seeds", "2", "--jobs", "30"),
    *("--policies", "fcfs,fcfs+affinity,srtf+fastest", "--workers", "1"),
]


def trimtab(*words, **more):
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=900, **more
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One small run: what it printed, its JSON and its page."""
    folder = tmp_path_factory.mktemp("made")
    files = ("--json", folder / "adlro.json", "--report", folder / "adlro.html")
    done = trimtab(*SMALL, *files, env={"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    page = (folder / "adlro.html").read_text()
    return done.stdout, json.loads((folder / "adlro.json").read_text()), page


def test_json_has_tables_claims_command_trace_and_seeds(made):
    told = made[1]
    assert set(told) == {"tables", "claims", "command", "trace", "seeds"}
    assert told["command"].startswith("trimtab reproduce adlro --quick")
    assert {table["name"] for table in told["tables"]} >= {"loads", "paper"}


def test_a_claim_that_does_not_hold_is_no_error(made):
    printed = made[0]
    assert "does not hold" in printed  # Little's law, whatever is measured
    assert "mean completion time in s by load: noisy" in printed
    assert "fcfs+affinity" in printed


def test_the_page_is_self_contained_and_has_a_plot(made):
    page = made[2]
    assert "<svg" in page
    assert "offered load" in page
    assert "srtf+fastest" in page
    assert "://" not in page


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["reproduce", "nothing"], "paper 'nothing' is unknown; known: adlro"),
        (["reproduce", "adlro", "--only", "load"], "known: loads, small-cases"),
        (["reproduce", "adlro", "--policies", "fcsf"], "did you mean 'fcfs'?"),
        (["reproduce", "adlro", "--seeds", "0"], "--seeds 0"),
        (["reproduce", "adlro", "--jobs", "0"], "--jobs 0"),
        (["reproduce", "adlro", "--out", __file__], "is a file; name a folder"),
        (["reproduce", "adlro", "--report", "/"], "--report /: is a folder"),
        (["reproduce", "adlro", "--json", "nowhere/x.json"], "there is no such folder"),
        (["reproduce"], "Missing argument"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(words, text, command):
    code, _, said = command(*words)
    assert code == 2
    assert text in said
    assert "Traceback" not in said
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_in_one_line_and_the_same_command_goes_on(tmp_path):
    kept = tmp_path / "kept" / "trials.jsonl"
    words = [
        *("reproduce", "adlro", "--only", "loads", "--seeds", "2", "--jobs", "60"),
        *("--policies", "mct", "--workers", "2", "--out", str(kept.parent), "--json", "-"),
    ]
    process = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not kept.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 130, told
    assert told.startswith("stopped after ")
    assert f"go on from {kept.parent}" in told
    assert told.count("\n") == 1
    before = kept.read_text()
    done = trimtab(*words)
    assert done.returncode == 0, done.stderr
    assert kept.read_text().startswith(before)
    assert len(kept.read_text().splitlines()) == 3 * 5 * 2  # arms x loads x seeds, none twice
    assert trimtab(*words).stdout == done.stdout


@pytest.mark.slow
def test_workers_end_where_the_command_was_killed(tmp_path):
    kept = tmp_path / "kept" / "trials.jsonl"
    words = [
        *("reproduce", "adlro", "--only", "loads", "--seeds", "9", "--jobs", "300"),
        *("--policies", "mct", "--workers", "2", "--out", str(kept.parent)),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "trimtab", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not kept.exists() and process.poll() is None:
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.communicate(timeout=600)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def test_two_measurements_at_once_are_refused():
    done = trimtab("reproduce", "adlro", "--drift", "--ablation")
    assert done.returncode == 2
    assert "give one at a time" in done.stderr
    assert done.stdout == ""


def test_policies_says_of_each_of_ours_what_it_does():
    groups = json.loads(trimtab("policies", "--json", "-").stdout)
    assert set(BY_NAME) <= set(groups["policy"])
    assert not [name for name in BY_NAME if groups["policy"][name] == BY_NAME[name]]


def test_help_has_examples_of_scenes_with_settings():
    told = trimtab("compare", "--help", env={"COLUMNS": "200"}).stdout
    assert "--trace adlro:load=0.7,estimate=noisy" in told
    assert "--cluster adlro:volta=32,turing=16,radeon=16" in told
