"""A package that is not ours adds a policy by its entry point alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"

USE = """
from trimtab.policies import named
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.testing import check_policy, small_cluster, small_workload

policy = named("greedy-energy", seed=3)
check_policy(policy)
backend = SimBackend(small_workload(30), small_cluster())
run(backend, policy)
print(type(policy).__module__, int(backend.snapshot().totals["finished"]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The plug-in, built and installed by pip into a folder of its own, without the network."""
    target = tmp_path_factory.mktemp("plugin")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", target]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        *options,
        PLUGIN,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return target


def in_its_world(target: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_the_plug_in_is_found_by_name_passes_the_check_and_finishes_a_workload(installed):
    done = in_its_world(installed, USE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["greedy_energy", "30"]


def test_a_name_with_a_slip_suggests_the_plug_ins(installed):
    done = in_its_world(installed, "from trimtab.policies import named; named('greedy-enrgy')")
    assert "did you mean 'greedy-energy'?" in done.stderr


def test_the_plug_in_chooses_the_node_that_adds_the_fewest_watts(installed):
    code = """
from trimtab import cluster, workload
from trimtab.policies import named
from trimtab.sim.backend import SimBackend
# 2 of 8 cores: 1/4 of 400 W dynamic; of 16 cores: 1/8 of 600 W = 75 W, the least
machine = cluster([8.0, 16.0], idle_w=[100, 200], peak_w=[500, 800])
backend = SimBackend(workload([0.0], 10.0, [2.0]), machine)
backend.wait()
print(named("greedy-energy").decide(backend.snapshot())[0].nodes)
"""
    done = in_its_world(installed, code)
    assert done.stdout.strip() == "(1,)", done.stderr
