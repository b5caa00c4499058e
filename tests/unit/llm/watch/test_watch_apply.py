"""The user's command: what it is told, how it ends, and how it is ended."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from trimtab.llm.watch import watch_apply
from trimtab.llm.watch.watch_apply import TIMED_OUT, run_command


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"plans": []}))
    return path


def test_a_command_is_told_the_plan_and_the_folder(tmp_path, plan):
    code = run_command('cat "$TRIMTAB_PLAN"; echo "$TRIMTAB_LAUNCH"', tmp_path, plan, 30.0)
    assert code == 0
    assert (tmp_path / "apply.log").read_text() == f'{{"plans": []}}{tmp_path.resolve()}\n'


def test_the_exit_code_is_the_commands(tmp_path, plan):
    assert run_command("echo broken >&2; exit 7", tmp_path, plan, 30.0) == 7
    assert (tmp_path / "apply.log").read_text() == "broken\n"


def test_a_job_left_in_the_background_is_not_waited_for(tmp_path, plan):
    assert run_command("sleep 60 & echo $! > pid", tmp_path, plan, 30.0) == 0
    pid = int(Path("pid").read_text())
    try:
        assert psutil.pid_exists(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_command_that_does_not_come_back_is_ended_with_all_it_started(tmp_path, plan):
    assert run_command("sleep 60 & echo $! > pid; wait", tmp_path, plan, 0.5) == TIMED_OUT
    assert ended()


def test_one_that_does_not_listen_is_ended_for_good(tmp_path, plan, monkeypatch):
    monkeypatch.setattr(watch_apply, "STOP_S", 0.5)
    deaf = "trap '' TERM; echo $$ > pid; while true; do sleep 0.05; done"
    assert run_command(deaf, tmp_path, plan, 0.5) == TIMED_OUT
    assert ended()


@pytest.mark.usefixtures("ctrl_c")
def test_an_interruption_ends_the_command(tmp_path, plan):
    timer = threading.Thread(target=interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_command("echo $$ > pid; sleep 120", tmp_path, plan, 120.0)
    timer.join()
    assert ended()


def interrupt(patience_s=60.0):
    """Press Ctrl-C once the command has begun."""
    for _ in range(int(patience_s / 0.05)):
        if Path("pid").exists():
            break
        time.sleep(0.05)
    signal.raise_signal(signal.SIGINT)


def ended():
    """Whether the process that the command named is gone, or was ended before it named one."""
    try:
        found = psutil.Process(int(Path("pid").read_text()))
        return found.status() == psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, FileNotFoundError, ValueError):
        return True


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
