"""GPU telemetry from NVIDIA's DCGM exporter, in Prometheus' text format.

    read_dcgm("http://gpu-node-1:9400/metrics", time.time())

A Prometheus server that scrapes the exporters is asked by `traces.prometheus` instead.
"""

import http.client
import math
import re
import urllib.error
import urllib.request
from typing import NamedTuple
from urllib.parse import urlsplit

from trimtab.errors import TraceError
from trimtab.load.gpus import GpuSamples, gpu_samples

PREFIX = "DCGM_FI_DEV_"
METRICS = {  # of those that the exporter has by default
    "GPU_UTIL": "util",
    "MEM_COPY_UTIL": "mem_bandwidth",
    "GPU_TEMP": "temp_c",
    "POWER_USAGE": "power_w",
    "FB_USED": "used_mb",
    "FB_FREE": "free_mb",
    "FB_RESERVED": "reserved_mb",
}
PERCENT = ("util", "mem_bandwidth")
# Read here and not by prometheus_client's parser: that one names no line of the text, takes a value
# with two times for one with a time, and stops at the first line that it cannot read, also where
# it is of a metric that we do not use. And what reads GPUs needs no package of the extra `serve`.
NAME = re.compile(r"[A-Za-z_:][\w:]*")
LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
WANTED = "want the text of a DCGM exporter, as from http://host:9400/metrics"


class Point(NamedTuple):
    """A line of the text."""

    measure: str
    labels: dict[str, str]
    value: float
    time_s: float  # NaN = the line has no time


def read_dcgm(url: str, now_s: float, timeout_s: float = 5.0) -> GpuSamples:
    """One sample of every GPU behind an exporter's address."""
    if not re.match(r"https?://[^/\s]", url):
        raise TraceError(
            f"{url}: is not an address; give one such as http://localhost:9400/metrics"
        )
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as reply:
            text = reply.read().decode("utf-8", "replace")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise TraceError(
            f"{url}: cannot be read ({reason}); start the exporter or correct the address"
        ) from None
    return parse_dcgm(text, now_s, host=urlsplit(url).hostname or "", source=url)


def parse_dcgm(
    text: str, now_s: float, *, host: str = "localhost", source: str = "DCGM"
) -> GpuSamples:
    """One sample of every GPU in the text, named host/index after the labels Hostname and gpu.

    `host` stands in for a missing Hostname. Where a GPU has a metric several times, as it has when
    pods share it, the first number counts. Other metrics are passed over. Without times of its own,
    a line was measured at `now_s`.
    """
    found: dict[str, dict[str, float]] = {}  # name of a GPU: measure: value
    models: dict[str, str] = {}
    time_s: dict[str, float] = {}
    others = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        point = _point(line.strip(), f"{source}:{number}")
        if point is None:
            others += 1
            continue
        name = _gpu_name(point.labels, host, f"{source}:{number}")
        row = found.setdefault(name, {})
        if math.isnan(row.get(point.measure, math.nan)):
            row[point.measure] = point.value
        models[name] = models.get(name) or point.labels.get("modelName", "")
        told_s = now_s if math.isnan(point.time_s) else point.time_s
        time_s[name] = max(time_s.get(name, -math.inf), told_s)
    if others and not found:
        raise TraceError(f"{source}: none of its {others} lines is a {PREFIX} metric; {WANTED}")
    return gpu_samples(
        [_row(row) for row in found.values()],
        tuple(found),
        list(time_s.values()),
        models=tuple(models.values()),
        source=source,
    )


def _point(line: str, where: str) -> Point | None:
    """What a line measures, None for a metric that we do not use."""
    named = NAME.match(line)
    if not named:
        raise TraceError(f"{where}: {line[:60]!r} does not begin with a metric's name; {WANTED}")
    measure = METRICS.get(named[0].removeprefix(PREFIX))
    if measure is None or not named[0].startswith(PREFIX):
        return None
    labels, rest = _labels(line[named.end() :].lstrip(), f"{where}: {named[0]}")
    words = rest.split()
    try:
        value, time_s = float(words[0]), [int(word) / 1000 for word in words[1:]]
        if len(time_s) > 1:
            raise ValueError
    except (ValueError, IndexError):
        raise TraceError(f"{where}: {named[0]}={rest!r} is no number; {WANTED}") from None
    return Point(measure, labels, value, time_s[0] if time_s else math.nan)


def _labels(text: str, where: str) -> tuple[dict[str, str], str]:
    """The labels in braces, and the text after them."""
    if not text.startswith("{"):
        return {}, text
    labels, at = {}, 1
    while found := LABEL.match(text, at):
        labels[found[1]] = re.sub(r"\\.", lambda hit: ESCAPED.get(hit[0], hit[0]), found[2])
        at = found.end()
    end = re.compile(r"\s*}").match(text, at)
    if not end:
        raise TraceError(
            f'{where}: labels {text[at:][:60]!r} are not such as {{gpu="0"}}; {WANTED}'
        )
    return labels, text[end.end() :].strip()


def _gpu_name(labels: dict[str, str], host: str, where: str) -> str:
    if not labels.get("gpu"):
        raise TraceError(f"{where}: the label gpu is missing; {WANTED}")
    return f"{labels.get('Hostname') or labels.get('hostname') or host}/{labels['gpu']}"


def _row(found: dict[str, float]) -> dict[str, float]:
    """Ratios 0..1 of what the exporter tells in percent and in MB."""
    row = {name: value / 100 if name in PERCENT else value for name, value in found.items()}
    used, free = row.pop("used_mb", math.nan), row.pop("free_mb", math.nan)
    total = used + free + row.pop("reserved_mb", 0.0)
    return row | {"mem": used / total if total > 0 else math.nan}
