"""Starts one inference server at a time, proves that it is the one that answers, and ends it.

Every process of a server carries a mark in its environment: it is found again when its parent is
gone. What is still there after the server was told to end is killed, and counted.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import psutil

from trimtab.bench.serve_wires import AT_PREDICT, AT_ROOT, BINARY, JSON, Wire, check, requests
from trimtab.errors import ServeError, UnknownName
from trimtab.serving.client.load_gen import drive_closed, python_env

MARK = "TRIMTAB_BENCH_SERVER"
START_LIMIT_S = 180.0  # ours compiles its routers at the first start on a machine
END_LIMIT_S = 15.0  # for a server to end after SIGTERM
LIFE_LIMIT_S = 900.0  # after which a server ends itself whatever happens to us
NEEDS = ("numpy", "onnx", "onnxruntime")


class Server(NamedTuple):
    """A kind of server: where it comes from and how it wants to be asked."""

    module: str
    packages: tuple[str, ...]  # to import
    install: str
    wires: tuple[Wire, ...] = (JSON,)
    models: tuple[str, ...] = ("noop", "net")
    peer: bool = True  # another product


OURS, FLOOR = "Trimtab", "bare app"
SERVERS = {
    OURS: Server("ours", ("trimtab",), "'trimtab[serve]'", (JSON, BINARY), peer=False),
    "Trimtab front": Server(
        "front", ("httptools",), "'trimtab[serve]'", (JSON, BINARY), ("noop",), peer=False
    ),
    FLOOR: Server("bare", ("uvicorn", "orjson"), "uvicorn orjson", (JSON, BINARY), peer=False),
    "MLServer": Server("ml", ("mlserver",), "mlserver"),
    "LitServe": Server("lit", ("litserve",), "litserve", (AT_PREDICT,)),
    "Ray Serve": Server("ray_serve", ("ray.serve", "starlette"), "'ray[serve]'", (AT_ROOT,)),
}
PROBE = """
import importlib.metadata as m, importlib.util as u, json, sys
names = sys.argv[1:]
def there(name):
    try:
        return u.find_spec(name) is not None
    except ImportError:
        return False
def version(name):
    try:
        return m.version(name.split('.')[0])
    except m.PackageNotFoundError:
        return ''
print(json.dumps({name: version(name) for name in names if there(name)}))
"""


def short(name: str) -> str:
    """A server's name as the command line spells it."""
    return name.lower().replace(" ", "-")


def named(words: Sequence[str]) -> list[str]:
    """The servers that the words name, in the table's order; all where there are none."""
    by_word = {short(name): name for name in SERVERS}
    for word in words:
        if word not in by_word:
            raise UnknownName(f"server {word!r} is unknown; known: {', '.join(by_word)}")
    return [name for word, name in by_word.items() if word in words or not words]


def interpreters(texts: Sequence[str]) -> dict[str, str]:
    """The Python of each server from texts PATH (all peers) or SERVER=PATH."""
    found = dict.fromkeys(SERVERS, sys.executable)
    for text in sorted(texts, key=lambda text: "=" in text):  # the particular after the general
        word, equals, path = text.partition("=")
        names = named([word]) if equals else [name for name in SERVERS if name != OURS]
        python = path if equals else text
        if not Path(python).is_file():
            raise ServeError(
                f"--peers-python {text!r}: {python} is not a file; name a Python interpreter"
            )
        found.update(dict.fromkeys(names, python))
    return found


def missing(name: str, python: str) -> str:
    """What to install before a server can be started, or an empty string."""
    wanted = (*SERVERS[name].packages, *NEEDS)
    found = probed(python, wanted)
    lacking = [package for package in wanted if package not in found]
    if not lacking:
        return ""
    needs = " ".join(package for package in lacking if package in NEEDS)
    what = SERVERS[name].install if set(lacking) & set(SERVERS[name].packages) else ""
    return f"not installed: {python} -m pip install {' '.join(filter(None, (what, needs)))}"


def probed(python: str, packages: Sequence[str]) -> dict[str, str]:
    """Version of each of the packages that an interpreter has."""
    with package_folder() as folder:
        done = subprocess.run(
            [python, "-P", "-c", PROBE, *packages],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": folder},
        )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ServeError(
            f"--peers-python: {python} does not run: {why[0]}; name a Python of 3.11 or newer"
        )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@contextmanager
def package_folder() -> Iterator[str]:
    """A folder with this package alone, for an interpreter that has other packages beside it."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        (Path(folder) / "trimtab").symlink_to(Path(__file__).parents[1])
        yield folder


class Host:
    """A running server."""

    def __init__(self, name: str, model: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.name, self.model, self.port, self.process = name, model, port, process
        self.mark = ""

    def members(self) -> list[psutil.Process]:
        """Every process of the server that is alive."""
        found = {}
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            found = {child.pid: child for child in (root, *root.children(recursive=True))}
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self.mark:
                    found[process.pid] = process
        return [process for process in found.values() if alive(process)]

    def cpu_s(self) -> float:
        """CPU time of all its processes so far."""
        total_s = 0.0
        for process in self.members():
            with suppress(psutil.Error):
                total_s += sum(process.cpu_times()[:2])
        return total_s

    def memory_mb(self) -> float:
        """Memory of all its processes; pages they share count once where the system tells."""
        total = 0
        for process in self.members():
            with suppress(psutil.Error):
                full = process.memory_full_info()
                total += getattr(full, "pss", full.rss)
        return total / 1e6

    def own_port(self) -> None:
        """Raise where none of its processes listens on the port."""
        for process in self.members():
            with suppress(psutil.Error):
                for link in process.net_connections("tcp"):
                    if link.status == psutil.CONN_LISTEN and link.laddr.port == self.port:
                        return
        raise ServeError(
            f"port {self.port} answers, but no process that was started listens on"
            " it; end the server that does"
        )

    def stop(self) -> int:
        """End the server, and count the processes that had to be killed."""
        before = self.members()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_LIMIT_S)
        seen = {process.pid: process for process in (*before, *self.members())}
        _, left = psutil.wait_procs(list(seen.values()), timeout=2.0)
        orphans = [process for process in left if alive(process)]
        for process in orphans:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(orphans, timeout=5.0)
        self.process.wait()
        return len(orphans)


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def hosted(
    name: str,
    model: str,
    python: str = sys.executable,
    orphans: dict[str, int] | None = None,
    processes: int = 1,
) -> Iterator[Host]:
    """A server that answers rightly, for the time of a `with`; adds what it leaves to `orphans`.

    processes: how many of its processes compute.
    """
    server, port, mark = SERVERS[name], free_port(), secrets.token_hex(8)
    command = [python, "-P", "-m", f"trimtab.bench.peer_servers.{server.module}", "--model", model]
    command += ["--port", str(port), "--limit-s", str(LIFE_LIMIT_S)]
    command += ["--processes", str(processes)]
    quiet = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    with package_folder() as folder, tempfile.TemporaryFile() as log:
        env = python_env() if python == sys.executable else {**os.environ, "PYTHONPATH": folder}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,  # some write files beside them
            env={**env, **quiet, MARK: mark},
        )
        host = Host(name, model, port, process)
        host.mark = mark
        try:
            wait_ready(host, server.wires[0], log)
            yield host
        finally:
            left = host.stop()
            if orphans is not None:
                orphans[name] = orphans.get(name, 0) + left


def wait_ready(host: Host, wire: Wire, log: IO[bytes]) -> None:
    """Wait for the first right answers, and see that they come from the process started."""
    until_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until_s:
        if host.process.poll() is not None:
            raise ServeError(f"it ended before it served: {last_line(log)}")
        if listens(host.port):
            driven = drive_closed(host.port, requests(wire), 0.2, 1, timeout_s=5.0, keep_every=1)
            if driven.good.any():
                check(wire, host.model, driven)
                host.own_port()
                return
        time.sleep(0.2)
    raise ServeError(f"it gave no answer within {START_LIMIT_S:.0f} s: {last_line(log)}")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def last_line(log: IO[bytes]) -> str:
    """The last thing that a server wrote."""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"
