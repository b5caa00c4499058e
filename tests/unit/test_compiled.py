"""Machine code is kept until a source changes that it may call."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab import compiled

FILES = {
    "__init__.py": "",
    "top.py": "from trimtab.low import (\n    first,\n    second,\n)\n",
    "low.py": "def late():\n    from trimtab.room import deep\n",
    "room/__init__.py": "",
    "room/deep.py": "import trimtab.leaf\n",
    "leaf.py": "from trimtab.top import anything  # a circle\n",
    "other.py": "import numpy\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "trimtab"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def stamps(root: Path) -> dict[str, str]:
    for kept in (compiled.stamp, compiled.imported, compiled._content):
        kept.cache_clear()
    return {name: compiled.stamp(root / name, root) for name in FILES}


@pytest.mark.parametrize("edited", ["low.py", "room/deep.py", "leaf.py"])
def test_an_edited_callee_changes_the_stamp_of_its_callers(package: Path, edited: str):
    before = stamps(package)
    (package / edited).write_text(FILES[edited] + "# edited\n")
    after = stamps(package)
    assert before["top.py"] != after["top.py"]
    assert before["other.py"] == after["other.py"]


def test_what_is_not_imported_leaves_a_stamp_alone(package: Path):
    before = stamps(package)
    (package / "other.py").write_text("import numpy  # edited\n")
    after = stamps(package)
    assert {name for name in FILES if before[name] != after[name]} == {"other.py"}


def test_an_edited_callee_is_compiled_anew(tmp_path: Path):
    root = tmp_path / "trimtab"
    root.mkdir()
    shutil.copy(compiled.ROOT / "compiled.py", root)
    head = "from trimtab.compiled import compiled\n"
    (root / "__init__.py").write_text("")
    (root / "low.py").write_text(head + "@compiled\ndef more(x):\n    return x + 1\n")
    (root / "top.py").write_text(
        head + "from trimtab.low import more\n@compiled\ndef twice(x):\n    return 2 * more(x)\n"
    )
    program = [sys.executable, "-c", "from trimtab.top import twice; print(twice(3))"]
    assert subprocess.run(program, cwd=tmp_path, capture_output=True, text=True).stdout == "8\n"
    (root / "low.py").write_text(head + "@compiled\ndef more(x):\n    return x + 1000\n")
    assert subprocess.run(program, cwd=tmp_path, capture_output=True, text=True).stdout == "2006\n"


def test_there_is_one_door_to_the_compiler():
    door = re.compile(r"\bnjit\b|numba\.jit|import jit|guvectorize|cfunc\(")
    found = [
        path.relative_to(compiled.ROOT)
        for path in compiled.ROOT.rglob("*.py")
        if door.search(path.read_text()) and path.name != "compiled.py"
    ]
    assert found == []
