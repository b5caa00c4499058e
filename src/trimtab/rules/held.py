"""Files of weights that compiled rules score by: JSON that says what made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trimtab.errors import PolicyError


def held_in(path: str | Path, learner: str) -> dict[str, Any]:
    """What a file of this learner's weights holds; PolicyError says what is wrong with another."""
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "not JSON"
        raise PolicyError(f"{path}: {why}; {remedy(learner)}") from None
    if not isinstance(held, dict) or held.get("made_by") != made_by(learner):
        raise PolicyError(
            f"{path}: no weights of {learner} (made_by is not {made_by(learner)!r}); "
            f"{remedy(learner)}"
        )
    return held


def made_by(learner: str) -> str:
    return f"trimtab {learner}"


def remedy(learner: str) -> str:
    return f"train some with `trimtab train {learner} --out DIR`"
