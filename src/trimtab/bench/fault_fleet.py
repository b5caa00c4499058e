"""A `trimtab serve` that a benchmark may flood and wound: its memory, its servers, its end."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from trimtab.bench.serve_hosts import MARK, OURS, START_LIMIT_S, Host, last_line
from trimtab.errors import ServeError
from trimtab.serving.client.load_gen import python_env
from trimtab.serving.settings import name_in

LOOK_S = 1.0  # between two looks at the memory
READY = re.compile(r"^http +http://[^:]+:(\d+).*^ready", re.MULTILINE | re.DOTALL)


@contextmanager
def fleet_of(*options: str) -> Iterator[Host]:
    """A fleet on a free port whose servers are all ready, for the time of a `with`."""
    command = [sys.executable, "-P", "-m", "trimtab", "serve", "--http-port", "0"]
    command += ["--grpc-port", "-1", "--grace-s", "0", "--drain-s", "5", *options]
    mark = secrets.token_hex(8)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=python_env(OMP_NUM_THREADS="1", **{MARK: mark}),
        )
        host = Host(OURS, "net", 0, process)
        host.mark = mark
        try:
            until_s = time.monotonic() + START_LIMIT_S
            while not (found := READY.search(os.pread(log.fileno(), 1 << 20, 0).decode())):
                if process.poll() is not None or time.monotonic() > until_s:
                    raise ServeError(f"trimtab serve did not become ready: {last_line(log)}")
                time.sleep(0.05)
            host.port = int(found[1])
            yield host
        finally:
            host.stop()


def server_of(host: Host, name: str) -> psutil.Process:
    """The process of one server of a fleet."""
    for child in psutil.Process(host.process.pid).children():
        with suppress(psutil.Error):
            if name_in(child.cmdline()) == name:
                return child
    raise ServeError(f"the fleet has no server {name}; it may have ended a moment ago")


class Watch:
    """Looks at a fleet's memory every second, and at what others do to the machine, for a `with`.

    Whoever else computes takes the cores that the clients and the fleet would have had: figures of
    a busy machine must say so.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.seen_mb: list[float] = []
        self.others = 0.0  # cores that neither the fleet nor its clients kept busy
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> Watch:
        self.seen_mb.append(self.host.memory_mb())
        self.began_s, self.foreign_s = time.monotonic(), foreign_s(self.host)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        spent_s = time.monotonic() - self.began_s
        self.others = max(foreign_s(self.host) - self.foreign_s, 0.0) / spent_s
        self.seen_mb.append(self.host.memory_mb())

    def watch(self) -> None:
        while not self.over.wait(LOOK_S):
            self.seen_mb.append(self.host.memory_mb())

    @property
    def memory_mb(self) -> tuple[float, float, float]:
        """At the start, at the end, and the most."""
        return self.seen_mb[0], self.seen_mb[-1], max(self.seen_mb)


def foreign_s(host: Host) -> float:
    """CPU time of the machine so far without the fleet's, ours and that of our ended clients."""
    spent, mine = psutil.cpu_times(), os.times()
    own_s = host.cpu_s() + mine.user + mine.system + mine.children_user + mine.children_system
    return float(spent.user + spent.system + getattr(spent, "nice", 0.0)) - own_s
