"""Ask a Prometheus server: addresses, errors in its own words, and the value of a query now.

    instant(Server("http://localhost:9090"), "up", time.time())         # one number a series

`traces.prometheus` reads hours of load through the same door.
"""

import http.client
import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from trimtab.errors import TraceError

# interfaces whose traffic passes a real one too, or never leaves the machine
_LINKS = 'device!~"lo|veth.*|docker.*|br-.*|virbr.*|cni.*|cali.*|flannel.*|tap.*|tun.*"'
_SPEED = f"(node_network_speed_bytes{{{_LINKS}}} > 0)"  # -1 where the speed is unknown
_NET = (
    f"sum by (instance) (rate(node_network_$way_bytes_total{{{_LINKS}}}[$window])"
    f" and on (instance, device) {_SPEED}) / sum by (instance) {_SPEED}"
)
# RDMA passes the kernel's interfaces by; state 4 = the port is active
_ACTIVE = "and on (instance, device, port) (node_infiniband_state_id == 4)"
_RDMA = (
    f"sum by (instance) (rate(node_infiniband_port_data_$way_bytes_total[$window]) {_ACTIVE})"
    f" / sum by (instance) (node_infiniband_rate_bytes_per_second {_ACTIVE})"
)
_IN = f"({_RDMA.replace('$way', 'received')}) or ({_NET.replace('$way', 'receive')})"
_OUT = f"({_RDMA.replace('$way', 'transmitted')}) or ({_NET.replace('$way', 'transmit')})"
# The busier direction of the links that carry collectives: RDMA ports, else Ethernet. The label
# keeps the two directions apart, since `or` drops what the left side has already.
LINK_QUERY = (
    f'max by (instance) (label_replace({_IN}, "way", "in", "", "")'
    f' or label_replace({_OUT}, "way", "out", "", ""))'
)
# Shares, 0..1, of each machine by node_exporter's and DCGM's metrics; $window = of rates.
QUERIES: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "1 - sum by (instance)"
        ' (rate(node_cpu_seconds_total{mode=~"idle|iowait"}[$window]))'
        " / sum by (instance) (rate(node_cpu_seconds_total[$window]))",
        "mem": "1 - sum by (instance) (node_memory_MemAvailable_bytes)"
        " / sum by (instance) (node_memory_MemTotal_bytes)",
        "net_in": _NET.replace("$way", "receive"),
        "net_out": _NET.replace("$way", "transmit"),
        "disk": "max by (instance) (rate(node_disk_io_time_seconds_total[$window]))",
        "gpu": "avg by (instance) (DCGM_FI_DEV_GPU_UTIL) / 100",
    }
)
BODY_CHARS = 300


class Server(NamedTuple):
    url: str  # without a slash at the end
    timeout_s: float = 10.0
    headers: Mapping[str, str] = MappingProxyType({})


def check_address(url: str) -> None:
    """Raise for what is no address."""
    if not re.match(r"https?://[^/\s]", url):
        raise TraceError(f"{url}: is not an address; give one such as http://localhost:9090")


def windowed(query: str, window_s: float) -> str:
    """The query with seconds in place of $window."""
    return query.replace("$window", f"{window_s * 1000:.0f}ms")


def instant(server: Server, query: str, at_s: float, name: str = "query") -> list[float]:
    """The finite values of every series that the query finds at `at_s`, in Unix time."""
    fields = {"query": query, "time": f"{at_s:.3f}"}
    found = result(server, "query", fields, "vector", f"{server.url}: {name}")
    values = [float(item["value"][1]) for item in found if "value" in item]  # histograms have none
    return [value for value in values if math.isfinite(value)]


def result(
    server: Server, path: str, fields: Mapping[str, str], kind: str, where: str
) -> list[dict[str, Any]]:
    """The series of an answer of the API, which must be of that kind: vector or matrix."""
    asked = urllib.parse.urlencode(fields)
    answer = _answer(server, f"{server.url}/api/v1/{path}?{asked}", where)
    try:
        content = json.loads(answer)
        if content["status"] != "success":
            raise TraceError(f"{where}: {_said(answer)}; correct {fields['query']}")
        if content["data"]["resultType"] != kind:
            raise KeyError
        return content["data"]["result"]
    except (ValueError, KeyError, TypeError):
        raise TraceError(
            f"{where}: the answer is not Prometheus' ({_said(answer)}); give the address of the "
            f"server, with its path prefix if it has one"
        ) from None


def _answer(server: Server, address: str, where: str) -> bytes:
    request = urllib.request.Request(address, headers=dict(server.headers))
    try:
        with urllib.request.urlopen(request, timeout=server.timeout_s) as reply:
            return reply.read()
    except urllib.error.HTTPError as error:
        with error:
            said = _said(error.read())
        remedy = {400: "correct the query or the times", 401: "give headers that it accepts"}.get(
            error.code, "see the server's log"
        )
        raise TraceError(f"{where}: HTTP {error.code}: {said}; {remedy}") from None
    except TimeoutError:
        raise TraceError(
            f"{where}: no answer in {server.timeout_s:g} s; ask for less time or raise timeout_s"
        ) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            reason = f"no connection in {server.timeout_s:g} s"
        reason = getattr(reason, "strerror", None) or reason
        raise TraceError(
            f"{server.url}: cannot be reached ({reason}); start Prometheus or correct the address"
        ) from None


def _said(answer: bytes) -> str:
    """The error in an answer, in the server's words."""
    try:
        content = json.loads(answer)
        return f"{content['errorType']}: {content['error']}"
    except (ValueError, KeyError, TypeError):
        return answer[:BODY_CHARS].decode("utf-8", "replace").strip() or "an empty answer"
