"""What a watcher of a running job remembers, in one JSON file that is replaced whole.

The file belongs to a model, a GPU and a framework; that of another job is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import PlanError
from trimtab.files import write_whole
from trimtab.llm.cost.cases import FRAMEWORKS, PRECISIONS, RECOMPUTES, fault, framework_index
from trimtab.llm.nouns import Question
from trimtab.llm.plan.legal import PLAN, PLAN_FIELDS, case_rows
from trimtab.llm.plan.planner import Answer, answered
from trimtab.llm.watch.conditions import Conditions
from trimtab.llm.watch.correction import SAME, Correction, loaded
from trimtab.llm.watch.replan import FRESH, Patience
from trimtab.llm.watch.step_log import Position

VERSION = 1


@dataclass
class State:
    """What goes from reading to reading, and over a restart."""

    current: Any  # of CASE: the plan that runs
    correction: Correction = field(default_factory=Correction)
    patience: Patience = FRESH
    conditions: Conditions | None = None  # of the last reading, smoothed
    recent_s: list[float] = field(default_factory=list)  # the last few steps of the current plan
    proven_b: float | None = None  # of neighbours' memory, beside which the plan has made steps
    read: Position | None = None  # how far the log was read
    failures: int = 0  # of the command that applies a plan, in a row
    retry_s: float = -math.inf  # time before which it is not tried again

    def changed(self, plan: Any, patience: Patience) -> None:
        """Forget what was of the old plan alone."""
        self.current, self.patience = plan, patience
        self.recent_s, self.proven_b = [], None
        self.failures, self.retry_s = 0, -math.inf


def plan_row(question: Question, fields: Mapping[str, Any], where: str) -> Any:
    """The plan with these fields as a row of CASE; words or numbers, as JSON has them."""
    plan = np.zeros(1, PLAN)
    try:
        for name in PLAN_FIELDS:
            plan[name] = _number(name, fields[name])
        for name in ("seq", "global_batch"):
            given, wanted = int(fields[name]), getattr(question, name)
            if given != wanted:
                raise PlanError(
                    f"{where}: {name}={given}, but the job is asked for with {wanted}; give"
                    f" --{'batch' if name == 'global_batch' else name} {given}"
                )
        precision = fields.get("precision", PRECISIONS[question.precision])
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise PlanError(
            f"{where}: is no plan ({problem!r}); give what `trimtab plan --json` writes"
        ) from None
    if precision != PRECISIONS[question.precision]:
        raise PlanError(
            f"{where}: precision={precision}, but the job is asked for with"
            f" {PRECISIONS[question.precision]}; give --precision {precision}"
        )
    if plan["gpus"][0] > question.gpus:
        raise PlanError(
            f"{where}: the plan has gpus={plan['gpus'][0]}, the job {question.gpus}; give --gpus"
            f" {plan['gpus'][0]}x{question.gpu.name}, or another --state"
        )
    row = case_rows(question, plan)[0]
    said = fault(row)
    if said:
        raise PlanError(f"{where}: {said}")
    return row


def _number(name: str, value: Any) -> int:
    if isinstance(value, str):
        return framework_index(value) if name == "framework" else RECOMPUTES.index(value)
    return int(value)


def answer_of(question: Question, row: Any) -> Answer:
    """One plan as the planner would answer it."""
    plan = np.zeros(1, PLAN)
    for name in PLAN_FIELDS:
        plan[name] = row[name]
    return answered(question, plan, 1, 1)


def job_of(question: Question, row: Any) -> dict[str, str]:
    """Whose state a file is."""
    return {
        "model": question.model.name,
        "gpu": question.gpu.name,
        "framework": FRAMEWORKS[int(row["framework"])],
    }


def save(path: Path, question: Question, state: State) -> None:
    """Write the state, whole or not at all."""
    content = {
        "version": VERSION,
        "job": job_of(question, state.current),
        "plan": {
            **{name: int(state.current[name]) for name in SAME},
            "precision": PRECISIONS[int(state.current["precision"])],
        },
        "correction": state.correction.saved(),
        "patience": {"changed_s": _finite(state.patience.changed_s)},
        "conditions": state.conditions
        and {name: _finite(value) for name, value in state.conditions._asdict().items()},
        "recent_s": state.recent_s,
        "proven_b": state.proven_b,
        "read": state.read,
        "failures": state.failures,
        "retry_s": _finite(state.retry_s),
    }
    write_whole(path, json.dumps(content, indent=1, allow_nan=False))


def load(path: Path, question: Question) -> State | None:
    """The state of this job, None where there is no file yet."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        job, plan = dict(content["job"]), dict(content["plan"])
        framework = str(job["framework"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, problem) from None
    mine = {"model": question.model.name, "gpu": question.gpu.name}
    names = [FRAMEWORKS[place] for place in question.frameworks]
    if {name: job.get(name) for name in mine} != mine or framework not in names:
        raise PlanError(
            f"{path}: holds the state of {job.get('model')} on {job.get('gpu')} with {framework},"
            f" not of {question.model.name} on {question.gpu.name} with {' or '.join(names)};"
            " give another --state"
        )
    row = plan_row(question, plan, str(path))
    try:
        return _state(content, row)
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, problem) from None


def _state(content: Mapping[str, Any], row: Any) -> State:
    patience, seen, read = content["patience"], content["conditions"], content["read"]
    known = {} if seen is None else {n: float(v) for n, v in seen.items() if v is not None}
    proven_b = content["proven_b"]
    return State(
        current=row,
        correction=loaded(content["correction"]),
        # readings before and after a pause are not in a row
        patience=Patience(changed_s=_past(patience["changed_s"])),
        conditions=None if seen is None else Conditions(**known),
        recent_s=[float(step_s) for step_s in content["recent_s"]],
        proven_b=None if proven_b is None else float(proven_b),
        read=None if read is None else Position(int(read[0]), int(read[1])),
        failures=int(content["failures"]),
        retry_s=_past(content["retry_s"]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _past(value: float | None) -> float:
    return -math.inf if value is None else float(value)


def _damaged(path: Path, problem: Exception) -> PlanError:
    return PlanError(f"{path}: is no state of a watch ({problem!r}); remove it to begin anew")
