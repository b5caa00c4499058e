"""Plans on a pool of one or several kinds of GPU: each kind alone, and all in one pipeline.

answer = pool_planned(pool_questions(model("llama-3-70b"), pool("32xH100+64xA100")))
answer.mixed or answer.alone[answer.best]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.errors import PlanError
from trimtab.llm.nouns import Model, Question
from trimtab.llm.plan.mixed import Mixed, mixed, mixed_score
from trimtab.llm.plan.options import TRAIN, TrainOptions, changed
from trimtab.llm.plan.planner import Answer, planned, score
from trimtab.llm.plan.question import default_batch, question_of
from trimtab.llm.spec.pool import Pool


@dataclass(frozen=True)
class PoolAnswer:
    """The best plans of each kind alone, and of the whole pool where that is better."""

    alone: tuple[Answer | str, ...]  # a sentence where a kind alone cannot run it
    mixed: Mixed | None  # None = one kind, or no pipeline over several that fits
    best: int  # place in `alone` of the best, -1 = the mixed plan


def pool_questions(
    model: Model, pool: Pool, options: TrainOptions = TRAIN, **said: Any
) -> list[Question]:
    """One question a kind, with the batch, sequence and precision of all."""
    wish = changed(options, said)
    if len(pool) == 1:
        return [question_of(model, pool[0].gpu, pool[0].gpus, wish)]
    if wish.up_to:
        raise PlanError("up-to asks how many of one kind to take; give --gpus one kind")
    if not wish.precision and not all(share.gpu.bf16 for share in pool):
        wish = replace(wish, precision="fp16")
    first = question_of(model, pool[0].gpu, pool[0].gpus, wish)
    notes = [note for note in first.notes if note.startswith("sequence")]
    batch = wish.global_batch
    if not batch:
        share = math.lcm(*(part.gpus for part in pool))
        batch = default_batch(model, first.seq, share, notes)
    wish = replace(wish, seq=first.seq, global_batch=batch)
    made = [question_of(model, part.gpu, part.gpus, wish) for part in pool]
    return [_noted(made[0], notes), *made[1:]]


def _noted(question: Question, notes: list[str]) -> Question:
    """The question with the defaults that the pool shares named first."""
    more = [note for note in question.notes if note not in notes]
    return replace(question, notes=(*notes, *more))


def pool_planned(questions: list[Question], top: int = 5) -> PoolAnswer:
    """Whatever is best for the objective: a kind alone or all kinds in one pipeline."""
    if len(questions) == 1:
        return PoolAnswer((planned(questions[0], top),), None, 0)
    alone: list[Answer | str] = []
    scores = []
    for question in questions:
        try:
            answer = planned(question, top)
            alone.append(answer)
            scores.append(float(score(question, answer.cases[:1], answer.costs[:1])[0]))
        except PlanError as misfit:
            alone.append(str(misfit))
            scores.append(math.inf)
    together = mixed(questions)
    if together is not None and mixed_score(together) < min(scores):
        return PoolAnswer(tuple(alone), together, -1)
    if min(scores) == math.inf:
        raise PlanError(f"no mix of these kinds fits either: {alone[0]}")
    return PoolAnswer(tuple(alone), together, int(np.argmin(scores)))
