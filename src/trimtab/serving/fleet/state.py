"""The arrays of a live fleet: a simulated one's, on the real clock, and what only a live one needs.

A row of an image in a request takes a slot: a row of `Fleets.request`. A slot is used again and
again; its generation tells an answer to its present request from a late one to an earlier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.nouns import SEGMENTS, TUPLES, WIDTHS
from trimtab.serving.routing.fleet_state import Fleets, fleets
from trimtab.serving.routing.greedy import NONE, Knobs
from trimtab.serving.view import RATIO_EDGES

SERVERS_MAX = 64
HOP_S = 5e-4  # front to server and back on one machine; a guess that rules take from the slack

SLOT = np.dtype(
    [
        ("generation", "i8"),
        ("open", "i8"),  # 1 = belongs to a request that waits for its answer
        ("queued", "i8"),  # 1 = in a line of the front
        ("uid", "i8"),  # of the server that has it, or NONE
        ("avoid", "i8"),  # the server that lost it, or NONE
        ("losses", "i8"),
        ("rank", "i8"),  # urgency, the lowest first
        ("hard_s", "f8"),  # no answer is wanted after that
        ("due_s", "f8"),  # in time until then
        ("sent_s", "f8"),
        ("cost_s", "f8"),  # its share of worker seconds in the profile's time
        ("expect_s", "f8"),  # from sending to the answer
    ]
)
MEMBER = np.dtype(
    [
        ("uid", "i8"),
        ("sent", "i8"),  # rows
        ("backlog_s", "f8"),  # of the profile's worker seconds
        ("plan_s", "f8"),  # what batches should have taken, smoothed
        ("real_s", "f8"),  # what they took
    ]
)
BATCH = np.dtype(
    [
        ("first", "i8"),  # in out_slot
        ("count", "i8"),
        ("server", "i8"),
        ("sent", "i8"),
        ("segment", "i8"),
        ("before", "i8"),
        ("width", "i8"),
        ("plan", "i8"),  # tuple for the whole way, or NONE = this segment only
    ]
)
TALLY = np.dtype(
    [
        ("batches", "i8"),  # used rows of the out arrays
        ("slots", "i8"),
        ("late", "i8"),
        ("freed", "i8"),
        ("failed", "i8"),
        ("away", "i8"),  # rows at servers
        ("resent", "i8"),
        ("slimmest", "i8"),  # tuple for requests that no rule wants
        ("held", "i8"),  # 1 = the router waits for an event
        ("next_s", "f8"),  # the earliest hard deadline
        ("margin", "f8"),  # share of a request's time that rules may not plan with
    ]
)


class Live(NamedTuple):
    """What a live fleet of R slots has beside its `Fleets`. Out arrays are read after each call."""

    slot: Array  # (R,) SLOT
    member: Array  # (SERVERS_MAX,) MEMBER, beside Fleets.server
    tally: Array  # (1,) TALLY
    new_slot: Array  # (R,) arrivals of this turn
    new_arrival_s: Array  # (R,)
    new_hard_s: Array  # (R,)
    new_due_s: Array  # (R,)
    new_rank: Array  # (R,)
    out_batch: Array  # (R,) BATCH to send
    out_slot: Array  # (R,) of those batches
    out_id: Array  # (R,) what servers call them: the slot's generation tells a late answer
    out_back: Array  # (R,) slots that a server sent back
    out_mark: Array  # (R,) and what became of them
    out_late: Array  # (R,) slots whose deadline passed or cannot be met
    out_freed: Array  # (R,) slots that nobody waits for and that have left their line
    out_failed: Array  # (R,) slots lost twice
    widths: Array  # (256,) rows answered with each tuple
    ratios: Array  # (len(RATIO_EDGES) + 1,) batches, by their real over their expected time
    row_b: Array  # (SEGMENTS + 1, 4) bytes that a row takes into a segment, by the width before


def live_arrays(profile: ServeProfile, slots: int, knobs: Knobs) -> tuple[Fleets, Live]:
    """A fleet with no server and nothing waiting, at 0 s."""
    f = fleets(profile, 1, slots, speeds=(1.0,) * SERVERS_MAX, knobs=knobs, warm=(), hop_s=HOP_S)
    f.fleet["draw"] = 1
    f.request["plan"] = f.request["server"] = NONE
    for lines in (f.pending, f.lines):
        lines["first"] = lines["last"] = NONE
    f.conf["servers"] = 0
    f.server_new["speed"] = 0.0  # the fastest is looked for among all rows
    x = Live(
        slot=np.zeros(slots, SLOT),
        member=np.zeros(SERVERS_MAX, MEMBER),
        tally=np.zeros(1, TALLY),
        new_slot=np.zeros(slots, np.int64),
        new_arrival_s=np.zeros(slots),
        new_hard_s=np.zeros(slots),
        new_due_s=np.zeros(slots),
        new_rank=np.zeros(slots, np.int64),
        out_batch=np.zeros(slots, BATCH),
        out_slot=np.zeros(slots, np.int64),
        out_id=np.zeros(slots, np.int64),
        out_back=np.zeros(slots, np.int64),
        out_mark=np.zeros(slots, np.int64),
        out_late=np.zeros(slots, np.int64),
        out_freed=np.zeros(slots, np.int64),
        out_failed=np.zeros(slots, np.int64),
        widths=np.zeros(len(TUPLES), np.int64),
        ratios=np.zeros(len(RATIO_EDGES) + 1, np.int64),
        row_b=np.zeros((SEGMENTS + 1, len(WIDTHS)), np.int64),
    )
    x.slot["uid"] = x.slot["avoid"] = x.member["uid"] = NONE
    x.tally["next_s"] = np.inf
    return f, x
