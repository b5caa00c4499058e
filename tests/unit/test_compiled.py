"""Machine code is kept until a source changes that it may call."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from trimtab.sources import ROOT


def test_an_edited_callee_is_compiled_anew(tmp_path: Path):
    root = tmp_path / "trimtab"
    root.mkdir()
    shutil.copy(ROOT / "compiled.py", root)
    shutil.copy(ROOT / "sources.py", root)
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


def test_kept_code_that_names_a_class_which_has_moved_is_made_anew(tmp_path: Path):
    root = tmp_path / "trimtab"
    root.mkdir()
    for name in ("compiled.py", "sources.py"):
        shutil.copy(ROOT / name, root)
    (root / "__init__.py").write_text("")
    noun = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n"
    (root / "here.py").write_text(noun)
    use = "from trimtab.compiled import compiled\nfrom trimtab.here import Pair\n"
    use += "@compiled\ndef both(pair):\n    return pair.a + pair.b\n"
    (root / "top.py").write_text(use)
    program = [sys.executable, "-c", "from trimtab.top import *; print(both(Pair(3, 4)))"]
    for place in ("here", "there"):
        if place == "there":
            (root / "here.py").rename(root / "there.py")
            (root / "top.py").write_text(use.replace("here", "there"))
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == "7\n", done.stderr


def test_there_is_one_door_to_the_compiler():
    door = re.compile(r"\bnjit\b|numba\.jit|import jit|guvectorize|cfunc\(")
    found = [
        path.relative_to(ROOT)
        for path in ROOT.rglob("*.py")
        if door.search(path.read_text()) and path.name != "compiled.py"
    ]
    assert found == []
