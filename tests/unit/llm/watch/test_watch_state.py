"""What a watch remembers: the file comes back whole, and another job's is refused."""

import json
import math
from dataclasses import replace

import pytest
from tests.unit.llm.watch.plays import BEST, QUESTION, is_plan

from trimtab import files
from trimtab.errors import PlanError
from trimtab.llm.plan.plan_rows import plan_row as json_row
from trimtab.llm.plan.planner import planned
from trimtab.llm.spec.specs import gpu, model
from trimtab.llm.watch.conditions import Conditions
from trimtab.llm.watch.replan import Patience
from trimtab.llm.watch.step_log import Position
from trimtab.llm.watch.watch_state import State, answer_of, load, plan_row, save


def a_state():
    made = State(BEST, patience=Patience(2, 1e6, (1, 2)), recent_s=[1.0, 2.0], proven_b=3e9)
    made.correction.observe(BEST, 1.2, 1.0, 1e6)
    made.conditions = Conditions(1e6, 0.25, 0.5, 3e9)
    made.read, made.failures, made.retry_s = Position(7, 99), 2, 1e6 + 60
    return made


def test_a_state_comes_back_as_it_was(tmp_path):
    path, state = tmp_path / "watch.json", a_state()
    save(path, QUESTION, state)
    again = load(path, QUESTION)
    assert is_plan(again.current, BEST)
    assert again.correction.saved() == state.correction.saved()
    assert again.recent_s == [1.0, 2.0] and again.proven_b == 3e9
    assert again.read == Position(7, 99) and (again.failures, again.retry_s) == (2, 1e6 + 60)
    assert again.conditions[:4] == state.conditions[:4]
    assert math.isnan(again.conditions.gpu_load)
    # readings before and after a pause are not in a row
    assert again.patience == Patience(changed_s=1e6)


def test_a_new_state_comes_back_too(tmp_path):
    path = tmp_path / "watch.json"
    save(path, QUESTION, State(BEST))
    again = load(path, QUESTION)
    assert again.patience == Patience() and again.conditions is None and again.read is None


def test_without_a_file_there_is_no_state(tmp_path):
    assert load(tmp_path / "absent.json", QUESTION) is None


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "watch.json"
    save(path, QUESTION, State(BEST))
    before = path.read_text()

    def full(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        save(path, QUESTION, a_state())
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": model("llama-3-70b")}, "not of llama-3-70b on H100-SXM5 with megatron"),
        ({"gpu": gpu("A100")}, "not of llama-3-8b on A100"),
        ({"frameworks": (4,)}, "with torchtitan; give another --state"),
    ],
)
def test_the_state_of_another_job_is_refused(tmp_path, change, said):
    path = tmp_path / "watch.json"
    save(path, QUESTION, State(BEST))
    with pytest.raises(PlanError, match=f"state of llama-3-8b on H100-SXM5 with megatron.*{said}"):
        load(path, replace(QUESTION, **change))


def test_a_state_of_another_batch_says_which(tmp_path):
    path = tmp_path / "watch.json"
    save(path, QUESTION, State(BEST))
    with pytest.raises(PlanError, match=r"global_batch=256, but .* with 512; give --batch 256"):
        load(path, replace(QUESTION, global_batch=512))


def test_a_state_of_another_precision_says_which(tmp_path):
    path = tmp_path / "watch.json"
    save(path, QUESTION, State(BEST))
    with pytest.raises(PlanError, match=r"precision=bf16, .*; give --precision bf16"):
        load(path, replace(QUESTION, precision=2))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"job": 1, "plan": 2}', "null", '{"job": {}, "plan": {}}']
)
def test_what_is_no_state_is_refused(tmp_path, text):
    path = tmp_path / "watch.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"is no state of a watch .*; remove it to begin anew"):
        load(path, QUESTION)


@pytest.mark.parametrize("field", ["correction", "patience", "recent_s", "retry_s", "read"])
def test_a_state_with_a_part_missing_is_refused(tmp_path, field):
    path = tmp_path / "watch.json"
    save(path, QUESTION, a_state())
    content = json.loads(path.read_text())
    del content[field]
    path.write_text(json.dumps(content))
    with pytest.raises(PlanError, match="is no state of a watch"):
        load(path, QUESTION)


def test_the_json_of_a_plan_is_read_back():
    answer = planned(QUESTION, 3)
    for place in range(3):
        fields = json.loads(json.dumps(json_row(answer, place)))
        assert is_plan(plan_row(QUESTION, fields, "plan.json"), answer.cases[place])
        assert answer_of(QUESTION, answer.cases[place]).cases[0] == answer.cases[place]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tp": 3}, "gpus=16 is not tp x pp x dp x cp"),
        ({"seq": 4096}, "seq=4096, but the job is asked for with 8192; give --seq 4096"),
        ({"precision": "fp8"}, "precision=fp8, .*; give --precision fp8"),
        ({"gpus": 32, "dp": 16}, "gpus=32, the job 16; give --gpus 32xH100-SXM5"),
        ({"recompute": "some"}, "is no plan"),
        ({"tp": None}, "is no plan"),
        ({"framework": "jax"}, "framework='jax' is not known"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(change, said):
    fields = json_row(planned(QUESTION, 1), 0)
    with pytest.raises(PlanError, match=said):
        plan_row(QUESTION, {**fields, **change}, "plan.json")
