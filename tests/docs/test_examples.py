"""The examples run as a new user would run them."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_policy_of_ones_own_is_compared_with_two_rules():
    script = EXAMPLES / "own_policy.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["policy", "wait_mean_s", "jct_mean_s", "energy_kwh"]
    assert [row[0] for row in rows] == ["own", "fcfs", "sjf+easy"]
    assert all(float(number) > 0 for row in rows for number in row[1:])
