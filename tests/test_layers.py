"""Every file imports what lies below it, in the package and in its folder, and stays small."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.sources import NAMED

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "trimtab"

# What a folder holds, lowest first: a file or folder imports what stands before it, and nothing
# beside it. Whatever is new in one of these folders goes into this table first. Folders that are
# not named here hold modules that may import each other.
ORDER = {
    "": [
        {"errors", "arrays", "comparison", "sources", "files", "units", "claims"},
        {"columns", "compiled", "site"},
        {"core"},
        {"checks"},
        {"build"},
        {"rules", "load", "training"},
        {"traces", "sim", "codecs", "serving", "llm", "metrics", "run"},
        {"envs", "live", "play", "recorded"},
        {"policies"},
        {"compare", "learners", "report", "reproduce", "bench"},
        {"cli", "testing"},
        {"__init__", "__main__"},
    ],
    "llm": [
        {"__init__", "nouns"},
        {"spec"},
        {"cost"},
        {"plan", "fit", "world"},
        {"exports", "calibrate", "watch"},
    ],
    "serving": [
        {"__init__", "nouns", "settings"},
        {"net", "client"},
        {"view"},
        {"routing", "front"},
        {"server", "training"},
        {"fleet"},
        {"service"},
    ],
    "serving/net": [
        {"__init__", "memory_left", "slim_form"},
        {"packed", "runner", "slim_net"},
        {"serve_profile", "slim_weights"},
        {"segments"},
        {"torch_segments"},
    ],
    "serving/routing": [
        {"__init__", "arrivals", "greedy", "pinned", "router_net"},
        {"fleet_state"},
        {"fleet_sim"},
        {"heads", "lookahead"},
        {"bound", "routers"},
        {"learned_router"},
    ],
    "serving/server": [
        {"__init__", "executor", "power", "runners", "wire"},
        {"measure", "shelf"},
        {"workshop"},
        {"server"},
        {"__main__", "spawn"},
    ],
    "serving/fleet": [
        {"__init__", "state", "tracing"},
        {"route", "figures", "request", "member"},
        {"pins"},
        {"router"},
        {"seats"},
        {"roster"},
        {"books"},  # what all below share
        {"ends", "picture"},
        {"dispatch"},
        {"care"},
        {"fleet"},
    ],
    "traces": [
        {"readers"},
        {"__init__"},  # reads whatever a reader can; scenes and preparations start from it
        {"alibaba2018", "dumps", "load"},
        {"twin"},
        {"colocated"},
        {"scenes"},
        {"openb", "prepare"},
    ],
    "policies": [
        {"networks"},
        {"code", "rule", "sb3"},
        {"baselines", "adlro", "dqn", "forecast", "packer", "peers", "rollout", "slurm"},
        {"hierarchy"},  # its encoder has the scenes and the rival of forecast
        {"__init__"},  # finds a policy by its name
    ],
    "reproduce": [
        {"limits", "options", "tables", "trials"},
        {"frontier", "logs"},
        {"adlro", "colocated", "hierarchy", "llm", "openb", "rollout", "slim"},
        {"__init__"},
    ],
    "report": [
        {"__init__", "colours"},
        {"drawing"},
        {"markup"},
        {"compare", "pages", "prepare"},
    ],
    "bench": [
        {"__init__", "chosen", "inputs", "peers", "peer_servers"},
        {"cases", "serve_wires"},
        {"colocated", "learning", "plans", "traces", "serve_hosts"},
        {"rows", "serve", "fault_fleet"},
        {"faults"},
        {"fault_claims"},
    ],
    "cli": [
        {"options", "outputs"},
        {"guard", "shown"},
        {"bench", "cluster", "envs", "explain", "plan", "reproduce", "serve", "trace", "train"},
        {"at_harm"},  # shows its tables as reproduce does
        {"compare"},
        {"demo"},  # shows its table as compare does
        {"__init__"},
    ],
}
RANK = {
    folder: {child: rank for rank, children in enumerate(ranks) for child in children}
    for folder, ranks in ORDER.items()
}

LINES = 500
MODULES = 20
# Files above LINES, to be split. This list only shrinks.
LONG: set[str] = set()

FILES = sorted(PACKAGE.rglob("*.py"))


def parts_of(module: str) -> tuple[str, ...]:
    """Where the module that a dotted name starts with stands: ("sim", "world"), ("__init__",)."""
    found = PACKAGE
    for name in module.split(".")[1:]:
        if found.joinpath(f"{name}.py").is_file():
            return (*found.relative_to(PACKAGE).parts, name)
        if not found.joinpath(name, "__init__.py").is_file():
            break
        found = found / name
    return (*found.relative_to(PACKAGE).parts, "__init__")


def named(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import at any depth, and of every string that is a module's.

    Such a string ("trimtab.sim.backend:SimBackend") is there to be imported later.
    """
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
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = NAMED.match(repr(node.value))
            # "trimtab.serve" may be the name of a log: only what is a module is imported
            if text and parts_of(text[1]) != ("__init__",):
                yield node.lineno, text[1]


def breach(importer: tuple[str, ...], imported: tuple[str, ...]) -> str:
    """Why one module may not import another, or nothing where it may."""
    same = 0
    while importer[same] == imported[same]:
        same += 1
        if same == min(len(importer), len(imported)):
            return ""  # itself
    folder, above, below = "/".join(importer[:same]), importer[same], imported[same]
    rank = RANK.get(folder)
    if rank is None:
        return ""
    for child in (above, below):
        if child not in rank:
            return f"{child} has no place in ORDER[{folder!r}] of tests/test_layers.py"
    if rank[below] < rank[above]:
        return ""
    where = "beside" if rank[below] == rank[above] else "above"
    return f"{below} stands {where} {above} in {folder or 'trimtab'}"


def breaches(source: str, path: Path) -> list[str]:
    """One sentence for each import in `source` that does not go down."""
    importer, found = path.relative_to(PACKAGE).with_suffix("").parts, []
    for line, module in named(ast.parse(source), path):
        if module.split(".")[0] == "trimtab":
            why = breach(importer, parts_of(module))
            if why:
                found.append(f"{path.relative_to(PACKAGE.parent)}:{line}: imports {module}: {why}")
    return found


def test_the_package_has_files():
    assert FILES


@pytest.mark.parametrize("folder", ORDER)
def test_every_file_and_folder_has_its_place(folder: str):
    here = PACKAGE / folder
    children = {path.stem for path in here.glob("*.py")}
    children |= {path.parent.name for path in here.glob("*/__init__.py")}
    missing = children - RANK[folder].keys()
    assert not missing, f"add to ORDER[{folder!r}]: {sorted(missing)}"
    gone = RANK[folder].keys() - children
    assert not gone, f"take out of ORDER[{folder!r}]: {sorted(gone)}"


def test_a_folder_has_at_most_twenty_modules():
    modules = Counter(path.parent.relative_to(ROOT).as_posix() for path in FILES)
    found = [f"{folder}: {count}" for folder, count in modules.items() if count > MODULES]
    assert not found, "make a room of some of their modules: " + ", ".join(found)


def test_a_file_has_at_most_five_hundred_lines():
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in [*FILES, *(ROOT / "tests").rglob("*.py")]
    }
    found = {file: count for file, count in lines.items() if count > LINES}
    new, done = sorted(found.keys() - LONG), sorted(LONG - found.keys())
    assert not new, f"look for a noun to move out of {', '.join(new)}"
    assert not done, f"not that long any more, take out of LONG: {', '.join(done)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path):
    found = breaches(path.read_text(encoding="utf-8"), path)
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
        ("core.py", "from trimtab.build import workload"),
        ("run.py", "from .metrics import table"),
        ("sim/kernel.py", "from ..traces import swf"),
        ("sim/__init__.py", "from ..traces import swf"),
        ("envs/single.py", "from trimtab.policies.dqn import policy"),
        ("testing/__init__.py", "from trimtab import cli"),
        ("live/__init__.py", "BY_NAME = {'x': 'trimtab.policies.rule:RulePolicy'}"),
        ("llm/cost/cases.py", "from trimtab.llm.plan.question import Question"),
        ("llm/fit/fit.py", "def late():\n    from trimtab.llm.plan import legal"),
        ("serving/nouns.py", "from .net.slim_form import WIDTHS"),
        ("serving/front/oip.py", "from trimtab.serving.routing import greedy"),
        ("serving/fleet/fleet.py", "TEXT = 'trimtab.serving.service'"),
        ("traces/readers/swf.py", "from trimtab.traces import read"),
        ("reproduce/llm/paper.py", "RUN = 'trimtab.reproduce.slim.trials:in_time'"),
        ("cli/compare.py", "from trimtab import cli"),
        ("cli/new.py", "from trimtab.cli.shown import table"),
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
        ("testing/cases.py", "from trimtab import policies, envs, run"),
        ("__main__.py", "from trimtab.cli import main"),
        ("__init__.py", "from .core import Job\nfrom . import core"),
        ("live/__init__.py", "BY_NAME = {'sim': 'trimtab.sim.backend:SimBackend'}"),
        ("run.py", "log = getLogger('trimtab.serve')"),
        ("llm/plan/legal.py", "from trimtab.llm.cost import cases"),
        ("llm/cost/cases.py", "from .kernels import roofline\nfrom . import links"),
        ("traces/scenes/scene.py", "from trimtab.traces import read"),
        ("reproduce/__init__.py", "PAPERS = {'slim': 'trimtab.reproduce.slim'}"),
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
