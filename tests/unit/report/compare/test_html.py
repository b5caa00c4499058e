import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.unit.report.made import pool

from trimtab.build import cluster, workload
from trimtab.core import What
from trimtab.metrics import RECORDED, Result
from trimtab.report.compare import html
from trimtab.report.compare.html import write_report
from trimtab.sim.whole import ended_state, pool_totals

VOID = {"meta", "br", "hr", "img", "input", "link"}
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


class Page(HTMLParser):
    """Tags in balance, attributes, ids and the text outside of style and SVG's own."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def report(tmp_path, results, **told):
    told = {"title": "A comparison", "command": "trimtab compare", "now": NOW} | told
    return write_report(tmp_path / "report.html", results, **told).read_text(encoding="utf-8")


def test_the_page_is_balanced_and_names_every_policy_and_fact(tmp_path):
    text = report(tmp_path, [pool("fcfs"), pool("dqn:x", delay_s=3.0)], notes=["One remark."])
    page = " ".join(Page(text).text)
    for fact in (
        "fcfs",
        "dqn:x",
        "three jobs",
        "a pool",
        "trimtab compare",
        "2026-01-02",
        "numba",
        "One remark.",
    ):
        assert fact in page
    assert "strongest simple rule is" in page


def test_the_page_loads_nothing(tmp_path):
    text = report(tmp_path, [pool("fcfs", seed) for seed in (0, 1)])
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "action", "data", "poster"):
            assert value.startswith("#"), (tag, name, value)
    assert not re.search(r"https?://|@import|url\((?!#)", text)


def test_ids_are_unique_in_the_page(tmp_path):
    ids = [
        value
        for _, name, value in Page(report(tmp_path, [pool(), pool("sjf")])).attributes
        if name == "id"
    ]
    assert len(ids) == len(set(ids))


def test_text_from_outside_is_escaped(tmp_path):
    bad = "<script>alert('x')</script>"
    results = [pool(bad), pool("fcfs", delay_s=1.0)]
    text = report(tmp_path, results, title=bad, command=f'x "{bad}"', notes=[bad])
    assert "<script" not in text
    assert "script" not in Page(text).tags
    assert text.count("&lt;script&gt;") >= 4


def test_several_seeds_are_pooled_and_series_are_of_the_first(tmp_path):
    text = report(
        tmp_path, [pool(policy, seed, seed) for policy in ("fcfs", "sjf") for seed in (4, 5, 6)]
    )
    page = " ".join(Page(text).text)
    assert "Jobs of all 3 seeds together." in page
    assert "Of the first seed (4) alone." in page
    assert "4 to 6" in page
    assert "Means over 3 seeds" in page


def test_one_seed_says_nothing_of_intervals(tmp_path):
    page = " ".join(Page(report(tmp_path, [pool()])).text)
    assert "±" not in page
    assert "Means over 1 seeds" not in page


def test_more_policies_than_colours_are_said_to_be_left_out(tmp_path):
    results = [pool(f"p{i}", delay_s=i) for i in range(12)]
    page = " ".join(Page(report(tmp_path, results)).text)
    assert "The first 10 of 12 policies" in page
    assert "p11" in page


@pytest.mark.parametrize(
    ("delays_s", "verdict"),
    [
        ((-2.0, -2.1, -2.0), "ahead of it"),
        ((2.0, 2.1, 2.0), "behind it"),
        ((-1.0, 1.0, 0.1), "not told apart"),
    ],
)
def test_a_learned_policy_is_ahead_only_beyond_its_interval(tmp_path, delays_s, verdict):
    results = [pool("fcfs", seed, 5.0) for seed in range(3)]
    results += [pool("dqn", seed, 5.0 + delay_s) for seed, delay_s in enumerate(delays_s)]
    assert verdict in " ".join(Page(report(tmp_path, results)).text)


def test_a_policy_that_left_jobs_unfinished_is_named(tmp_path):
    result = pool("sjf")
    result.state["status"][2] = What.FAILED - 2  # Status.FAILED
    page = " ".join(Page(report(tmp_path, [pool("fcfs"), result])).text)
    assert "sjf finished 2 of 3 jobs" in page


def test_a_page_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def breaks(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(html.Path, "replace", breaks)
    with pytest.raises(OSError, match="disk full"):
        write_report(path, [pool()], title="t", command="c")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def idle(policy="fcfs", seed=0):
    """Two jobs of 10 and 20 s on four units: both start when they are submitted."""
    work = workload([0, 5], [10, 20], [2, 2], resources=["node"])
    start_s = np.array([0.0, 5.0])
    state = ended_state(work, start_s, start_s + work.truth["work_s"])
    machine = cluster([4], resources=["node"], kinds=["pool"], names=["pool"])
    return Result(policy, seed, work, machine, state, pool_totals(work, state, 4))


def test_a_report_in_which_nobody_waited_says_so_and_has_no_empty_axes(tmp_path):
    text = report(tmp_path, [idle("fcfs"), idle("sjf")])
    page = " ".join(Page(text).text)
    assert page.count("Nobody waited") == 2  # for the distribution and for the queue
    assert "No finished job was slowed down." in page
    for plot in ("waits", "slowdowns", "queue"):
        assert f'id="{plot}-' not in text
    assert 'id="utilisation-' in text


def test_a_policy_under_which_nobody_waited_is_named_beside_the_others(tmp_path):
    late = idle("sjf")
    late.state["start_s"][1] += 100.0
    page = " ".join(Page(report(tmp_path, [idle("fcfs"), late])).text)
    assert "Nobody waited under fcfs." in page


def test_policies_that_do_not_differ_are_one_line(tmp_path):
    text = report(tmp_path, [pool("fcfs"), pool("sjf")])
    assert "All of them have the same distribution." in " ".join(Page(text).text)
    assert "all alike" in text
    differ = report(tmp_path, [pool("fcfs"), pool("sjf", delay_s=3.0)])
    assert "all alike" not in differ


def test_the_drain_is_marked_where_jobs_ended_after_the_last_arrival(tmp_path):
    # submitted at 0, 0 and 2 s; the last ends at 25 s, or 28 s
    text = report(tmp_path, [pool("fcfs"), pool("sjf", delay_s=3.0)])
    page = " ".join(Page(text).text)
    assert "Jobs arrive for 2 s; the last one to run ends 23 to 26 s after that." in page
    assert text.count("drain: no more arrivals") == 3  # utilisation, and the queue on two sheets


def test_jobs_that_arrive_at_once_leave_no_drain_to_mark(tmp_path):
    result = idle()
    result.workload.jobs["submit_s"] = 0.0
    text = report(tmp_path, [result])
    assert "Shaded: the drain" not in " ".join(Page(text).text)
    assert "drain: no more arrivals" not in text


def test_a_quantity_has_one_unit_in_a_report(tmp_path):
    # waits of 0, 0 and 18 s, and of an hour more: sqrt(6 x 3606) = 147 s, so minutes throughout
    text = report(tmp_path, [pool("fcfs"), pool("sjf", delay_s=3600.0)])
    units = set(re.findall(r"wait<small>(\w+)</small>", text))
    axes = set(re.findall(r"wait from submit to first start \((\w+), log scale", text))
    assert units == axes == {"min"}
    assert "at most (min)" in text
    clocks = re.findall(r"time since the first submit \((\w+)\)", text)
    assert len(set(clocks)) == 1 and len(clocks) > 1
    assert f"<dt>Submitted over</dt><dd>0.033 {clocks[0]}</dd>" in text  # 2 s of an hour and more


def test_a_thousand_policies_are_cut_and_the_rest_is_counted(tmp_path):
    results = [pool(f"policy{i}", delay_s=i) for i in range(1000)]
    page = " ".join(Page(report(tmp_path, results)).text)
    assert "and 980 more" in page and "And 940 more policies." in page
    assert "policy0" in page and "policy999" not in page


def test_a_long_name_is_cut_and_whole_in_its_title(tmp_path):
    name = "x" * 300
    page = Page(report(tmp_path, [pool(name), pool("fcfs", delay_s=1.0)]))
    assert ("span", "title", name) in page.attributes
    assert name not in " ".join(page.text)


def test_a_name_that_is_no_unicode_can_be_written(tmp_path):
    assert "fcfs" in report(tmp_path, [pool("fcfs")], title="log\udcff.swf")


def test_every_plot_but_what_ran_where_has_a_sheet_for_a_phone(tmp_path):
    text = report(tmp_path, [pool("fcfs"), pool("sjf", delay_s=3.0)])
    assert text.count('<svg class="desk"') == text.count('<svg class="phone"') == 6
    assert "max-width:46rem" in text and "prefers-color-scheme:dark" in text


def test_what_was_recorded_is_neither_best_nor_a_rule_nor_called_a_policy(tmp_path):
    results = [pool(RECORDED), pool("fcfs", delay_s=1.0), pool("dqn", delay_s=2.0)]
    text = report(tmp_path, results)
    row = re.search(r'<tr class="record">.*?</tr>', text)[0]
    assert "as recorded" in row and "best" not in row
    page = " ".join(Page(text).text)
    assert "Policies fcfs, dqn" in page
    assert re.search(r"strongest simple rule is\s+fcfs", page)


def test_no_results_are_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="no results"):
        write_report(tmp_path / "x.html", [], title="t", command="c")
