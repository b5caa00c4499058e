"""A snapshot as the world that the rules read."""

import numpy as np
from tests.worlds import Logged

from trimtab.build import cluster, workload
from trimtab.rules.seen import world_of


def test_rules_have_room_for_a_window_of_a_longer_trace():
    # a window keeps the trace's numbers of alike jobs, which may be larger than the window is long
    jobs = workload(np.arange(50.0), 10, np.arange(1.0, 51.0)).window(45)
    backend = Logged(jobs, cluster([50]))
    while backend.wait() is not None and backend.world.head[0]["submitted"] < len(jobs):
        pass
    world = world_of(backend.snapshot())
    assert min(world.refused.shape[1], world.prefer.shape[1]) > jobs.jobs["like"].max() >= len(jobs)
