"""Servers sit in rows without gaps, and what they can do bounds what is let in."""

import pytest

from trimtab.errors import ServeError
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.router import router_of
from trimtab.serving.fleet.seats import Capacity, seat, unseat, warm_keys, width_table
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.net.serve_profile import modelled, tuple_s
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.routing.greedy import NONE, Knobs
from trimtab.serving.service import fixed_row

PROFILE = modelled()
BATCH = 16


def fleet_of(*shares):
    f, x = live_arrays(PROFILE, 8, Knobs())
    seated, members = [], []
    for uid, share in enumerate(shares, 1):
        member = Member(None, True)
        member.uid, member.share = uid, share
        members.append(member)
        assert seat(f, x, seated, member, 0.0)
    return f, x, seated, members


def test_a_server_that_leaves_is_replaced_by_the_last_one():
    f, x, seated, members = fleet_of(0.1, 0.2, 0.3)
    f.request["server"][:4] = [0, 1, 2, NONE]
    unseat(f, x, seated, members[0])
    assert [member.uid for member in seated] == [3, 2]
    assert [member.row for member in members] == [NONE, 1, 0]
    assert f.server["speed"][:2].tolist() == [0.3, 0.2]
    assert x.member["uid"][:3].tolist() == [3, 2, NONE]
    assert f.request["server"][:4].tolist() == [0, 1, 0, NONE]
    assert f.conf[0]["servers"] == 2


def test_all_may_leave_and_one_who_has_no_seat_may_leave_again():
    f, x, seated, members = fleet_of(1.0, 1.0)
    for member in (members[1], members[0], members[0]):
        unseat(f, x, seated, member)
    assert (seated, int(f.conf[0]["servers"])) == ([], 0)


def capacity(router="max_batch", shares=(1.0,), objective_s=1.0, margin=0.15):
    f, *_ = fleet_of(*shares)
    found = Capacity(PROFILE, BATCH, objective_s, margin)
    found.count(f, router_of(router, PROFILE, fixed=255))
    return found


def test_what_is_let_in_is_answered_within_the_objective_at_the_slimmest():
    full_s = tuple_s(PROFILE, BATCH)[0]
    found = capacity()
    assert found.hz == pytest.approx(BATCH / full_s)
    assert found.rows <= 0.85 * found.hz
    assert found.rows > 0.85 * found.hz - BATCH


def test_a_rule_that_never_slims_lets_less_in():
    wide = capacity("shortest_queue")
    assert wide.hz == pytest.approx(BATCH / tuple_s(PROFILE, BATCH)[255])
    assert wide.rows < capacity("max_batch").rows


def test_speed_counts_and_a_slow_server_still_gets_two_rows():
    assert capacity(shares=(1.0, 1.0)).rows == 2 * capacity().rows
    assert capacity(objective_s=1e-6).rows == 2


def test_the_margin_grows_while_answers_are_late_and_shrinks_while_requests_are_refused():
    found = capacity()
    for turn in range(1, 100):
        found.learn(100 * turn, 90 * turn, 0)
    assert found.margin == 0.5
    for turn in range(1, 1000):
        found.learn(10_000 + 100 * turn, 9_000 + 100 * turn, turn)
    assert found.margin == pytest.approx(0.1)


def test_the_margin_grows_in_proportion_to_what_is_late():
    grown = []
    for late in (3, 6, 90):
        found = capacity()
        found.learn(100, 100 - late, 0)
        grown.append(found.margin - 0.15)
    assert grown == pytest.approx([0.03, 0.06, 0.1])


def test_after_a_hiccup_without_refusals_the_margin_goes_back_to_what_it_was():
    found = capacity()
    found.learn(100, 0, 0)
    assert found.margin > 0.2
    for turn in range(2, 100):
        found.learn(100 * turn, 100 * (turn - 1), 0)
    assert found.margin == pytest.approx(0.15)


def test_without_refusals_or_lateness_the_margin_stays():
    found = capacity()
    for turn in range(100):
        found.learn(100 * turn, 100 * turn, 0)
    assert found.margin == 0.15


def test_a_router_warms_all_that_it_may_ask_for():
    assert len(warm_keys(router_of("random", PROFILE))) == 4 + 3 * 16
    fixed = warm_keys(router_of("shortest_queue", PROFILE, fixed=row_of((0, 1, 2, 3))))
    assert {(0, 0, 0), (1, 0, 1), (2, 1, 2), (3, 2, 3)} <= set(fixed)
    assert {(segment, 3 if segment else 0, 3) for segment in range(4)} <= set(fixed)


def test_sent_widths_leave_out_what_has_run():
    table = width_table()
    assert table[row_of((0, 1, 2, 3)), 2] == (255, 255, 2, 3)
    assert table[NONE - 3, 1] == (255, 3, 255, 255)


def test_fixed_widths_are_read():
    assert fixed_row("") == 255
    assert fixed_row("0.5") == row_of((1, 1, 1, 1))
    assert fixed_row("0.25,0.5,.75,1") == row_of((0, 1, 2, 3))
    for wrong in ("0.3", "1,1", "x", "0.25,0.5,0.75,2"):
        with pytest.raises(ServeError, match="such as"):
            fixed_row(wrong)
