"""What a log recorded: as a result, by group, and the reasons why no rule waits as its jobs did."""

import numpy as np
import pytest

from trimtab import site
from trimtab.build import cluster, workload
from trimtab.core import Status
from trimtab.errors import UnknownName
from trimtab.metrics import RECORDED
from trimtab.recorded import as_dict, as_recorded, by_group, doubts, far_off, waits
from trimtab.traces.scenes.load import stretched

POOL = cluster([[10]], kinds=("pool",))


def log(start_s, run_s, width, submit_s=None, **more):
    """Jobs a second apart that started and ended as given."""
    start_s, run_s = np.array(start_s, float), np.array(run_s, float)
    meta = {"recorded": {"start_s": start_s, "end_s": start_s + run_s}}
    submit_s = np.arange(len(start_s)) if submit_s is None else submit_s
    meta |= more.pop("meta", {})
    return workload(submit_s, run_s, width, source="a log", meta=meta, **more)


def recorded_of(*given, **more):
    result = as_recorded(log(*given, **more), POOL)
    assert result is not None
    return result


def test_the_record_is_a_result_of_its_own_starts_and_ends():
    result = recorded_of([0, 10, 12], [10, 5, 8], [4, 10, 2])
    assert result.policy == RECORDED
    assert result.state["start_s"].tolist() == [0, 10, 12]
    assert result.state["end_s"].tolist() == [10, 15, 20]
    assert result.state["waited_s"].tolist() == [0, 9, 10]
    assert (result.state["status"] == Status.FINISHED).all()


def test_jobs_without_a_start_are_left_out_of_it():
    work = log([0, np.nan, 12], [10, 5, 8], [4, 10, 2])
    result = as_recorded(work, POOL)
    assert result is not None
    assert result.state["start_s"].tolist() == [0, 12]
    assert len(result.workload) == 2


def test_the_record_stands_on_a_cluster_with_more_resources_than_the_jobs_ask_for():
    rack = cluster([[10, 64]], resources=("cpu", "mem_gb"))
    result = as_recorded(log([0, 10], [10, 5], [4, 10]), rack)
    assert result is not None
    assert result.workload.demand.tolist() == [[4, 0], [10, 0]]


def test_no_record_is_no_result_and_none_is_left_once_arrivals_are_stretched():
    assert as_recorded(workload([0], [1], [1]), POOL) is None
    assert as_recorded(stretched(log([0, 9], [1, 1], [1, 1]), 2.0, "so"), POOL) is None


def test_waits_and_use_are_over_the_span_of_arrivals():
    # waits 0 and 90 s; inside 0 .. 10 s of arrivals 4 units for 10 s of 10 units
    told = waits(recorded_of([0, 100], [50, 5], [4, 10], submit_s=[0, 10]))
    assert (told["wait_mean_s"], told["wait_max_s"], told["utilization"]) == (45, 90, 0.4)


def test_where_some_jobs_ask_for_gpus_the_others_have_none():
    work = log([0, 0, 0], [100, 100, 100], [4, 1, 1], submit_s=[0, 0, 0], gpus=[0, 2, 0])
    result = as_recorded(work, POOL)
    assert [(g.name, g.jobs) for g in by_group(result, "size")] == [("no GPUs", 2), ("2 GPUs", 1)]


def test_groups_are_told_by_partition_user_size_and_week():
    day = 86400.0
    work = log(
        [5 * day, 6 * day + 60, 13 * day],
        [100, 100, 100],
        [1, 3, 8],
        submit_s=[5 * day, 6 * day, 13 * day],
        labels={site.PARTITION: site.labelled(["short", "short", "long"])},
        meta={"epoch_s": 0.0},
        tenants=("ada", "bob"),
        tenant=[0, 1, 1],
    )
    result = as_recorded(work, POOL)
    assert result is not None
    # 800 of 1,200 unit-seconds are long's; 60 s is the wait of one of short's two
    assert [(g.name, g.jobs, g.wait_mean_s) for g in by_group(result, "partition")] == [
        ("long", 1, 0),
        ("short", 2, 30),
    ]
    assert by_group(result, "partition")[0].share == pytest.approx(800 / 1200)
    assert [g.name for g in by_group(result, "user")] == ["bob", "ada"]
    assert [g.name for g in by_group(result, "size")] == ["1 cpu", "3-4 cpu", "5-8 cpu"]
    # 6 and 7 January 1970 stand in the second week, the 14th in the third
    assert [(g.name, g.jobs) for g in by_group(result, "week")] == [
        ("1970-W02", 2),
        ("1970-W03", 1),
    ]
    with pytest.raises(UnknownName, match="known: partition, user, size, week"):
        by_group(result, "colour")
    told = as_dict(work, POOL)
    assert (told["first_submit"], told["last_submit"]) == ("1970-01-06 00:00", "1970-01-14 00:00")
    assert told["recorded_by_user"][0]["name"] == "bob"


def test_a_rule_twice_as_fast_or_slow_as_the_record_is_said_to_be_far_from_it():
    recorded = recorded_of([100, 101], [10, 10], [1, 1])
    near = recorded_of([150, 151], [10, 10], [1, 1])
    for delay_s, word in ((30, "%"), (300, "times")):
        other = recorded_of([delay_s, delay_s + 1], [10, 10], [1, 1])
        assert word in far_off(recorded, [other])
    assert far_off(recorded, [near]) == ""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"request_s": [1.0, 1.0, 1.0]}, "100.0% of the jobs ran a minute or more beyond"),
        ({"width": [8, 8, 2]}, "18 cpu ran jobs at once, as recorded, on a machine of 10"),
        ({"width": [1, 1, 1]}, "never more than 3 of 10 cpu were in use at once"),
        ({"start_s": [0, 9000, 9001], "width": [2, 5, 5]}, "while as many cpu as they asked for"),
        ({"meta": {"header": {"Note": "THIS IS A CLEANED VERSION OF THE LOG!"}}}, "cleaned"),
    ],
)
def test_the_log_names_reasons_for_its_waits(more, told):
    given = {"start_s": [0, 1, 2], "run_s": [100, 100, 100], "width": [4, 4, 2]} | more
    columns = [given.pop(name) for name in ("start_s", "run_s", "width")]
    assert any(told in reason for reason in doubts(recorded_of(*columns, **given)))


def test_a_log_that_tells_nothing_has_no_reasons():
    assert doubts(recorded_of([0, 1, 2], [100, 100, 100], [4, 4, 2])) == []


@pytest.mark.parametrize(("before", "told"), [([0, 7, 8], True), ([1, 1, 1], False)])
def test_think_times_count_where_they_name_jobs(before, told):
    swf = {"preceding_job": np.array(before), "think_s": np.array([0.0, 5.0, 5.0])}
    found = doubts(recorded_of([0, 1, 2], [100, 100, 100], [4, 4, 2], meta={"swf": swf}))
    assert any("after another ended" in reason for reason in found) == told


def test_waits_are_described_also_where_nobody_says_what_the_log_ran_on():
    # waits of 0 and 90 s; how much of an unknown machine was in use cannot be told
    told = as_dict(log([0, 100], [50, 5], [4, 10], submit_s=[0, 10]), None)
    assert (told["recorded"]["wait_mean_s"], told["recorded"]["wait_max_s"]) == (45, 90)
    assert "utilization" not in told["recorded"]
    assert [group["jobs"] for group in told["recorded_by_size"]] == [1, 1]
