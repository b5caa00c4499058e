"""GPU pools: what `64xH100` and `8xH100+16xA100-40` stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trimtab.errors import PlanError
from trimtab.llm.nouns import Gpu
from trimtab.llm.spec.names import IDLE_GPU_WORDS, plain
from trimtab.llm.spec.specs import gpu

MOST_GPUS = 1_000_000
# a count, a times sign, a name: `8xH100`, `8 x H100`, `8*H100`
COUNTED = re.compile(r"^([+-]?[\d.,_]+)\s*[x*×]\s*(.+)$", re.IGNORECASE)
EXAMPLE = "write it like 64xH100 or 8xH100+16xA100-40"


class Share(NamedTuple):
    """The GPUs of one kind in a pool."""

    gpus: int
    gpu: Gpu


Pool = tuple[Share, ...]


def pool(text: str, folder: str | Path | None = None, measured: Sequence[Gpu] = ()) -> Pool:
    """The pool that `text` says, kinds in the order of their first mention; a bare name is one.

    GPUs `measured` on machines of the user (`gpu_profile.adopt`) stand for those of their names.
    """
    if not text.strip():
        raise PlanError(f"gpus={text!r} is empty; {EXAMPLE}")
    counts: dict[str, int] = {}
    kinds: dict[str, Gpu] = {}
    for part in text.split("+"):
        count, name = _counted(part.strip(), text)
        kind = _kind(name, folder, measured)
        kinds[kind.name] = kind
        counts[kind.name] = counts.get(kind.name, 0) + count
    total = sum(counts.values())
    if total > MOST_GPUS:
        raise PlanError(f"gpus={text!r} are {total} GPUs; take at most {MOST_GPUS}")
    return tuple(Share(count, kinds[name]) for name, count in counts.items())


def size(made: Pool) -> int:
    """How many GPUs the pool has."""
    return sum(share.gpus for share in made)


def words(made: Pool) -> str:
    """The pool as it is written: `8xH100-SXM5+16xA100-SXM-40GB`."""
    return "+".join(f"{share.gpus}x{share.gpu.name}" for share in made)


def _kind(name: str, folder: str | Path | None, measured: Sequence[Gpu]) -> Gpu:
    # one that no table lists is known by its own name alone
    own = {plain(one.name, IDLE_GPU_WORDS): one for one in measured}
    asked = plain(name, IDLE_GPU_WORDS)
    if asked in own:
        return own[asked]
    listed = gpu(name, folder)
    return own.get(plain(listed.name, IDLE_GPU_WORDS), listed)


def _counted(part: str, text: str) -> tuple[int, str]:
    if not part:
        raise PlanError(f"gpus={text!r} has nothing beside a +; {EXAMPLE}")
    matched = COUNTED.match(part)
    if not matched:
        if re.fullmatch(r"[+-]?\d{1,3}", part):
            raise PlanError(f"gpus={text!r} names no kind of GPU; {EXAMPLE}")
        return 1, part
    number, name = matched.groups()
    if not re.fullmatch(r"\d+", number):
        raise PlanError(f"gpus={text!r}: {number!r} is not a count of GPUs; {EXAMPLE}")
    if int(number) == 0:
        raise PlanError(f"gpus={text!r} are zero GPUs; ask for at least one")
    return int(number), name.strip()
