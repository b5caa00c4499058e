"""What a file is that was given for a profile of a GPU, and which command takes it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

# What the format in a file begins with: what it is, and where it belongs.
PACKED = {
    "trimtab router": ("a learned router", "trimtab serve --router"),
    "trimtab serve profile": ("a profile of `trimtab serve profile`", "trimtab serve --profile"),
    "trimtab slim": ("the weights of a slimmable network", "trimtab serve --weights"),
}
# Keys that only such JSON has.
JSON = {
    "plans": ("an answer of `trimtab plan --json`", "trimtab plan watch --current"),
    "correction": ("the state of `trimtab plan watch`", "trimtab plan watch --state"),
    "hidden_size": ("a model's config.json", "trimtab plan, as its MODEL"),
}
NETWORK = ("a network, such as `trimtab train dqn` writes", "trimtab compare, as dqn:FILE")


def named_as(path: str | Path) -> str:
    """`is a learned router; give it to trimtab serve --router`, or nothing for a stranger."""
    path = Path(path)
    found = NETWORK if path.suffix == ".onnx" and path.is_file() else _packed(path) or _json(path)
    return f"is {found[0]}; give it to {found[1]}" if found else ""


def _packed(path: Path) -> tuple[str, str] | None:
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            said = str(json.loads(str(arrays["facts"]))["format"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return next((one for name, one in PACKED.items() if said.startswith(name)), None)


def _json(path: Path) -> tuple[str, str] | None:
    try:
        held: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(held, dict):
        return None
    return next((one for name, one in JSON.items() if name in held), None)
