"""Markers choose tests: each is used, none is misspelt, and a folder's name marks what it holds."""

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
CONFIG = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
OPTIONS = CONFIG["tool"]["pytest"]["ini_options"]
MARKERS = {line.split(":")[0] for line in OPTIONS["markers"]}
FOLDERS = {path.parent.name for path in HERE.glob("*/test_*.py")}


def test_every_marker_is_used():
    text = "".join(path.read_text() for path in HERE.rglob("test_*.py"))
    assert FOLDERS | set(re.findall(r"\bmark\.(\w+)", text)) >= MARKERS


def test_a_misspelt_marker_is_an_error():
    assert {"--strict-markers", "--strict-config"} <= set(OPTIONS["addopts"].split())


def test_a_folder_with_the_name_of_a_marker_marks_its_tests(request):
    assert {"learn", "live"} == MARKERS & FOLDERS
    for item in request.session.items:
        folder = item.path.relative_to(HERE).parts[0]
        assert folder not in MARKERS or item.get_closest_marker(folder), item.nodeid
