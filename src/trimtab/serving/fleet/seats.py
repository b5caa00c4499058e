"""Which rows of a live fleet's arrays belong to which servers, and what these can do together.

Rules loop over the first `servers` rows, so those who are given work sit there without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.arrays import Array
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.router import Router, slimmest_of
from trimtab.serving.fleet.state import SERVERS_MAX, Live
from trimtab.serving.net.serve_profile import ServeProfile, tuple_s
from trimtab.serving.nouns import SEGMENTS, TUPLES, WIDTHS
from trimtab.serving.routing.fleet_state import Fleets
from trimtab.serving.routing.greedy import NONE
from trimtab.serving.routing.routers import BY_NAME, HEADS, RANDOM

MARGINS = (0.1, 0.5)  # share of a request's time that is kept for what nobody can plan
LATE_MAX = 0.02  # of the answers, before more is kept
LEARN_ANSWERS = 50  # between two looks at that
MORE, MORE_MAX, LESS = 0.02, 0.1, 0.005  # steps: at LATE_MAX and, in proportion, at most; back
PRIOR_S = 0.1  # worker seconds that a server's word for its speed counts for
PLANLESS = (RANDOM, HEADS)  # routers that choose every segment anew, and any width
UNIFORM = [0, 85, 170, 255]


def seat(f: Fleets, x: Live, seated: list[Member], member: Member, now_s: float) -> bool:
    """Give a server a row; False where all are taken."""
    v = len(seated)
    if v == SERVERS_MAX:
        return False
    server = f.server[v]
    for name in ("busy", "waiting", "coming", "loading", "util", "busy_s"):
        server[name] = 0
    server["workers"], server["speed"], server["util_s"] = member.workers, member.share, now_s
    x.member[v] = (member.uid, member.report.received, 0.0, PRIOR_S * member.share, PRIOR_S)
    member.row = v
    seated.append(member)
    f.conf["servers"] = len(seated)
    return True


def unseat(f: Fleets, x: Live, seated: list[Member], member: Member) -> None:
    """Take a server's row away; the last one moves into its place."""
    v, last = member.row, len(seated) - 1
    if v == NONE:
        return
    f.server[v], x.member[v] = f.server[last], x.member[last]
    f.free_s[v] = f.free_s[last]
    x.member[last]["uid"] = NONE
    moved = seated.pop()
    if moved is not member:
        seated[v] = moved
        moved.row = v
    of = f.request["server"]
    of[of == v] = 0
    of[of == last] = v if last != v else 0
    member.row = NONE
    f.conf["servers"] = last


def warm_keys(router: Router) -> list[tuple[int, int, int]]:
    """(segment, before, width) of all that a router may ask for."""
    rule = router.rule
    number = int(rule.router[0])
    rows: Sequence[int] = [int(rule.fixed[0]), *(int(row) for row in rule.tuples)]
    if number in PLANLESS:
        rows = range(len(TUPLES))
    elif number in (BY_NAME["round_robin"], BY_NAME["shortest_queue"], BY_NAME["two_choices"]):
        rows = [*UNIFORM, *rows[:1]]
    keys = set()
    for row in rows:
        widths = TUPLES[row]
        keys |= {(s, widths[s - 1] if s else 0, widths[s]) for s in range(SEGMENTS)}
    return sorted(keys)


class Capacity:
    """What the seated servers answer a second, and how many rows may be open at once.

    Rows are let in as long as batches at the slimmest width can answer them within the objective,
    less a margin. Rules see the same margin: with less room than that they would never be pressed
    to the slimmest width, with more they would be late. It is learned, because a machine that
    others use too needs more to spare.
    """

    def __init__(
        self, profile: ServeProfile, batch_max: int, objective_s: float, margin: float
    ) -> None:
        self.batch_max, self.objective_s = batch_max, objective_s
        # (batch_max, 256) seconds of a batch of 1, 2, ...
        self.batch_s: Array = np.array([tuple_s(profile, n) for n in range(1, batch_max + 1)])
        self.hz, self.rows = 0.0, 2 * batch_max
        self.margin = self.first = margin
        self.answered = self.in_time = self.refused = 0

    def count(self, f: Fleets, router: Router) -> None:
        """Look anew: servers come and go, and their speeds change."""
        servers = int(f.conf[0]["servers"])
        rows = f.server[:servers]
        power = rows["speed"] * rows["workers"]
        f.server_new["speed"] = 0.0
        f.server_new["speed"][:servers] = rows["speed"]
        f.conf["scale_hz"] = max(power.sum(), 1e-9) * self.batch_max / self.batch_s[-1, -1]
        if not servers:
            return  # what waits for a server to come back may stay
        if int(router.rule.router[0]) in PLANLESS:
            batch_s = self.batch_s[:, UNIFORM].mean(axis=1)
        else:
            batch_s = self.batch_s[:, slimmest_of(router)]
        self.hz = float(power.sum()) * self.batch_max / float(batch_s[-1])
        sizes, open_rows = np.arange(1, self.batch_max + 1), 0
        budget_s = (1 - self.margin) * self.objective_s
        for speed, workers in zip(rows["speed"].tolist(), rows["workers"].tolist(), strict=True):
            batches = np.floor(budget_s * speed / batch_s)
            # one that runs and one that waits, however slow it is
            open_rows += workers * max(int((batches * sizes).max()), 2)
        self.rows = open_rows

    def learn(self, answered: int, in_time: int, refused: int) -> None:
        """Keep more to spare where answers are late, less where few are.

        Much at once where many are late: a flood takes cores from the servers from one moment to
        the next. Back to what it was at first, and below that only where requests are refused.
        """
        done = answered - self.answered
        if done < LEARN_ANSWERS:
            return
        late = (done - (in_time - self.in_time)) / done
        if late > LATE_MAX:
            more = min(MORE * late / LATE_MAX, MORE_MAX)
            self.margin = max(min(self.margin + more, MARGINS[1]), self.margin)
        elif late < LATE_MAX / 2:
            least = MARGINS[0] if refused > self.refused else max(self.first, MARGINS[0])
            self.margin = min(max(self.margin - LESS, least), self.margin)
        self.answered, self.in_time, self.refused = answered, in_time, refused


def width_table() -> dict[tuple[int, int], tuple[int, ...]]:
    """The widths to send for (plan, first segment): 255 where nothing is asked for."""
    table = {}
    for plan, widths in enumerate(TUPLES):
        for segment in range(SEGMENTS):
            table[plan, segment] = (255,) * segment + widths[segment:]
    for width in range(len(WIDTHS)):
        for segment in range(SEGMENTS):
            one = [255] * SEGMENTS
            one[segment] = width
            table[NONE - width, segment] = tuple(one)
    return table
