"""A wheel, in an environment that holds nothing else, does what the first page promises."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_B = 800e6  # of everything that the base brings, pip with it
pytestmark = pytest.mark.live
INSTALL = ["install", "-q", "--disable-pip-version-check", "--no-compile"]
LOCK = ["-c", str(ROOT / "requirements.lock")]


def run(*command: str | Path, **more) -> subprocess.CompletedProcess[str]:
    """A command that sees nothing of this environment."""
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "TRIMTAB_DATA")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    given = {"capture_output": True, "text": True, "timeout": 900, "env": env} | more
    return subprocess.run([str(word) for word in command], **given)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """An environment with the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    built = run(*build)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "empty", with_pip=True)
    pip = [folder / "empty" / "bin" / "python", "-m", "pip"]
    reached = run(*pip, "download", "-q", "--no-deps", "-d", folder, *LOCK, "rich")
    if reached.returncode:
        pytest.skip("no package index answers")
    done = run(*pip, *INSTALL, *LOCK, wheel)
    assert done.returncode == 0, done.stderr
    return folder / "empty"


def test_the_base_is_small(place):
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < MOST_B


def test_it_brings_no_wings_packages(place):
    listed = run(place / "bin" / "python", "-m", "pip", "list", "--format", "freeze").stdout
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert "trimtab" in names
    assert not names & {"torch", "ray", "duckdb", "grpcio", "tensorboard", "deepspeed"}


def test_the_demonstration_runs_away_from_the_sources(place, tmp_path):
    done = run(place / "bin" / "trimtab", "demo", "--seeds", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "adlro" in done.stdout and "gavel" in done.stdout


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--version"], "trimtab "),
        (["policies"], "adlro"),
        (["plan", "llama-3-8b", "--gpus", "8xH100"], "llama-3-8b on 8xH100"),
        (["serve", "profile", "--help"], "Usage"),
    ],
)
def test_commands_of_the_base_find_their_data(place, tmp_path, words, shown):
    done = run(place / "bin" / "trimtab", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "--http-port", "0", "--grpc-port", "-1"], "serve"),
        (["trace", "prepare", ".", "--out", "prepared"], "prepare"),
        (["train", "adlro", "--out", "run"], "train"),
    ],
)
def test_a_wing_that_is_not_installed_names_its_extra(place, tmp_path, words, extra):
    done = run(place / "bin" / "trimtab", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert f"trimtab[{extra}]" in done.stderr and "Traceback" not in done.stderr
