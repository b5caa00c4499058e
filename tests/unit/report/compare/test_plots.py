import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.unit.report.made import logged, pool

from trimtab.build import cluster, workload
from trimtab.core import What
from trimtab.report.compare import gantt, plots, series
from trimtab.report.compare.table import summary
from trimtab.report.drawing import PALETTE, short
from trimtab.sim.log import NODE_DOWN


def drawings(name="fcfs"):
    result = pool(name)
    span_s = series.span_s(result)
    return {
        "waits": plots.waits({name: series.waits_s(result)}),
        "slowdowns": plots.slowdowns({name: series.slowdowns(result)}),
        "queue": plots.queue({name: series.queue_length(result)}, span_s),
        "util": plots.panels({name: series.allocated(result)}, span_s, "util", label="allocated"),
        "bars": plots.bars(summary([result])),
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


def test_the_palette_has_ten_different_colours():
    assert len(set(PALETTE)) == 10


def test_waits_of_zero_are_drawn():
    assert "≤ 1 s" in plots.waits({"a": np.zeros(5), "b": np.zeros(0)})


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
