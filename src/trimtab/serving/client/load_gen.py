"""The load generator: requests at given moments or by so many clients at once, timed one by one.

Each run is a process of its own, so that neither the caller nor a server shares its interpreter.
The latency of a planned request counts from the planned moment: a server that makes the sender
late does not make its own answers look early.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.client.load_client import NAMES, Job, Outcome
from trimtab.sources import ROOT

CLIENT = "trimtab.serving.client.load_client"
SPARE_S = 30.0  # for the process to start and to write down what it saw


class Driven(NamedTuple):
    """What happened to each request of a run. Times count from the start of the run."""

    planned_s: Array  # (n,)
    sent_s: Array  # (n,) nan = never
    latency_s: Array  # (n,) from the planned moment; nan = no answer
    status: Array  # (n,) of HTTP, or below 0: see load_client.NAMES
    body_of: Array  # (n,) which of the requests it was
    kept: dict[int, bytes]  # bodies of some answers, by row
    wall_s: float
    cpu_s: float  # of the generator itself
    began_s: float = 0.0  # the start on this machine's monotonic clock

    @property
    def good(self) -> Array:
        """(n,) whether it was answered with status 200."""
        return self.status == 200

    @property
    def rate_hz(self) -> float:
        """Good answers a second, from the first planned moment to the last answer."""
        if not self.good.any():
            return 0.0
        end_s = (self.planned_s + self.latency_s)[self.good].max()
        return float(self.good.sum() / max(end_s - self.planned_s[0], 1e-9))

    def latency_ms(self, share: float) -> float:
        """The latency that `share` of the requests stay within; a failed one takes forever."""
        if not len(self.status):
            return float("inf")
        times = np.where(self.good, self.latency_s, np.inf)
        return float(np.quantile(times, share, method="higher") * 1e3)

    @property
    def late_ms(self) -> float:
        """How late the generator sent, at the 99th percentile of what it sent."""
        sent = ~np.isnan(self.sent_s)
        if not sent.any():
            return float("inf")
        return float(np.quantile((self.sent_s - self.planned_s)[sent], 0.99) * 1e3)

    @property
    def cpu_us(self) -> float:
        """CPU time of the generator a request, in microseconds."""
        return self.cpu_s * 1e6 / max(len(self.status), 1)

    def errors(self) -> dict[str, int]:
        """How many failed, by kind."""
        found = Counter(self.status[~self.good].tolist())
        return {NAMES.get(key, f"status {key}"): count for key, count in sorted(found.items())}


def http_request(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A POST as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def drive(
    port: int,
    requests: Sequence[bytes],
    arrival_s: Sequence[float] | Array,
    *,
    body_of: Sequence[int] | Array | None = None,
    host: str = "127.0.0.1",
    connections: int = 256,
    timeout_s: float = 10.0,
    keep_every: int = 0,
) -> Driven:
    """Send one request at each arrival, in seconds from the start, whatever became of the others.

    Without `body_of` the requests are taken in turn. At most so many connections are open: what
    finds none waits for one, and the wait is part of its latency.
    """
    moments_s = np.asarray(arrival_s, np.float64)
    if moments_s.ndim != 1 or (moments_s < 0).any() or (np.diff(moments_s) < 0).any():
        raise ServeError("arrival_s must be one row of times that start at 0 or later and rise")
    span_s = float(moments_s[-1]) if len(moments_s) else 0.0
    job = Job(
        host, port, list(requests), which(requests, body_of), moments_s.tolist(), span_s,
        connections, timeout_s, keep_every,
    )  # fmt: skip
    return driven(job)


def drive_closed(
    port: int,
    requests: Sequence[bytes],
    seconds: float,
    clients: int = 1,
    *,
    body_of: Sequence[int] | Array | None = None,
    host: str = "127.0.0.1",
    timeout_s: float = 10.0,
    keep_every: int = 0,
) -> Driven:
    """Let so many clients ask for some seconds, each as soon as it has its last answer."""
    job = Job(
        host, port, list(requests), which(requests, body_of), None, seconds, clients,
        timeout_s, keep_every,
    )  # fmt: skip
    return driven(job)


def which(requests: Sequence[bytes], body_of: Sequence[int] | Array | None) -> list[int]:
    """Rows of `requests` to send, checked."""
    rows = list(range(len(requests))) if body_of is None else np.asarray(body_of).tolist()
    if not rows or not all(0 <= row < len(requests) for row in rows):
        raise ServeError(
            f"body_of names rows of {len(requests)} requests; give one or more of 0.."
            f"{len(requests) - 1}"
        )
    return rows


def driven(job: Job) -> Driven:
    """Run a job in a process of its own."""
    if job.connections < 1 or not job.timeout_s > 0 or not job.seconds >= 0:
        raise ServeError(
            f"connections={job.connections}, timeout_s={job.timeout_s}, seconds={job.seconds}:"
            " give one connection or more, and times above 0"
        )
    limit_s = job.seconds + 2 * job.timeout_s + SPARE_S
    command = [sys.executable, "-P", "-m", CLIENT]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps(job, protocol=5),
            capture_output=True,
            timeout=limit_s,
            env=python_env(),
        )
    except subprocess.TimeoutExpired:
        raise ServeError(f"the load generator did not end within {limit_s:.0f} s") from None
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ServeError(
            f"the load generator failed: {why[0] if why else f'exit code {done.returncode}'};"
            " pip install 'trimtab[serve]' brings what it needs"
        )
    outcome = Outcome(*pickle.loads(done.stdout))
    planned_s, sent_s, latency_s = (np.array(column, np.float64) for column in outcome[:3])
    return Driven(
        planned_s,
        sent_s,
        latency_s,
        np.array(outcome.status, np.int64),
        np.resize(np.array(job.body_of, np.int64), len(outcome.status)),
        outcome.kept,
        outcome.wall_s,
        outcome.cpu_s,
        outcome.began_s,
    )


def parameters_of(driven: Driven) -> dict[int, dict[str, Any]]:
    """What kept good answers of the Open Inference Protocol say of themselves, by row.

    From a Trimtab fleet: the widths used and the server.
    """
    found = {}
    for row, body in driven.kept.items():
        if driven.status[row] == 200:
            # binary tensors may follow the JSON
            head, _ = json.JSONDecoder().raw_decode(body.decode("latin-1"))
            found[row] = head.get("parameters", {})
    return found


def python_env(**more: str) -> dict[str, str]:
    """The environment of a Python that finds this very package."""
    paths = [str(ROOT.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}
