"""Slurm's lists of hosts: node[01-04,07],gpu[1-2]."""

import re
from collections.abc import Sequence
from itertools import product
from math import prod

from trimtab.errors import TraceError

MOST = 1_000_000  # hosts of one list
PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
BRACKET = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r"(\d+)(?:-(\d+))?")
NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def expanded(text: str, where: str = "hosts") -> list[str]:
    """The hosts of a list, in its order. `where` (file, line and field) begins an error."""
    hosts: list[str] = []
    parts = PART.findall(text)
    if ",".join(parts) != text.strip(","):
        raise _mistake(where, text, "has a comma or a bracket too many")
    for part in parts:
        # odd pieces stand between brackets: node[01-04]-ib is node, 01-04, -ib
        pieces = BRACKET.split(part)
        choices = [
            _numbers(piece, where, text) if number % 2 else [piece]
            for number, piece in enumerate(pieces)
        ]
        if len(hosts) + prod(len(choice) for choice in choices) > MOST:
            raise _mistake(where, text, f"holds more than {MOST:,} hosts")
        hosts += ["".join(pick) for pick in product(*choices)]
    return hosts


def folded(hosts: Sequence[str]) -> str:
    """The shortest list by runs of numbers that `expanded` gives back in the same order."""
    texts: list[str] = []
    runs: list[list[str]] = []  # first and last number of each, of hosts alike but for it
    alike: tuple[str, str] | None = None

    def close() -> None:
        if alike is None or not runs:
            return
        ranges = ",".join(first if first == last else f"{first}-{last}" for first, last in runs)
        single = len(runs) == 1 and runs[0][0] == runs[0][1]
        texts.append(f"{alike[0]}{ranges if single else f'[{ranges}]'}{alike[1]}")

    for host in hosts:
        found = NUMBERED.fullmatch(host)
        ends = (found[1], found[3]) if found else (host, "")
        if ends != alike or found is None:
            close()
            runs, alike = [], ends if found else None
        if found is None:
            texts.append(host)
        elif runs and found[2] == _next(*runs[-1]):
            runs[-1][1] = found[2]
        else:
            runs.append([found[2], found[2]])
    close()
    return ",".join(texts)


def natural(host: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts node9 before node10."""
    parts = re.findall(r"\d+|\D+", host)
    return tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in parts)


def _next(first: str, last: str) -> str:
    """What follows in a run: it is as wide as its first number, filled up with zeros."""
    return f"{int(last) + 1:0{len(first)}d}"


def _numbers(inside: str, where: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in inside.split(","):
        found = RANGE.fullmatch(part)
        if not found:
            raise _mistake(where, text, f"has {part!r} in brackets, which is no number or range")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise _mistake(where, text, f"has the range {part}, which runs backwards")
        if last - first >= MOST:
            raise _mistake(where, text, f"holds more than {MOST:,} hosts")
        numbers += [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
    return numbers


def _mistake(where: str, text: str, problem: str) -> TraceError:
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return TraceError(f"{where}={short} {problem}; write for example node[01-04,07],gpu[1-2]")
