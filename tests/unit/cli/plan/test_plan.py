"""`trimtab plan`: what it prints, the JSON and files it writes, and mistakes in one line."""

import json
import sys
from pathlib import Path

import pytest

from trimtab.cli import main
from trimtab.cli.plan.plan import as_command

COMMANDS = ("train", "serve", "watch", "check", "calibrate", "fit")


@pytest.fixture
def plan(monkeypatch, capsys):
    """Run the command in this process: exit code, standard output, standard error."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["trimtab", "plan", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_a_plan_has_a_headline_a_table_reasons_and_flags(plan):
    code, out, _ = plan("llama-3-70b", "--gpus", "64xH100", "--export", "megatron")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("llama-3-70b on 64xH100-SXM5: TP ")
    assert "in 9 of 10 runs" in lines[0] and "fits with P" in lines[0] and "J a step" in lines[0]
    assert "P(fit)" in out
    assert "why not" in lines
    assert "--tensor-model-parallel-size" in out


def test_json_holds_prediction_interval_and_p_fit_of_every_plan(plan):
    code, out, _ = plan("llama-3-8b", "--gpus", "16xA100", "--top", 3, "--json", "-")
    assert code == 0
    answer = json.loads(out)
    assert len(answer["plans"]) == 3
    for row in answer["plans"]:
        assert row["step_s_low"] < row["step_s"] < row["step_s_high"]
        assert 0.9 <= row["p_fit"] <= 1
        assert row["tp"] * row["pp"] * row["dp"] * row["cp"] == row["gpus"] == 16
        parts_s = sum(row["time_parts_s"].values())
        assert parts_s == pytest.approx(row["step_s"], rel=1e-3)
        assert row["memory_b"] < row["gpu_memory_b"] * 1.1
    assert answer["why_not"] and answer["launch"] and answer["notes"]


def test_files_of_the_launcher_go_into_a_folder(plan, tmp_path):
    folder = tmp_path / "run"
    code, _, err = plan(
        "llama-3-8b", "--gpus", "8xH100", "--export", "deepspeed", "--out", folder
    )  # fmt: skip
    assert code == 0, err
    assert (folder / "launch.sh").stat().st_mode & 0o100
    assert "launch.sh" in err


def test_a_mixed_pool_gets_a_pipeline_with_layers_by_speed(plan):
    code, out, _ = plan("llama-3-8b", "--gpus", "16xH100+16xA100", "--json", "-")
    assert code == 0
    answer = json.loads(out)
    row = answer["plans"][0]
    assert sum(row["stage_layers"]) == 32
    assert row["gpus"] == 32
    assert [reason["plan"] for reason in answer["why_not"]] == [
        "16xH100-SXM5 alone",
        "16xA100-SXM-80GB alone",
    ]
    assert "--pipeline-model-parallel-layout" in answer["launch"]["launch.sh"] or (
        len(set(row["stage_layers"])) == 1
    )


def test_a_free_count_says_what_is_given_back(plan):
    code, out, _ = plan(
        "llama-3-8b", "--gpus", "up-to 64xH100", "--objective", "cost", "--price-hour", 2,
        "--json", "-",
    )  # fmt: skip
    assert code == 0
    answer = json.loads(out)
    best = answer["plans"][0]
    assert best["gpus"] < 64
    assert f"({64 - best['gpus']} of 64 given back)" in answer["headline"]
    # price an hour x GPUs x hours
    assert best["cost"] == pytest.approx(2 * best["gpus"] * best["step_s"] / 3600, rel=1e-4)


@pytest.mark.parametrize(
    ("launcher", "flag"), [("vllm", "--tensor-parallel-size"), ("sglang", "--tp")]
)
def test_serving_has_its_table_and_launchers(plan, launcher, flag):
    code, out, _ = plan(
        "serve", "llama-3-70b", "--gpus", "8xH100", "--prompt", 1024, "--generate", 256,
        "--export", launcher,
    )  # fmt: skip
    assert code == 0
    assert "tokens/s" in out and "to the first token" in out and "cache fits with P" in out
    assert flag in out


def test_runs_are_checked_row_by_row(plan, tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text(
        "gpu,gpus,hidden,layers,heads,seq,vocab,tp,pp,micro_batch,global_batch,step_s\n"
        "A100,64,6144,40,48,2048,51200,8,1,4,512,20\n"
        "A100,8,4096,32,32,2048,51200,4,1,2,64,9\n"
    )
    code, out, err = plan("check", table, "--json", "-")
    assert code == 0, err
    rows = json.loads(out)
    assert [row["line"] for row in rows] == [2, 3]
    for row, seen in zip(rows, (20, 9)):
        assert row["step_s_low"] < row["step_s"] < row["step_s_high"]
        assert row["error_step_s"] == pytest.approx(row["step_s"] / seen - 1, abs=1e-4)
        assert 0 <= row["p_fit"] <= 1
    assert "2 runs; step_s: mean error" in err
    code, out, _ = plan("check", table)
    assert code == 0 and "measured" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["llama-3-70b", "--gpus", "0xH100"], "zero GPUs; ask for at least one"),
        (["llama-3-70b", "--gpus", "8xH1000"], "nearest: H100-SXM5"),
        (["lama-3-70b", "--gpus", "8xH100"], "llama-3-70b"),
        (["llama-3-70b", "--gpus", "64xH100", "--tp", "3"], "heads=64 cannot be split over tp=3"),
        (["llama-3-70b", "--gpus", "8xA100"], "GPUs of this kind are the fewest that would"),
        (
            ["llama-3-8b", "--gpus", "8xH100", "--dp", "8", "--micro-batch", "2", "--batch", "8"],
            "8 x 2 = 16 does not divide a batch of 8; take --batch 16",
        ),
        (["llama-3-8b", "--gpus", "64xH100", "--pp", "64"], "exceeds layers=32"),
        (["llama-3-8b"], "--gpus is missing"),
        ([], "no model is named"),
        (["llama-3-8b", "--gpus", "8xH100", "--train", "--serve"], "ask one at a time"),
        (["llama-3-8b", "--gpus", "8xH100", "--export", "vllm"], "`trimtab plan serve`"),
        (["llama-3-8b", "--gpus", "8xH100", "--export", "slurm"], "--export slurm is unknown"),
        (["serve", "llama-3-8b", "--gpus", "8xH100", "--export", "fsdp"], "take vllm or sglang"),
        (["serve", "llama-3-8b", "--gpus", "8xH100", "--batch", "8"], "No such option"),
        (["llama-3-8b", "--gpus", "8xH100", "--serve", "--watch"], "leave --serve out"),
        (["llama-3-8b", "--gpus", "8xH100", "--top", "0"], "--top 0 shows nothing"),
        (["check", "nope.csv"], "nope.csv"),
        (["fit", "nope"], "no such folder"),
        (["nope.json", "--gpus", "8xH100"], "nope.json"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_remedy_and_exit_code_2(plan, words, sentence):
    code, out, err = plan(*words)
    assert code == 2
    assert not out
    assert len(err.strip().splitlines()) == 1
    assert sentence in err


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["--help"], "trimtab plan llama-3-70b --gpus 64xH100"),
        (["train", "--help"], "trimtab plan ./config.json --gpus 8xMI300X --tp 8"),
        (["llama-3-70b", "--help"], "trimtab plan ./config.json --gpus 8xMI300X --tp 8"),
        (["serve", "--help"], "trimtab plan serve llama-3-70b --gpus 8xH100 --prompt 1024"),
        (["watch", "--help"], "trimtab plan watch llama-3-8b --gpus 64xH100 --log train.log"),
        (["check", "--help"], "trimtab plan check runs.csv"),
        (["calibrate", "--help"], "trimtab plan calibrate --profile mine.json"),
        (["fit", "--help"], "trimtab plan fit tables/"),
    ],
)
def test_help_of_every_command_has_examples(plan, words, example):
    code, out, _ = plan(*words)
    assert code == 0
    assert example in " ".join(out.split())


def test_help_names_every_command(plan):
    shown = plan("--help")[1]
    assert all(f" {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("m --gpus 8xH100", "train m --gpus 8xH100"),
        ("--gpus 8xH100 m", "train --gpus 8xH100 m"),
        ("m --gpus 8xH100 --train --top 3", "train m --gpus 8xH100 --top 3"),
        ("m --gpus 8xH100 --serve --prompt 9", "serve m --gpus 8xH100 --prompt 9"),
        ("m --train --watch --log a.log", "watch m --log a.log"),
        ("--check runs.csv --json -", "check runs.csv --json -"),
        ("--json - --check=runs.csv", "check --json - runs.csv"),
        ("--fit FOLDER", "fit FOLDER"),
        ("--calibrate --profile a.json", "calibrate --profile a.json"),
        ("m --serve --help", "serve m --help"),
        ("", "train"),
        ("--help", "--help"),
        ("serve m --gpus 8xH100", "serve m --gpus 8xH100"),
    ],
)
def test_what_was_a_switch_is_the_command_of_that_name(before, now):
    assert as_command(before.split(), COMMANDS) == now.split()


def test_an_older_switch_gives_the_answer_of_the_command(plan):
    words = ["llama-3-8b", "--gpus", "8xH100", "--json", "-"]
    assert plan(*words, "--serve") == plan("serve", *words)


def test_kinds_of_a_pool_serve_side_by_side_and_those_that_cannot_are_named(plan):
    code, out, _ = plan("serve", "llama-3-70b", "--gpus", "8xH100+8xA100+1xT4", "--json", "-")
    assert code == 0
    answer = json.loads(out)
    assert {row["gpu"] for row in answer["plans"]} == {"H100-SXM5", "A100-SXM-80GB"}
    assert set(answer["launch"]) == {"H100-SXM5-launch.sh", "A100-SXM-80GB-launch.sh"}
    assert any("cannot be served on 1xT4" in note for note in answer["notes"])


def test_a_fit_shows_the_errors_of_every_source(plan, monkeypatch, tmp_path):
    from trimtab.llm.fit import fit, fit_training
    from trimtab.llm.fit.figures import Figure

    values = {"source": "gemm.csv", "what": "products", "rows": 7, "mean_error": 0.05}
    figure = Figure(**{name: values.get(name, float("nan")) for name in Figure._fields})
    monkeypatch.setattr(fit, "fit", lambda folder: [figure])
    row = {**values, "source": "runs.csv", "what": "step time", "held_out_error": 0.08}
    monkeypatch.setattr(fit_training, "fit", lambda folder: [row])
    code, out, _ = plan("fit", tmp_path)
    assert code == 0
    assert [line.split() for line in out.splitlines() if ".csv" in line] == [
        ["gemm.csv", "products", "7", "5.0", "%"],
        ["runs.csv", "step", "time", "7", "5.0", "%", "8.0", "%"],
    ]
    code, out, _ = plan("fit", tmp_path, "--json", "-")
    assert [row["held_out_error"] for row in json.loads(out)] == [None, 0.08]


def test_a_folder_without_tables_is_one_line_that_says_what_is_missing(plan, tmp_path: Path):
    code, _, err = plan("fit", tmp_path)
    assert code == 2
    assert "is missing" in err and "Traceback" not in err
