"""Which rows a reader may leave out, and how many of them before the file is refused.

Public logs are dirty in places. A row that cannot be used costs that row, and the count is told;
where more than a tenth is bad it is another file than it was taken for, or a broken one.
"""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import TraceError

MOST = 0.1  # of the rows may be bad in a published log
REMEDY = "mend or drop the line, or read with lenient=True (--lenient)"


class BadRows:
    """Counts what is left out, by reason.

    `lenient`: True drops any number of bad rows, False none, None as many as a published log has.
    """

    def __init__(self, path: str | Path, rows: int, lenient: bool | None) -> None:
        self.path = Path(path)
        self.rows = rows  # of the file
        self.lenient = lenient
        self.dropped: dict[str, int] = {}  # reason: rows
        self.bad = 0  # rows that are not as the format is

    @property
    def strict(self) -> bool:
        return self.lenient is False

    def usual(self, count: int, reason: str) -> None:
        """Leave out rows that such a log has by custom."""
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def refuse(self, count: int, reason: str, problem: str, remedy: str = REMEDY) -> None:
        """Leave out bad rows, or raise with what the first of them is: its line, field, value."""
        if not count:
            return
        self.bad += count
        if self.strict:
            rows = "1 such row" if count == 1 else f"{count:,} such rows"
            raise TraceError(f"{problem}; {remedy} ({rows})")
        most = min(max(1, MOST * self.rows), self.rows - 1)
        if self.lenient is None and self.bad > most:
            raise TraceError(
                f"{problem}; with it {self.bad:,} of {self.rows:,} rows are bad, too many for a "
                f"sound log: give another file, or --lenient to do without them"
            )
        self.usual(count, reason)


def tolerance(lenient: bool, strict: bool) -> bool | None:
    """The `lenient` of a reader from the two options of a command."""
    if lenient and strict:
        raise TraceError("--lenient and --strict contradict each other; give one of them")
    return True if lenient else (False if strict else None)
