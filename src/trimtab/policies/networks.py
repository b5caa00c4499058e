"""Files of trained networks: finding the one that is meant, and saying what else a file is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, is_zipfile

import numpy as np

from trimtab.errors import PolicyError

WRITTEN = {"adlro": "adlro.onnx", "dqn": "dqn.onnx"}  # learner: what it leaves in its folder
MARKS = {"adlro": "features", "dqn": "layout"}  # learner: what its file tells of itself
# How the format of another file of ours begins: what that is, and who takes it.
FOREIGN = {
    "trimtab router": ("a router", "trimtab serve --router"),
    "trimtab slim": ("a slimmable network", "trimtab serve --weights"),
    "trimtab serve profile": ("a profile of servers", "trimtab serve --profile"),
    "trimtab gpu profile": ("a profile of GPUs", "trimtab plan --profile"),
}


class Network(NamedTuple):
    """An open file, and what it tells of itself."""

    session: Any  # onnxruntime's
    told: dict[str, str]


def remedy(learner: str) -> str:
    return f"train one with `trimtab train {learner} --out DIR`"


def file_at(path: str | Path, learner: str) -> Path:
    """The file itself, or the one that the learner left in a folder."""
    path = Path(path)
    if path.is_dir():
        file = path / WRITTEN[learner]
        if file.is_file():
            return file
        others = [name for name, other in WRITTEN.items() if (path / other).is_file()]
        held = f", but a network of {others[0]}: give {others[0]}:{path}" if others else ""
        raise PolicyError(f"{path}: holds no {WRITTEN[learner]}{held or '; ' + remedy(learner)}")
    if not path.is_file():
        raise PolicyError(f"{path}: no such file; {remedy(learner)}")
    return path


def opened(path: str | Path, learner: str) -> Network:
    """The network of a learner in a file or its folder; PolicyError says what is there instead."""
    import onnxruntime

    path = file_at(path, learner)
    format = format_of(path)
    for begins, (what, taker) in FOREIGN.items():
        if format.startswith(begins):
            raise PolicyError(
                f"{path}: {what}, not a network of {learner}; it belongs to `{taker} {path}`"
            )
    quiet = onnxruntime.SessionOptions()
    quiet.intra_op_num_threads = 1  # a decision is too small to share
    try:
        session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime's own kinds
        raise PolicyError(
            f"{path}: not a readable ONNX network ({type(problem).__name__}); {remedy(learner)}"
        ) from problem
    told: dict[str, str] = session.get_modelmeta().custom_metadata_map
    if MARKS[learner] in told:
        return Network(session, told)
    for other, mark in MARKS.items():
        if mark in told:
            raise PolicyError(
                f"{path}: a network of {other}, not of {learner}; give it as {other}:{path}"
            )
    raise PolicyError(
        f"{path}: an ONNX network, but none of ours (it tells no {MARKS[learner]}); "
        f"{remedy(learner)}"
    )


def format_of(path: Path) -> str:
    """The format that a file of arrays or of JSON states; nothing where it states none."""
    try:
        if is_zipfile(path):
            with np.load(path, allow_pickle=False) as held:
                facts = json.loads(str(held["facts"]))
        elif path.suffix == ".json":
            facts = json.loads(path.read_text(encoding="utf-8"))
        else:
            return ""
        return str(facts["format"])
    except (OSError, ValueError, KeyError, TypeError, BadZipFile):
        return ""
