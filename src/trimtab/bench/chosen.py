"""Which of the known measurements were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.errors import UnknownName, suggestion


def chosen_of(only: Sequence[str] | None, names: Iterable[str], what: str) -> tuple[str, ...]:
    """Those of the names, in their order; several may be given in one text with commas."""
    known = list(names)
    wanted = [name for text in only or () for name in text.split(",") if name]
    for name in wanted:
        if name not in known:
            raise UnknownName(
                f"{what} {name!r} is unknown; {suggestion(name, known)}known: {', '.join(known)}"
            )
    return tuple(name for name in known if name in wanted or not wanted)
