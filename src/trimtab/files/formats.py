"""What a file is, by its own word: for the refusal of one that was given in another's place."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

FACTS, FORMAT = "facts", "format"
HEAD_B = 4096  # of a JSON file that is looked at for its format

# What files call themselves, without the version -> what they are and who takes them
KINDS = {
    "trimtab slim": "the weights of a slimmable network, which `trimtab serve --weights` takes",
    "trimtab router": "a router, which `trimtab serve --router` takes",
    "trimtab serve profile": "a server's profile, which `trimtab serve --profile` takes",
    "trimtab gpu profile": "a GPU's profile, which `trimtab plan --profile` takes",
}
SUFFIXES = {
    ".onnx": "a policy's network, which `trimtab compare` takes as dqn:FILE or adlro:FILE",
    ".pt": "a training's checkpoint, which `trimtab train` goes on from",
}


def kind_of(path: str | Path) -> str:
    """What a file of ours is and which command takes it; "" for any other."""
    path = Path(path)
    if path.suffix in SUFFIXES and path.is_file():
        return SUFFIXES[path.suffix]
    return KINDS.get(family(format_of(path)), "")


def family(format: str) -> str:
    """A format without its version: "trimtab router 1" is of the family "trimtab router"."""
    return format.rpartition(" ")[0]


def format_of(path: Path) -> str:
    """The format that an .npz or a JSON file names, or an empty string."""
    with suppress(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, BadZipFile):
        if is_zipfile(path):
            with np.load(path, allow_pickle=False) as held:
                return str(json.loads(str(held[FACTS]))[FORMAT])
        with path.open(encoding="utf-8") as file:
            head = file.read(HEAD_B).lstrip()
        if head.startswith("{"):
            # the format stands first, and what follows may be long
            value, _ = json.JSONDecoder().raw_decode(head.partition(":")[2].lstrip())
            return str(value) if head[1:].lstrip().startswith(f'"{FORMAT}"') else ""
    return ""
