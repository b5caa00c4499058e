"""What `trimtab plan watch` prints: a line a reading, proposals in full, and JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.status import Status
from rich.text import Text

from trimtab.cli.plan import plan_text
from trimtab.cli.shown import out, say
from trimtab.units import three_digits

if TYPE_CHECKING:
    from trimtab.llm.nouns import Question
    from trimtab.llm.watch.replan import Offer
    from trimtab.llm.watch.watch_state import State

STYLES = {"propose": "bold yellow", "applied": "bold green", "failed": "bold red", "wait": "cyan"}
TITLES = {"propose": "PROPOSAL", "applied": "CHANGED", "failed": "NOT CHANGED"}
HOUR_S = 3600.0


class Readings:
    """Where readings go: JSON lines, and lines for people with a status below them."""

    def __init__(
        self,
        json_file: str | None,
        write: Callable[[Offer], tuple[Path, list[str]]],
        folder: Path,
    ) -> None:
        self.json_file, self.folder, self._write = json_file, folder, write
        self._lines: TextIO | None = None
        self._proposed: Any = None
        shows = out.is_terminal and json_file != "-"
        self._status: Status | None = out.status("waiting for the first reading") if shows else None

    def __enter__(self) -> Readings:
        if self.json_file and self.json_file != "-":
            self._lines = Path(self.json_file).open("a", encoding="utf-8")
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *problem: Any) -> None:
        if self._status is not None:
            self._status.stop()
        if self._lines is not None:
            self._lines.close()

    def begin(self, question: Question, state: State, path: Path, notes: list[str]) -> None:
        """Say what is watched and what is assumed."""
        from trimtab.llm.plan.planner import layout_words

        if self.json_file == "-":
            return
        seen = len(state.correction.plans)
        known = f"; step times of {seen} plan{'s' if seen > 1 else ''} are known" if seen else ""
        words = f"watching {question.model.name} on {question.gpus}x{question.gpu.name}:"
        plan_text.line(f"{words} {layout_words(state.current)}; state {path}{known}", style="bold")
        plan_text.show_notes((*question.notes, *notes))

    def emit(self, record: dict[str, Any], offer: Offer) -> None:
        """One reading: a line of JSON, a line for people, and a proposal that is new in full."""
        text = json.dumps(record, allow_nan=False)
        if self.json_file == "-":
            print(text, flush=True)
        elif self._lines is not None:
            print(text, file=self._lines, flush=True)
        proposed = record["action"] == "propose"
        new = proposed and self._proposed != offer.plan
        self._proposed = offer.plan if proposed else None
        notes = self._written(offer) if new else []
        if self.json_file == "-":
            return
        show_reading(record)
        if new or record["action"] in ("applied", "failed"):
            show_proposal(record, self.folder, notes)
        if self._status is not None:
            # whole here, since the line above is cut to the terminal's width
            self._status.update(Text(f"reading {record['reading']}: {record['reason']}"))

    def _written(self, offer: Offer) -> list[str]:
        """Write the files of a proposal, and go on watching where that fails."""
        try:
            return self._write(offer)[1]
        except OSError as problem:
            say(f"{self.folder}: {problem}")
            return []


def show_reading(record: dict[str, Any]) -> None:
    """One aligned line, cut to the width of a terminal."""
    at = time.strftime("%H:%M:%S", time.localtime(record["time_s"]))
    seen, gpu = record["step_s"], record["gpu_load"]
    cells = (
        f"step {'-' if seen is None else three_digits(seen) + ' s':>7}",
        f"expected {three_digits(record['expected_s']) + ' s':>7}",
        f"cpu {record['cpu_load']:4.0%}",
        f"link {record['free_link']:4.0%} free",
        f"gpu {'   -' if gpu is None else format(gpu, '4.0%')}",
        f"taken {record['taken_b'] / 1e9:3.0f} GB",
    )
    action = record["action"]
    line = Text.assemble(
        (at, "dim"), "  ", "  ".join(cells), "  ", (f"{action:<7}", STYLES.get(action, "dim")), "  "
    )
    line.append(record["reason"], style="dim")
    if out.is_terminal:
        out.print(line, no_wrap=True, overflow="ellipsis")
    else:
        out.print(line, soft_wrap=True)


def show_proposal(record: dict[str, Any], folder: Path, notes: list[str]) -> None:
    """A proposal in full: why, the two plans, what it saves and costs, and how to launch it."""
    new, action = record["proposal"], record["action"]
    urgent = " (urgent)" if record["urgent"] else ""
    plan_text.line(f"{TITLES[action]}{urgent}: {record['reason']}", style=STYLES[action])
    plan_text.line(f"  old  {record['plan']}: {three_digits(record['expected_s'])} s a step")
    plan_text.line(
        f"  new  {record['other_plan']}: {three_digits(new['expected_s'])} s a step,"
        f" fits with P {new['p_fit_now']:.2f}"
    )
    if record["saving_s"] > 0:
        plan_text.line(
            f"  saves {three_digits(record['saving_s'])} s or more in"
            f" {record['horizon_s'] / HOUR_S:.3g} h with P {record['sure']:g};"
            f" the change costs {three_digits(record['cost_s'])} s"
        )
    plan_text.show_notes(tuple(notes))
    if action == "propose":
        plan_text.line(
            f"  to take it: {folder / 'launch.sh'}, then watch again with"
            f" --current {folder / 'plan.json'}"
        )
    elif action == "failed":
        plan_text.line(f"  what the command said: {folder / 'apply.log'}")
