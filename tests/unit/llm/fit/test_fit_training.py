"""The fit finds constants that made the times, and the shipped ones keep what was promised."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost import training
from trimtab.llm.cost.constants import read
from trimtab.llm.fit import check, fit_training
from trimtab.llm.fit.runs import as_runs

SHAPE = {"gpu": "A100", "hidden": "4096", "layers": "32", "heads": "32", "seq": "2048",
         "vocab": "51200"}  # fmt: skip
PLANS = (
    {"gpus": "8", "micro_batch": "4", "framework": "fsdp", "zero": "3"},
    {"gpus": "64", "tp": "4", "micro_batch": "4", "global_batch": "512", "recompute": "full"},
    {"gpus": "64", "tp": "8", "pp": "4", "global_batch": "512", "framework": "deepspeed"},
    {"gpu": "H100", "gpus": "8", "micro_batch": "4", "framework": "composer"},
)


def source(values):
    """A table whose times the model itself made with these constants."""
    runs = as_runs([SHAPE | plan for plan in PLANS])
    plans = check.settled(runs)
    knobs, frames = fit_training.built(values)
    step_s = training.cost(plans, knobs, frames=frames)["step_s"]
    return fit_training.Source("made", runs, plans, step_s)


def test_times_made_by_the_model_are_found_again():
    start = np.array([free.start for free in fit_training.FREE])
    spread = np.array([free.spread for free in fit_training.FREE])
    table = source(start + 0.5 * spread)
    before = fit_training.mean_error(fit_training.residuals(start, table))
    after = fit_training.mean_error(fit_training.residuals(fit_training.fitted([table]), table))
    assert before > 0.03
    assert after < before / 3


def test_every_free_constant_is_one_that_the_model_has():
    knobs, frames = fit_training.built(np.arange(1.0, 1.0 + len(fit_training.FREE)))
    for place, free in enumerate(fit_training.FREE):
        field, _, framework = free.name.partition("@")
        if framework:
            row = fit_training.FRAMEWORKS.index(framework)
            assert frames[field][row] == 1.0 + place
        else:
            assert getattr(knobs, field) == 1.0 + place


def test_shipped_constants_reach_the_promised_errors():
    rows = read()["training"]["sources"]
    total = sum(row["rows"] for row in rows)
    assert sum(row["rows"] * row["mean_error"] for row in rows) / total <= 0.07
    assert sum(row["rows"] * row["held_out_error"] for row in rows) / total <= 0.15
    sizes = [row for row in read()["memory"]["sources"] if row["what"] == "memory"]
    assert sizes
    assert all(row["mean_error"] <= 0.08 for row in sizes)


def test_a_folder_without_tables_is_named(tmp_path):
    with pytest.raises(PlanError, match="give the reference folder"):
        fit_training.fit(tmp_path, write=False)
