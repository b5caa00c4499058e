"""The examples run as a new user would run them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_policy_of_ones_own_is_compared_with_two_rules():
    script = EXAMPLES / "own_policy.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["policy", "wait_mean_s", "jct_mean_s", "energy_kwh"]
    assert [row[0] for row in rows] == ["own", "fcfs", "sjf+easy"]
    assert all(float(number) > 0 for row in rows for number in row[1:])


@pytest.mark.slow
@pytest.mark.learn
def test_ppo_on_a_log_learns_and_its_model_is_compared_with_rules(tmp_path):
    code = f"import sys; sys.path.append({str(EXAMPLES)!r}); import ppo_on_your_log as it; "
    environment = os.environ | {"COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-c", f"{code} it.main(steps=4096)"], capture_output=True, text=True,
        timeout=600, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *rows, command = done.stdout.splitlines()
    names = [row.split()[0] for row in rows]
    assert names == ["before", "after", "random", "oldest", "shortest", "sjf+easy+best"]
    assert float(rows[1].split()[1]) > float(rows[0].split()[1])
    words = [*shlex.split(command)[1:], "--jobs", "100"]
    compared = subprocess.run(
        [sys.executable, "-m", "trimtab", *words], capture_output=True, text=True, timeout=600,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert "sb3:ppo.zip" in compared.stdout
