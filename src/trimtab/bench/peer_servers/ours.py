"""Trimtab as its command line starts it: servers behind the front, width 0.25 throughout."""

from __future__ import annotations

import runpy
import sys

from trimtab.bench.peer_servers.work import HOST, options

OPTIONS = {"noop": ["--noop"], "net": []}
WIDTHS = "0.25,0.25,0.25,0.25"  # of the peers, for equal work


def words(model: str, port: int, processes: int = 1) -> list[str]:
    """The command's words: the one place that knows them."""
    always = ["--host", HOST, "--http-port", str(port), "--grpc-port", "-1"]
    always += ["--servers", str(processes)]
    return ["serve", *always, "--router", "fixed", "--fixed", WIDTHS, *OPTIONS[model]]


if __name__ == "__main__":
    given = options()
    sys.argv = ["trimtab", *words(given.model, given.port, given.processes)]
    runpy.run_module("trimtab", run_name="__main__", alter_sys=True)
