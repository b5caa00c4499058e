"""Forgiving look-up of names: case, spaces, dashes and a vendor's words make no difference."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from trimtab.errors import UnknownName

# Words that drivers and model pages put around a name and that tell nothing apart.
IDLE_GPU_WORDS = (
    "nvidia", "amd", "tesla", "geforce", "instinct", "radeon", "generation", "gpu", "dgx", "hgx",
    "oam", "vf",
)  # fmt: skip
IDLE_MODEL_WORDS = (
    "meta", "hf", "instruct", "chat", "base", "it", "pt", "fp8", "bf16", "v0.1", "v0.2", "v0.3",
)  # fmt: skip


def plain(name: str, idle_words: Iterable[str]) -> str:
    """`name` as it is compared: lower case, joined, without idle words.

    A dot between digits stays, since gpt-1.7b and gpt-17b differ.
    """
    return "".join(_words(name, idle_words))


def turned(name: str, idle_words: Iterable[str]) -> str:
    """The same with the words in one order: "A100-80GB-SXM" and "A100 SXM 80GB" are one."""
    return "".join(sorted(_words(name, idle_words)))


def _words(name: str, idle_words: Iterable[str]) -> list[str]:
    words = re.split(r"[^a-z0-9.]+", name.lower())
    kept = [word.strip(".") for word in words if word not in set(idle_words)]
    # a name made of idle words alone ("Instinct") keeps them, so that it is not empty
    return kept if any(kept) else words


def index_of(names: Mapping[str, Iterable[str]], idle_words: Iterable[str]) -> dict[str, str]:
    """Compared form -> name, for every name and its aliases; a name wins over an alias."""
    aliases = {plain(a, idle_words): name for name, own in names.items() for a in own}
    orders = {turned(a, idle_words): name for name, own in names.items() for a in (name, *own)}
    return orders | aliases | {plain(name, idle_words): name for name in names}


def found(
    name: str, what: str, index: Mapping[str, str], idle_words: Iterable[str], remedy: str
) -> str:
    """The name that `name` stands for, or UnknownName with the three nearest."""
    asked = plain(name, idle_words)
    for form in (asked, turned(name, idle_words)):
        if form in index:
            return index[form]
    near = nearest(asked, index)
    guess = f"nearest: {', '.join(near)}" if near else f"{len(set(index.values()))} are known"
    raise UnknownName(f"{what} {name!r} is unknown; {guess}; {remedy}")


def nearest(asked: str, index: Mapping[str, str], most: int = 3) -> list[str]:
    """Up to three different names whose compared form, or an alias's, is most like `asked`."""
    close = difflib.get_close_matches(asked, list(index), n=3 * most, cutoff=0.52)
    # "h1000" is nearer to a shorter name by ratio; a shared beginning is what people get right
    close.sort(key=lambda form: -_shared(form, asked))
    return list(dict.fromkeys(index[form] for form in close))[:most]


def _shared(one: str, other: str) -> int:
    for place, (a, b) in enumerate(zip(one, other)):
        if a != b:
            return place
    return min(len(one), len(other))
