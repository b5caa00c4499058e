"""The four pages that begin with an installation can be typed as they stand, and print what they
show.

Blocks of `sh` and `python` run in order in one shell, in a new folder; a block of `text` shows
lines of what the block above it printed, `...` standing for anything. Blocks of `console` are for
other machines.
"""

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "start").glob("*.md"))
SERVE = ("httptools", "orjson", "grpc", "google.protobuf", "onnx", "prometheus_client")
NEEDS = {"inference": SERVE}  # page: modules of the extra that it installs
PORT, MARK = 8000, "=== block"
END_FLEET = 'test -z "$fleet" || kill -TERM $fleet 2>&- || true'
LIMIT_S = 600.0  # compiling included


class Block(NamedTuple):
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```([a-z]+)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*block) for block in found]


def installs(block: Block) -> bool:
    return block.code.startswith("pip install")


def on_port(text: str, port: int) -> str:
    return re.sub(rf"\b{PORT}\b", str(port), text)


def script(page: Path, port: int) -> tuple[str, dict[int, list[str]]]:
    """One shell script of a page, and the lines that each of its blocks has to print."""
    lines, shown = (
        ["set -e", "trap 'test -z \"$fleet\" || kill -TERM $fleet 2>&- || true' EXIT"],
        {},
    )
    every = blocks(page)
    for number, (block, after) in enumerate(pairwise([*every, Block("", "")])):
        if block.language not in ("sh", "python") or installs(block):
            continue
        code = on_port(block.code, port)
        if block.language == "python":
            code = f"python3 - <<'END_OF_BLOCK'\n{code}END_OF_BLOCK\n"
        lines += [f"printf '\\n{MARK} {number}\\n'", code]
        if after.language == "text":
            shown[number] = on_port(after.code, port).splitlines()
    return "\n".join(lines), shown


def plain(line: str) -> str:
    """Without the frames of tables and the width of their columns."""
    return " ".join(re.sub("[│|]", " ", line).split())


def printed(line: str, lines: list[str]) -> bool:
    form = ".*".join(re.escape(part) for part in plain(line).split("..."))
    return any(re.search(form, text) for text in lines)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def commands(folder: Path) -> Path:
    """A folder with `trimtab` and `python3` of this environment, each a process and no shell."""
    folder.mkdir()
    for name, words in (("trimtab", "-m trimtab"), ("python3", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_for_a_new_user_runs_and_prints_what_it_shows(page: Path, tmp_path: Path):
    lacking = [name for name in NEEDS.get(page.stem, ()) if not importlib.util.find_spec(name)]
    if lacking:
        pytest.skip(f"{page.stem} needs pip install '.[serve]': {', '.join(lacking)}")
    text, shown = script(page, free_port())
    assert shown, f"{page.name} shows no output"
    (tmp_path / "page").mkdir()
    path = f"{commands(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", text],
        cwd=tmp_path / "page",
        env={**os.environ, "PATH": path, "COLUMNS": "110"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that whatever a page leaves behind can be ended with it
    ) as shell:
        try:
            out, _ = shell.communicate(timeout=LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, out[-3000:]
    parts = re.split(rf"^{MARK} (\d+)\n", out, flags=re.MULTILINE)
    by_block = {int(n): part for n, part in zip(parts[1::2], parts[2::2])}
    for number, expected in shown.items():
        lines = [plain(line) for line in by_block[number].splitlines()]
        missing = [line for line in expected if not printed(line, lines)]
        assert not missing, f"{page.name} shows {missing}; printed:\n{by_block[number]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_begins_with_an_installation_and_ends_with_where_to_go_next(page: Path):
    assert installs(blocks(page)[0])
    last = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)[-1]
    assert last == "Where to go next"


def test_a_line_is_found_whatever_the_width_of_its_columns():
    assert printed("fcfs  4.91 ... 58.1", [plain("│ fcfs     4.91   37.2   58.1 │")])
    assert not printed("fcfs 4.92", [plain("fcfs 4.91")])
