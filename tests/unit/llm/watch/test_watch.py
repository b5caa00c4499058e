"""A job watched for hours on a made-up cluster: it learns, proposes in time, and does not flap."""

import json
import math
from statistics import median

import numpy as np
import pytest
from tests.unit.llm.watch.plays import BEST, MARKET, QUESTION, Play, calm, is_plan

from trimtab.llm.cost.crowded import link_use_s
from trimtab.llm.watch.conditions import Raw
from trimtab.llm.watch.replan import Rules
from trimtab.llm.watch.watch import FIRST_RETRY_S, own_link, typical_s, work_of
from trimtab.llm.watch.watch_state import State, load, save

START_S = 1e6
HOUR_S = 3600.0


def slow_after(hours, factor):
    """The best plan alone becomes slower than the cost model says."""

    def true(row, time_s):
        return factor if is_plan(row, BEST) and time_s > START_S + hours * HOUR_S else 1.0

    return true


def test_a_calm_job_keeps_its_plan_and_learns_that_the_model_is_right(tmp_path):
    play = Play(tmp_path).run(100)
    assert set(play.actions()) == {"keep"}
    assert play.records[-1]["factor"] == pytest.approx(1.0, abs=0.01)
    assert play.saved == 100 and play.warnings == []


def test_a_slow_down_leads_to_another_plan_within_a_few_readings(tmp_path):
    play = Play(tmp_path, factor=slow_after(1, 1.3)).run(70)
    actions = play.actions()
    # seen from reading 60 on: three readings to believe it, three that agree on a change
    assert set(actions[:60]) == {"keep"}
    assert actions.index("propose") <= 66
    assert actions[-1] == "propose"
    record = play.records[-1]
    assert record["factor"] == pytest.approx(1.3, rel=0.03)
    assert record["saving_s"] > 1.5 * record["cost_s"]
    assert record["proposal"]["expected_s"] < record["expected_s"]
    assert is_plan(play.state.current, BEST)  # a dry run changes nothing


def test_the_better_plan_is_taken_once_and_kept(tmp_path):
    play = Play(tmp_path, factor=slow_after(1, 1.3))
    play.run(400, play.apply)
    assert len(play.changes) == 1
    late = play.records[-1]
    assert late["step_s"] < 1.05 * play.records[0]["step_s"]
    assert late["factor"] == pytest.approx(1.0, abs=0.02)


def test_what_was_learned_survives_a_restart(tmp_path):
    path = tmp_path / "watch.json"
    first = Play(tmp_path, factor=slow_after(1, 1.3))
    first.run(80, first.apply)
    save(path, QUESTION, first.state)
    # the log goes on where it was read, and the plan left behind is still known to be slow
    again = Play(tmp_path, factor=slow_after(1, 1.3), state=load(path, QUESTION))
    again.run(120, again.apply)
    assert again.changes == []
    assert not is_plan(again.state.current, BEST)
    mine = np.asarray(BEST).reshape(1)
    assert math.exp(again.state.correction.expected(mine).mean[0]) > 1.2


def test_a_checkpoint_now_and_then_changes_nothing(tmp_path):
    count = iter(range(10**6))

    def checkpoints(row, time_s):
        return 10.0 if next(count) % 10 == 9 else 1.0

    play = Play(tmp_path, factor=checkpoints).run(120)
    assert set(play.actions()) == {"keep"}
    assert play.records[-1]["factor"] == pytest.approx(1.0, abs=0.01)


def test_a_machine_that_is_slow_for_all_plans_is_found_out_by_one_change(tmp_path):
    play = Play(tmp_path, factor=lambda row, time_s: 1.3)
    play.run(400, play.apply)
    assert len(play.changes) == 1


def noisy_links(time_s):
    """Neighbours whose traffic swings about the load at which two plans are equally fast."""
    load = np.random.default_rng(int(time_s) // 60).normal(0.72, 0.2)
    return Raw(cpu=0.0, own_cpu=0.0, taken=0.0, link=float(np.clip(load, 0, 1)))


def known_well(play, row):
    for beat in range(100):
        for plan in (BEST, row):
            play.state.correction.observe(plan, 1.0, 1.0, START_S - 7200.0 + 60.0 * beat)
    return play


def test_two_plans_near_break_even_do_not_take_turns(tmp_path):
    piped = (MARKET.rows["pp"] == 2) & (MARKET.rows["cp"] == 2) & (MARKET.rows["interleave"] == 2)
    piped &= (MARKET.rows["zero"] == 1) & (MARKET.rows["recompute"] == 0) & (MARKET.rows["dp"] == 4)
    other = MARKET.rows[piped][0]
    hasty = Rules(margin=0.01, patience=1, dwell_s=0.0, smooth_s=1e-3)
    counts = []
    for number, rules in enumerate((hasty, Rules())):
        folder = tmp_path / str(number)
        folder.mkdir()
        play = known_well(Play(folder, raw=noisy_links, rules=rules), other)
        play.run(300, play.apply)
        counts.append(len(play.changes))
    assert counts[0] >= 10
    assert counts[1] <= 1


def neighbours(time_s):
    """Others take 30 GB of each GPU after an hour."""
    return calm(time_s)._replace(taken=30e9 if time_s > START_S + HOUR_S else 0.0)


def test_neighbours_memory_makes_an_urgent_proposal_at_once(tmp_path):
    play = Play(tmp_path, raw=neighbours)
    play.run(70, play.apply)
    when = play.actions().index("applied")
    assert play.records[when - 1]["taken_b"] == 0.0  # the first reading that saw them
    assert play.records[when]["urgent"] and play.records[when]["p_fit"] < 0.5
    assert len(play.changes) == 1
    assert play.records[-1]["p_fit"] > 0.9


def test_a_plan_that_goes_on_running_beside_neighbours_is_not_in_danger(tmp_path):
    play = Play(tmp_path, raw=neighbours).run(70)
    urgent = [record["urgent"] for record in play.records]
    assert sum(urgent) == 1  # at the reading at which they came
    assert play.records[-1]["p_fit"] == 1.0


def test_a_command_that_fails_leaves_the_plan_and_is_tried_again_later(tmp_path):
    tries = []

    def broken(offer):
        tries.append(play.now_s)
        return 7 if len(tries) < 4 else 0

    play = Play(tmp_path, factor=slow_after(0, 1.3))
    play.run(30, broken)
    actions = play.actions()
    assert actions.count("failed") == 3 and actions.count("applied") == 1
    # 60, 120 and 240 s apart at least, on beats of 60 s
    gaps = np.diff(tries)
    assert (gaps >= FIRST_RETRY_S * np.array([1, 2, 4])).all() and (gaps <= 300.0).all()
    failed = play.records[actions.index("failed")]
    assert "ended with 7, the plan stays; next try in 60 s" in failed["reason"]
    assert not is_plan(play.state.current, BEST) and play.state.failures == 0


def test_every_record_is_json_without_nan(tmp_path):
    play = Play(tmp_path, raw=lambda time_s: Raw(), factor=slow_after(0, 1.3)).run(8)
    for record in play.records:
        assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert play.records[0]["gpu_load"] is None
    assert [record["reading"] for record in play.records] == list(range(1, 9))


def test_an_interruption_leaves_the_last_whole_reading(tmp_path):
    play = Play(tmp_path)

    def sleep(seconds):
        play.now_s += seconds
        if play.saved == 3:
            raise KeyboardInterrupt

    play.sleep = sleep
    with pytest.raises(KeyboardInterrupt):
        play.run(0)
    assert play.saved == 3 and len(play.records) == 3


def test_beats_that_were_slept_through_are_left_out(tmp_path):
    play = Play(tmp_path)
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        play.now_s += seconds + (150.0 if len(slept) == 3 else 0.0)

    play.sleep = sleep
    play.run(5)
    times = [record["time_s"] - START_S for record in play.records]
    assert times == [1.0, 61.0, 271.0, 301.0, 361.0]


def test_without_a_log_the_cost_model_stays_as_it_is(tmp_path):
    play = Play(tmp_path)
    play.log = None
    play.run(3)
    assert [record["step_s"] for record in play.records] == [None] * 3
    assert play.state.correction.plans == [] and play.state.read is None


@pytest.mark.parametrize(
    ("recent", "new", "expected"),
    [
        ([], [], None),
        ([1.0, 1.0, 1.0], [], None),  # nothing new, nothing to learn
        ([], [9.0], None),  # a first step compiles: too few to tell
        ([], [9.0, 1.0, 1.1], 1.1),
        ([1.0, 1.1], [10.0], 1.1),  # a checkpoint among the last three
        ([5.0, 5.0, 5.0], [1.0, 1.1, 1.2, 1.3, 10.0], 1.2),  # enough new ones speak for themselves
    ],
)
def test_a_median_of_three_steps_at_least_is_what_a_plan_takes(recent, new, expected):
    state = State(BEST, recent_s=list(recent))
    assert typical_s(state, new) == expected
    assert state.recent_s == (recent + new)[-3:]


def test_the_plans_own_traffic_is_its_bytes_over_its_step():
    busy_s = link_use_s(np.asarray(BEST).reshape(1))[1][0]
    steps = [10.0, 20.0, 12.0]
    assert own_link(BEST, steps) == pytest.approx(busy_s / median(steps))
    assert own_link(BEST, []) > 0
    assert work_of(BEST) == (256, 256 * 8192, 16)
