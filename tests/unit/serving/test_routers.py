"""Routers: each one's choice by hand, and the bound that none passes."""

import numpy as np
import pytest

from trimtab.errors import ServeError, UnknownName
from trimtab.serving import arrivals, routers
from trimtab.serving.fleet_state import begin, fleets, totals
from trimtab.serving.greedy import Knobs
from trimtab.serving.serve_profile import front, modelled, tuple_s

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


@pytest.mark.parametrize("seed", range(6))
def test_no_router_passes_the_bound(seed):
    rng = np.random.default_rng(seed)
    knobs = KEPT._replace(batch_max=int(rng.choice([1, 4, 16])))
    speeds = tuple(rng.uniform(0.3, 1.0, rng.integers(1, 4)))
    arrival_s = arrivals.bursty(120, float(rng.uniform(20, 300)), rng, burst_s=0.2)
    objective_s = float(rng.uniform(0.02, 0.4))
    for name in routers.BY_NAME:
        made = ran(name, arrival_s, objective_s, knobs=knobs, speeds=speeds)
        assert totals(made).good <= routers.bound(made, PROFILE, windows=8) + 1e-9


def test_the_bound_is_reached_where_nothing_is_scarce():
    made = ran("max_accuracy", apart(5))
    assert routers.bound(made, PROFILE) == pytest.approx(totals(made).good)


def test_the_bound_falls_with_the_load_and_is_0_where_no_tuple_fits():
    found = []
    for rate_hz in (20.0, 200.0, 2000.0):
        arrival_s = arrivals.poisson(300, rate_hz, np.random.default_rng(0))
        found.append(routers.bound(ran("slimmest", arrival_s, 0.1), PROFILE))
    assert found[0] > found[1] > found[2] > 0
    assert routers.bound(ran("slimmest", apart(3), 1e-4), PROFILE) == 0


def test_finer_windows_tighten_the_bound():
    arrival_s = arrivals.bursty(300, 150.0, np.random.default_rng(1))
    made = ran("slimmest", arrival_s, 0.1)
    assert routers.bound(made, PROFILE, windows=16) < routers.bound(made, PROFILE, windows=1)


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
