"""Where the plays of a training run: on executors of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Protocol

from trimtab.errors import PolicyError

RAY = "ray"


class Spread(Protocol):
    """What does the same work on many items, and gives the results in their turn."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]: ...


def check_place(on: str) -> None:
    """Raise PolicyError for a place that is none."""
    if on and on.partition(":")[0] != RAY:
        raise PolicyError(
            f"on={on!r} is unknown; give {RAY}, {RAY}:ADDRESS of a cluster that runs, such as "
            f"{RAY}:auto, or leave it out"
        )


@contextmanager
def spread(on: str, here: Callable[[], Executor]) -> Iterator[Spread]:
    """What spreads work: `here` where `on` is "", else a Ray cluster; let go of in the end."""
    if not on:
        with here() as pool:
            yield pool
        return
    try:
        from trimtab.training.on_ray import joined
    except ImportError:
        raise PolicyError(
            f"on={on} needs Ray, which is not installed; pip install 'trimtab[ray]'"
        ) from None
    with joined(on.partition(":")[2]) as cluster:
        yield cluster
