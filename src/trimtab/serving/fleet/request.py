"""One request inside a live fleet: its rows, what has come of them, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.fleet.state import Live
from trimtab.serving.net.slim_form import COLOURS
from trimtab.serving.net.slim_weights import Weights
from trimtab.serving.nouns import TUPLES, WIDTHS, Answer, Metadata, Request, Spec, Why

WIDTH_TEXT = [",".join(f"{WIDTHS[width]:g}" for width in widths) for widths in TUPLES]


class OpenRequest:
    """A request of one or more rows, answered when all of them are."""

    __slots__ = ("arrived_s", "closed", "done", "due_s", "left", "logits", "request",
                 "rows", "server", "slots", "widths")  # fmt: skip

    def __init__(self, request: Request, done: Callable[[Answer], None]) -> None:
        self.request, self.done = request, done
        self.rows: Array = request.inputs["image"]
        self.slots: list[int] = []
        self.left = len(self.rows)
        self.closed = False
        self.arrived_s = self.due_s = 0.0
        self.logits: Array | None = None
        self.widths: list[int] = []
        self.server = ""

    def take(self, row: int, logits: Array, widths: int, server: str) -> bool:
        """Take the (1, classes) logits of a row; True where it was the last."""
        if self.logits is None:
            many = len(self.rows) > 1
            self.logits = (
                np.empty((len(self.rows), logits.shape[1]), np.float32) if many else logits
            )
        if len(self.rows) > 1:
            self.logits[row] = logits[0]
        self.widths.append(widths)
        self.server = server
        self.left -= 1
        return self.left == 0


class Slots:
    """Which row of which request each slot of the arrays stands for."""

    def __init__(self, x: Live) -> None:
        self.x, count = x, len(x.slot)
        self.free = list(range(count - 1, -1, -1))
        self.owner: list[OpenRequest | None] = [None] * count
        self.place = [0] * count  # row of its request
        self.rows: list[Any] = [None] * count  # bytes that its next segment takes
        self.arrivals = 0  # since the last turn

    def give(self, opened: OpenRequest, hard_s: float, rank: int) -> None:
        """Give every row of a request a slot, and note their arrival."""
        x, image = self.x, np.ascontiguousarray(opened.rows)
        count, whole, at = len(image), image.data.cast("B"), self.arrivals
        size = len(whole) // count
        for row in range(count):
            slot = self.free.pop()
            self.owner[slot], self.place[slot] = opened, row
            self.rows[slot] = whole[row * size : (row + 1) * size] if count > 1 else whole
            opened.slots.append(slot)
        self.arrivals += count
        # numpy writes a single number faster by its place than by a slice
        mine, slots = (at, slot) if count == 1 else (slice(at, at + count), opened.slots)
        x.new_slot[mine], x.new_rank[mine], x.new_hard_s[mine] = slots, rank, hard_s
        x.new_arrival_s[mine], x.new_due_s[mine] = opened.arrived_s, opened.due_s

    def free_again(self, slot: int) -> None:
        """Let a slot be used again."""
        self.owner[slot] = self.rows[slot] = None
        self.free.append(slot)


def answer_of(opened: OpenRequest, labels: Array) -> Answer:
    """The outputs asked for, and how they were made."""
    logits = opened.logits
    assert logits is not None
    outputs: dict[str, Array] = {}
    for name in opened.request.outputs:
        if name == "logits":
            outputs[name] = logits
        else:
            best = logits.argmax(axis=1)
            outputs[name] = best if name == "class" else labels[best]
    used = opened.widths
    if len(used) == 1:
        widths = WIDTH_TEXT[used[0]]
    else:
        widths = ";".join(WIDTH_TEXT[row] for row in sorted(set(used)))
    return Answer(outputs, parameters={"widths": widths, "server": opened.server})


def refusal(why: Why, reason: str, retry_after_s: float = 0.0) -> Answer:
    """An answer that is none."""
    return Answer(why=why, reason=reason, retry_after_s=retry_after_s)


def metadata_of(weights: Weights, name: str) -> Metadata:
    """The model as clients see it."""
    form = weights.form
    return Metadata(
        name,
        (Spec("image", "FP32", (-1, COLOURS, form.side, form.side)),),
        (
            Spec("logits", "FP32", (-1, form.classes)),
            Spec("class", "INT64", (-1,)),
            Spec("label", "BYTES", (-1,)),
        ),
    )


def labels_of(weights: Weights) -> Array:
    """(classes,) names as bytes; numbers where the weight file has none."""
    names: Sequence[str] = weights.facts.get("classes") or ()
    if not isinstance(names, list) or len(names) != weights.form.classes:
        names = [str(number) for number in range(weights.form.classes)]
    labels = np.empty(len(names), object)
    labels[:] = [name.encode() for name in names]
    return labels


def count_problem(rows: int, rows_max: int) -> str:
    """Why so many rows cannot be served."""
    if rows == 0:
        return "image has 0 rows; send at least one"
    return f"image has {rows} rows; send at most {rows_max} in one request"
