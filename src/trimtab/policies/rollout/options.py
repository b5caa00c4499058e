"""What a rollout tries and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from trimtab.errors import PolicyError
from trimtab.policies.rollout.playout import OBJECTIVES
from trimtab.policies.rollout.ranks import CODES
from trimtab.rules.names import PLACES


@dataclass(frozen=True)
class Options:
    """Given behind a colon, such as `rollout+easy:budget_ms=5,objective=wait,orders=sjf|fcfs`."""

    budget_ms: float = 100.0  # a decision, inf = no bound
    orders: tuple[str, ...] = ("sjf", "smallest-area", "wfp3", "unicep", "f1", "fcfs")
    objective: str = "slowdown"  # a name of OBJECTIVES
    depth: int = 512  # jobs of the queue that are played out
    firsts: int = 10  # jobs that are tried at the head of the best order
    arrivals: int = 12  # jobs that come in a play-out, as the last so many came
    margin: float = 0.0  # of its value that an order must be better by than the one followed
    place: str = "first"  # a name of rules.names.PLACES

    def __post_init__(self) -> None:
        for name in self.orders:
            _check("orders", name, CODES)
        _check("objective", self.objective, OBJECTIVES)
        _check("place", self.place, PLACES)
        for name, least in (("depth", 1), ("firsts", 0), ("arrivals", 0)):
            if getattr(self, name) < least:
                raise PolicyError(
                    f"rollout: {name}={getattr(self, name)} is below {least}; give more"
                )
        if not self.budget_ms > 0:
            raise PolicyError(f"rollout: budget_ms={self.budget_ms} is not above 0; give more")
        if not self.orders:
            raise PolicyError(f"rollout: orders is empty; give some of {', '.join(CODES)}")


def _check(option: str, name: str, known: Any) -> None:
    if name not in known:
        raise PolicyError(f"rollout: {option}={name} is unknown; known: {', '.join(known)}")


def parsed(text: str) -> Options:
    """The options in `budget_ms=5,orders=sjf|fcfs`; the defaults where it is empty."""
    known = {field.name: field for field in fields(Options)}
    given: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        _check("option", name, known)
        kind: Any = type(known[name].default)
        try:
            given[name] = tuple(value.split("|")) if kind is tuple else kind(value)
        except ValueError:
            raise PolicyError(f"rollout: {part} is not a number; give {name}=NUMBER") from None
    return Options(**given)
