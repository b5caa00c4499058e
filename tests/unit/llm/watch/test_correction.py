"""What is believed of the cost model's errors after some step times."""

import json
import math

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost.cases import cases
from trimtab.llm.cost.intervals import step_spread
from trimtab.llm.spec.specs import gpu, model
from trimtab.llm.watch.correction import FORGET_S, JUMP_AFTER, NOISE, SHARED, Correction, loaded

ROWS = cases(
    model("llama-3-8b"), gpu("H100"), 16, seq=4096, global_batch=64,
    tp=[2, 2, 1, 8], micro_batch=[1, 2, 1, 1], pp=[1, 1, 4, 2], zero=[1, 1, 1, 0],
)  # fmt: skip
RUNNING, TWIN, OTHER, FARTHER = range(4)
SPREAD = float(step_spread(ROWS)[0])


def seen(*ratios, row=ROWS[RUNNING], start_s=0.0, correction=None):
    """A belief after observed / predicted of these, a minute apart."""
    made = correction or Correction()
    for beat, ratio in enumerate(ratios):
        made.observe(row, 2.0 * ratio, 2.0, start_s + 60.0 * beat)
    return made


def test_before_anything_is_seen_the_cost_model_holds_with_its_own_spread():
    belief = Correction().expected(ROWS)
    assert belief.mean.tolist() == [0.0] * 4
    assert belief.spread == pytest.approx(step_spread(ROWS))


def test_one_step_moves_the_plan_by_its_share_of_the_variance():
    belief = seen(1.2).expected(ROWS)
    gain = SPREAD**2 / (SPREAD**2 + NOISE**2)
    assert belief.mean[RUNNING] == pytest.approx(gain * math.log(1.2), rel=1e-6)
    left = SPREAD * math.sqrt(1.0 - gain)
    assert belief.spread[RUNNING] == pytest.approx(left, rel=1e-3)


def test_the_more_alike_a_plan_is_the_more_of_it_it_is_expected_to_share():
    belief = seen(*[1.2] * 5).expected(ROWS)
    means = belief.mean[[RUNNING, TWIN, OTHER, FARTHER]]
    assert (np.diff(means) < 0).all()
    assert means[-1] > SHARED * 0.9 * math.log(1.2)
    assert (np.diff(belief.spread) > 0).all()


def test_what_all_plans_share_cancels_between_two():
    correction = seen(*[1.3] * 5)
    apart = correction.against(ROWS, ROWS[RUNNING])
    assert apart.mean[RUNNING] == apart.spread[RUNNING] == 0.0
    expected = correction.expected(ROWS)
    assert apart.mean == pytest.approx(expected.mean - expected.mean[RUNNING])
    assert apart.mean[OTHER] < apart.mean[TWIN] < 0
    # two plans are known apart better than each is by itself
    assert apart.spread[TWIN] < Correction().expected(ROWS).spread[TWIN]


def test_a_second_plan_tells_what_was_the_machine_and_what_the_plan():
    slow_all = seen(*[1.3] * 5, row=ROWS[OTHER], start_s=600.0, correction=seen(*[1.3] * 5))
    slow_one = seen(*[1.0] * 5, row=ROWS[OTHER], start_s=600.0, correction=seen(*[1.3] * 5))
    third = [made.expected(ROWS).mean[FARTHER] for made in (slow_one, seen(*[1.3] * 5), slow_all)]
    assert third[0] < third[1] < third[2]
    assert slow_one.against(ROWS, ROWS[RUNNING]).mean[OTHER] == pytest.approx(
        -math.log(1.3), abs=0.03
    )


def test_a_hiccup_moves_nothing():
    correction = seen(*[1.1] * 5)
    before = correction.expected(ROWS)
    seen(10.0, start_s=300.0, correction=correction)
    after = correction.expected(ROWS)
    assert after.mean == pytest.approx(before.mean, abs=1e-4)
    assert len(correction.far) == 1
    seen(1.1, start_s=360.0, correction=correction)
    assert correction.far == []


def test_a_slow_down_that_stays_is_believed_at_once():
    correction = seen(*[1.0] * 200)
    seen(*[1.3] * (JUMP_AFTER - 1), start_s=12_000.0, correction=correction)
    assert correction.expected(ROWS).mean[RUNNING] == pytest.approx(0.0, abs=1e-3)
    seen(1.3, start_s=12_200.0, correction=correction)
    assert correction.expected(ROWS).mean[RUNNING] == pytest.approx(math.log(1.3), rel=0.1)


def test_surprises_to_both_sides_are_noise():
    correction = seen(*[1.0] * 50, *[1.5, 0.6] * 6)
    assert correction.expected(ROWS).mean[RUNNING] == pytest.approx(0.0, abs=0.01)


def test_a_belief_fades_towards_the_cost_model():
    correction = seen(*[1.2] * 50)
    before = correction.expected(ROWS).mean[RUNNING]
    correction.observe(ROWS[OTHER], 2.0, 2.0, FORGET_S + 3000.0)
    mean = correction.expected(ROWS).mean[RUNNING]
    assert 0.1 * before < mean < math.exp(-1.0) * before


def test_a_clock_that_goes_back_forgets_nothing():
    correction = seen(*[1.2] * 5, start_s=1e6)
    mean = correction.expected(ROWS).mean[RUNNING]
    seen(1.2, start_s=0.0, correction=correction)
    assert correction.expected(ROWS).mean[RUNNING] == pytest.approx(mean, abs=0.01)


def test_noise_is_averaged_and_the_spread_shrinks():
    rng = np.random.default_rng(1)
    correction = seen(*np.exp(math.log(1.15) + NOISE * rng.standard_normal(400)))
    belief = correction.expected(ROWS)
    assert belief.mean[RUNNING] == pytest.approx(math.log(1.15), abs=0.01)
    assert belief.spread[RUNNING] < NOISE / 3


def test_a_belief_survives_json():
    correction = seen(1.2, 1.25, 3.0)
    seen(1.1, row=ROWS[OTHER], start_s=300.0, correction=correction)
    again = loaded(json.loads(json.dumps(correction.saved(), allow_nan=False)))
    for name in ("expected", "against"):
        extra = () if name == "expected" else (ROWS[RUNNING],)
        one, other = (getattr(c, name)(ROWS, *extra) for c in (correction, again))
        assert other.mean == pytest.approx(one.mean) and other.spread == pytest.approx(one.spread)
    assert again.far == correction.far and again.time_s == correction.time_s


def test_an_empty_belief_survives_json():
    again = loaded(json.loads(json.dumps(Correction().saved(), allow_nan=False)))
    assert again.expected(ROWS).mean.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "change", [{"mean": []}, {"cov": [[0.1, 0.0]]}, {"spread": [float("nan")]}, {"plans": [{}]}]
)
def test_a_damaged_belief_is_not_loaded(change):
    with pytest.raises((KeyError, ValueError)):
        loaded({**seen(1.2).saved(), **change})


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, math.inf])
def test_a_step_that_is_no_time_is_refused(step_s):
    with pytest.raises(PlanError, match="both must be above 0"):
        Correction().observe(ROWS[0], step_s, 1.0, 0.0)
