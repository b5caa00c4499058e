import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from tests.unit.report.made import pool

from trimtab.core import What
from trimtab.report.compare import html
from trimtab.report.compare.html import write_report

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


def test_no_results_are_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="no results"):
        write_report(tmp_path / "x.html", [], title="t", command="c")
