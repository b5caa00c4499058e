"""Plans on GPUs: which parallelism trains or serves a language model, and how sure that is.

Start with `nouns`. A name below loads its module when it is first used, so that `import
trimtab.llm` compiles nothing.
"""

from importlib import import_module
from typing import Any

_MODULE_OF = {
    "Gpu": "nouns",
    "Model": "nouns",
    "Plan": "nouns",
    "Question": "nouns",
    "gpu": "spec.specs",
    "model": "spec.specs",
    "pool": "spec.pool",
    "question_of": "plan.question",
    "planned": "plan.planner",
    "serve_question": "plan.serve_plan",
    "serve_planned": "plan.serve_plan",
    "why_not": "plan.whynot",
}
__all__ = [
    "Gpu",
    "Model",
    "Plan",
    "Question",
    "gpu",
    "model",
    "planned",
    "pool",
    "question_of",
    "serve_planned",
    "serve_question",
    "why_not",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
