"""A test stands beside what it tests: tests/unit mirrors the package."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
UNIT = HERE / "unit"
PACKAGE = HERE.parent / "src" / "trimtab"
# Folders of tests that are of more than one room.
ELSEWHERE = {"commands", "contract", "docs", "known", "learn", "live", "parity"}

TESTS = sorted(UNIT.rglob("test_*.py"))


def mirrored(room: Path, name: str) -> set[str]:
    """What a test file is named after: modules and rooms of its room, or the room itself."""
    here = PACKAGE / room
    children = {path.stem for path in here.glob("*.py")}
    children |= {path.parent.name for path in here.glob("*/__init__.py")}
    children |= {here.name} if here.is_dir() else set()
    return {child for child in children if name == child or name.startswith(f"{child}_")}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(UNIT)))
def test_a_unit_test_is_named_after_a_module_of_its_room(path: Path):
    room = path.parent.relative_to(UNIT)
    assert mirrored(room, path.stem.removeprefix("test_")), (
        f"tests/unit/{room} mirrors src/trimtab/{room}: name {path.name} after a module there, a"
        f" module and an aspect, or the folder; tests of several rooms go to {sorted(ELSEWHERE)}"
    )


@pytest.mark.parametrize(
    ("room", "name", "named"),
    [
        ("sim", "kernel", {"kernel"}),
        ("sim", "kernel_places", {"kernel"}),
        ("sim", "sim_books", {"sim"}),
        ("llm", "plan", {"plan"}),
        ("llm/plan", "plan_rows", {"plan", "plan_rows"}),
        ("sim", "properties", set()),
        ("sim", "kernels", set()),
        ("nowhere", "nowhere", set()),
    ],
)
def test_a_name_is_a_module_a_module_and_an_aspect_or_the_room(room, name, named):
    assert mirrored(Path(room), name) == named


def test_every_folder_of_tests_is_known():
    folders = {path.relative_to(HERE).parts[0] for path in HERE.rglob("*/test_*.py")}
    assert folders <= ELSEWHERE | {"unit"}
