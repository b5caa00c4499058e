"""What each wing promises under its own name is there, says what it is, and costs little to ask."""

import subprocess
import sys
from importlib import import_module

import pytest

WINGS = ("trimtab", "trimtab.serving", "trimtab.llm")
NAMES = [(wing, name) for wing in WINGS for name in import_module(wing).__all__]


@pytest.mark.parametrize(("wing", "name"), NAMES)
def test_a_public_name_can_be_imported_and_says_what_it_is(wing: str, name: str):
    made = getattr(import_module(wing), name)
    # a union of decisions is described by its members
    members = [made] if callable(made) else made.__args__
    for member in members:
        assert member.__doc__, f"{wing}.{name} has no docstring"
        assert not member.__doc__.startswith(f"{name}("), f"{wing}.{name} has a dataclass's own"


@pytest.mark.parametrize("wing", WINGS)
def test_public_names_are_listed_once_and_shown_by_dir(wing: str):
    module = import_module(wing)
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("wing", WINGS[1:])
def test_a_name_that_is_not_there_is_an_ordinary_mistake(wing: str):
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        import_module(wing).nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("wing", WINGS[1:])
def test_a_wing_loads_nothing_before_it_is_used(wing: str):
    code = (
        f"import sys, trimtab; before = set(sys.modules); import {wing};"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - sys.stdlib_module_names == {wing}
