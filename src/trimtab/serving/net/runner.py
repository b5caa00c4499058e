"""What runs segments in a live server, as its workshop sees it, and one that costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.net.slim_form import Form, channels_at, layers
from trimtab.serving.nouns import SEGMENTS

Pieces = list[tuple[Any, int, int]]  # stretches of rows side by side: tensor, from, to


class Runner(Protocol):
    """What runs segments: `segments.Segments`, `runners.Runners` or a stand-in.

    What `resident` made of an array stays where the device computes until it is `fetched`.
    """

    def run(self, segment: int, before: int, width: int, x: Any) -> Any: ...

    def load(self, segment: int, before: int, width: int) -> Any: ...

    def unload(self, segment: int, before: int, width: int) -> bool: ...

    def takes(self, segment: int, before: int) -> tuple[int, int, int]: ...

    def resident(self, x: Any) -> Any: ...

    def stack(self, rows: Sequence[Any]) -> Any: ...

    def fetched(self, x: Any) -> Array: ...


def pieces(rows: list[tuple[Any, int]]) -> Pieces:
    """Rows of tensors, those side by side together."""
    found: Pieces = []
    for tensor, at in rows:
        if found and found[-1][0] is tensor and found[-1][2] == at:
            found[-1] = (*found[-1][:2], at + 1)
        else:
            found.append((tensor, at, at + 1))
    return found


def together(found: Pieces, runner: Runner) -> Any:
    """The pieces as one batch, without a copy where that is one piece."""
    parts = [tensor[first:last] for tensor, first, last in found]
    if len(parts) == 1:
        return parts[0]
    if len({type(part) for part in parts}) > 1:  # some came just now, others are on the device
        parts = [runner.resident(part) for part in parts]
    return runner.stack(parts)


class Zeros:
    """A network that costs nothing: zeros of the right shapes, at once."""

    def __init__(self, form: Form) -> None:
        sides = {layer.segment: layer.side for layer in layers(form)}
        self.form, self.sides = form, sides
        self.made: dict[tuple[int, int, int], Array] = {}

    def run(self, segment: int, before: int, width: int, x: Array) -> Array:
        key = segment, width, len(x)
        if key not in self.made:
            last = segment == SEGMENTS - 1
            shape = (self.form.classes,) if last else self.takes(segment + 1, width)
            self.made[key] = np.zeros((len(x), *shape), np.float32)
        return self.made[key]

    def load(self, segment: int, before: int, width: int) -> None:
        pass

    def unload(self, segment: int, before: int, width: int) -> bool:
        return True

    def takes(self, segment: int, before: int) -> tuple[int, int, int]:
        side = self.sides[max(segment - 1, 0)]
        return channels_at(self.form, segment - 1, before), side, side

    def resident(self, x: Array) -> Array:
        return x

    def stack(self, rows: Sequence[Array]) -> Array:
        return np.concatenate(rows)

    def fetched(self, x: Array) -> Array:
        return x
