"""Pinned arrays are the same arrays to compiled code, and frames are booked as they lie."""

from typing import NamedTuple

import numpy as np
import pytest
from tests.fleets import PROFILE

from trimtab.arrays import Array
from trimtab.compiled import compiled
from trimtab.serving.fleet.pins import MISFIT, Pins, book_at, pump_at
from trimtab.serving.fleet.router import router_of
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.routing.pinned import Pinned, likeness, opener
from trimtab.serving.server.wire import ANSWER, HEAD, Report, answer_frame

ROW_B = 20  # of logits
WHOLE = [(3, 3, 3, 3)]


class Pair(NamedTuple):
    small: Array  # (n,) records
    deep: Array  # (a, b, c, d)


def pair(rows: int) -> Pair:
    small = np.zeros(rows, [("a", "i8"), ("b", "f8")])
    return Pair(small, np.arange(24.0).reshape(2, 3, 1, 4).copy())


LIKE = likeness(pair(1))
pair_at = opener(lambda: LIKE)


@compiled
def changed(address, row):
    found = pair_at(address)
    found.small[row]["a"] += found.small.shape[0]
    found.deep[1, 2, 0, 3] = -1.0
    return found.deep[0, 2, 0, 1]


def test_compiled_code_reads_and_writes_the_arrays_that_were_pinned():
    held = pair(5)
    pinned = Pinned(held, LIKE)
    assert changed(pinned.address, 3) == 9.0
    assert held.small["a"].tolist() == [0, 0, 0, 5, 0]
    assert held.deep[1, 2, 0, 3] == -1.0


def test_a_table_that_lies_otherwise_is_taken_as_a_copy():
    held = Pair(np.zeros(1, pair(1).small.dtype), np.arange(24.0).reshape(4, 1, 3, 2).T)
    assert changed(Pinned(held, LIKE).address, 0) == held.deep[0, 2, 0, 1]


def test_arrays_of_other_axes_are_refused():
    with pytest.raises(TypeError, match="3 axes where compiled code knows 4"):
        Pinned(Pair(pair(1).small, np.zeros((1, 1, 1))), LIKE)


def answered(ids, widths, rows_b, segment=4):
    frame = answer_frame(ANSWER, Report(received=1), [(0, 0, 3, 1, 0.5)], segment, ids, widths)
    return np.frombuffer(frame, np.uint8)[HEAD.size :], rows_b


class Sent:
    """A fleet that has sent slot 2 to its only server."""

    def __init__(self):
        self.f, self.x = live_arrays(PROFILE, 8, Knobs())
        self.pins = Pins(self.f, self.x)
        self.pins.use(router_of("shortest_queue", PROFILE).rule)
        self.f.conf["servers"], self.x.member["uid"][0] = 1, 7
        self.x.row_b[4] = ROW_B
        self.x.new_slot[0], self.x.new_hard_s[0], self.x.new_due_s[0] = 2, np.inf, 10.0
        assert pump_at(*self.pins.at, self.pins.rule_at, 1, 0, 0.0)[:2] == (1, 1)
        self.id = int(self.x.out_id[0])

    def book(self, meta, tensor_b):
        return book_at(*self.pins.at, 0, meta, True, tensor_b, 1.0)


def test_an_answer_is_booked_as_it_lies_in_its_frame():
    sent = Sent()
    assert sent.book(*answered([sent.id], WHOLE, ROW_B)) == (1, 0)
    assert (int(sent.x.out_back[0]), int(sent.x.out_mark[0])) == (2, 255)
    assert sent.x.tally[0]["away"] == 0


@pytest.mark.parametrize(
    ("widths", "rows_b", "segment"),
    [
        (WHOLE, ROW_B - 4, 4),  # too few bytes
        ([(3, 3, 3, 9)], ROW_B, 4),  # no width
        (WHOLE, ROW_B, 5),  # no segment
        (WHOLE, ROW_B, 0),
    ],
)
def test_an_answer_that_does_not_fit_together_is_not_booked(widths, rows_b, segment):
    sent = Sent()
    assert sent.book(*answered([sent.id], widths, rows_b, segment))[0] == MISFIT
    assert sent.x.tally[0]["away"] == 1


def test_an_answer_that_is_cut_short_is_not_read():
    sent = Sent()
    meta, rows_b = answered([sent.id], WHOLE, ROW_B)
    for size in (0, 50, 104, 112, len(meta) - 8):
        assert sent.book(meta[:size], rows_b)[0] == MISFIT
    assert sent.x.tally[0]["away"] == 1
