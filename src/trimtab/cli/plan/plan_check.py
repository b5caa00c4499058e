"""`trimtab plan check` and `trimtab plan fit`: the cost model beside real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.cli.plan import plan_text
from trimtab.cli.shown import command_line, say, write_json
from trimtab.errors import PlanError


def check_runs(path: Path, report: Path | None, json_file: str | None) -> None:
    """Predict a table of real runs and print the errors beside what was measured."""
    from trimtab.llm.fit import check

    rows, summary = check.checked(path)
    if json_file:
        write_json(json_file, rows)
    if json_file != "-":
        plan_text.show_checked(rows)
    words = plan_text.checked_words(summary)
    if report is not None:
        from trimtab.report.pages.planned import write_checked

        write_checked(report, rows, words, path.name, command_line())
        say(f"report: {report}")
    say(words)


def fit_constants(folder: Path, json_file: str | None) -> None:
    """Fit all constants to a folder of tables and show how well they explain each."""
    from trimtab.llm.fit import fit, fit_training

    if not folder.is_dir():
        raise PlanError(f"{folder}: no such folder; give the one that holds the tables")
    figures = [figure._asdict() for figure in fit.fit(folder)]
    rows = figures + fit_training.fit(folder)
    if json_file:
        write_json(json_file, [finite(row) for row in rows])
    if json_file != "-":
        plan_text.show_fits(rows)


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row without numbers that JSON cannot hold."""
    return {name: None if value != value else value for name, value in row.items()}
