"""The fields of a YAML file: checked one by one, named in every mistake."""

import difflib
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trimtab.errors import TraceError

LARGEST = 1e300


def read_yaml(path: Path) -> Any:
    """What the file holds, in Python's own types."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({error}); give a cluster's YAML file") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f":{where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or error
        raise TraceError(f"{path}{line}: is not YAML ({problem}); mend that line") from None


def tables(content: dict[str, Any], name: str, where: str) -> dict[str, dict[str, Any]]:
    """A table of tables, such as rates: {job kind: {node kind: rate}}."""
    table = content.get(name) or {}
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise TraceError(f"{where}: {name}={table!r}; write {name}: {{one: {{other: number}}}}")
    return table


def check_names(given: Any, known: Sequence[str], where: str, what: str = "field") -> None:
    """Refuse a table that has a name beside the known ones."""
    if not isinstance(given, dict):
        raise TraceError(f"{where}: {given!r} is not a table; write name: value lines")
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise TraceError(
                f"{where}: {what} {name!r} (value {given[name]!r}) is unknown; {guess}"
                f"known: {', '.join(known)}"
            )


def checked_number(value: Any, where: str, least: float) -> float:
    """A finite number from the least on."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -LARGEST <= value <= LARGEST:
        raise TraceError(f"{where}={value!r} is not a number; give one without quotes or a unit")
    if value < least:
        raise TraceError(f"{where}={value!r} is below {least:g}; give a larger number")
    return float(value)


def checked_text(value: Any, where: str) -> str:
    """A name; YAML makes other things of some words."""
    if not isinstance(value, str):
        raise TraceError(f"{where}={value!r} is not a name; put it in quotes")
    return value


def checked_texts(value: Any, where: str) -> list[str]:
    """A list of names."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TraceError(f"{where}={value!r} is no list of names; write [one, other]")
    return value


def short(value: float) -> int | float:
    """A whole number as one."""
    return int(value) if value == int(value) else float(value)


class _Line(dict[str, Any]):
    """A table that stands in one line."""


class _Names(list[str]):
    """Names that stand in one line."""


yaml.SafeDumper.add_representer(
    _Names, lambda dumper, names: dumper.represent_sequence("tag:yaml.org,2002:seq", names, True)
)
yaml.SafeDumper.add_representer(
    _Line, lambda dumper, line: dumper.represent_mapping("tag:yaml.org,2002:map", line, True)
)


def yaml_text(content: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """YAML with a line for each table of a list, and comments above the fields of these names."""
    text = ""
    for name, value in content.items():
        if comments.get(name):
            text += textwrap.fill(comments[name], 98, initial_indent="# ", subsequent_indent="# ")
            text += "\n"
        if name == "site":
            text += f"site:\n{textwrap.indent(yaml_text(value, comments), '  ')}"
            continue
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            value = [_Line(one) for one in value]
        elif isinstance(value, list):
            value = _Names(value)
        text += yaml.safe_dump({name: value}, sort_keys=False, width=96)
    return text
