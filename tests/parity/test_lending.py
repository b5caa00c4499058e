"""A cluster that lends what services leave: stepped by the loop or compiled whole, one outcome."""

import numpy as np
import pytest
from tests.worlds import Logged, lending_scene

from trimtab.policies.rule import RulePolicy
from trimtab.rules.names import ESTIMATES
from trimtab.run import run
from trimtab.sim.backend import events_of
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models

PLACED = ("first", "calm", "swift", "best", "worst", "dot", "cosine")
CASES = [
    (f"{order}{backfill}+{PLACED[e % len(PLACED)]}+{estimate}@{1.2 - 0.1 * (e % 4):g}", e)
    for e, estimate in enumerate(ESTIMATES)
    for order, backfill in (
        ("smallest-area", ""),
        ("fcfs", "+easy"),
        ("sjf", "+conservative"),
        ("smallest-area", "+greedy"),
    )
] + [
    ("smallest-area+greedy+calm+p95@0.9+feedback@0.02", 7),
    ("sjf+conservative+swift+now+feedback@0.001", 8),
    ("fcfs+best+feedback", 9),
]


@pytest.mark.parametrize("rule, seed", CASES)
def test_the_compiled_run_is_the_stepped_run_event_for_event(rule, seed):
    jobs, machine, profile = lending_scene(np.random.default_rng(seed))
    models = Models(startup_s=float(seed % 2))
    stepped = Logged(jobs, machine, profile, models)
    run(stepped, RulePolicy(rule))
    whole = simulate(jobs, machine, rule, profile=profile, models=models, log=True)
    assert events_of(whole.log) == stepped.seen
    assert whole.totals == stepped.snapshot().totals
    assert stepped.total("refused") == 0  # a rule plans nothing that the engine refuses
