"""Which sources a source reaches decides what is kept and what is made anew."""

from pathlib import Path

import pytest

from trimtab import sources

FILES = {
    "__init__.py": "",
    "top.py": "from trimtab.low import (\n    first,\n    second,\n)\n",
    "low.py": "def late():\n    from trimtab.room import deep\n",
    "room/__init__.py": "",
    "room/deep.py": "import trimtab.leaf\n",
    "leaf.py": "from trimtab.top import anything  # a circle\n",
    "other.py": "import numpy\nLATER = 'trimtab.low:late'\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "trimtab"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def stamps(root: Path) -> dict[str, str]:
    for kept in (sources.stamp, sources.imported, sources._content):
        kept.cache_clear()
    return {name: sources.stamp(root / name, root) for name in FILES}


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


def test_a_module_that_a_string_names_is_reached_where_that_is_asked(package: Path):
    within = {path.name for path in sources.reached(package / "other.py", package)}
    assert within == {"other.py"}
    named = {path.name for path in sources.reached(package / "other.py", package, named=True)}
    assert named == {"other.py", "low.py", "deep.py", "leaf.py", "top.py"}
