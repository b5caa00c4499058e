"""The policy: known best orders, nothing foreseen, a budget by a clock of ours, any backend."""

import numpy as np
import pytest
from tests.data import found

from trimtab.build import cluster, workload
from trimtab.compare import answers, as_json
from trimtab.comparison import Question
from trimtab.core import Start, Status
from trimtab.errors import PolicyError
from trimtab.live.fake import FakeBackend
from trimtab.play import by_loop
from trimtab.policies import check, named
from trimtab.policies.rollout import pivots
from trimtab.policies.rollout.options import Options, parsed
from trimtab.policies.rollout.policy import RolloutEasyPolicy, RolloutPolicy
from trimtab.reproduce.rollout.trials import SEQUENCES, sequences
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.testing import check_policy

EVER = Options(budget_ms=np.inf)


def pool(units=4):
    return cluster([units])


def jobs(rows, **more):
    """rows: (submit, run, request, width)."""
    submit_s, run_s, request_s, width = np.array(rows, float).T
    return workload(submit_s, run_s, width[:, None], request_s=request_s, **more)


def made(count=80, seed=3, factor=3.0):
    """A contended queue of four users, who ask for several times what they need."""
    rng = np.random.default_rng(seed)
    run_s = np.maximum(1.0, rng.lognormal(3.5, 1.2, count).round())
    rows = np.column_stack(
        (np.cumsum(rng.exponential(8.0, count)).round(), run_s,
         np.ceil(run_s * rng.uniform(1, factor, count)), rng.integers(1, 4, count))
    )  # fmt: skip
    return jobs(rows, tenant=rng.integers(0, 4, count), tenants=list("abcd"))


def starts(policy, work, units=4):
    done = by_loop(policy, work, pool(units), SimBackend(work, pool(units)).profile, Models())
    return done.state["start_s"]


def test_it_keeps_the_protocol():
    check_policy(RolloutPolicy(options=EVER))
    check_policy(RolloutEasyPolicy(options=EVER))


def test_it_is_found_by_name_with_its_options():
    policy = named("rollout+easy:budget_ms=5,objective=wait,orders=sjf|fcfs")
    assert isinstance(policy, RolloutEasyPolicy)
    assert policy.options == Options(5.0, ("sjf", "fcfs"), "wait")
    assert type(named("rollout")) is RolloutPolicy


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("budget_ms=0", "not above 0"),
        ("budget_ms=soon", "not a number"),
        ("orders=sjf|drf", "orders=drf is unknown"),
        ("objective=joy", "objective=joy is unknown"),
        ("depth=0", "depth=0 is below 1"),
        ("width=3", "option=width is unknown"),
        ("", "no option stands behind the colon"),
    ],
)
def test_a_wrong_option_is_named(settings, why):
    with pytest.raises(PolicyError, match=why):
        check(f"rollout:{settings}")


def test_the_best_of_the_orders_is_followed():
    # when job 0 ends at 10 all three wait: widths 4 for 100 s, 2 for 10 s, 2 for 10 s. The small
    # ones first cost the large one 10 s, the large one first costs each of them 100 s
    work = jobs([(0, 10, 10, 4), (1, 100, 100, 4), (2, 10, 10, 2), (3, 10, 10, 2)])
    assert starts(RolloutPolicy(options=EVER), work).tolist() == [0, 20, 10, 10]


def test_the_objective_decides():
    # one unit at 10: a 100 s job that has waited 9 s, and twelve that need 9 s each. By waiting the
    # short ones go first; with one order alone there is nothing to choose
    work = jobs([(0, 10, 10, 1), (1, 100, 100, 1), *[(2, 9, 9, 1)] * 3])
    wait = Options(budget_ms=np.inf, objective="wait", arrivals=0)
    assert starts(RolloutPolicy(options=wait), work, 1).tolist() == [0, 37, 10, 19, 28]
    alone = Options(budget_ms=np.inf, orders=("fcfs",), firsts=0)
    assert starts(RolloutPolicy(options=alone), work, 1).tolist() == [0, 10, 110, 119, 128]


def test_easy_starts_beside_a_head_that_blocks():
    work = jobs([(0, 100, 100, 3), (1, 50, 50, 4), (2, 20, 20, 1)])
    only = Options(budget_ms=np.inf, orders=("fcfs",), firsts=0)
    assert starts(RolloutPolicy(options=only), work).tolist() == [0, 100, 150]
    assert starts(RolloutEasyPolicy(options=only), work).tolist() == [0, 100, 2]


def picks(policy, work, until_s):
    """What it decides up to a time, with the snapshots' own clock."""
    backend, seen = SimBackend(work, pool()), []
    while backend.wait() is not None:
        snapshot = backend.snapshot()
        if snapshot.now_s > until_s:
            break
        for decision in policy.decide(snapshot):
            seen.append((snapshot.now_s, decision))
            backend.apply(decision)
    return seen


@pytest.mark.parametrize("kind", [RolloutPolicy, RolloutEasyPolicy])
def test_the_true_run_time_of_what_waits_or_runs_is_not_seen(kind):
    work = made()
    before = SimBackend(work, pool())
    run(before, kind(options=EVER))
    end_s = before.snapshot().state["end_s"]
    half_s = float(np.median(work.jobs["submit_s"]))
    lasting = end_s > half_s  # all that run, wait or have yet to come then
    assert 10 < lasting.sum() < len(work)
    other = made()
    other.truth["work_s"][lasting] *= 7.0
    first = picks(kind(options=EVER), work, half_s)
    assert first and picks(kind(options=EVER), other, half_s) == first


def test_under_rlscheduler_semantics_neither():
    work = made()
    request_s = work.jobs["request_s"]
    start_s, _ = pivots.schedule(work, 4, RolloutPolicy(options=EVER), request_s)
    half_s = float(np.median(work.jobs["submit_s"]))
    lasting = start_s + work.truth["work_s"] > half_s
    other = made()
    other.truth["work_s"][lasting] *= 7.0
    again_s, _ = pivots.schedule(other, 4, RolloutPolicy(options=EVER), request_s)
    early = start_s <= half_s
    assert early.sum() > 10 and (again_s[early] == start_s[early]).all()


class Ticks:
    """A clock on which every look takes a millisecond."""

    def __init__(self):
        self.looks = 0

    def __call__(self):
        self.looks += 1
        return self.looks / 1000


def test_a_budget_ends_a_search_and_is_counted():
    # each play-out but the first is after a look at the clock: a budget of half a millisecond ends
    # every decision at the first order, one of a million none
    work = made()
    short = RolloutPolicy(options=Options(budget_ms=0.5), clock=Ticks())
    alone = Options(budget_ms=np.inf, orders=("sjf",), firsts=0)
    first = RolloutPolicy(options=alone)
    assert (starts(short, work) == starts(first, work)).all()
    assert short.counters()["budget_hits"] == short.counters()["decisions"] > 0
    long = RolloutPolicy(options=Options(budget_ms=1e6), clock=Ticks())
    ever = RolloutPolicy(options=EVER)
    assert (starts(long, work) == starts(ever, work)).all()
    assert long.counters()["budget_hits"] == 0
    said = f"hit the budget of 1e+06 ms in 0 of {long.chooser.decisions} decisions"
    assert long.footnote() == said


def test_two_runs_are_the_same():
    work = made(seed=9)
    runs = [starts(RolloutEasyPolicy(options=EVER), work) for _ in range(2)]
    assert (runs[0] == runs[1]).all()


def test_a_queue_deeper_than_its_depth_is_served_to_the_end():
    shallow = Options(budget_ms=np.inf, depth=3)
    assert np.isfinite(starts(RolloutPolicy(options=shallow), made())).all()


def test_what_is_lost_on_a_node_that_fails_teaches_nothing():
    policy = RolloutPolicy(options=EVER)
    policy._rate = {0: 1.0}
    backend = SimBackend(jobs([(0, 10, 10, 1)]), pool())
    backend.wait()
    backend.apply(Start(0, (0,)))
    backend.wait()
    snapshot = backend.snapshot()
    state = np.array(snapshot.state)
    state["tries"] = 1
    policy._learn(snapshot._replace(state=state))
    assert policy.chooser.history.seen.jobs.sum() == 0
    policy._rate = {0: 1.0}
    policy._learn(snapshot)
    assert policy.chooser.history.seen.jobs.sum() == 1


@pytest.mark.parametrize("kind", [RolloutPolicy, RolloutEasyPolicy])
def test_a_cluster_that_answers_late_is_steered_too(kind):
    work = made(60)
    true = SimBackend(work, pool())
    fake = FakeBackend(true, rng=np.random.default_rng(1))
    policy = kind(options=EVER)
    run(fake, policy)
    assert (true.snapshot().state["status"] == Status.FINISHED).all()
    assert policy.chooser.history.seen.jobs.sum() > 0


def test_a_fake_without_lag_is_steered_as_the_simulator():
    work = made(60)
    plain = SimBackend(work, pool())
    run(plain, RolloutPolicy(options=EVER))
    true = SimBackend(work, pool())
    run(FakeBackend(true, lag_s=0.0, late=0.0, lost=0.0), RolloutPolicy(options=EVER))
    assert (true.snapshot().state["start_s"] == plain.snapshot().state["start_s"]).all()


def test_a_comparison_says_how_often_the_budget_was_hit():
    question = Question(("sjf", "rollout+easy"), trace="mixed-gpu", jobs=60)
    rule, ours = list(answers(question))
    assert "counters" not in as_json(rule, "mixed-gpu")
    assert set(as_json(ours, "mixed-gpu")["counters"]) == {"decisions", "budget_hits"}
    assert ours.footnote.startswith("hit the budget of 100 ms in ")


def test_it_is_below_a_published_learned_value_on_lublin():
    # RLScheduler, SC'20, ten sequences of 1,024 jobs without backfilling: 254.67
    log = str(found("data", "swf", "lublin_256.swf.xz"))
    measured = sequences(log, "rollout:budget_ms=inf", len(SEQUENCES), 1024)
    assert np.mean(measured["bsld"]) < 254.67


def test_the_defaults_are_parsed_from_nothing():
    assert parsed("") == Options()
