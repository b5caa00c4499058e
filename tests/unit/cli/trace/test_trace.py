"""The commands for traces: what they print, write and refuse, and that Ctrl-C loses nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import typer
from tests.prometheus_server import Prometheus, always
from tests.unit.traces.prepare.folders import BATCH_TASK, hashes, written

from trimtab import cli
from trimtab.cli.shown import resumable
from trimtab.errors import TrimtabError
from trimtab.traces.alibaba2018.tables import TABLES
from trimtab.traces.load.prometheus import DEFAULT
from trimtab.traces.load.samples_file import load_samples

TWIN = "alibaba2018-like"
SMALL = ("--machines", "12", "--days", "1.2", "--set", "instances=3000")
COMMAND = [sys.executable, "-m", "trimtab"]
AGAIN = "stopped; give the same command again to go on\n"


def trimtab(*words, **more):
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=900, **more
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("a [b] :x: folder")  # brackets and colons mean nothing


@pytest.fixture(scope="module")
def twin(folder):
    done = trimtab("trace", "generate", TWIN, *SMALL, cwd=folder)  # no --out
    assert done.returncode == 0, done.stderr
    return folder / TWIN, done


@pytest.fixture(scope="module")
def prepared(twin, folder):
    done = trimtab("trace", "prepare", twin[0], "--out", folder / "prepared")
    assert done.returncode == 0, done.stderr
    return folder / "prepared", done


@pytest.fixture
def said(monkeypatch, capsys):
    """Runs a command in this process: (exit code, standard output, standard error)."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["trimtab", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            cli.main()
        return int(done.value.code or 0), *capsys.readouterr()

    return run


def refused(answer, *texts):
    """Whether it is one line, exit code 2 and nothing on standard output."""
    code, out, err = answer
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ")
    for text in texts:
        assert text in err
    return True


def test_a_twin_goes_into_a_folder_of_its_name_and_the_next_command_is_told(twin):
    out, done = twin
    made = json.loads((out / "twin.json").read_text())
    assert (made["machines"], made["days"], made["instances"]) == (12, 1.2, 3000)
    for table in TABLES:
        assert (out / table).exists() or (out / f"{table}.parquet").exists()
        assert f" {table} " in done.stdout
        assert f" {made['made']['rows'][table]:,} " in done.stdout
    told = f"next: trimtab trace prepare {TWIN} --out {TWIN}-prepared\n"
    assert done.stderr == told


def test_a_twin_again_is_the_same_and_json_is_all_that_is_printed(twin):
    before = hashes(twin[0])
    done = trimtab("trace", "generate", TWIN, *SMALL, "--out", twin[0], "--json", "-")
    assert json.loads(done.stdout) == json.loads((twin[0] / "twin.json").read_text())["made"]
    assert (done.returncode, done.stderr) == (0, "")
    assert hashes(twin[0]) == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([TWIN, "--set", "nope=3"], "nope=3 is unknown; known: machines, days, dirt, instances"),
        ([TWIN, "--jobs", "3"], "jobs=3 is unknown; known: machines, days"),
        ([TWIN, "--set", "machines=lots"], "machines='lots' is not a whole number"),
        ([TWIN, "--set", "instances=1.5"], "instances=1.5 is not a whole number"),
        ([TWIN, "--set", "dirt=some"], "dirt='some' is not a number"),
        ([TWIN, "--set", "dirt=2"], "dirt=2.0 cannot be made; give a share from 0 to 0.5"),
        ([TWIN, "--machines", "0"], "--machines 0 is below 1; give 1 or more"),
        ([TWIN, "--days", "nan"], "--days nan is not a finite number"),
        ([TWIN, "--seed", "-1"], "Invalid value for '--seed'"),
        (["mixed-gpu"], "mixed-gpu: where to? add --out jobs.parquet"),
        (["mixed-gpu", "--out", "x.parquet", "--machines", "3"], "machines=3 is unknown"),
        (["mixed-gpu", "--out", "x.parquet", "--set", "load=x"], "--set load=x does not suit it"),
    ],
)
def test_what_cannot_be_generated_is_refused(said, monkeypatch, tmp_path, words, text):
    monkeypatch.chdir(tmp_path)
    assert refused(said("trace", "generate", *words), text)
    assert not list(tmp_path.iterdir())


def test_a_preparation_prints_rows_in_kept_and_removed(prepared):
    out, done = prepared
    manifest = json.loads((out / "manifest.json").read_text())
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["table", "in", "kept", "removed", "by", "rule"] in lines
    for table, counts in manifest["tables"].items():
        (row,) = (line for line in lines if line[:1] == [table])
        numbers = (counts["in"], counts["kept"], counts["in"] - counts["kept"])
        assert row[1:4] == [f"{n:,}" for n in numbers]
    assert "figures of Alibaba 2018: published, and here" in done.stdout
    assert done.stderr == f"report: {out / 'report.html'}\n"
    assert "<svg" in (out / "report.html").read_text()
    assert not (out / ".work").exists()


def test_a_preparation_of_a_copy_in_another_folder_gives_the_same_bytes(prepared, twin, tmp_path):
    shutil.copytree(twin[0], tmp_path / "copy")
    done = trimtab("trace", "prepare", tmp_path / "copy", "--out", tmp_path / "out", "--json", "-")
    assert json.loads(done.stdout) == json.loads((prepared[0] / "manifest.json").read_text())
    assert hashes(tmp_path / "out") == hashes(prepared[0])


def test_a_second_run_finds_the_result_and_makes_only_the_report(prepared, twin, said):
    out = prepared[0]
    before = hashes(out)
    age = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.suffix != ".html"}
    code, text, _ = said("trace", "prepare", twin[0], "--out", out, "--json", "-")
    assert code == 0
    assert json.loads(text) == json.loads((out / "manifest.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in age} == age
    assert hashes(out) == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--memory", "1XB"], "--memory '1XB' is not a size; write for example 2GB or 512MB"),
        (["--memory", "8MB"], "--memory 8MB is too little; give at least 256MB"),
        (["--table", "nope=x.csv"], "--table nope=...: no such table; known: machine_meta"),
        (["--table", "batch_task"], "--table 'batch_task' is not NAME=VALUE; write for example"),
        (["--table", "batch_task=3"], "--table batch_task=3"),
        (["--window", "0.5"], "window_s=0.5"),
        (["--services", "maybe"], "services='maybe'; use used, reserved or none"),
        (["--train", "0.9", "--validation", "0.2"], "leave nothing to test on"),
    ],
)
def test_a_preparation_with_a_bad_option_is_refused(said, twin, tmp_path, words, text):
    assert refused(said("trace", "prepare", twin[0], "--out", tmp_path / "out", *words), text)
    assert not (tmp_path / "out").exists()


def test_a_preparation_of_nothing_is_refused(said, tmp_path):
    out = tmp_path / "out"
    assert refused(said("trace", "prepare", tmp_path / "no", "--out", out), "no: is not there")
    assert refused(said("trace", "prepare", tmp_path, "--out", out), "batch_task is missing")
    assert refused(said("trace", "prepare", tmp_path), "Missing option '--out'")


def test_a_result_of_other_options_is_not_overwritten(said, prepared, twin):
    answer = said("trace", "prepare", twin[0], "--out", prepared[0], "--window", "60")
    assert refused(answer, "is finished already, with window_s=300.0, now it is 60.0")


def test_a_bad_file_is_one_line_and_lenient_reading_counts_it(tmp_path):
    source = written(tmp_path / "by hand", {"batch_task": BATCH_TASK + "this is no task\n"})
    strict = trimtab("trace", "prepare", source, "--out", tmp_path / "out")
    line = BATCH_TASK.count("\n") + 1
    told = strict.returncode, strict.stdout, strict.stderr
    assert refused(told, f"{source / 'batch_task.csv'}:{line}: has 1 columns, batch_task has 9")
    lenient = trimtab("trace", "prepare", source, "--out", tmp_path / "out", "--lenient")
    assert lenient.returncode == 0, lenient.stderr
    assert "1 of a wrong width" in " ".join(lenient.stdout.split())


# the command line with Ctrl-C as soon as a file is there, pressed from inside: in step with it
PRESSING = """
import signal, sys, threading, time
from pathlib import Path
from trimtab.cli import main

def press(begun):
    while not begun.exists():
        time.sleep(0.001)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

threading.Thread(target=press, args=[Path(sys.argv.pop(1))], daemon=True).start()
main()
"""


def interrupted(words, begun):
    """Presses Ctrl-C as soon as the file `begun` is there: exit code, output, errors."""
    command = [sys.executable, "-c", PRESSING, str(begun), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("step", ["plan.json", "sums"])
def test_ctrl_c_in_a_preparation_is_one_line_and_the_same_command_goes_on(
    prepared, twin, tmp_path, step
):
    out = tmp_path / "out"
    words = ("trace", "prepare", twin[0], "--out", out)
    assert interrupted(words, out / ".work" / step) == (130, "", AGAIN)
    assert [path.name for path in out.iterdir()] == [".work"]
    assert trimtab(*words).returncode == 0
    assert hashes(out) == hashes(prepared[0])


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_generator_is_one_line_and_the_same_command_goes_on(twin, tmp_path):
    out = tmp_path / "out"
    words = ("trace", "generate", TWIN, *SMALL, "--out", out)
    assert interrupted(words, out / "twin.json") == (130, "", AGAIN)
    assert "made" not in json.loads((out / "twin.json").read_text())
    assert trimtab(*words).returncode == 0
    assert hashes(out) == hashes(twin[0])


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_known_under_any_name_that_a_library_gives_it(capsys):
    with pytest.raises(typer.Exit) as stopped, resumable():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None
    assert stopped.value.exit_code == 130
    assert capsys.readouterr().err == AGAIN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_errors_pass_and_an_ignored_ctrl_c_stays_ignored(capsys):
    with pytest.raises(TrimtabError, match="full"), resumable():
        raise TrimtabError("full")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with resumable():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ""


def test_this_machine_is_sampled_and_prepared(said, tmp_path):
    load, out = tmp_path / "load.parquet", tmp_path / "out"
    code, _, err = said("trace", "sample", "--every", "0.2", "--seconds", "1", "--out", load)
    seen = load_samples(load)
    count = len(seen.time_s)
    assert (code, err) == (0, f"{load}: {count} samples of 1 machine\n")
    assert 1 <= count <= 5
    words = ("trace", "prepare", load, "--out", out, "--window", "1", "--segment", "1")
    code, text, err = said(*words)
    assert code == 0
    assert ["samples", str(count), str(count), "0"] in [line.split() for line in text.splitlines()]
    assert "note: load only: no work was recorded with it" in err
    assert (out / "report.html").exists()
    before = hashes(out)
    assert said(*words) == (0, text, err)  # at once
    assert hashes(out) == before


def test_a_prometheus_server_is_sampled_by_its_address(said, monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Prometheus()
    try:
        labels = [{"instance": "a:9100"}, {"instance": "b:9100"}]
        cpu = DEFAULT["cpu"].replace("$window", "120000ms")  # four steps
        server.series = {cpu: [(each, always(0.5)) for each in labels]}
        load = tmp_path / "load.parquet"
        words = ("--every", "30", "--seconds", "300", "--out", load)
        code, _, err = said("trace", "sample", server.url, *words)
    finally:
        server.close()
    assert (code, err) == (0, f"{load}: 22 samples of 2 machines\n")  # 300 / 30 + 1 of each
    seen = load_samples(load)
    assert seen.names == ("a", "b")
    assert set(seen.cpu) == {0.5}
    assert 299 < seen.time_s.max() - seen.time_s.min() <= 300
    answer = said("trace", "sample", server.url, *words)  # it is gone
    assert refused(answer, f"{server.url}: cannot be reached")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--every", "0"], "--every 0 is no time; give seconds above 0"),
        (["--every", "nan"], "--every nan is not a finite number"),
        (["--seconds", "inf"], "--seconds inf is not a finite number"),
        (["--every", "5", "--seconds", "1"], "--seconds 1 ends before the first sample"),
        (["nowhere"], "nowhere: is not there"),
    ],
)
def test_what_cannot_be_sampled_is_refused(said, monkeypatch, tmp_path, words, text):
    monkeypatch.chdir(tmp_path)
    assert refused(said("trace", "sample", *words), text)
    assert not list(tmp_path.iterdir())


def test_policies_are_compared_on_a_prepared_trace_at_a_load(prepared):
    words = ("compare", "fcfs", "sjf+best", "--trace", prepared[0], "--load", "0.9")
    done = trimtab(*words, "--metrics", "uti,awt_s, ldi,tsr")
    assert done.returncode == 0, done.stderr
    head, units = (line.split() for line in done.stdout.splitlines()[1:3])
    assert head == ["UTI", "AWT", "TSR"]
    assert (units[0], units[3]) == ("policy", "LDI")  # it has no unit and stands lower
    rows = [line.split() for line in done.stdout.splitlines()]
    assert sorted(row[0] for row in rows if len(row) == 5 and row[0] != "policy") == [
        "fcfs",
        "sjf+best",
    ]
    assert done.stdout.splitlines()[-1].startswith("--load 0.9: ")  # how the load was reached


def test_a_share_of_gpu_jobs_runs_on_a_stated_mix(said, prepared):
    words = ("compare", "fcfs", "--trace", prepared[0], "--cluster", "openb:20")
    code, text, err = said(*words, "--gpu-jobs", "0.3", "--metrics", "uti,awt_s,ldi,tsr")
    assert (code, err) == (0, "")
    assert "30% of its jobs as Gavel's GPU work" in text
    assert "on 20 nodes (cpu, A10, G1, " in text
    code, text, _ = said(*words, "--gpu-jobs", "0.3", "--json", "-")
    (row,) = json.loads(text)
    assert {"uti", "awt_s", "ldi", "tsr"} <= set(row["metrics"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--metrics", "uti,nope"], "--metrics nope: no such metric; known: jct_mean_s, "),
        (["--metrics", "nope", "--json", "-"], "hyperscore, uti, awt_s, ldi, tsr"),
        (["--load", "0"], "--load 0 is not above 0; give for example 0.9"),
        (["--load", "nan"], "--load nan is not a finite number"),
        (["--load", "1e-6"], "give a larger --load or a larger --cluster"),
        (["--gpu-jobs", "0.3"], "has no GPUs, so no job can become GPU work"),
        (["--cluster", "openb:20", "--gpu-jobs", "3"], "gpu_jobs=3.0 is not in 0..1"),
        (["--cluster", "openb:x"], "openb:x: 'x' is no number of nodes"),  # and no red cross
    ],
)
def test_what_cannot_be_compared_is_refused(said, prepared, words, text):
    assert refused(said("compare", "fcfs", "--trace", prepared[0], *words), text)
