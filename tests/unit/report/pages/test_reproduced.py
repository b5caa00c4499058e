"""The page of a reproduction shows its claims, its tables and completion time by load."""

import re

from trimtab.report.pages.reproduced import completion, write_reproduced

CURVES = {
    "oracle": {"fcfs": [(0.5, 900.0), (0.9, 4000.0)], "adlro": [(0.5, 800.0), (0.9, 1500.0)]},
    "noisy": {"fcfs": [(0.5, 900.0), (0.9, 4000.0)]},
}


def test_a_plot_has_a_panel_an_arm_and_a_line_a_policy():
    drawn = completion(CURVES)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {"oracle estimates", "noisy estimates"} <= set(texts)
    # one legend for all panels
    assert [texts.count(name) for name in ("fcfs", "adlro")] == [1, 1]


def test_the_page_escapes_names_and_tells_each_note_once(tmp_path):
    path = tmp_path / "page.html"
    write_reproduced(
        path,
        title="a <paper>",
        facts={"Command": "trimtab reproduce <x>"},
        curves=CURVES,
        sections=[
            ("one", "a note", ["policy", "0.9"], [["fcfs", "1.0"]]),
            ("two", "a note", ["policy", "0.9"], [["<b>", "2.0"]]),
        ],
        claims=[("it is <fast>", "holds", "1 & 2")],
    )
    text = path.read_text()
    assert "a &lt;paper&gt;" in text
    assert "it is &lt;fast&gt;" in text
    assert "<td>&lt;b&gt;</td>" in text
    assert text.count("a note") == 1
    assert text.count("<svg") == 1
