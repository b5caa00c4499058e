"""Limits of regions that follow the harm measured there, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.columns import NODE, NODE_STATE
from trimtab.core import Limit
from trimtab.errors import TraceError, UnknownName
from trimtab.rules.names import HARM, parse
from trimtab.rules.steer import DROP, EVERY_S, GAIN, LEAST, MOST, Steering, wrong_limit
from trimtab.sim.whole import simulate


def four(load, batch=(1, 1, 1, 1), read=(10.0, 30.0, 20.0, 20.0)):
    """Two nodes in each of two regions."""
    nodes, state = np.zeros(4, NODE), np.zeros(4, NODE_STATE)
    nodes["region"] = [0, 0, 1, 1]
    state["load"], state["batch"], state["read"], state["reserved"] = load, batch, read, 40.0
    return nodes, state


def limits(steering, now_s, nodes, state, limit):
    """(G,) what it sets, None where it is not time yet."""
    view = SimpleNamespace(now_s=now_s, nodes=nodes, node_state=state, limit=limit)
    made = steering.decisions(view)
    return None if made is None else np.array([decision.share for decision in made])


def stepped(target, *scene, limit=(0.8, 0.8)):
    steering = Steering(target)
    assert (limits(steering, 0.0, *scene, np.array(limit)) == limit).all()  # only looks
    return limits(steering, EVERY_S, *scene, np.array(limit))


def test_without_harm_a_limit_rises_by_its_target():
    made = stepped(0.02, *four([0.5, 0.9, 0.95, 0.2]))
    assert made == pytest.approx([0.8 + GAIN * 0.02] * 2)


def test_harm_lowers_the_limit_of_its_region_by_its_share():
    made = stepped(0.02, *four([0.5, 0.97, 0.5, 0.5]))
    assert made == pytest.approx([0.8 + GAIN * (0.02 - 30 / 40), 0.8 + GAIN * 0.02])


def test_what_services_do_to_themselves_changes_nothing():
    made = stepped(0.02, *four([1.1, 1.1, 1.1, 1.1], batch=(0, 0, 0, 0)))
    assert made == pytest.approx([0.8 + GAIN * 0.02] * 2)


def test_an_unknown_use_counts_as_all_that_is_reserved():
    made = stepped(0.02, *four([0.99, 0.5, 0.5, 0.5], read=(-1.0, 10.0, 20.0, 20.0)))
    assert made[0] == pytest.approx(0.8 + max(GAIN * (0.02 - 40 / 50), -DROP))


def test_limits_stay_within_bounds_and_nothing_read_is_nothing_learned():
    assert stepped(1.0, *four([0.0] * 4), limit=(MOST, LEAST))[0] == MOST
    assert (stepped(0.5, *four([0.0] * 4, read=(0.0,) * 4)) == 0.8).all()


def test_it_acts_every_so_often_and_starts_anew_with_the_clock():
    steering, scene, limit = Steering(0.1), four([0.0] * 4), np.array([0.8, 0.8])
    limits(steering, 7.0, *scene, limit)
    assert steering.due_s == EVERY_S
    assert limits(steering, EVERY_S - 1, *scene, limit) is None
    assert limits(steering, 4 * EVERY_S + 1, *scene, limit) is not None
    assert steering.due_s == 5 * EVERY_S
    assert (limits(steering, 0.0, *scene, limit) == limit).all()  # another run


def test_names():
    assert parse("sjf+p95@0.9+feedback@0.03").target == 0.03
    assert parse("sjf+feedback").target == HARM
    assert np.isnan(parse("sjf+p95").target)
    for wrong in ("0", "1.5", "x", ""):
        with pytest.raises(UnknownName, match="no share of what services use"):
            parse(f"sjf+p95+feedback@{wrong}")


def test_a_cluster_that_lends_nothing_refuses_feedback():
    jobs = workload([0.0], [10.0], [1.0])
    with pytest.raises(TraceError, match="this cluster lends nothing"):
        simulate(jobs, cluster([[1.0]]), "sjf+feedback")


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (Limit(0.9), ""),
        (Limit(1.2, 1, "p95", 1.0, 30.0), ""),
        (Limit(0.9, 2), "limit: there is no region 2"),
        (Limit(0.9, -2), "limit: there is no region -2"),
        (Limit(0.9, 0.5), "limit: there is no region 0.5"),
        (Limit(0.9, estimate="p96"), "limit: there is no estimate 'p96'"),
        (Limit(-1.0), "limit: -1.0 is not a share of a node, 0 to 2"),
        (Limit(np.nan), "limit: nan is not a share of a node, 0 to 2"),
        (
            Limit(0.9, taper=np.inf),
            "limit: margin, patience_s, overstay and taper are not finite numbers",
        ),
    ],
)
def test_a_limit_that_means_nothing_is_refused_with_the_reason(limit, why):
    assert wrong_limit(limit, 2) == why
    assert "lends nothing" in wrong_limit(limit, 0)
