"""The simulated fleet: conservation, queueing theory, and the same decisions as a live executor."""

import heapq

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import modelled, time_of, tuple_s
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.nouns import TUPLES
from trimtab.serving.routing import arrivals, fleet_sim, routers
from trimtab.serving.routing.fleet_state import ANSWERED, LATE, OPEN, REFUSED, begin, fleets, totals
from trimtab.serving.routing.greedy import LOAD, RUN, WAIT, Knobs
from trimtab.serving.server.executor import Executor

PROFILE = modelled(hand_over_s=0.0)
KEPT = Knobs(idle_unload_s=np.inf)


def ran(name, arrival_s, objective_s=0.3, *, seed=0, fixed=255, **options):
    """A fleet after a whole run."""
    options = {"knobs": KEPT, **options}
    made = fleets(PROFILE, 1, len(arrival_s), **options)
    begin(made, arrival_s, objective_s, seed)
    batch_max = options["knobs"].batch_max
    routers.run(made, routers.rule(PROFILE, name, fixed=fixed, batch_max=batch_max))
    return made


def poisson(count, rate_hz, seed=0):
    return arrivals.poisson(count, rate_hz, np.random.default_rng(seed))


@pytest.mark.parametrize("name", routers.BY_NAME)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue_max": 3, "fifo_max": 5, "hop_s": 0.002},
        {"warm": (), "knobs": Knobs(idle_unload_s=0.2, util_block=0.5)},
        {"drop_late": False, "workers": 2, "knobs": Knobs(scan=True, batch_max=4)},
        # little room: instances crowd each other out until idle ones go, or for ever
        {"warm": (), "knobs": Knobs(memory_max_b=4.8e7, idle_unload_s=0.05)},
        {"warm": (), "knobs": Knobs(memory_max_b=4.8e7, idle_unload_s=np.inf)},
    ],
)
def test_every_request_is_closed_exactly_once(name, options):
    made = ran(name, poisson(300, 200.0), speeds=(1.0, 0.5), **options)
    found, outcome = totals(made), made.request["outcome"]
    assert (outcome != OPEN).all()
    assert (outcome == ANSWERED).sum() == found.answered
    assert (outcome == REFUSED).sum() == found.refused
    assert (outcome == LATE).sum() == found.late
    assert (made.request["done_s"] >= made.request["arrival_s"]).all()
    assert made.server["waiting"].sum() == made.server["busy"].sum() == 0
    assert made.server["coming"].sum() == 0


def test_a_lone_request_takes_the_sum_of_its_segments():
    row = row_of((2, 0, 3, 1))
    made = ran("shortest_queue", np.array([1.0]), fixed=row)
    assert made.request[0]["widths"] == row
    assert totals(made).latency_mean_s == pytest.approx(tuple_s(PROFILE, 1)[row])
    assert totals(made).accuracy == PROFILE.accuracy[row]


def test_batch_times_vary_as_they_are_told_to():
    arrival_s = np.arange(1.0, 401.0)
    made = ran("shortest_queue", arrival_s, np.inf, spread=(0.5, 2.0))
    latency_s = made.request["done_s"] - made.request["arrival_s"]
    plan_s = tuple_s(PROFILE, 1)[255]
    assert latency_s.mean() == pytest.approx(1.25 * plan_s, rel=0.05)
    assert latency_s.min() == pytest.approx(0.5 * plan_s)
    assert latency_s.max() == pytest.approx(2.0 * plan_s)


def test_the_way_to_a_server_is_paid_once_when_it_stays_there():
    profile = modelled(hand_over_s=2.0)
    made = fleets(profile, 1, 1, hop_s=0.01, knobs=KEPT)
    begin(made, np.array([0.0]), 0.3)
    routers.run(made, routers.rule(profile, "shortest_queue"))
    way_s = 0.01 + 2.0 * profile.input_mb[0, 0]
    assert totals(made).latency_mean_s == pytest.approx(tuple_s(PROFILE, 1)[255] + way_s)


def test_one_server_without_batches_waits_as_m_d_1():
    service_s, load = tuple_s(PROFILE, 1)[routers.front(PROFILE, 1)[-1]], 0.7
    made = ran(
        "max_batch", poisson(60_000, load / service_s, 5), np.inf,
        knobs=KEPT._replace(batch_max=1), warm=[int(routers.front(PROFILE, 1)[-1])],
    )  # fmt: skip
    waits_s = totals(made).latency_mean_s - service_s
    assert waits_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.05)


def test_energy_is_idle_power_and_busy_time_charged_once():
    made = ran("shortest_queue", poisson(200, 60.0), speeds=(1.0, 0.5), drop_late=False)
    found = totals(made)
    extra_w = PROFILE.busy_w - PROFILE.idle_w
    busy_j = extra_w * made.server["busy_s"].sum()
    assert found.energy_j == pytest.approx(2 * PROFILE.idle_w * found.makespan_s + busy_j)
    assert made.request["energy_j"].sum() == pytest.approx(busy_j)


def test_a_wider_instance_serves_and_its_width_is_what_counts():
    made = ran("shortest_queue", np.array([0.0]), fixed=row_of((1, 3, 3, 3)), warm=[255])
    # the only first segment loaded is at width 3, and it is enough
    assert TUPLES[made.request[0]["widths"]] == (3, 3, 3, 3)


def test_a_full_queue_refuses():
    found = totals(ran("shortest_queue", np.zeros(10), np.inf, queue_max=4))
    # the first runs alone at once, four wait; only the first segment's queue was ever full
    assert (found.answered, found.refused) == (5, 5)


def test_a_request_past_its_deadline_is_given_up_unless_told_otherwise():
    service_s = tuple_s(PROFILE, 1)[255]
    for drop_late, late in ((True, True), (False, False)):
        made = ran("shortest_queue", np.zeros(60), 2 * service_s, drop_late=drop_late)
        assert (totals(made).late > 0) == late
        assert totals(made).in_time < 60


def greedy_by_hand(arrival_s, widths, knobs):
    """(R,) done times from a live executor driven by a plain loop over events."""
    live, done_s = Executor(PROFILE, knobs, requests=len(arrival_s)), np.zeros(len(arrival_s))
    coming = [(t, 0, (request,), 0, -1) for request, t in enumerate(arrival_s)]
    heapq.heapify(coming)
    while coming:
        now_s, _, requests, segment, instance = heapq.heappop(coming)
        if instance >= 0:
            live.ended(instance, now_s)
        for request in requests:
            if segment == 4:
                done_s[request] = now_s
            else:
                live.put(request, segment, widths[segment - 1], widths[segment])
        while (action := live.next(now_s)).what != WAIT:
            key = action.segment, action.before, action.width
            if action.what == LOAD:
                end_s = now_s + PROFILE.load_s[key]
                heapq.heappush(coming, (end_s, 1, (), 0, action.instance))
            else:
                assert action.what == RUN
                end_s = now_s + time_of(PROFILE, *key, len(action.requests))
                after = (end_s, 1, action.requests, action.segment + 1, action.instance)
                heapq.heappush(coming, after)
    return done_s


@pytest.mark.parametrize("scan", [False, True])
def test_the_simulator_decides_as_the_live_executor_does(scan):
    knobs = Knobs(batch_max=4, scan=scan, queue_load=2, util_block=2.0, idle_unload_s=np.inf)
    widths, arrival_s = (2, 1, 3, 0), poisson(80, 90.0, 4)
    made = ran(
        "shortest_queue", arrival_s, np.inf, fixed=row_of(widths), warm=(), knobs=knobs,
        drop_late=False,
    )  # fmt: skip
    by_hand = greedy_by_hand(arrival_s, widths, knobs)
    assert made.request["done_s"] == pytest.approx(by_hand, abs=1e-9)


def test_stepping_is_the_same_engine_as_running():
    arrival_s = poisson(200, 70.0)
    whole = ran("shortest_queue", arrival_s)
    made = fleets(PROFILE, 3, 200, knobs=KEPT)
    begin(made, arrival_s, 0.3)
    seen, done = fleet_sim.first(made)
    steps = 0
    while not done.all():
        group = np.where(seen[:, 2] > 0, 1 << 30, 1)
        fleet_sim.step(made, np.stack((0 * group, 3 + 0 * group, group), axis=1), seen, done)
        steps += 1
    assert steps >= 200
    for name in ("done_s", "widths", "outcome", "energy_j"):
        for c in range(3):
            assert (made.request[name][200 * c : 200 * c + 200] == whole.request[name]).all()


def test_a_router_sees_the_head_and_every_server():
    made = fleets(PROFILE, 1, 2, speeds=(1.0, 0.5), knobs=KEPT)
    begin(made, np.array([0.5, 0.5]), 0.3)
    seen, done = fleet_sim.first(made)
    idle = PROFILE.idle_w / PROFILE.busy_w
    assert seen[0] == pytest.approx([np.log(3), 0, 0, 0, 0.3, 0, idle, 0, 0, idle, 0])
    fleet_sim.step(made, np.array([[1, 2, 1]]), seen, done)
    assert seen[0, 0] == pytest.approx(np.log(2)) and seen[0, 9] == 1.0
    fleet_sim.step(made, np.array([[1, 2, 1]]), seen, done)  # waits behind; then the boundary
    assert seen[0, 2] == 0.25 and seen[0, 3] == 0.75
    assert seen[0, 4] == pytest.approx(0.3 - 2 * time_of(PROFILE, 0, 0, 2, 1))


def test_what_is_routed_together_runs_together():
    done_s = []
    for group in (1, 8):
        made = fleets(PROFILE, 1, 8, knobs=KEPT)
        begin(made, np.zeros(8), np.inf)
        seen, done = fleet_sim.first(made)
        while not done[0]:
            fleet_sim.step(made, np.array([[0, 0, group]]), seen, done)
        done_s.append(made.request["done_s"])
    assert done_s[1] == pytest.approx(np.full(8, tuple_s(PROFILE, 8)[0]))
    assert done_s[0].min() < done_s[1].min()


def test_a_router_that_holds_for_ever_sees_all_refused():
    made = fleets(PROFILE, 1, 4, knobs=KEPT, drop_late=False)
    begin(made, np.arange(4.0), 0.1)
    seen, done = fleet_sim.first(made)
    for _ in range(10):
        if not done[0]:
            fleet_sim.step(made, np.array([[fleet_sim.HOLD, 0, 1]]), seen, done)
    assert done[0] and totals(made).refused == 4


def test_one_seed_gives_the_same_bytes():
    first, again, other = (
        ran("random", poisson(300, 90.0), speeds=(1.0, 0.5), seed=seed) for seed in (1, 1, 2)
    )
    assert first.request.tobytes() == again.request.tobytes()
    assert first.request.tobytes() != other.request.tobytes()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: fleets(PROFILE, speeds=()), r"speeds=\(\)"),
        (lambda: fleets(PROFILE, warm=[256]), "tuple 256"),
        (lambda: fleets(PROFILE, spread=(1.0, 0.0)), r"spread=\(1.0, 0.0\)"),
        (lambda: fleets(PROFILE, knobs=Knobs(memory_max_b=5e7)), "warm instances"),
        (lambda: begin(fleets(PROFILE, 1, 2), np.zeros(3), 1.0), r"shape \(3,\)"),
        (lambda: begin(fleets(PROFILE, 1, 2), np.array([1.0, 0.0]), 1.0), "sorted"),
        (lambda: begin(fleets(PROFILE, 1, 2), np.zeros(2), 0.0), "objective_s=0"),
        (
            lambda: fleet_sim.step(
                fleets(PROFILE, 1, 2), np.array([[1, 0, 1]]), np.zeros((1, 8)), np.zeros(1, bool)
            ),
            r"server -2\.\.0",
        ),
    ],
)
def test_a_mistake_is_named(call, named):
    with pytest.raises(ServeError, match=named):
        call()
