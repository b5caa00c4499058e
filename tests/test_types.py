"""Every module is typed strictly; the list of untyped compiled kernels only shrinks."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
MYPY = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
OURS = [
    override
    for override in MYPY["overrides"]
    if any(name.split(".")[0] in ("trimtab", "*") for name in override["module"])
]
MOST = 31  # modules on the list; lower it when one leaves
UNTYPED = {"disallow_untyped_defs": False, "disallow_incomplete_defs": False}
KERNELS = OURS[0]["module"]


def compiled_functions(tree: ast.Module) -> list[str]:
    """Names of the functions that the compiler takes: they are decorated by one of its doors."""
    doors = {"compiled", "inner"}
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for named in map(ast.walk, node.decorator_list)
        if any(isinstance(part, ast.Name) and part.id in doors for part in named)
    ]


def untyped(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether anything that mypy would ask for is missing from the signature."""
    spec = node.args
    given = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    given = [one for one in given if one is not None and one.arg not in ("self", "cls")]
    return node.returns is None or any(one.annotation is None for one in given)


def tree_of(module: str) -> ast.Module:
    return ast.parse((ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text())


def test_every_module_is_checked_strictly():
    assert MYPY["strict"] is True
    assert MYPY["files"] == ["src/trimtab"]
    assert not MYPY.get("ignore_errors") and not MYPY.get("exclude")


def test_one_override_is_about_our_modules_and_it_only_lets_kernels_be_untyped():
    assert len(OURS) == 1
    rest: dict[str, Any] = {key: value for key, value in OURS[0].items() if key != "module"}
    assert rest == UNTYPED


def test_no_override_ignores_errors():
    assert [one["module"] for one in MYPY["overrides"] if "ignore_errors" in one] == []


def test_the_list_of_kernels_is_sorted_and_does_not_grow():
    assert sorted(set(KERNELS)) == KERNELS
    assert len(KERNELS) <= MOST, (
        "annotate the new functions, or those of another module on the list"
    )


@pytest.mark.parametrize("module", KERNELS)
def test_a_listed_module_has_compiled_functions_and_types_all_others(module: str):
    tree = tree_of(module)
    kernels = set(compiled_functions(tree))
    assert kernels, f"{module} has no compiled function; take it off the list"
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    loose = [node.name for node in functions if untyped(node)]
    assert loose, f"{module} is typed; take it off the list"
    assert [name for name in loose if name not in kernels] == []
