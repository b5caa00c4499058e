"""Sentences that we would say of what was measured, each with whether it holds and the evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

MOST_TEXTS = 4  # of one piece of evidence


class Claim(NamedTuple):
    """`holds` is None where the figures cannot tell: not measured, or with intervals too wide."""

    text: str
    holds: bool | None = None
    evidence: str = "not measured in this run"


def as_rows(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """The claims as JSON has them."""
    return [{"claim": one.text, "holds": one.holds, "evidence": one.evidence} for one in claims]


def listed(texts: Sequence[str]) -> str:
    """The first texts as evidence, and how many more there are."""
    more = len(texts) - MOST_TEXTS
    return "; ".join(texts[:MOST_TEXTS]) + (f"; and {more} more" if more > 0 else "")


def finite(value: Any) -> Any:
    """A value as JSON has it: what is no number is null, a tuple is a list."""
    if isinstance(value, tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
