"""Step times out of a training log that grows: Megatron-LM, torchtitan, DeepSpeed, and others.

    log = StepLog("train.log")
    log.new(Work(samples=512, tokens=512 * 4096, gpus=64))        # seconds of each step since

A line that says nothing of a step is passed over, one that is not complete waits for its end. A log
that is cut off or put aside for a new one is read on from the new beginning.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

MOST_B = 1 << 22  # read at once: what lies before the last 4 MB tells nothing of the present
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NUMBER = r"([\d,]*\.?\d+(?:[eE][-+]?\d+)?)"
# The line's own number of the step: every rank may print the same one.
STEP = re.compile(r"(?:\biteration|\bsteps?|global_step)\s*[:= ]\s*(\d+)")


class Work(NamedTuple):
    """What a step does, for logs that tell a rate."""

    samples: int
    tokens: int
    gpus: int


class LoggedStep(NamedTuple):
    """A step time in a line."""

    kind: int  # place in KINDS
    step: str  # the line's number of the step, "" = it has none
    step_s: float


# What lines are known by, the most exact first: a log that has several kinds is read by the first.
KINDS: tuple[tuple[str, re.Pattern[str], Callable[[float, Work], float]], ...] = (
    (
        "Megatron-LM",  # its forks write elapsed_time_per_iteration_ms=
        re.compile(rf"elapsed[ _]time[ _]per[ _]iteration[ _]\(?ms\)?\s*[:=]\s*{NUMBER}"),
        lambda value, work: value / 1e3,
    ),
    (
        "NeMo",
        re.compile(rf"train_step_timing(?: in s)?['\"]?\s*[:=]\s*{NUMBER}"),
        lambda value, work: value,
    ),
    (
        "DeepSpeed's pipeline",
        re.compile(rf"iter time \(s\):\s*{NUMBER}"),
        lambda value, work: value,
    ),
    (
        "DeepSpeed",
        re.compile(rf"\bCurrSamplesPerSec={NUMBER}"),
        lambda value, work: work.samples / value,
    ),
    (
        "DeepSpeed of old",
        re.compile(rf"(?<![A-Za-z])SamplesPerSec={NUMBER}"),
        lambda value, work: work.samples / value,
    ),
    (
        "torchtitan",  # tokens a second and GPU
        re.compile(rf"\btps:\s*{NUMBER}"),
        lambda value, work: work.tokens / (value * work.gpus),
    ),
    (
        "Composer",
        re.compile(rf"throughput/batches_per_sec:\s*{NUMBER}"),
        lambda value, work: 1.0 / value,
    ),
)
JSON_KIND, PARTS_KIND = -1, len(KINDS)
PARTS = re.compile(r"time \(ms\) \|.*")  # DeepSpeed's parts of a step
PART = re.compile(rf"\b(fwd|forward|bwd|backward|step): {NUMBER}")


def step_of(line: str, work: Work) -> LoggedStep | None:
    """The step time that a line tells, if it does."""
    plain = COLOUR.sub("", line).strip()
    if plain.startswith("{"):
        return _json_step(plain)
    numbered = STEP.search(plain)
    step = numbered[1] if numbered else ""
    for kind, (_, pattern, seconds) in enumerate(KINDS):
        told = pattern.search(plain)
        value = float(told[1].replace(",", "")) if told else 0.0
        if value > 0:
            return _sound(LoggedStep(kind, step, seconds(value, work)))
    listed = PARTS.search(plain)
    parts = {name[0]: float(ms) for name, ms in PART.findall(listed[0])} if listed else {}
    # forward and backward passes and the optimiser's step: parts of micro-batches have other names
    if parts.keys() == {"f", "b", "s"}:
        return _sound(LoggedStep(PARTS_KIND, "", sum(parts.values()) / 1e3))
    return None


def _json_step(text: str) -> LoggedStep | None:
    try:
        content = json.loads(text)
        step_s = content["step_s"]
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(step_s, bool) or not isinstance(step_s, int | float):
        return None
    return _sound(LoggedStep(JSON_KIND, str(content.get("step", "")), float(step_s)))


def _sound(found: LoggedStep) -> LoggedStep | None:
    return found if 0 < found.step_s < math.inf else None


class Position(NamedTuple):
    """How far a log was read, for a restart."""

    file_id: int
    offset_b: int


class StepLog:
    """A log that is read as it grows. A symbolic link to the newest log is followed."""

    def __init__(self, path: str | Path, read: Position | None = None) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None
        self._read = read
        self._rest = b""
        self._kind = PARTS_KIND  # the most exact seen so far
        self._last: tuple[int, str] | None = None  # kind and number of the last step

    @property
    def position(self) -> Position | None:
        """The end of the last complete line that was read; None before there was a log."""
        if self._file is None:
            return self._read
        file_id = os.fstat(self._file.fileno()).st_ino
        return Position(file_id, self._file.tell() - len(self._rest))

    def new(self, work: Work) -> list[float]:
        """Seconds of each step that was written since the last call."""
        steps: list[float] = []
        for line in self.lines():
            found = step_of(line, work)
            if found is None or found.kind > self._kind:
                continue
            if found.kind < self._kind:
                self._kind, steps = found.kind, []
            if found.step and (found.kind, found.step) == self._last:
                continue
            self._last = (found.kind, found.step)
            steps.append(found.step_s)
        return steps

    def skip(self) -> None:
        """Pass over all that is written by now: it belongs to a plan that ran before."""
        self.lines()
        self._rest, self._last = b"", None

    def lines(self) -> list[str]:
        """The complete lines since the last call, of the old log and of one in its place."""
        found = self._more()
        if self._moved():
            self._close()
            found += self._more()
        return found

    def _more(self) -> list[str]:
        if self._file is None and not self._open():
            return []
        assert self._file is not None
        size_b, at_b = os.fstat(self._file.fileno()).st_size, self._file.tell()
        if size_b < at_b:  # it was cut off and begins anew
            self._file.seek(0)
            self._rest, at_b = b"", 0
        if size_b - at_b > MOST_B:
            self._file.seek(size_b - MOST_B)
            self._rest = b""
        # progress bars end their lines with \r
        text = (self._rest + self._file.read(MOST_B)).replace(b"\r", b"\n")
        whole, _, self._rest = text.rpartition(b"\n")
        self._rest = self._rest[-MOST_B:]
        return [line.decode("utf-8", "replace") for line in whole.split(b"\n") if line]

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except OSError:  # not there yet
            return False
        status = os.fstat(self._file.fileno())
        if self._read and self._read.file_id == status.st_ino:
            self._file.seek(min(self._read.offset_b, status.st_size))
        self._read = None
        return True

    def _moved(self) -> bool:
        """Whether another file has the log's name by now."""
        if self._file is None:
            return False
        try:
            return self.path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except OSError:  # put aside, and the new one is not there yet
            return False

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest, self._last, self._kind = None, b"", None, PARTS_KIND

    def close(self) -> None:
        """Let go of the file."""
        self._close()
