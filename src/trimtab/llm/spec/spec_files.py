"""Spec tables: CSV files of one GPU or model a line, ours beside this file and the user's own.

The user's folder (`TRIMTAB_SPECS`, or passed in code) may hold a gpus.csv and a models.csv with the
columns of ours; a line with a known name takes its place. Empty cells take the column's default.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import PlanError

SHIPPED = Path(__file__).parent
FOLDER_VARIABLE = "TRIMTAB_SPECS"
YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
MOST = 1e15  # above any count or rate in a table: more is a slip of the unit


class Column(NamedTuple):
    """How the cells of a column are read; `default` None = the cell must be filled."""

    kind: type  # str, bool, int or float
    default: Any = None
    least: float = 0.0


def folder_of_user(folder: str | Path | None = None) -> Path | None:
    """The folder of the user's own tables: the argument, else the environment's, else none."""
    given = folder if folder is not None else os.environ.get(FOLDER_VARIABLE, "")
    if not str(given):
        return None
    path = Path(given).expanduser()
    if not path.is_dir():
        raise PlanError(
            f"specs folder {str(path)!r} is not a folder; create it with a gpus.csv or models.csv,"
            f" or clear {FOLDER_VARIABLE}"
        )
    return path


def tables(file: str, folder: Path | None, columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """The rows of our table, then of the user's, each with `where` = file:line."""
    found = rows(SHIPPED / file, columns)
    if folder is not None and (folder / file).exists():
        found += rows(folder / file, columns)
    return found


def rows(path: Path, columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Every line of one table as values of the columns' kinds."""
    lines, header = _lines(path)
    _checked_header(header, columns, path)
    made: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for number, cells in lines:
        where = f"{path}:{number}"
        if len(cells) > len(header):
            raise PlanError(
                f"{where}: {len(cells)} cells under {len(header)} columns; quote cells with commas"
            )
        row = dict(zip(header, cells))
        values = {name: value(row.get(name, ""), c, where, name) for name, c in columns.items()}
        if values["name"] in seen:
            raise PlanError(
                f"{where}: name={values['name']!r} is also in line {seen[values['name']]};"
                " keep one of the two"
            )
        seen[values["name"]] = number
        made.append(values | {"where": where})
    return made


def value(text: str, column: Column, where: str, name: str) -> Any:
    """A cell as a value of its column's kind, or PlanError that names it."""
    text = text.strip()
    if not text:
        if column.default is None:
            raise PlanError(f"{where}: {name} is empty; fill it in")
        return column.default
    if column.kind is str:
        return text
    if column.kind is bool:
        if text.lower() not in YES_NO:
            raise PlanError(f"{where}: {name}={text!r} is neither yes nor no; write one of them")
        return YES_NO[text.lower()]
    return number(text, column.kind, column.least, f"{where}: {name}")


def number(text: str, kind: Callable[[float], Any], least: float, what: str) -> Any:
    """A finite number of at least `least`; `what` begins the message of an error."""
    try:
        read = float(text)
    except ValueError:
        read = math.nan
    if not math.isfinite(read) or (kind is int and read != int(read)):
        wanted = "a whole number" if kind is int else "a number"
        raise PlanError(f"{what}={text!r} is not {wanted}; write one without units")
    if not least <= read <= MOST:
        raise PlanError(f"{what}={text!r} is not between {least:g} and {MOST:g}; correct it")
    return kind(read)


def _lines(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PlanError(f"{path}: cannot be read ({error}); give a CSV file in UTF-8") from None
    if not lines:
        raise PlanError(f"{path}: is empty; begin it with a line of column names")
    return lines[1:], [cell.strip() for cell in lines[0][1]]


def _checked_header(header: list[str], columns: Mapping[str, Column], path: Path) -> None:
    for name in header:
        if name not in columns:
            raise PlanError(
                f"{path}:1: column {name!r} is unknown; take some of {', '.join(columns)}"
            )
    for name, column in columns.items():
        if column.default is None and name not in header:
            raise PlanError(f"{path}:1: column {name!r} is missing; add it")
    if len(set(header)) < len(header):
        raise PlanError(f"{path}:1: a column stands twice in {','.join(header)}; drop one")
