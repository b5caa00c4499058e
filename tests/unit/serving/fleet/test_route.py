"""The pump routes by the simulated fleet's rules, and books what comes back exactly once."""

import numpy as np
import pytest

from trimtab.errors import UnknownName
from trimtab.serving.fleet.route import (
    ON,
    STALE,
    book,
    forget,
    lose_ids,
    lose_server,
    lose_stuck,
    pump,
    sweep,
)
from trimtab.serving.fleet.router import router_of, slimmest_of
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.routing import routers
from trimtab.serving.routing.greedy import NONE, Knobs
from trimtab.serving.view import RATIO_EDGES

PROFILE = modelled()
SLOTS = 16
NO_RUNS, NO_IDS, NO_WIDTHS = np.zeros((0, 5)), np.zeros(0, np.int64), np.zeros((0, 4), np.uint8)
for blank in (NO_RUNS, NO_IDS, NO_WIDTHS):
    blank.flags.writeable = False


class History:
    """A fleet's arrays and the calls that change them."""

    def __init__(self, router: str, servers: int = 1, batch_max: int = 16) -> None:
        self.rule = router_of(router, PROFILE, batch_max=batch_max).rule
        self.f, self.x = live_arrays(PROFILE, SLOTS, Knobs(batch_max=batch_max))
        self.f.conf["servers"] = servers
        self.f.server_new["speed"][:servers] = 1.0
        self.x.member["uid"][:servers] = range(1, servers + 1)
        self.x.tally["slimmest"] = 0

    def come(self, *slots, now_s=0.0, due_s=10.0, hard_s=np.inf, rank=2):
        for at, slot in enumerate(slots):
            self.x.new_slot[at], self.x.new_rank[at] = slot, rank
            self.x.new_arrival_s[at], self.x.new_due_s[at] = now_s, due_s
            self.x.new_hard_s[at] = hard_s
        return self.go(now_s, len(slots))

    def go(self, now_s=0.0, arrivals=0, refused=0):
        """[(server, plan, slots)] that are sent."""
        pump(self.f, self.x, self.rule, arrivals, refused, now_s)
        rows = self.x.out_batch[: self.x.tally[0]["batches"]]
        return [
            (int(r["server"]), int(r["plan"]), self.x.out_slot[r["first"] :][: r["count"]].tolist())
            for r in rows
        ]

    def back(self, ids, widths, segment=4, v=0, busy=0, waiting=0, received=99, now_s=1.0, runs=()):
        marks = np.zeros(SLOTS, np.int64)
        given = [np.array(runs, np.float64).reshape(-1, 5), np.array(ids, np.int64)]
        given.append(np.array(widths, np.uint8).reshape(-1, 4))
        for array in given:
            array.flags.writeable = False
        book(self.f, self.x, v, (received, busy, waiting), 0.0, *given, segment, marks, now_s)
        return marks[: len(ids)].tolist()

    def id_of(self, slot):
        return int(self.x.slot["generation"][slot]) * SLOTS + slot


def test_arrivals_are_sent_with_the_tuple_that_the_rule_names():
    played = History("shortest_queue", servers=2)
    assert played.come(3, 5) == [(0, 255, [3]), (1, 255, [5])]
    assert played.x.tally[0]["away"] == 2


def test_the_pump_asks_the_same_function_as_the_simulator():
    assert pump.py_func.__globals__["decided"].py_func.__globals__["choose"] is routers.choose


def test_a_rule_that_holds_is_asked_again_when_a_server_is_free():
    played = History("max_batch")
    first = played.come(0, 1, 2)
    assert [slots for _, _, slots in first] == [[0, 1, 2]]
    assert played.come(4, now_s=0.01) == []
    assert played.x.tally[0]["held"] == 1
    played.back([played.id_of(0), played.id_of(1), played.id_of(2)], [(3, 3, 3, 3)] * 3)
    assert [slots for _, _, slots in played.go(1.0)] == [[4]]


def test_without_servers_requests_wait():
    played = History("max_batch", servers=0)
    assert played.come(0, 1) == []
    assert played.f.fleet[0]["pending"] == 2
    played.f.conf["servers"] = 1
    assert [slots for _, _, slots in played.go(0.1)] == [[0, 1]]


def test_an_answer_counts_once_and_a_stale_one_never():
    played = History("shortest_queue")
    played.come(2)
    given = played.id_of(2)
    assert played.back([given], [(0, 1, 2, 3)]) == [0b00011011]
    assert played.back([given], [(0, 1, 2, 3)]) == [STALE]
    assert played.f.fleet[0]["answered"] == 1
    assert played.x.widths[0b00011011] == 1
    assert played.f.fleet[0]["accuracy"] == pytest.approx(PROFILE.accuracy[0b00011011])


@pytest.mark.parametrize("given", [-1, -17, 1 << 60, 3])
def test_ids_that_nobody_has_are_stale(given):
    played = History("shortest_queue")
    played.come(2)
    assert played.back([given], [(0, 0, 0, 0)]) == [STALE]
    assert played.x.tally[0]["away"] == 1


def test_a_row_that_comes_back_half_way_is_routed_on_from_there():
    played = History("random")
    [(_, plan, _)] = played.come(6)
    assert plan == NONE
    assert played.back([played.id_of(6)], [(2, 255, 255, 255)], segment=1) == [ON]
    played.go(1.0)
    batch = played.x.out_batch[0]
    assert (batch["segment"], batch["before"]) == (1, 2)


def test_half_way_rows_go_on_under_a_rule_that_plans():
    played = History("random")
    played.come(6)
    played.back([played.id_of(6)], [(2, 255, 255, 255)], segment=1)
    played.rule = router_of("max_batch", PROFILE).rule
    [(server, plan, slots)] = played.go(1.0)
    assert (server, plan, slots) == (0, 0, [6])


def test_a_lost_server_gives_its_rows_back_to_another_and_a_second_loss_ends_them():
    played = History("shortest_queue", servers=2)
    [(server, _, _)] = played.come(1)
    old = played.id_of(1)
    lose_server(played.f, played.x, server + 1)
    [(other, _, slots)] = played.go(0.1)
    assert (other, slots) == (1 - server, [1])
    assert played.back([old], [(0, 0, 0, 0)], v=server) == [STALE]
    lose_server(played.f, played.x, other + 1)
    assert played.x.out_failed[: played.x.tally[0]["failed"]].tolist() == [1]
    assert (played.x.tally[0]["away"], played.x.tally[0]["resent"]) == (0, 1)


def test_rows_that_a_server_refuses_go_elsewhere():
    played = History("shortest_queue", servers=2)
    [(server, _, _)] = played.come(1)
    lose_ids(played.f, played.x, np.array([played.id_of(1), 12345]))
    [(other, _, _)] = played.go(0.1)
    assert other != server


def test_lost_rows_go_ahead_of_those_that_came_later():
    played = History("max_batch", batch_max=1)
    played.come(0)
    played.come(1, 2, now_s=0.01)
    lose_server(played.f, played.x, 1)
    played.f.server[0]["busy"] = 0
    assert played.go(0.02)[0][2] == [0]


def test_stuck_rows_are_taken_back_only_where_another_server_is():
    for servers, resent in ((1, 0), (2, 1)):
        played = History("shortest_queue", servers=servers)
        played.come(0)
        lose_stuck(played.f, played.x, 0.5)
        assert played.x.tally[0]["resent"] == 0
        lose_stuck(played.f, played.x, 100.0)
        assert played.x.tally[0]["resent"] == resent


def test_the_more_urgent_stand_first_and_equals_in_order():
    played = History("max_batch", servers=0, batch_max=1)
    for slot, rank in enumerate((2, 5, 2, 1, 5, 1)):
        played.come(slot, rank=rank)
    played.f.conf["servers"] = 1
    order = []
    for turn in range(6):
        [(_, _, [slot])] = played.go(0.1 * turn)
        order.append(slot)
        played.back([played.id_of(slot)], [(0, 0, 0, 0)], now_s=0.1 * turn)
    assert order == [3, 5, 0, 2, 1, 4]


def test_hard_deadlines_that_pass_are_found_and_the_next_one_is_told():
    played = History("shortest_queue", servers=0)
    played.come(0, hard_s=1.0)
    played.come(1, hard_s=2.0)
    sweep(played.f, played.x, 1.5)
    assert played.x.out_late[: played.x.tally[0]["late"]].tolist() == [0]
    assert played.x.tally[0]["next_s"] == 2.0


def test_a_forgotten_slot_leaves_its_line_before_it_is_free():
    played = History("max_batch", servers=0)
    played.come(0, 1, 2)
    assert not forget(played.f, played.x, 1)
    sweep(played.f, played.x, 0.0)
    assert played.x.out_freed[: played.x.tally[0]["freed"]].tolist() == [1]
    assert played.f.fleet[0]["pending"] == 2
    played.f.conf["servers"] = 1
    assert [slots for _, _, slots in played.go(0.1)] == [[0, 2]]


def test_a_forgotten_slot_at_a_server_is_free_at_once():
    played = History("shortest_queue")
    played.come(0)
    given = played.id_of(0)
    assert forget(played.f, played.x, 0)
    assert played.x.tally[0]["away"] == 0
    assert played.back([given], [(0, 0, 0, 0)]) == [STALE]


def test_speed_is_the_profiles_time_over_the_real_one():
    played = History("shortest_queue")
    real_s = 4 * float(PROFILE.time_s[0, 0, 3, 0])
    for _ in range(2000):
        played.back([], [], runs=[(0, 0, 3, 1, real_s)])
    assert played.f.server[0]["speed"] == pytest.approx(0.25, rel=0.05)


def test_batches_are_counted_by_their_real_over_their_expected_time():
    played = History("shortest_queue")
    real_s = float(PROFILE.time_s[0, 0, 3, 0])
    for ratio in (0.1, 1.3, 100.0):
        played.f.server[0]["speed"] = 1.0
        played.back([], [], runs=[(0, 0, 3, 1, ratio * real_s)])
    counted = np.flatnonzero(played.x.ratios)
    assert counted[0] == 0 and counted[-1] == len(RATIO_EDGES)
    assert RATIO_EDGES[counted[1] - 1] < 1.3 <= RATIO_EDGES[counted[1]]


def test_rows_sent_since_a_report_are_still_coming():
    played = History("shortest_queue")
    played.come(0, 1, 2)
    played.back([], [], busy=1, waiting=1, received=2)
    server = played.f.server[0]
    assert (server["busy"], server["waiting"], server["coming"]) == (1, 1, 1)


def test_a_rule_that_holds_for_ever_is_overruled():
    played = History("max_batch")
    played.f.server[0]["waiting"] = 5  # never idle, though nothing is away
    assert played.come(0) == []
    assert played.x.tally[0]["held"] == 1
    assert [slots for _, _, slots in played.go(1.0)] == [[0]]


def test_an_unknown_router_is_a_mistake_and_a_broken_file_is_not(tmp_path):
    with pytest.raises(UnknownName, match="max_batch"):
        router_of("nonsense", PROFILE)
    path = tmp_path / "router.npz"
    for content in (b"", b"not a zip", b"PK\3\4" + bytes(100)):
        path.write_bytes(content)
        found = router_of(str(path), PROFILE)
        assert "fallback" in found.name
        assert "router.npz" in found.problem
        assert slimmest_of(found) == 0
    assert router_of(str(tmp_path / "none.npz"), PROFILE).problem
