import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.unit.report.made import logged, pool

from trimtab.build import cluster, workload
from trimtab.core import What
from trimtab.metrics import RECORDED
from trimtab.report.colours import INK, PALETTE
from trimtab.report.compare import gantt, plots, series
from trimtab.report.compare.bars import bars
from trimtab.report.compare.table import summary
from trimtab.report.drawing import both, short
from trimtab.sim.log import NODE_DOWN


def drawings(name="fcfs"):
    result = pool(name)
    span, rows = series.span_of([result]), summary([result])
    return {
        "waits": plots.waits({name: series.waits_s(result)}, (1.0, "s")),
        "slowdowns": plots.slowdowns({name: series.slowdowns(result)}),
        "queue": plots.queue({name: series.queue_length(result)}, span),
        "util": plots.panels({name: series.allocated(result)}, span, "util", label="allocated"),
        "bars": bars(rows, rows),
    }


def many(nodes=60, jobs=3000):
    """Jobs of 10 s on nodes in turn, one a second a node's turn; one node is down to the end."""
    work = workload(
        np.arange(jobs, dtype=float),
        np.full(jobs, 10.0),
        np.ones(jobs),
        kind=np.arange(jobs) % 14,
        kinds=[f"k{i}" for i in range(14)],
    )
    rows = [(0, What.FAILED, -1, 3, 0, -1, NODE_DOWN)]
    for job in range(jobs):
        node = job % nodes
        rows += [(job, What.SUBMITTED, job, -1, 0, -1), (job, What.STARTED, job, node, 1, node)]
        rows += [(job + 10, What.FINISHED, job, -1, 0, -1)]
    rows.sort(key=lambda row: row[0])
    return logged(rows, work, cluster(np.ones(nodes)))


def test_every_plot_is_well_formed_and_the_same_each_time():
    once, again = drawings(), drawings()
    for name, text in once.items():
        assert ElementTree.fromstring(text).tag.endswith("svg"), name
        assert text == again[name]


def test_ids_of_two_plots_never_meet():
    found = [set(re.findall(r'\bid="([^"]+)"', text)) for text in drawings().values()]
    assert all(found)
    assert sum(map(len, found)) == len(set().union(*found))


def test_every_reference_in_a_plot_is_to_its_own_ids():
    for text in drawings().values():
        ids = set(re.findall(r'\bid="([^"]+)"', text))
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= ids


@pytest.mark.parametrize("name", ["<script>x</script>", "a $x^2$ b", "a & b", "x" * 200])
def test_names_are_plain_text_in_plots(name):
    text = drawings(name)["waits"]
    shown = "".join(ElementTree.fromstring(text).itertext())
    assert short(name) in shown
    assert "<script" not in text


def shown(text):
    """Labels of a plot."""
    return [" ".join(e.itertext()) for e in ElementTree.fromstring(text).iter() if "text" in e.tag]


def test_waits_of_zero_count_at_the_left_end():
    values = np.array([0.0, 0.0, 120.0, 600.0, 6000.0])
    labels = shown(plots.waits({"a": values, "b": np.zeros(3)}, (60.0, "min")))
    assert "≤ 1" in labels and "100" in labels  # 120 s are 2 min: the decade below is 1 min
    assert "wait from submit to first start (min, log scale)" in labels


def metric(**means):
    """Rows with a mean JCT each."""
    return summary([pool(p) for p in means], lambda r: {"jct_mean_s": means[r.policy]})


@pytest.mark.parametrize(("ratio", "logarithmic"), [(19.0, False), (21.0, True), (1000.0, True)])
def test_bars_are_logarithmic_where_one_is_more_than_twenty_times_another(ratio, logarithmic):
    rows = metric(fcfs=100.0, sjf=100.0 * ratio)
    assert any("log scale" in label for label in shown(bars(rows, rows))) == logarithmic


def test_a_zero_beside_large_values_has_no_bar_and_its_number():
    rows = metric(fcfs=100.0, sjf=9000.0, f1=0.0)
    assert "0" in shown(bars(rows, rows))


def test_bars_have_the_unit_of_the_table_even_where_they_are_of_fewer_policies():
    # the middle of all three is sqrt(1 x 1e6) = 1000 s, so minutes; of the first two it is seconds
    every = metric(fcfs=1.0, sjf=2.0, f1=1e6)
    labels = shown(bars(every[:2], every))
    assert "min" in labels and "s" not in labels


def test_what_was_recorded_is_drawn_in_ink_and_leaves_the_colours_to_the_policies():
    assert plots.paint([RECORDED, "a", "b"]) == {RECORDED: INK, "a": PALETTE[0], "b": PALETTE[1]}
    names = [*map(str, range(12)), RECORDED]
    assert plots.drawn(names) == [*map(str, range(10)), RECORDED]


def test_a_plot_for_a_phone_has_a_name_of_its_own_and_is_narrow():
    result = pool()
    desk, phone = both(lambda on: plots.slowdowns({"a": series.slowdowns(result)}, on))
    assert 'id="slowdowns-' in desk and 'id="slowdowns-phone-' in phone
    wide, narrow = (float(re.search(r'width="([\d.]+)pt"', svg)[1]) for svg in (desk, phone))
    assert narrow < wide / 2


def test_letters_that_the_layouts_font_lacks_are_no_warning(recwarn):
    assert "漢字" in shown(drawings("漢字")["waits"])
    assert not recwarn.list


def test_a_gantt_of_many_jobs_and_nodes_says_what_it_leaves_out():
    text, caption = gantt.gantt(many())
    ElementTree.fromstring(text)
    assert "of the 3,000 jobs" in caption
    assert "on 48 of 60 nodes" in caption
    assert "left out" in caption
    assert "5 other kinds" in text
    assert "node down" in text


def test_a_small_gantt_leaves_nothing_out():
    _, caption = gantt.gantt(many(nodes=4, jobs=20))
    assert caption == "20 of the 20 jobs that ran. "


def test_a_gantt_draws_each_job_at_its_share_of_the_node():
    work = workload([0, 0], [4, 4], [1, 3])
    rows = [(0, What.SUBMITTED, j, -1, 0, -1) for j in (0, 1)]
    rows += [(0, What.STARTED, j, 0, 1, j) for j in (0, 1)] + [
        (4, What.FINISHED, j, -1, 0, -1) for j in (0, 1)
    ]
    result = logged(rows, work, cluster([4]))
    parts = gantt._parts(result, series.pieces(result), np.array([0]))
    # rows grow downwards: the first stands on the foot (1.0) and takes a quarter
    assert parts[["low", "high"]].tolist() == [(0.75, 1.0), (0.0, 0.75)]


def test_reports_do_not_load_pyplot():
    code = "import sys, trimtab.report.compare.html; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
