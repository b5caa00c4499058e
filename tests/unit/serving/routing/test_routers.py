"""Routers: each one's choice by hand, and the bound that none passes."""

import numpy as np
import pytest

from trimtab.errors import ServeError, UnknownName
from trimtab.serving.net.serve_profile import front, load, modelled, tuple_s
from trimtab.serving.routing import arrivals, routers
from trimtab.serving.routing.fleet_state import LATE, begin, fleets, totals
from trimtab.serving.routing.greedy import Knobs

PROFILE = modelled(hand_over_s=0.0)
KEPT = Knobs(idle_unload_s=np.inf)


def ran(name, arrival_s, objective_s=0.3, *, knobs=KEPT, fixed=255, **options):
    made = fleets(PROFILE, 1, len(arrival_s), knobs=knobs, **options)
    begin(made, arrival_s, objective_s)
    routers.run(made, routers.rule(PROFILE, name, fixed=fixed, batch_max=knobs.batch_max))
    return made


def apart(count):
    """Arrivals so far apart that no two meet."""
    return np.arange(1.0, count + 1)


def test_round_robin_takes_turns():
    made = ran("round_robin", apart(6), speeds=(1.0, 1.0, 0.5))
    assert made.request["server"].tolist() == [0, 1, 2, 0, 1, 2]


def test_the_shortest_queue_counts_speed():
    made = ran("shortest_queue", np.zeros(4), np.inf, speeds=(1.0, 0.25), fixed=0)
    # queues over speed as each comes: 0 and 0, 1 and 0, 1 and 4, 2 and 4
    assert made.request["server"].tolist() == [0, 1, 0, 0]


def test_two_choices_leaves_no_server_out_and_none_far_behind():
    made = ran("two_choices", np.zeros(90), np.inf, speeds=(1.0, 1.0, 1.0), fixed=0)
    counts = np.bincount(made.request["server"], minlength=3)
    assert counts.min() >= 20


def test_random_uses_every_server_and_width():
    made = ran("random", apart(200), speeds=(1.0, 1.0))
    assert set(made.request["server"]) == {0, 1}
    for segment in range(4):
        assert set(made.request["widths"] // 4**segment % 4) == {0, 1, 2, 3}


def test_a_fixed_tuple_is_kept():
    made = ran("shortest_queue", apart(3), fixed=27)
    assert made.request["widths"].tolist() == [27] * 3


def test_priced_answers_at_once_where_waiting_wins_nothing():
    profile = load("h200")  # a batch of 16 takes little longer than one of 1
    made = fleets(profile, 1, 32, knobs=KEPT)
    begin(made, np.zeros(32), 0.1)
    routers.run(made, routers.rule(profile, "priced"))
    latency_s = made.request["done_s"] - made.request["arrival_s"]
    assert (made.request["widths"] == 255).all()
    assert latency_s.max() < 4 * tuple_s(profile, 16)[255]


@pytest.mark.parametrize("name", ["max_accuracy", "max_batch", "slack_fit"])
def test_a_lone_request_gets_the_most_accurate_tuple_that_fits_its_slack(name):
    rows = front(PROFILE, 16)
    for row in rows[[3, 10, -1]]:
        slack_s = tuple_s(PROFILE, 1)[row] + 1e-6
        made = ran(name, np.array([1.0]), slack_s)
        fitting = rows[tuple_s(PROFILE, 1)[rows] <= slack_s]
        chosen = made.request["widths"][0]
        assert chosen in fitting and totals(made).in_time == 1
        if name != "slack_fit":  # which is content with its step of latency
            assert PROFILE.accuracy[chosen] == PROFILE.accuracy[fitting].max()


def test_max_batch_prefers_the_batch_and_max_accuracy_the_tuple():
    slack_s = tuple_s(PROFILE, 8)[0] * 1.05 + tuple_s(PROFILE, 1)[255]
    # the first goes alone; eight more wait for it and have just the slack for the slimmest batch
    arrival_s = np.append(0.0, np.full(8, 1e-4))
    found = {name: ran(name, arrival_s, slack_s) for name in ("max_batch", "max_accuracy")}
    together = found["max_batch"].request["done_s"][1:]
    assert len(set(together)) == 1
    assert len(set(found["max_accuracy"].request["done_s"][1:])) > 1


def test_the_rate_router_slims_down_as_arrivals_quicken():
    slow = ran("rate", arrivals.poisson(500, 20.0, np.random.default_rng(0)))
    fast = ran("rate", arrivals.poisson(500, 120.0, np.random.default_rng(0)))
    assert totals(slow).accuracy > totals(fast).accuracy
    assert totals(fast).in_time > 450


def test_the_slimmest_answers_what_full_width_cannot():
    arrival_s = arrivals.poisson(400, 150.0, np.random.default_rng(0))
    assert totals(ran("slimmest", arrival_s)).in_time == 400
    assert totals(ran("shortest_queue", arrival_s)).in_time < 200


def test_mixed_tuples_are_at_least_as_accurate_as_uniform_ones_in_their_time():
    mixed, uniform = (routers.rule(PROFILE, "rate", mixed=mixed) for mixed in (True, False))
    for cost_s, row in zip(uniform.cost_s, uniform.tuples):
        fitting = mixed.tuples[mixed.cost_s <= cost_s + 1e-12]
        assert PROFILE.accuracy[fitting].max() >= PROFILE.accuracy[row]


def test_looking_ahead_gives_a_lone_request_the_most_accurate_tuple_that_fits():
    rows = front(PROFILE, 16)
    for row in rows[[3, 10, -1]]:
        slack_s = tuple_s(PROFILE, 1)[row] / 0.99 + 1e-6  # it keeps a hundredth
        made = ran("priced", np.array([1.0]), slack_s)
        fitting = rows[tuple_s(PROFILE, 1)[rows] <= 0.99 * slack_s]
        assert made.request["widths"][0] == fitting[-1] and totals(made).in_time == 1


def test_looking_ahead_saves_time_for_those_behind():
    # alone it would take the widest; two that wait for it behind would then be late
    service_s = tuple_s(PROFILE, 1)
    objective_s = 1.1 * service_s[255]
    alone = ran("priced", np.array([1.0]), objective_s)
    crowd = ran("priced", np.array([1.0, 1.0, 1.0]), objective_s, knobs=KEPT._replace(batch_max=1))
    assert totals(crowd).in_time == 3
    assert crowd.request["widths"][0] < alone.request["widths"][0]


@pytest.mark.parametrize("seed", range(3))
def test_looking_ahead_beats_the_other_rules_in_a_mixed_fleet(seed):
    rng = np.random.default_rng(seed)
    for shape, rate_hz in ((arrivals.poisson, 90.0), (arrivals.bursty, 60.0)):
        arrival_s = shape(1500, rate_hz, rng)
        found = {
            name: totals(ran(name, arrival_s, 0.25, speeds=(1.0, 1.0, 0.45))).good
            for name in ("priced", "max_batch", "slack_fit", "rate", "slimmest")
        }
        assert max(found, key=found.get) == "priced"


def test_what_is_late_anyway_is_answered_together_where_nothing_is_given_up():
    made = ran("priced", np.ones(16), 1e-3, drop_late=False)
    assert totals(made).answered == 16 and totals(made).in_time == 0
    assert made.request["done_s"] == pytest.approx(np.full(16, 1 + tuple_s(PROFILE, 16)[0]))


def test_a_head_too_late_for_the_idle_server_waits_for_a_faster_one():
    one_s = tuple_s(PROFILE, 1)[0]
    objective_s = np.array([1.0, 2.1 * one_s])
    made = fleets(PROFILE, 1, 2, speeds=(1.0, 0.2), knobs=KEPT._replace(batch_max=1))
    rules = routers.rule(PROFILE, "fixed", fixed=0, batch_max=1)
    begin(made, np.array([1.0, 1.0]), objective_s)
    routers.run(made, rules._replace(router=np.array([routers.PRICED])))
    # the slow one would take five times as long; the fast one is free just in time
    assert made.request["server"].tolist() == [0, 0] and totals(made).in_time == 2


def test_a_head_that_would_cost_many_behind_it_is_given_up():
    profile = modelled(
        hand_over_s=0.0, launch_s=0.02
    )  # one alone takes over half as long as sixteen
    one_s, sixteen_s = tuple_s(profile, 1)[0], tuple_s(profile, 16)[0]
    assert one_s > 0.5 * sixteen_s
    made = fleets(profile, 1, 17, knobs=KEPT)
    # those behind have just the slack for one batch, and none once the head has run
    begin(made, np.ones(17), np.append(one_s + 2e-3, np.full(16, sixteen_s + 2e-3)))
    routers.run(made, routers.rule(profile, "priced"))
    assert totals(made).in_time == 16 and made.request["outcome"][0] == LATE


def test_a_mistake_is_named():
    with pytest.raises(UnknownName, match="fastest"):
        routers.rule(PROFILE, "fastest")
    with pytest.raises(ServeError, match="fixed=256"):
        routers.rule(PROFILE, "random", fixed=256)
    with pytest.raises(ServeError, match="begin first"):
        routers.run(ran("slimmest", apart(2)), routers.rule(PROFILE, "slimmest"))


def test_a_head_that_no_server_can_save_is_given_up_at_once():
    made = ran("fixed", np.array([1.0, 1.0]), tuple_s(PROFILE, 1)[255] * 0.9)
    assert totals(made).late == 2 and made.server["busy_s"].sum() == 0
    assert made.request["done_s"].tolist() == [1.0, 1.0]


def test_the_fixed_router_batches_at_its_one_tuple():
    made = ran("fixed", np.append(0.0, np.full(4, 1e-4)), 10.0, fixed=27)
    assert set(made.request["widths"]) == {27}
    assert len(set(made.request["done_s"][1:])) == 1
