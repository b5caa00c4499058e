"""Jobs that a site would not take, refused by name or, leniently, dropped and counted by reason."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.site import Labels

LISTED = 8  # names that an error lists


class Door:
    """Who of a workload may enter: all that no `refuse` has named."""

    def __init__(self, work: Workload, *, lenient: bool) -> None:
        self.work, self.lenient = work, lenient
        self.keep = np.ones(len(work), bool)
        self.dropped: dict[str, int] = {}

    def refuse(
        self,
        bad: Array,
        field: str,
        value: str | Callable[[int], str],
        problem: str,
        remedy: str,
    ) -> None:
        """TraceError for the first of the jobs where `bad` (J,), or leniently: drop them all.

        `value` is what the job says there, as the error shows it.
        """
        bad = bad & self.keep
        if not bad.any():
            return
        row = int(np.flatnonzero(bad)[0])
        if not self.lenient:
            said = value if isinstance(value, str) else value(row)
            raise TraceError(
                f"{self.work.source}: job {self.work.name(row)} (row {row}): "
                f"{field}={said} {problem}; {remedy}, or drop such jobs with --lenient"
            )
        reason = f"{field} {problem}"
        self.dropped[reason] = self.dropped.get(reason, 0) + int(bad.sum())
        self.keep &= ~bad
        if not self.keep.any():
            raise TraceError(
                f"{self.work.source}: all jobs were dropped: {self.dropped}; "
                "give the cluster that they ran on"
            )

    def said(self, name: str) -> Labels:
        """What each job names there, "" for nothing."""
        return self.work.labels.get(name, Labels(("",), np.zeros(len(self.work), np.int64)))

    def told(self) -> dict[str, object]:
        """What goes into a workload's meta: reasons of readers and ours, with their counts."""
        if not self.dropped:
            return {}
        return {"dropped": {**self.work.meta.get("dropped", {}), **self.dropped}}

    def refuse_unknown(self, name: str, known: Iterable[str], what: str, source: str) -> None:
        """Refuse jobs that name what is not known; several names stand between commas."""
        given, names = self.said(name), list(known)
        for row, text in enumerate(given.names):
            lost = [part for part in text.split(",") if part and part not in names]
            if lost:
                problem = f"is no {what} of {source}"
                self.refuse(given.row == row, name, repr(text), problem, near(lost[0], names))


def near(word: str, names: Iterable[str]) -> str:
    """A remedy that names what is nearest, or a few of all there are."""
    names = sorted(names)
    found = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if found:
        return f"did you mean {found[0]!r}?"
    listed = ", ".join(names[:LISTED]) + (" ..." if len(names) > LISTED else "")
    return f"it has {listed}" if names else "it has none"
