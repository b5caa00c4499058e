"""What estimates foresee against what came: errors of use laid out by hand, and a tiny scene."""

import numpy as np
import pytest

from trimtab.policies.forecast.outlook import said
from trimtab.policies.forecast.training import Used, lent_scene, used_in
from trimtab.reproduce.hierarchy import foresight, paper
from trimtab.reproduce.hierarchy.foresight import (
    ALL,
    AVERAGE,
    ERROR,
    EVERY,
    HIGH,
    LASTS,
    OURS,
    RIDGE,
    SPIKE,
    apart,
    estimates,
    measured,
    moments,
    pinball,
    points,
)
from trimtab.rules import encoder
from trimtab.rules.encoder import FEATURES, HIGH_Z
from trimtab.rules.forecast import HORIZON_S, LONG, SHORT

SMALL = {"trace": "colocated:regions=2,span_s=1200", "machines": 6}


@pytest.fixture(scope="module")
def scenes():
    return [measured(seed=seed, **SMALL) for seed in (1, 2, 3)]


def claims(scenes):
    return {one.text: one.holds for one in foresight.claims_of(foresight.tables_of(scenes))}


def used(series):
    """One node of 10 cores whose services use these."""
    one = np.array(series, float)[:, None]
    steps = np.array([LONG])
    return Used(one, one / 10, np.zeros(1, int), np.full(1, 9.0), np.full(1, 10.0), steps,
                np.zeros((1, 1, 6)))  # fmt: skip


@pytest.mark.parametrize(
    "now, later, kind",
    [(6.0, 4.0, SPIKE), (6.0, 5.0, SPIKE), (6.0, 5.2, LASTS), (6.0, 8.0, LASTS), (4.4, 4.0, None)],
)
def test_a_rise_of_which_half_has_gone_a_minute_later_was_a_spike(now, later, kind):
    series = np.full(200, 4.0)  # a minute before
    series[LONG] = now
    series[LONG + 12] = later
    found = {name for name, at in moments(used(series)).items() if at[0, 0]}
    assert found == {ALL, kind} - {None}


def test_a_quantile_loses_nine_times_as_much_from_above_as_from_below():
    lost = pinball(np.array([0.3, 0.3, 0.3]), np.array([0.4, 0.2, 0.3]), 0.9)
    assert lost == pytest.approx([0.09, 0.01, 0.0])
    assert points(np.array([[0.01, 0.2], [0.03, 0.0]])) == pytest.approx([2.0, 10.0])


def test_apart_is_the_share_of_pairs_in_the_right_order():
    assert apart(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert apart(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 0.0
    assert apart(np.array([2.0, 2.0]), np.array([2.0])) == 0.5
    assert apart(np.array([1.0, 3.0]), np.array([2.0, 3.0])) == pytest.approx(1.5 / 4)
    assert apart(np.array([1.0]), np.array([])) is None


def test_estimates_are_what_their_rules_say_of_the_readings():
    scene = lent_scene(SMALL["trace"], "test", 1, SMALL["machines"])
    use = used_in(scene, EVERY)
    found = estimates(scene, use)
    t, node = use.steps[2], 3
    past, cap = use.used[t - LONG + 1 : t + 1, node], use.cap[node]
    short = past[-SHORT:]
    level = {name: one.middle[2, node, 0] * cap + past[-1] for name, one in found.items()}
    assert level["now"] == past[-1]
    assert level[AVERAGE] == pytest.approx(short.mean())
    assert level["deviation"] == pytest.approx(short.mean() + short.std())
    assert level["p95"] == pytest.approx(np.percentile(past, 95))
    assert level["peak"] == pytest.approx(past.max())


def test_many_at_once_are_foreseen_as_compiled_code_foresees_one():
    rng = np.random.default_rng(0)
    layers, x = encoder.shipped(), rng.random((2, 3, FEATURES))
    middle, high = said(layers, x)
    half = len(HORIZON_S)
    hidden = layers[1].shape[1]
    a, b, y = np.empty(hidden), np.empty(hidden), np.empty(2 * half)
    encoder.encode(*layers, x[1, 2], a, b, y)
    assert middle[1, 2] == pytest.approx(y[:half])
    assert high[1, 2] == pytest.approx(y[:half] + HIGH_Z * y[half:])


def test_the_error_of_standing_still_is_the_mean_rise_and_others_stay_in_their_room(scenes):
    use = used_in(lent_scene(SMALL["trace"], "test", 1, SMALL["machines"]), EVERY)
    mean = points(use.rises.reshape(-1, len(HORIZON_S)))
    assert scenes[0][ERROR][ALL]["now"] == pytest.approx(mean)
    assert scenes[0][HIGH]["now"] == pytest.approx(0.9 * np.array(mean))
    assert scenes[0]["told"]["now"] == 0.5
    assert scenes[0]["counts"][ALL] == use.rises[..., 0].size
    most = 100 * float((use.held / use.cap).max())
    for losses in scenes[0][ERROR][ALL].values():
        assert max(losses) <= most


def test_the_encoder_is_nearer_than_standing_still_at_every_horizon(scenes):
    for one in scenes:
        mine, still = (np.array(one[ERROR][ALL][name]) for name in (OURS, "now"))
        assert (mine < still).all()


def test_claims_hold_only_where_every_scene_says_so(scenes):
    def altered(by, told):
        """The same scenes where the encoder errs so much of ridge and tells so much better."""
        made = []
        for n, one in enumerate(scenes):
            errors = one[ERROR] | {
                ALL: one[ERROR][ALL] | {RIDGE: [4.0] * 6, OURS: [by + n / 100] * 6}
            }
            high = one[HIGH] | {RIDGE: [1.0] * 6, OURS: [by / 4] * 6}
            aucs = one["told"] | {RIDGE: 0.6, AVERAGE: 0.6, OURS: 0.6 + told + n / 1000}
            made.append(one | {ERROR: errors, HIGH: high, "told": aucs})
        return claims(made)

    assert set(altered(3.0, 0.1).values()) == {True}
    assert set(altered(5.0, -0.1).values()) == {False}
    assert altered(3.97, 0.1)[foresight.NEARER] is None  # 0.9925 to 0.9975 of it, ±0.006


def test_a_scene_without_rises_leaves_out_what_it_cannot_tell(scenes):
    calm = scenes[0] | {
        "counts": {ALL: 1, SPIKE: 0, LASTS: 0},
        ERROR: scenes[0][ERROR] | {SPIKE: {}, LASTS: {}},
        "told": dict.fromkeys(scenes[0]["told"]),
    }
    tables = {table["name"]: table["rows"] for table in foresight.tables_of([calm])}
    assert tables["forecast-rises"] == []
    assert {one["arm"] for one in tables["forecast"]} == {ERROR, HIGH}
    assert claims([calm])[foresight.TELLS] is None


def test_the_part_forecast_runs_a_scene_a_seed_and_no_schedule():
    setup = paper.Setup(parts=["forecast"], seeds=2, data="own=a.xz")
    trials = paper.planned(setup)
    assert {trial.call for trial in trials} == {foresight.CALL}
    assert [trial.settings["seed"] for trial in trials] == [1000, 1001]
    assert setup.traces() == ["colocated:own=a.xz"]
    assert foresight.CALL not in {t.call for t in paper.planned(paper.Setup(parts=["0.9"]))}
