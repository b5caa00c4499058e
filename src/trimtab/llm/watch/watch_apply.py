"""Run the user's command that moves a job to a new plan, and wait for its end.

The command gets TRIMTAB_PLAN (the plan's JSON) and TRIMTAB_LAUNCH (the folder of the launcher's
files). It has to come back once the job is started; what it prints goes to apply.log beside them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

TIMED_OUT = 124  # exit code of a command that was ended, as timeout(1) gives
STOP_S = 10.0  # from asking a command to end until it is ended


def run_command(command: str, folder: Path, plan: Path, timeout_s: float) -> int:
    """The exit code of a shell command, which is ended with all it started after `timeout_s`."""
    told = {"TRIMTAB_PLAN": str(plan.resolve()), "TRIMTAB_LAUNCH": str(folder.resolve())}
    # to a file, not a pipe: a job that goes on in the background would hold a pipe open for ever
    with (folder / "apply.log").open("ab") as output:
        process = subprocess.Popen(
            command,
            shell=True,
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        end(process)
        return TIMED_OUT
    except BaseException:  # Ctrl-C does not reach a session of its own
        end(process)
        raise


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started: first as asked, then for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
