"""Every file in the package imports lower layers only, and `import trimtab` costs NumPy."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "trimtab"

# A unit is a file or a folder directly in the package. A new one goes into this table first.
LAYERS = {
    0: {"core", "errors", "compiled", "sources", "files", "units"},
    1: {"rules", "load", "training"},
    2: {"traces", "sim", "codecs", "serving", "llm", "live", "metrics", "run"},
    3: {"envs", "hyperscore"},
    4: {"policies"},
    5: {"compare", "train", "report", "reproduce", "bench"},
    6: {"desk", "cli", "testing"},
    7: {"__init__", "__main__"},
}
LAYER_OF = {unit: layer for layer, units in LAYERS.items() for unit in units}

# (importer, imported) pairs of one layer that may break the rule, with the reason.
ALLOWED = {
    ("core", "errors"),  # the nouns raise the errors; errors imports nothing
    ("compiled", "sources"),  # the cache asks what a file reaches; sources imports nothing
}

FILES = sorted(PACKAGE.rglob("*.py"))


def unit_of(path: Path) -> str:
    """The file or folder directly in the package that `path` belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def modules_imported(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import at any depth, also of a literal `import_module`."""
    # the package a relative import starts from: the folder, also for the folder's __init__.py
    here = ("trimtab", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            for name in node.names:
                yield node.lineno, ".".join((*base, *filter(None, [node.module]), name.name))
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def breaches(source: str, path: Path) -> list[str]:
    """One sentence for each import in `source` that does not go down."""
    importer, found = unit_of(path), []
    for line, module in modules_imported(ast.parse(source), path):
        root, *rest = module.split(".")
        if root != "trimtab":
            continue
        # `import trimtab` and `from trimtab import name` load what __init__ imports
        imported = rest[0] if rest and rest[0] in LAYER_OF else "__init__"
        if imported == importer or (importer, imported) in ALLOWED:
            continue
        if LAYER_OF[imported] >= LAYER_OF[importer] and LAYER_OF[importer] < 7:
            found.append(
                f"{path.relative_to(PACKAGE.parent)}:{line}: layer {LAYER_OF[importer]} imports"
                f" {module}, which is layer {LAYER_OF[imported]}"
            )
    return found


def test_the_package_has_files():
    assert FILES


def test_every_file_has_a_layer():
    units = {unit_of(path) for path in FILES}
    assert units <= LAYER_OF.keys(), f"add to LAYERS: {sorted(units - LAYER_OF.keys())}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path):
    found = breaches(path.read_text(encoding="utf-8"), path) if unit_of(path) in LAYER_OF else []
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core.py", "import trimtab.rules"),
        ("core.py", "from trimtab import rules"),
        ("core.py", "from . import rules"),
        ("core.py", "from .rules import fits"),
        ("core.py", "import trimtab"),
        ("core.py", "def late():\n    from trimtab.sim import SimBackend"),
        ("core.py", "import importlib\nimportlib.import_module('trimtab.cli')"),
        ("errors.py", "from trimtab.core import Job"),
        ("run.py", "from .metrics import table"),
        ("sim/kernel.py", "from ..traces import swf"),
        ("sim/__init__.py", "from ..traces import swf"),
        ("envs/single.py", "from trimtab.policies.dqn import policy"),
        ("testing.py", "from trimtab import cli"),
    ],
)
def test_an_import_up_or_sideways_is_found(file: str, source: str):
    assert len(breaches(source, PACKAGE / file)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core.py", "import numpy as np"),
        ("core.py", "from trimtab.errors import TraceError"),
        ("run.py", "from .core import Event"),
        (
            "sim/kernel.py",
            "from . import power\nfrom .power import w\nfrom ..rules import fits",
        ),
        ("sim/__init__.py", "from .kernel import simulate"),
        ("testing.py", "from trimtab import policies, envs, run"),
        ("__main__.py", "from trimtab.cli import main"),
        ("__init__.py", "from .core import Job\nfrom . import core"),
    ],
)
def test_an_import_down_or_inside_one_folder_passes(file: str, source: str):
    assert breaches(source, PACKAGE / file) == []


def test_import_trimtab_costs_numpy():
    # numpy first: what it brings along is not ours
    code = (
        "import sys, numpy, numpy.random; before = set(sys.modules); import trimtab;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    heavy = set(done.stdout.split()) - sys.stdlib_module_names - {"trimtab", "numpy"}
    assert not heavy, f"import trimtab also imports {sorted(heavy)}"
