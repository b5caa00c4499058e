"""What the command line asks of any reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.errors import TrimtabError


@dataclass(frozen=True)
class Options:
    """None = the measurement's own default."""

    seeds: int | None = None
    jobs: int | None = None
    quick: bool = False
    policies: Sequence[str] | None = None
    parts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TrimtabError(f"--{name} {value} leaves nothing to run; give 1 or more")

    def left_out(self) -> list[str]:
        """Why policies that the tables should have are not in them."""
        return []
