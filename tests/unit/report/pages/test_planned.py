"""Pages of plans and of checked runs: parts of a step, predictions beside measurements."""

import json
import re
import sys

import pytest

from trimtab.cli import main
from trimtab.report.pages.planned import stacked


@pytest.fixture
def page(monkeypatch, tmp_path, capsys):
    """The text of the page that `trimtab plan` writes."""

    def written(*words):
        path = tmp_path / "page.html"
        line = ["trimtab", "plan", *map(str, words), "--report", str(path)]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, capsys.readouterr().err
        return path.read_text()

    return written


def texts(drawn):
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn)


def test_a_bar_has_the_parts_that_can_be_seen():
    bars = [{"a": 3.0, "b": 0.0, "c": 1.0}, {"a": 2.0, "b": 0.0, "c": 2.0}]
    drawn = stacked(bars, {"a": "apples", "b": "none", "c": "cherries"}, ["one", "two"], "kg",
                    name="fruit")  # fmt: skip
    found = texts(drawn)
    assert {"apples", "cherries", "one", "two", "kg"} <= set(found)
    assert "none" not in found


def test_a_page_of_plans_shows_parts_reasons_and_flags(page):
    text = page("llama-3-8b", "--gpus", "16xH100", "--export", "megatron")
    assert text.count("<svg") == 2
    assert {"compute", "weights", "GB a GPU"} <= set(texts(text))
    assert "--tensor-model-parallel-size" in text
    assert "Why not something else" in text
    assert "http:" not in text and "https:" not in text  # nothing is loaded


def test_serving_and_mixed_pools_have_a_page_without_parts(page):
    for words in (("llama-3-8b", "--gpus", "8xH100", "--serve"),
                  ("llama-3-70b", "--gpus", "32xH100+64xA100")):  # fmt: skip
        assert "<h2>Plans</h2>" in page(*words)


def test_a_page_of_runs_draws_what_was_measured(page, tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text(
        "gpu,gpus,hidden,layers,heads,tp,global_batch,step_s,mem_gb\n"
        "A100,64,12288,96,96,8,64,18,60\n"
        "A100,64,12288,96,96,8,128,36,<b>\n"
        "A100,64,12288,96,96,8,128,36,60\n"
    )
    text = page("--check", table)
    assert text.count("<svg") == 2
    assert "&lt;b&gt;" in text  # the row that cannot be read says why
    assert json.dumps("predicted")[1:-1] in texts(text)
