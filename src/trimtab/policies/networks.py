"""Files of trained networks: finding the one that is meant, and saying what else a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import PolicyError
from trimtab.formats import kind_of

WRITTEN = {"adlro": "adlro.onnx", "dqn": "dqn.onnx"}  # learner: what it leaves in its folder
MARKS = {"adlro": "features", "dqn": "layout"}  # learner: what its file tells of itself


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
    kind = "" if path.suffix == ".onnx" else kind_of(path)
    if kind:
        raise PolicyError(f"{path}: {kind}; for {learner}, {remedy(learner)}")
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
