import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.unit.report.made import pool

from trimtab import site
from trimtab.metrics import RECORDED
from trimtab.recorded import by_group
from trimtab.report.compare import groups
from trimtab.report.compare.html import write_report

MINUTES = (60.0, "min")


def labelled(policy="fcfs", delay_s=0.0, partitions=("short", "short", "long")):
    """The pool's three jobs: they wait 0, 0 and 18 s, plus the delay."""
    result = pool(policy, delay_s=delay_s)
    labels = {site.PARTITION: site.labelled(partitions)}
    return replace(result, workload=replace(result.workload, labels=labels))


def rows(page):
    """Cells of each table row, as text."""
    return [
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", page)
    ]


def test_waits_are_told_by_partition_in_the_unit_of_the_page():
    page = groups.by_groups({"fcfs": [labelled()], "sjf": [labelled("sjf", 60.0)]}, MINUTES)
    # work: 2 x 10 + 2 x 20 of 80 unit-seconds in short, 4 x 5 in long; 18 s are 0.3 min
    assert ["short", "2", "75 %", "0 95 %: 0", "1 95 %: 1"] in rows(page)
    assert ["long", "1", "25 %", "0.300 95 %: 0.300", "1.30 95 %: 1.30"] in rows(page)
    assert "By partition" in page and "mean wait (min" in page


def test_jobs_that_are_all_alike_are_not_grouped():
    assert "By partition" not in groups.by_groups({"fcfs": [pool(delay_s=9.0)]}, MINUTES)


def test_where_nobody_waited_there_are_no_groups_to_tell():
    result = labelled()
    result.state["start_s"] = result.workload.jobs["submit_s"]
    assert groups.by_groups({"fcfs": [result]}, MINUTES) == ""


def test_jobs_that_never_started_have_no_wait_and_no_place_in_a_group():
    result = labelled(delay_s=60.0)
    result.state["start_s"][2] = np.nan
    page = groups.by_groups({"fcfs": [result], "sjf": [labelled("sjf", 60.0)]}, MINUTES)
    assert next(row for row in rows(page) if row[:1] == ["long"])[3:] == ["", "1.30 95 %: 1.30"]


def test_names_of_groups_are_escaped_and_cut():
    long = "<b>" + "x" * 200
    page = groups.by_groups({"fcfs": [labelled(delay_s=9.0, partitions=("a", "b", long))]}, MINUTES)
    assert "<b>" not in page and "&lt;b&gt;" in page
    assert f'title="&lt;b&gt;{"x" * 200}"' in page


def test_groups_beyond_the_most_are_counted():
    names = [f"group{i}" for i in range(groups.MOST + 7)]
    found = [groups.Group(name, 1, 0.0, 60.0, 60.0, 60.0, 60.0) for name in names]
    page = groups._grouped("user", {"fcfs": found}, MINUTES, "")
    assert "And 7 more" in page and f"group{groups.MOST}<" not in page


def test_what_was_recorded_is_a_hollow_diamond_beside_the_dots_of_the_policies():
    drawn = groups.dots({RECORDED: np.array([3.0]), "fcfs": np.array([90.0])}, ["a"], "min", "by")
    texts = [e.text for e in ElementTree.fromstring(drawn).iter() if e.tag.endswith("text")]
    assert "as recorded" in texts and "mean wait (min, log scale)" in texts
    assert drawn.count("fill-opacity: 0; stroke: #24292f") == 2  # the point and its key


@pytest.mark.parametrize(("delay_s", "far"), [(0.0, False), (600.0, True)])
def test_a_rule_that_is_far_from_the_record_is_warned_of(tmp_path, delay_s, far):
    results = [labelled(RECORDED, 60.0), labelled("fcfs", 60.0 + delay_s)]
    text = write_report(tmp_path / "r.html", results, title="t", command="c").read_text()
    assert "As recorded beside simulated" in text
    assert ('<p class="warn">In doubt: fcfs, the nearest to the record' in text) == far


def test_without_a_record_nothing_is_said_of_one():
    assert groups.beside_record({"fcfs": [labelled()]}, MINUTES) == ""


def test_sizes_are_powers_of_two_of_what_the_jobs_hold_in_their_order():
    # 2, 2 and 4 units of a resource named node, for 10, 20 and 5 s
    found = by_group(labelled(), "size")
    assert [(g.name, g.jobs, g.share, g.wait_mean_s) for g in found] == [
        ("2 node", 2, 0.75, 0.0),
        ("3-4 node", 1, 0.25, 18.0),
    ]


def test_weeks_are_counted_from_the_first_submit():
    result = labelled()
    submit_s = result.workload.jobs["submit_s"]
    submit_s += [0.0, 6 * 86400.0, 15 * 86400.0]
    assert [(g.name, g.jobs) for g in by_group(result, "week")] == [("week 1", 2), ("week 3", 1)]
