"""`trimtab serve` as real processes, for tests: started, asked and ended by their own handles."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from trimtab.serving.settings import name_in

PATIENCE_S = 60.0  # with what comes at once on a machine that is not busy
START_S = 600.0  # the first start of a new version compiles, on a busy machine for minutes


class Serving:
    """One `trimtab serve` and what it started."""

    def __init__(self, *options: str, wait: bool = True) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-m", "trimtab", "serve", "--http-port", "0", "--grpc-port"]
        grpc = "0" if "--with-grpc" in options else "-1"
        options = tuple(option for option in options if option != "--with-grpc")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*command, grpc, "--grace-s", "0.2", *options],
            stdout=self.log, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip
        self.seen: set[psutil.Process] = set()
        if wait:
            try:
                self.until(lambda: "\nready" in self.text(), START_S)
            except BaseException:
                self.__exit__()
                raise
            self.children()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.children()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for child in self.seen:
            if child.is_running():
                child.kill()
        self.log.close()

    def text(self) -> str:
        """All that was printed so far."""
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def address(self, front: str) -> str:
        line = next(line for line in self.text().splitlines() if line.startswith(front))
        return line.split()[1].removeprefix("http://")

    def children(self) -> dict[str, psutil.Process]:
        """The server processes now, by name."""
        found = {}
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children():
                if name := name_in(child.cmdline()):
                    found[name] = child
                    self.seen.add(child)
        return found

    def server_pid(self, name: str) -> psutil.Process:
        """The process of a server that joined, as the log names it."""
        return psutil.Process(int(re.findall(rf"{name} joined \(pid (\d+)", self.text())[-1]))

    def tree(self) -> list[psutil.Process]:
        """Every process below this one."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        self.seen.update(found)
        return found

    def alive(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        """Those that do not end within some seconds."""
        return psutil.wait_procs(processes, timeout=PATIENCE_S)[1]

    def ready(self) -> bool:
        return self.get("/v2/health/ready")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address("http"), timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.get("/metrics")[1].splitlines()
        mine = [line for line in lines if re.split("[{ ]", line)[0] == name]
        assert mine, f"{name} is not among the metrics"
        return sum(float(line.split()[-1]) for line in mine)

    def stop(self, number: int = signal.SIGTERM, limit_s: float = PATIENCE_S) -> int:
        """Send a signal and wait; the exit code."""
        self.children()
        self.process.send_signal(number)
        return self.process.wait(limit_s)

    def orphans(self) -> list[psutil.Process]:
        """Server processes that outlived their front; they get time to end."""
        return psutil.wait_procs(list(self.seen), timeout=PATIENCE_S)[1]

    def until(self, fact: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
        end_s = time.monotonic() + limit_s
        while not fact():
            assert self.process.poll() is None, self.text()[-2000:]
            assert time.monotonic() < end_s, self.text()[-2000:]
            time.sleep(0.02)


class Load:
    """Clients that ask one after another, each on a thread, until told to stop."""

    def __init__(self, serving: Serving, clients: int, body: bytes, pause_s: float = 0.0) -> None:
        self.answers: list[tuple[int, float, dict[str, Any]]] = []  # status, seconds, body
        self.began_s = time.monotonic()
        self.ended_s = self.began_s
        self.errors: list[str] = []
        self.asked = 0
        self.going, self.lock = True, threading.Lock()
        self.serving, self.body, self.pause_s = serving, body, pause_s
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self) -> None:
        connection = http.client.HTTPConnection(self.serving.address("http"), timeout=60)
        while self.going:
            with self.lock:
                self.asked += 1
            began_s = time.monotonic()
            try:
                connection.request("POST", "/v2/models/slim/infer", self.body)
                answer = connection.getresponse()
                found = json.loads(answer.read())
            except Exception as problem:
                with self.lock:
                    self.errors.append(repr(problem))
                return
            with self.lock:
                self.answers.append((answer.status, time.monotonic() - began_s, found))
            time.sleep(self.pause_s)
        connection.close()

    def stop(self) -> None:
        self.going = False
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self.ended_s = time.monotonic()

    def statuses(self) -> set[int]:
        return {status for status, *_ in self.answers}


def body_of(image: Any, outputs: tuple[str, ...] = ("class",), **parameters: Any) -> bytes:
    """A JSON request for images (N, 3, 32, 32)."""
    tensor = {"name": "image", "shape": list(image.shape), "datatype": "FP32"}
    tensor["data"] = image.ravel().tolist()
    asked: dict[str, Any] = {"inputs": [tensor], "outputs": [{"name": name} for name in outputs]}
    return json.dumps(asked | ({"parameters": parameters} if parameters else {})).encode()


def post(serving: Serving, body: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
    """One request: status, body, headers."""
    connection = http.client.HTTPConnection(serving.address("http"), timeout=60)
    try:
        connection.request("POST", "/v2/models/slim/infer", body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.getheaders())
    finally:
        connection.close()


def weights_path() -> Path:
    """The network that is shipped."""
    from trimtab.serving.net.slim_weights import SHIPPED

    return SHIPPED
