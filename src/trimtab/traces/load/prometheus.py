"""Read the load of machines from a Prometheus server: node_exporter's and DCGM's metrics.

    query_range("http://localhost:9090", start_s=time.time() - 3600, end_s=time.time())

The label `instance` names the machine, without its port, so that the two exporters of one machine
meet in one row. A query of your own is any PromQL whose series carry that label and whose values
are ratios, 0..1: `queries=DEFAULT | {"gpu": 'avg by (instance) (DCGM_FI_PROF_SM_ACTIVE)'}`.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.load.prometheus import QUERIES as DEFAULT
from trimtab.load.prometheus import Server, check_address, result, windowed
from trimtab.load.samples import Samples

MEASURES = tuple(DEFAULT)
MAX_POINTS = 10_000  # a request; Prometheus refuses more than 11,000 a series
BEYOND = 0.05  # a rate overshoots 0..1 by a little; what lies farther out is no ratio
PORT = re.compile(r":\d+$")


class Series(NamedTuple):
    instance: str
    point: Array  # (P,) steps from start_s
    value: Array  # (P,)


def query_range(
    url: str,
    *,
    start_s: float,
    end_s: float,
    step_s: float = 30.0,
    queries: Mapping[str, str] = DEFAULT,
    window_s: float = 120.0,
    timeout_s: float = 60.0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Samples:
    """Load of every machine that a Prometheus server knows, in Unix time, a sample a step.

    A machine has no sample at a step where nothing was measured, and NaN where only that measure
    lacks. Prometheus itself repeats a gauge (mem, gpu) for up to 5 minutes after its last scrape.
    `window_s` replaces $window, a step at least: take four times the interval of scrapes.
    `headers` may carry an Authorization.
    """
    _check(url, start_s, end_s, step_s, queries)
    server = Server(url.rstrip("/"), timeout_s, headers)
    span_s = max(window_s, step_s)  # a step at least, so nothing is skipped
    found = {
        measure: _all_series(server, measure, windowed(query, span_s), start_s, end_s, step_s)
        for measure, query in queries.items()
    }
    if not any(len(series.point) for listed in found.values() for series in listed):
        raise TraceError(
            f"{url}: no query found anything between {start_s:.10g} and {end_s:.10g} s "
            f"({', '.join(queries)}); scrape node_exporter or choose another time"
        )
    return _samples(found, server.url, start_s, step_s)


def _check(
    url: str, start_s: float, end_s: float, step_s: float, queries: Mapping[str, str]
) -> None:
    check_address(url)
    if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s <= end_s):
        raise TraceError(
            f"{url}: start_s={start_s:g} is not before end_s={end_s:g}; give Unix seconds in order"
        )
    if not (math.isfinite(step_s) and step_s > 0):
        raise TraceError(f"{url}: step_s={step_s:g} is not positive; give seconds, such as 30")
    for measure in queries:
        if measure not in MEASURES:
            raise TraceError(
                f"{url}: queries[{measure!r}] is not a measure; known: {', '.join(MEASURES)}"
            )


def _all_series(
    server: Server, measure: str, query: str, start_s: float, end_s: float, step_s: float
) -> list[Series]:
    """The series of a query over the whole time, asked for in pieces that the server accepts."""
    parts: dict[str, list[Series]] = {}
    points = int((end_s - start_s) / step_s + 1e-9) + 1
    for first in range(0, points, MAX_POINTS):
        last = min(first + MAX_POINTS, points) - 1
        span_s = (start_s + first * step_s, start_s + last * step_s, step_s)
        seen = set()
        for item in _matrix(server, measure, query, span_s):
            series = _series(server, measure, item, start_s, step_s)
            if series.instance in seen:
                raise TraceError(
                    f"{server.url}: queries[{measure!r}] finds instance={series.instance} twice; "
                    f"join its series, as with avg by (instance) (...)"
                )
            seen.add(series.instance)
            parts.setdefault(series.instance, []).append(series)
    return [
        Series(instance, _joined([s.point for s in listed]), _joined([s.value for s in listed]))
        for instance, listed in parts.items()
    ]


def _series(
    server: Server, measure: str, item: dict[str, Any], start_s: float, step_s: float
) -> Series:
    instance = item["metric"].get("instance")
    if not instance:
        raise TraceError(
            f"{server.url}: queries[{measure!r}] finds a series without the label instance, "
            f"{item['metric']}; keep it, as with avg by (instance) (...)"
        )
    points = item.get("values", [])  # a series of histograms has none
    time_s = np.array([point[0] for point in points], np.float64)
    value = np.array([float(point[1]) for point in points])
    with np.errstate(invalid="ignore"):
        measured = (value >= -BEYOND) & (value <= 1 + BEYOND)  # NaN and the infinities are not
    point = np.rint((time_s - start_s) / step_s).astype(np.int64)
    return Series(instance, point[measured], np.clip(value[measured], 0.0, 1.0))


def _matrix(
    server: Server, measure: str, query: str, span_s: tuple[float, float, float]
) -> list[dict[str, Any]]:
    start, end, step = (f"{value:.3f}" for value in span_s)
    fields = {"query": query, "start": start, "end": end, "step": step}
    where = f"{server.url}: queries[{measure!r}]"
    return result(server, "query_range", fields, "matrix", where)


def _samples(found: dict[str, list[Series]], source: str, start_s: float, step_s: float) -> Samples:
    """One row a machine and step at which anything was measured."""
    machine = _machines(found)
    names = sorted(set(machine.values()))
    rank = {name: node for node, name in enumerate(names)}
    row = {instance: rank[name] for instance, name in machine.items()}
    points = 1 + max(int(s.point.max(initial=0)) for listed in found.values() for s in listed)
    keys, values = {}, {}
    for measure, listed in found.items():
        keys[measure] = _joined([row[series.instance] * points + series.point for series in listed])
        values[measure] = _joined([series.value for series in listed])
    every = np.unique(_joined(list(keys.values())))
    columns = {measure: np.full(len(every), np.nan) for measure in MEASURES}
    for measure, key in keys.items():
        columns[measure][np.searchsorted(every, key)] = values[measure]
    time_s = start_s + (every % points) * step_s
    return Samples(time_s, every // points, **columns, names=tuple(names), source=source)


def _machines(found: dict[str, list[Series]]) -> dict[str, str]:
    """The machine of each instance: its host, unless one measure has several there."""
    shared = set()
    for listed in found.values():
        hosts = Counter(PORT.sub("", series.instance) for series in listed)
        shared |= {host for host, instances in hosts.items() if instances > 1}
    instances = {series.instance for listed in found.values() for series in listed}
    hosts_of = {instance: PORT.sub("", instance) for instance in instances}
    return {name: name if host in shared else host for name, host in hosts_of.items()}


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
