"""Predictions beside measured columns."""

import json

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost import intervals, training
from trimtab.llm.cost.cases import cases
from trimtab.llm.fit import check
from trimtab.llm.spec import specs

HEADER = (
    "gpu,gpus,hidden,layers,heads,vocab,seq,tp,pp,micro_batch,global_batch,recompute,framework,"
    "step_s,tflops_per_gpu,tokens_per_s_per_gpu,mem_gb,oom\n"
)
GPT = "A100,64,12288,96,96,51200,2048,8,8,1,64,full,megatron,"


@pytest.fixture
def table(tmp_path):
    def written(*lines):
        path = tmp_path / "runs.csv"
        path.write_text(HEADER + "\n".join(lines) + "\n")
        return path

    return written


def test_a_row_holds_prediction_interval_and_chance_to_fit(table):
    rows, summary = check.checked(table(GPT + "18.13,,,,"))
    (row,) = rows
    assert row["step_s_low"] < row["step_s"] < row["step_s_high"]
    assert 0 <= row["p_fit"] <= 1
    assert row["error_step_s"] == pytest.approx(row["step_s"] / 18.13 - 1, abs=1e-5)
    assert summary["step_s"]["mean_error"] == pytest.approx(abs(row["error_step_s"]), abs=1e-5)


def test_rows_are_json_without_nan(table):
    rows, summary = check.checked(table(GPT + ",,,,", GPT + "18,140,,50,no"))
    json.loads(json.dumps([rows, summary], allow_nan=False))
    assert "error_step_s" not in rows[0]
    assert summary["step_s"]["rows"] == 1


def test_rates_follow_from_the_step(table):
    (row,), _ = check.checked(table(GPT + ",,,,"))
    assert row["tokens_per_s_per_gpu"] == pytest.approx(64 * 2048 / 64 / row["step_s"], rel=1e-4)
    assert row["tflops_per_gpu"] == pytest.approx(row["hfu"] * 312, rel=1e-3)
    assert row["tflops_per_gpu_low"] < row["tflops_per_gpu"] < row["tflops_per_gpu_high"]


def test_a_time_in_the_row_tells_which_flop_the_table_counts(table):
    (row,), _ = check.checked(table(GPT + ",,,,"))
    model, hardware = (row[share] * 312 * row["step_s"] / 18.0 for share in ("mfu", "hfu"))
    rows, _ = check.checked(table(GPT + f"18,{model},,,", GPT + f"18,{hardware},,,"))
    assert [row["tflops_count"] for row in rows] == ["model", "with recomputation"]
    # then both columns tell the same error: a rate is its inverse
    for row in rows:
        assert 1 + row["error_tflops_per_gpu"] == pytest.approx(1 / (1 + row["error_step_s"]), 1e-4)


def test_out_of_memory_is_flagged_and_counted(table):
    small = "A100-40GB,8,4096,32,32,51200,2048,1,1,{},8,none,megatron,,,,,{}"
    rows, summary = check.checked(table(small.format(8, "yes"), GPT + "18,,,,no"))
    assert [row["oom"] for row in rows] == [True, False]
    assert summary["oom"] == {"rows": 1, "flagged": 1, "fitting_rows": 1, "false_alarms": 0}


def test_a_missing_micro_batch_is_the_fastest_that_fits(table):
    line = "A100,64,12288,96,96,51200,2048,8,8,,64,full,megatron,18,,,,"
    (row,), _ = check.checked(table(line))
    made = cases(specs.model("gpt3-175b"), specs.gpu("A100"), 64, tp=8, pp=8, global_batch=64,
                 micro_batch=np.array([1.0, 2, 4, 8, 16]), recompute=2, flash=0)  # fmt: skip
    costs = training.cost(made)
    fits = intervals.p_fit(costs, made) >= 0.5
    best = made["micro_batch"][np.argmin(np.where(fits, costs["step_s"], np.inf))]
    assert row["micro_batch"] == best
    assert "micro_batch" in row["note"]


def test_more_ways_than_gpus_is_an_error_with_its_line(table):
    line = "A100,64,12288,96,96,51200,2048,8,5,1,64,full,megatron,18,,,,"
    with pytest.raises(PlanError, match=r"runs.csv:2: gpus='64'"):
        check.checked(table(line))


def test_a_row_that_cannot_be_predicted_says_why_between_the_others(table):
    bad = GPT.replace("A100", "A1000") + "18,,,,"
    rows, summary = check.checked(table(GPT + "18,,,,", bad, GPT + "18,,,,"))
    assert [row["line"] for row in rows] == [2, 3, 4]
    assert "gpu='A1000'" in rows[1]["error"]
    assert (summary["rows"], summary["refused"]) == (2, 1)


def test_unknown_size_of_gradients_is_the_mean_of_both_chances(table):
    # 13B parameters alone on a GPU: 26 GB of weights, gradients of 26 or 52 GB
    line = "A100,64,5120,40,40,32000,2048,1,1,1,2048,none,megatron,,,,,"
    (row,), _ = check.checked(table(line))
    made = cases(specs.model("gpt3-13b"), specs.gpu("A100"), 64, global_batch=2048, zero=0,
                 grad_bytes=np.array([2.0, 4.0]))  # fmt: skip
    made["vocab"], made["tied"] = 32000, 1
    chances = intervals.p_fit(training.cost(made), made)
    assert row["p_fit"] == pytest.approx(chances.mean(), abs=0.02)


def test_coverage_counts_the_rows_inside_their_interval(table):
    (row,), _ = check.checked(table(GPT + ",,,,"))
    inside, outside = row["step_s"] * 1.02, row["step_s"] * 3
    _, summary = check.checked(table(GPT + f"{inside},,,,", GPT + f"{outside},,,,"))
    assert summary["step_s"]["coverage"] == 0.5
    assert summary["time"]["rows"] == 2
