"""Which of the known measurements were asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from trimtab.errors import UnknownName


def chosen_of(only: Sequence[str] | None, names: Iterable[str], what: str) -> tuple[str, ...]:
    """Those of the names, in their order; several may be given in one text with commas."""
    known = list(names)
    wanted = [name for text in only or () for name in text.split(",") if name]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise UnknownName(
                f"{what} {name!r} is unknown; did you mean {near!r}? known: {', '.join(known)}"
            )
    return tuple(name for name in known if name in wanted or not wanted)
