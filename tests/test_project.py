"""The repository is whole and speaks only of itself."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))

# Someone's own folders. A relative path or an address with such a part is no machine's path.
MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:" + "|".join(["work", "root", r"home/\w+"]) + ")/")

RECORDS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def files() -> list[Path]:
    """What git tracks, or would after `git add .`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def locked() -> dict[str, str]:
    """Version of every package in the lock, by canonical name."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_no_tracked_file_names_a_machine_path():
    found = []
    for path in files():
        text = path.read_text(encoding="utf-8", errors="ignore")
        lines = [text.count("\n", 0, hit.start()) + 1 for hit in MACHINE_PATH.finditer(text)]
        found += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "path", ["/" + "work" + "/x", "cd /" + "root" + "/.venv", '"/' + "home/me" + '/x"']
)
def test_a_machine_path_is_found(path: str):
    assert MACHINE_PATH.search(path)


@pytest.mark.parametrize(
    "path", ["src/" + "work/x", "~/" + "work/x", "https://example.org/" + "root/x", "/etc/slurm/"]
)
def test_a_path_that_is_no_machines_passes(path: str):
    assert not MACHINE_PATH.search(path)


def test_the_readme_is_the_package_description():
    assert PROJECT.get("readme") == "README.md"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_in_the_page_exists(page: str):
    named = set(re.findall(r"(?:^|`)\s*make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert named, f"{page} names no make command"
    assert named <= TARGETS


def test_the_readme_says_how_to_try_and_test():
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_make_help_explains_every_target():
    explained = set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE))
    assert explained == TARGETS


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "make test"


def test_the_lock_holds_only_names_and_versions():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    names = [pin.split("==")[0] for pin in pins]
    assert names == sorted(set(names))
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9.-]+==[0-9][a-z0-9.]*", pin)] == []


def test_the_lock_satisfies_pyproject():
    extras = PROJECT["optional-dependencies"]
    wanted = map(Requirement, PROJECT["dependencies"] + extras["train"] + extras["dev"])
    pins = locked()
    for want in wanted:
        if want.name != PROJECT["name"]:
            pin = pins.get(canonicalize_name(want.name))
            assert pin and pin in want.specifier, f"{want} is locked as {pin}; run make lock"


def test_the_changelog_starts_with_this_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in (PROJECT["version"], "Unreleased")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_decision_record_gives_context_decision_and_consequence(path: Path):
    text = path.read_text()
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+", path.stem)
    for part in ("Context", "Decision", "Consequence"):
        assert f"**{part}.**" in text, f"{path.name} lacks **{part}.**"


def test_decision_records_have_different_numbers():
    numbers = [path.name[:4] for path in RECORDS]
    assert len(numbers) == len(set(numbers))
