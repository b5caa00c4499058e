"""Which nodes have the features that a job asks for, in Slurm's form: nvlink&(ib|opa).

Without parentheses operators apply from left to right. `[a|b]` is one of them for all nodes of a
job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array

WORD = re.compile(r"\s*([&|,()\[\]]|[^&|,()\[\]\s]+)")


class Choice(NamedTuple):
    """The nodes that have what is asked, and whether all of one job must be of one option."""

    nodes: Array  # (N,) bool
    options: int = 1  # of a bracket that nodes have: several = a gang may not mix them


def choose(text: str, features: Sequence[Sequence[str]]) -> Choice:
    """The nodes, one row of features each, that the expression accepts.

    ValueError, with what is wrong, for a form that is not modelled; KeyError for a feature that no
    node has.
    """
    names = {name for row in features for name in row}
    has = {name: np.array([name in row for row in features], bool) for name in names}
    words = WORD.findall(text)
    if "".join(words) != re.sub(r"\s", "", text):
        raise ValueError("cannot be read")
    reader = _Reader(words, has, len(features))
    nodes = reader.expression()
    if reader.at < len(words):
        raise ValueError(f"has {words[reader.at]!r} where & or | should stand")
    return Choice(nodes, reader.options)


class _Reader:
    """Words from left to right; `at` is the next."""

    def __init__(self, words: list[str], has: dict[str, Array], nodes: int) -> None:
        self.words, self.has, self.nodes = words, has, nodes
        self.at, self.options = 0, 1

    def expression(self) -> Array:
        found = self.term()
        while self.at < len(self.words) and self.words[self.at] in "&|,":
            word = self.words[self.at]
            self.at += 1
            other = self.term()
            found = found | other if word == "|" else found & other
        return found

    def term(self) -> Array:
        word = self.words[self.at] if self.at < len(self.words) else ""
        self.at += 1
        if word == "(":
            found = self.expression()
            self.closing(")")
            return found
        if word == "[":
            return self.bracket()
        if not word or word in "&|,)]":
            raise ValueError(f"lacks a feature before {word!r}" if word else "ends too early")
        if "*" in word:
            raise ValueError(f"counts nodes ({word}), which is not modelled")
        if word not in self.has:
            raise KeyError(word)
        return self.has[word]

    def bracket(self) -> Array:
        """One of several options for all nodes of a job."""
        found, options = np.zeros(self.nodes, bool), 0
        while True:
            option = self.option()
            options += bool(option.any())
            found |= option
            if self.at < len(self.words) and self.words[self.at] == "|":
                self.at += 1
                continue
            self.closing("]")
            self.options = max(self.options, options)
            return found

    def option(self) -> Array:
        found = self.term()
        while self.at < len(self.words) and self.words[self.at] in "&,":
            self.at += 1
            found = found & self.term()
        return found

    def closing(self, mark: str) -> None:
        if self.at >= len(self.words) or self.words[self.at] != mark:
            raise ValueError(f"lacks a closing {mark}")
        self.at += 1
