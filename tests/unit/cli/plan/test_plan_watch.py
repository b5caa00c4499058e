"""`trimtab plan watch`: lines, JSON, files, sensors, commands, and mistakes in one line."""

import json
import os
import threading
from pathlib import Path

import pytest
from tests.prometheus_server import prometheus_server

from trimtab.cli.plan.plan_watch import Watching, watch_plan
from trimtab.errors import TrimtabError
from trimtab.llm.plan.options import TrainOptions
from trimtab.llm.spec import pool, specs
from trimtab.load.prometheus import windowed

server = prometheus_server
MEGATRON = (
    " [2025-04-13 23:41:12] iteration {:8d}/ 1000 | consumed samples: 160 |"
    " elapsed time per iteration (ms): {:.1f} | learning rate: 1.0E-04 |\n"
)


class Clock:
    """A clock that sleep moves on; the job meanwhile writes three steps."""

    def __init__(self, log=None, step_s=15.3):
        self.now_s, self.log, self.step_s, self.written = 1e9, log, step_s, 0

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds
        if self.log is None:
            return
        with self.log.open("a") as file:
            for _ in range(3):
                self.written += 1
                file.write(MEGATRON.format(self.written, 1e3 * self.step_s))


def watched(gpus="16xH100", model="llama-3-8b", json_file=None, clock=None, **options):
    """Watch with a made-up clock."""
    asked = {"framework": "megatron"} | options.pop("asked", {})
    clock = clock or Clock()
    watching = Watching(**({"rounds": 1} | options))
    watch_plan(
        specs.model(model), pool.pool(gpus), TrainOptions(**asked), watching,
        json_file, clock=clock, sleep=clock.sleep,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def slow():
    """A job that writes to train.log and is a third slower than predicted."""
    return Clock(Path("train.log"), step_s=20.4)


def records(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_reading_is_a_line_below_what_is_watched_and_assumed(capsys):
    watched(rounds=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("watching llama-3-8b on 16xH100-SXM5: TP 2, PP 1, DP 8")
    for option in ("--current", "--job", "--log", "--prometheus", "--apply"):
        assert any(option in line for line in lines)
    assert sum(" keep " in line and "expected" in line for line in lines) == 2
    assert Path("trimtab-watch.json").exists()


def test_a_slow_job_gets_a_proposal_in_full_once_and_files_to_launch_it(capsys, slow):
    watched(rounds=6, log=slow.log, clock=slow)
    out = capsys.readouterr().out
    assert out.count("PROPOSAL: ") == 1 and out.count(" propose ") == 4
    assert "\n  old  TP 2, PP 1, DP 8" in out and "\n  new  TP 1, PP 2, DP 4" in out
    assert "s or more in 6 h with P 0.7; the change costs 120 s" in out
    folder = Path("trimtab-watch-plan")
    assert f"to take it: {folder}/launch.sh" in out
    assert (folder / "launch.sh").stat().st_mode & 0o100
    assert "--pipeline-model-parallel-size 2" in (folder / "launch.sh").read_text()


def test_json_lines_hold_one_record_a_reading(capsys, slow):
    watched(rounds=5, log=slow.log, clock=slow, json_file="-")
    found = records(capsys)
    assert [record["action"] for record in found] == ["wait", "wait", *["propose"] * 3]
    assert found[0]["step_s"] == 20.4 and found[0]["steps"] == 3
    assert found[-1]["proposal"]["pp"] == 2
    watched(log=slow.log, clock=slow, json_file="records.jsonl")
    watched(log=slow.log, clock=slow, json_file="records.jsonl")
    assert len(Path("records.jsonl").read_text().splitlines()) == 2


def test_a_restart_goes_on_with_what_was_learned(capsys, slow):
    watched(rounds=5, log=slow.log, clock=slow)
    assert "are known" not in capsys.readouterr().out
    watched(log=slow.log, clock=slow)
    assert "; step times of 1 plan are known" in capsys.readouterr().out
    watched(clock=slow, json_file="-")
    assert records(capsys)[0]["factor"] == pytest.approx(20.4 / 15.27, rel=0.05)


def test_a_command_that_succeeds_makes_the_plan_the_current_one(capsys, slow):
    watched(rounds=4, log=slow.log, clock=slow, apply="cp $TRIMTAB_PLAN taken.json")
    out = capsys.readouterr().out
    assert "CHANGED: " in out
    assert json.loads(Path("taken.json").read_text())["plans"][0]["pp"] == 2
    assert json.loads(Path("trimtab-watch.json").read_text())["plan"]["pp"] == 2


def test_a_command_that_fails_leaves_the_plan(capsys, slow):
    watched(rounds=3, log=slow.log, clock=slow, apply="echo no nodes; exit 3", folder=Path("new"))
    out = capsys.readouterr().out
    assert "NOT CHANGED: " in out and "what the command said: new/apply.log" in out
    assert Path("new/apply.log").read_text() == "no nodes\n"
    assert json.loads(Path("trimtab-watch.json").read_text())["plan"]["pp"] == 1


def test_the_plan_that_is_written_can_be_watched(capsys, slow):
    watched(rounds=3, log=slow.log, clock=slow)
    watched(asked={"framework": ""}, current=Path("trimtab-watch-plan/plan.json"))
    assert "watching llama-3-8b on 16xH100-SXM5: TP 1, PP 2, DP 4" in capsys.readouterr().out


def test_a_batch_and_sequence_are_those_of_the_current_plan(capsys):
    watched(asked={"global_batch": 64, "seq": 4096}, state=Path("first.json"), log=Path("l"))
    first = json.loads(Path("first.json").read_text())["plan"]
    fields = first | {"framework": "megatron", "precision": "bf16"}
    Path("run.json").write_text(json.dumps({"plans": [fields]}))
    watched(current=Path("run.json"))
    assert json.loads(Path("trimtab-watch.json").read_text())["plan"] == first


def test_an_interruption_says_where_the_state_is(capsys):
    clock = Clock()

    def sleep(seconds):
        clock.now_s += seconds
        if clock.now_s > 1e9 + 100:
            raise KeyboardInterrupt

    clock.sleep = sleep
    watched(rounds=0, clock=clock)
    assert "stopped watching; the job goes on, and trimtab-watch.json" in capsys.readouterr().err
    assert json.loads(Path("trimtab-watch.json").read_text())["job"]["model"] == "llama-3-8b"


def test_prometheus_is_asked_and_may_stop_answering(capsys, server):
    busy = windowed("load[$window]", 120.0)
    server.series = {busy: [({"instance": "a"}, lambda time_s: 0.75)]}
    asked = {"rounds": 3, "prometheus": server.url, "query": ("cpu=load[$window]",)}
    clock = Clock()

    def sleep(seconds):
        clock.now_s += seconds
        if clock.now_s > 1e9 + 70:
            server.reply = (503, b"down")

    clock.sleep = sleep
    watched(json_file="-", clock=clock, **asked)
    said = capsys.readouterr()
    assert [json.loads(line)["cpu_load"] for line in said.out.splitlines()] == [0.75] * 3
    assert "load of the links: a calm cluster's value is taken" in said.err
    assert "CPU load: the last known value is taken" in said.err
    assert said.err.count("CPU load: ") == 1


def test_this_machine_and_a_growing_log_are_watched_for_real(capsys):
    log, done = Path("train.log"), threading.Event()

    def train():
        with log.open("w", buffering=1) as file:
            for step in range(1, 10_000):
                file.write(MEGATRON.format(step, 15_300.0))
                if done.wait(0.01):
                    return

    job = threading.Thread(target=train)
    job.start()
    try:
        watch_plan(
            specs.model("llama-3-8b"), pool.pool("16xH100"), TrainOptions(framework="megatron"),
            Watching(every_s=0.2, rounds=5, log=log, job=str(os.getpid())), "-",
        )  # fmt: skip
    finally:
        done.set()
        job.join()
    found = records(capsys)
    assert len(found) == 5
    for record in found:
        assert record["action"] == "keep"
        assert 0 <= record["cpu_load"] <= 1 and 0 < record["host_memory"] < 1
    assert found[-1]["step_s"] == 15.3


def current(**fields):
    path = Path("current.json")
    path.write_text(json.dumps({"plans": [fields]}))
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gpus": "16xH100+16xA100"}, "--gpus has 2; give one kind"),
        ({"every_s": 0.0}, "--every 0 is not above 0"),
        ({"horizon_hours": float("nan")}, "--horizon-hours nan is not above 0"),
        ({"rounds": -1}, "--rounds -1 is below 0"),
        ({"log": Path(".")}, "--log . is a folder"),
        ({"query": ("cpu=x",)}, "give --prometheus as well"),
        ({"prometheus": "localhost:9090"}, "is not an address"),
        ({"prometheus": "http://127.0.0.1:1"}, "cannot be reached"),
        ({"prometheus": "http://127.0.0.1:1", "query": ("x",)}, "not NAME=VALUE"),
        ({"prometheus": "http://127.0.0.1:1", "query": ("x=y",)}, "'x' measures nothing here"),
        ({"job": "absent.pid"}, "neither a PID nor a file"),
        ({"current": Path("absent.json")}, "--current absent.json: holds no plan"),
        ({"state": Path("/proc/absent/state.json")}, "cannot be written"),
    ],
)
def test_mistakes_are_told_in_one_line(monkeypatch, options, said):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(TrimtabError, match=said):
        watched(**options)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "is no plan"),
        ({"stage_layers": [1, 2]}, "over several kinds of GPU"),
        ({"framework": "jax"}, "framework='jax' is not known"),
    ],
)
def test_a_current_plan_that_is_none_is_refused(fields, said):
    with pytest.raises(TrimtabError, match=said):
        watched(current=current(**fields), asked={"framework": ""})


def test_the_state_of_another_job_is_refused():
    watched()
    with pytest.raises(TrimtabError, match="holds the state of llama-3-8b on H100-SXM5"):
        watched(model="gpt3-2.7b")
