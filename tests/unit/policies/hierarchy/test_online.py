"""What is learned online is a small step that the day bears out; where days part, it is undone."""

import json

import numpy as np
import pytest

from trimtab.core import Limit, Wait, What
from trimtab.errors import PolicyError
from trimtab.live.fake import FakeBackend
from trimtab.play import by_loop, play
from trimtab.policies import named
from trimtab.policies.hierarchy import online
from trimtab.policies.hierarchy.online import (
    AT,
    BIAS_STEP,
    MOST_SHIFT,
    NONE,
    SHIFT_STEP,
    SPREAD_STEP,
    H,
    Online,
    Residuals,
    State,
    borne_out,
    crowding,
    drifted,
    losses,
    moved_limit,
    proposed,
    read_state,
    write_state,
)
from trimtab.policies.hierarchy.policy import HierarchyPolicy, Learning
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.rules.encoder import HIGH_Z
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.traces.scenes.scene import open_scene

SHORT_DAY = "colocated:machines=12,regions=2,sample_s=5,load=0.7"


def day(seed=0, bias=0.0, spread=1.0, count=2400):
    """Residuals of an encoder that is so far off."""
    rng = np.random.default_rng(seed)
    median, deviation = np.full((count, H), 0.2), np.full((count, H), 0.05)
    rise = median + bias + spread * deviation * rng.normal(size=(count, H))
    hour = np.arange(count) * 24 // count
    return Residuals(rise, median, deviation, hour, np.full(count, 0.5))


def test_the_loss_is_that_of_both_quantiles():
    one = Residuals(*(np.full((1, H), value) for value in (0.3, 0.2, 0.0)), np.zeros(1), np.ones(1))
    # 0.1 too low: half of it for the median, nine tenths for the 90th percentile; their mean
    assert losses(one, NONE) == pytest.approx([0.07] * H)
    above = np.concatenate((np.full(H, 0.2), np.ones(H)))
    assert losses(one, above) == pytest.approx([0.5 * (0.05 + 0.01)] * H)


@pytest.mark.parametrize("bias, spread", [(0.02, 1.0), (-0.03, 1.6), (0.5, 9.0)])
def test_a_step_goes_the_right_way_and_not_too_far(bias, spread):
    made = proposed(day(0, bias, spread), NONE)
    assert (np.sign(made[:H]) == np.sign(bias)).all() and (np.abs(made[:H]) <= BIAS_STEP).all()
    assert (np.abs(np.log(made[H:])) <= SPREAD_STEP + 1e-9).all()
    assert borne_out(day(1, bias, spread), NONE, made).all()
    assert (losses(day(1, bias, spread), made) < losses(day(1, bias, spread), NONE)).all()


def test_many_days_come_to_what_is_right():
    learned = NONE
    for seed in range(12):
        learned = proposed(day(seed, 0.05, 1.5), learned)
    assert learned[:H] == pytest.approx([0.05] * H, abs=0.006)
    assert learned[H:] == pytest.approx([1.5] * H, rel=0.1)


def spoiled(at, value):
    made = np.array(NONE)
    made[at] = value
    return made


@pytest.mark.parametrize(
    "update",
    [
        spoiled(slice(0, H), np.nan), spoiled(slice(H, None), np.nan), spoiled(slice(H, None), 0.0),
        spoiled(slice(H, None), -1.0), spoiled(slice(0, H), 0.09), spoiled(slice(0, H), -0.02),
        spoiled(slice(H, None), 5.0), NONE,
    ],
)  # fmt: skip
def test_a_corrupted_update_is_refused(update):
    assert not borne_out(day(1, 0.05), NONE, update).any()


def test_an_online_steering_refuses_what_its_day_does_not_bear_out(monkeypatch):
    steering = Online(Steering(read_orders(), None))
    steering.state = State.fresh(1)
    monkeypatch.setattr(online, "proposed", lambda seen, learned: learned + np.nan)
    view = type("View", (), {"now_s": 1.0})
    steering._step(view, 0, day(0, 0.05), 0.01)
    assert [event.what for event in steering.events] == ["refused"]
    assert (steering.state.learned[0] == NONE).all()


def test_a_limit_follows_the_harm_by_a_bounded_step():
    seen, orders = day(0), (0.9, 0.5)
    few, many = (crowding(seen, NONE, limit, 0.5) for limit in (0.85, 0.95))
    assert few < many  # a higher limit crowds more
    down = moved_limit(seen, NONE, orders, 0.0, 0.05, 0.01)
    up = moved_limit(seen, NONE, orders, 0.0, 0.002, 0.01)
    assert -SHIFT_STEP <= down < 0 < up <= SHIFT_STEP
    assert moved_limit(seen, NONE, orders, 0.01, 0.011, 0.01) == 0.01  # near enough
    assert moved_limit(seen, NONE, orders, MOST_SHIFT, 0.002, 0.01) == MOST_SHIFT


def test_a_day_that_is_unlike_those_before_is_told_from_one_that_is_not():
    rng = np.random.default_rng(0)
    steady = rng.normal(0.0, 0.2, 72).tolist()
    assert not drifted(steady[:48], steady[48:])
    assert drifted(steady[:48], (np.array(steady[48:]) + 1.5).tolist())


def test_such_a_day_takes_back_what_was_learned():
    steering = Online(Steering(read_orders(), None))
    steering.state = State.fresh(1)
    for seed in range(3):
        assert not steering._unlike(0, day(seed))
    before = len(steering.state.hours[0])
    assert before == 3 * 24
    assert steering._unlike(0, day(9, bias=0.3))
    assert len(steering.state.hours[0]) == 24  # the new past


class Watched(Online):
    """Keeps what each day's residuals lose with what was learned before, and without."""

    def _step(self, view, g, seen, harmed):
        frozen, mine = losses(seen, NONE).mean(), losses(seen, self.state.learned[g]).mean()
        self.days = [*getattr(self, "days", []), (float(view.now_s), mine, frozen)]
        super()._step(view, g, seen, harmed)


def days_of(trace, monkeypatch):
    """(days, 2) what the days of a run lost, with what was learned and without."""
    monkeypatch.setattr("trimtab.policies.hierarchy.policy.Online", Watched)
    policy = Learning(borrow="encoder")
    play(policy, open_scene(trace, seed=7))
    table = np.array(policy.online.days)
    return np.array([table[table[:, 0] == at][:, 1:].sum(0) for at in np.unique(table[:, 0])])


def test_where_services_are_others_than_the_encoder_expects_the_next_days_are_foreseen_better(
    monkeypatch,
):
    found = days_of(f"{SHORT_DAY},span_s=3600,noise=0,swing=0.3,odd=1", monkeypatch)
    assert len(found) >= 3 and found[0, 0] == found[0, 1]  # the first day has no past
    assert (found[1:, 0] < 0.95 * found[1:, 1]).all()


def test_where_services_are_as_expected_no_day_is_foreseen_much_worse(monkeypatch):
    trace = "colocated:machines=12,regions=2,sample_s=15,load=0.7,span_s=9000"
    found = days_of(trace, monkeypatch)
    assert len(found) >= 2 and (found[1:, 0] < 1.02 * found[1:, 1]).all()


def test_before_the_first_day_is_over_it_does_what_the_hierarchy_does():
    scene = open_scene("colocated:machines=12,regions=2,span_s=600", seed=3)
    mine, plain = (play(one, scene) for one in (Learning(day_s=1e6), HierarchyPolicy()))
    assert np.array_equal(mine.state["end_s"], plain.state["end_s"], equal_nan=True)


def test_a_run_in_compiled_code_learns_as_one_by_steps():
    scene = open_scene("colocated:machines=12,regions=2,span_s=1500", seed=3)
    whole, stepped = Learning(day_s=1200.0), Learning(day_s=1200.0)
    one = play(whole, scene)
    other = by_loop(stepped, scene.workload, scene.cluster, scene.profile, None)
    assert whole.online.events == stepped.online.events and len(whole.online.events) >= 2
    assert np.array_equal(one.state["end_s"], other.state["end_s"], equal_nan=True)
    assert whole.counters()["online_updated"] >= 1 and "learned online" in whole.footnote()


def test_what_was_learned_is_kept_in_a_file_for_the_next_run(tmp_path):
    scene = open_scene("colocated:machines=12,regions=2,span_s=1500", seed=3)
    (tmp_path / "hierarchy.json").write_text(json.dumps(shipped()))
    policy = Learning(str(tmp_path), day_s=1200.0)
    by_loop(policy, scene.workload, scene.cluster, scene.profile, None)
    kept = read_state(tmp_path / "online.json", 2)
    assert (kept.learned != NONE).any()
    again = Learning(str(tmp_path), day_s=1200.0)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    backend.wait()
    again.online.decisions(backend.snapshot())
    made = again.online._learned(Limit(0.8, 1))
    assert made.learned == pytest.approx(kept.learned[1], abs=1e-9)


def shipped():
    from trimtab.rules.compat import SHIPPED

    return json.loads(SHIPPED.read_text())


def test_a_file_comes_back_and_another_is_refused(tmp_path):
    path = tmp_path / "online.json"
    state = State(np.tile(NONE, (2, 1)) * 1.1, np.array([0.01, -0.02]), [[0.1], []])
    write_state(path, state)
    back = read_state(path, 2)
    assert back.learned == pytest.approx(state.learned) and back.hours == state.hours
    with pytest.raises(PolicyError, match="not finite numbers of 3 regions"):
        read_state(path, 3)
    path.write_text(json.dumps({**json.loads(path.read_text()), "learned": [["x"]]}))
    with pytest.raises(PolicyError, match="not what the hierarchy learned online"):
        read_state(path, 2)
    path.write_text("{}")
    with pytest.raises(PolicyError, match="online"):
        read_state(path, 2)


def test_an_engine_takes_a_correction_and_refuses_one_that_is_none():
    scene = open_scene("colocated:machines=12,regions=2,span_s=600", seed=3)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    while backend.snapshot().now_s < 500.0:
        backend.apply(Wait(500.0))
        backend.wait()
    backend.apply(Limit(0.8, estimate="encoder"))
    before = backend.snapshot()
    margin, said, kept = before.margin[0], before.said.copy(), before.node_state["kept"].copy()
    up = (*[0.02] * H, *[2.0] * H)
    assert backend.apply(Limit(0.8, 0, learned=up)).what == What.PLACED
    after = backend.snapshot()
    assert (np.array(after.said) == said).all()  # what the encoder says stays
    moved = after.node_state["kept"] - kept
    mine = before.nodes["region"] == 0
    assert (moved[~mine] == 0).all() and moved[mine].max() > 0
    cap = before.capacity[mine, before.nodes["driver"][mine]]
    most = (0.02 + margin * said[mine, H]) * cap + 1e-6
    assert (moved[mine] <= most + 1 / 64).all()
    for wrong in ((0.1,), (*[np.nan] * H, *[1.0] * H)):
        refused = backend.apply(Limit(0.8, 0, learned=wrong))
        assert refused.what == What.REFUSED and "learned" in refused.reason


def test_it_learns_where_reports_are_late_and_lost():
    scene = open_scene("colocated:machines=12,regions=2,span_s=1500", seed=3)
    policy = Learning(day_s=1200.0)
    true = SimBackend(scene.workload, scene.cluster, scene.profile)
    run(FakeBackend(true, rng=np.random.default_rng(1)), policy)
    assert policy.counters()["online_updated"] >= 1
    assert (true.world.learned[0] != NONE).any()  # it came to the cluster


def test_settings_and_names():
    with pytest.raises(PolicyError, match="target=0"):
        Learning(target=0.0)
    with pytest.raises(PolicyError, match="day_s=60"):
        Learning(day_s=60.0)
    assert named("hierarchy-online+encoder@0.8").name == "hierarchy-online+encoder@0.8"
    assert named("hierarchy-online+encoder@0.8").orders.limit == 0.8
    assert HIGH_Z > 1 and AT < H
