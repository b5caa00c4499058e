"""Files of trained networks: finding the one that is meant, and saying what else a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import PolicyError
from trimtab.files.formats import kind_of

# learner: what it leaves in its folder
WRITTEN = {
    "adlro": "adlro.onnx",
    "dqn": "dqn.onnx",
    "packer": "packer.json",
    "hierarchy": "hierarchy.json",
    "deeprm": "deeprm.npz",
    "rjoub": "rjoub.npz",
    "islam-dqn": "islam-dqn.npz",
    "islam-reinforce": "islam-reinforce.npz",
    "cheng": "cheng.npz",
    "rlscheduler": "rlscheduler.npz",
    "belgacem": "belgacem.npz",
    "ghasemi": "ghasemi.npz",
}
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


def learner_of(path: str | Path) -> str:
    """The learner whose network a file is, or whose a folder holds; PolicyError where none's."""
    path = Path(path)
    if path.is_dir():
        held = [name for name, file in WRITTEN.items() if (path / file).is_file()]
        if len(held) == 1:
            return held[0]
        what = " and ".join(WRITTEN[name] for name in held) or "network of ours"
        choose = "give the one that is meant" if held else "train one with `trimtab train`"
        raise PolicyError(f"{path}: holds {'' if held else 'no '}{what}; {choose}")
    if not path.is_file():
        raise PolicyError(f"{path}: no such file; train one with `trimtab train LEARNER --out DIR`")
    told = _read(path, "train one with `trimtab train LEARNER --out DIR`").told
    for learner, mark in MARKS.items():
        if mark in told:
            return learner
    raise PolicyError(
        f"{path}: an ONNX network, but none of ours (it tells none of {', '.join(MARKS.values())});"
        " train one with `trimtab train LEARNER --out DIR`"
    )


def opened(path: str | Path, learner: str) -> Network:
    """The network of a learner in a file or its folder; PolicyError says what is there instead."""
    path = file_at(path, learner)
    kind = "" if path.suffix == ".onnx" else kind_of(path)
    if kind:
        raise PolicyError(f"{path}: {kind}; for {learner}, {remedy(learner)}")
    network = _read(path, remedy(learner))
    told = network.told
    if MARKS[learner] in told:
        return network
    for other, mark in MARKS.items():
        if mark in told:
            raise PolicyError(
                f"{path}: a network of {other}, not of {learner}; give it as {other}:{path}"
            )
    raise PolicyError(
        f"{path}: an ONNX network, but none of ours (it tells no {MARKS[learner]}); "
        f"{remedy(learner)}"
    )


def _read(path: Path, otherwise: str) -> Network:
    import onnxruntime

    quiet = onnxruntime.SessionOptions()
    quiet.intra_op_num_threads = 1  # a decision is too small to share
    try:
        session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime's own kinds
        raise PolicyError(
            f"{path}: not a readable ONNX network ({type(problem).__name__}); {otherwise}"
        ) from problem
    return Network(session, session.get_modelmeta().custom_metadata_map)
