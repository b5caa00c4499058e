"""Crowded nodes are relieved of batch jobs: at once of those whose time is lost, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from tests.worlds import Logged, ruled

from trimtab.build import cluster, workload
from trimtab.core import Lending, Limit, What
from trimtab.errors import UnknownName
from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import PATIENCE_S, parse

STEP_S = 10.0


def scene(request_s, *, use=(0.25, 0.25, 0.8), limit=1.0, deadline_s=np.inf):
    """10 cores; the service uses 2, from second 20 on 6.4 of 8. A: 3 cores from second 10 on, which
    makes 9.4: crowded (above .95 x 10 with B), not overloaded. B: .3 cores from second 0.
    """
    jobs = workload(
        [0.0, 0.0, 1.0],
        [np.inf, 300.0, 300.0],
        [8.0, 0.3, 3.0],
        request_s=[np.inf, 300.0, request_s],
        deadline_s=[np.inf, np.inf, deadline_s],
        service=[1, 0, 0],
        pinned=[1, 0, 0],
        pattern=[0, -1, -1],
        patterns=[[*use, *[use[-1]] * 5, *[0.25] * 60]],
        pattern_step_s=STEP_S,
        checkpoint_s=[np.inf] * 3,
        meta={"in_time": (2.0, 30.0)},
    )
    return jobs, replace(cluster([10.0]), lending=Lending(limit=limit, estimate="now"))


def stopped(request_s, rule):
    return ruled(*scene(request_s), RulePolicy(rule)).facts(What.STOPPED)


def test_without_patience_a_crowded_node_keeps_its_jobs():
    assert stopped(300.0, "fcfs") == []


def test_what_can_still_be_in_time_stays_until_patience_ends():
    # crowded from 20 on, looked at after the grace of 4 s and then every step of use
    assert stopped(300.0, "fcfs+relieve") == []
    assert stopped(300.0, "fcfs+relieve@12")[0] == (34.0, 2)
    assert stopped(300.0, "fcfs+relieve@0")[0] == (24.0, 2)


def test_a_job_whose_time_is_lost_leaves_at_once():
    # it began at 10 and is expected to end at 310: too late for second 50, not for second 500
    lost = ruled(*scene(300.0, deadline_s=50.0), RulePolicy("fcfs+relieve"))
    assert lost.facts(What.STOPPED)[0] == (24.0, 2)
    assert (
        ruled(*scene(300.0, deadline_s=500.0), RulePolicy("fcfs+relieve")).facts(What.STOPPED) == []
    )


def test_patience_is_of_a_region_and_shows():
    jobs, machine = scene(300.0)
    world = Logged(jobs, machine)
    world.apply(Limit(0.9, patience_s=7.0, margin=1.5, overstay=1.2, taper=0.01))
    seen = world.snapshot()
    assert seen.patience_s.tolist() == [7.0] and seen.margin.tolist() == [1.5]
    assert seen.overstay.tolist() == [1.2] and seen.taper.tolist() == [0.01]
    world.apply(Limit(0.8))
    assert world.snapshot().patience_s.tolist() == [7.0]  # NaN leaves it
    for wrong in (Limit(0.9, margin=np.inf), Limit(0.9, patience_s=np.inf)):
        assert world.apply(wrong).what == What.REFUSED


def test_names():
    assert parse("sjf+p95+relieve@30").patience_s == 30.0
    assert parse("sjf+p95+relieve").patience_s == PATIENCE_S
    for wrong in ("x", "-1", "nan"):
        with pytest.raises(UnknownName, match="no number of seconds"):
            parse(f"sjf+p95+relieve@{wrong}")
