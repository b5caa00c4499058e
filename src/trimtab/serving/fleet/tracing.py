"""OpenTelemetry spans of requests, as an option: a server without them imports nothing for it.

A span is made when its request has ended, from times that the front keeps in any case. A request
thus costs nothing on its way, and the batches of spans leave from a thread of the SDK.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from trimtab.errors import ServeError
from trimtab.serving.nouns import PARENT, STATE, WIDTHS, Request, Why

PATH = "/v1/traces"  # of OTLP over HTTP, where an address names none
SERVICE = "trimtab"


class Tracer:
    """Sends a span a request to a collector. `share` of the requests are traced; one that comes
    with a `traceparent` follows its caller's choice.
    """

    def __init__(
        self,
        endpoint: str,
        share: float = 1.0,
        *,
        exporter: Any = None,
        draw: Callable[[], float] = random.random,
        wall_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= share <= 1:
            raise ServeError(f"trace share={share}: give 0..1")
        address = checked_endpoint(endpoint)
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
            from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError as missing:
            raise _missing() from missing
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON),
            resource=Resource.create({"service.name": SERVICE}),
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter(address)))
        self.share, self._draw = share, draw
        self._tracer = self._provider.get_tracer(SERVICE)
        self._kind, self._status = SpanKind.SERVER, Status
        self._ok, self._error = StatusCode.OK, StatusCode.ERROR
        self._span_of = get_current_span
        self._extract = TraceContextTextMapPropagator().extract
        # the front's clock is monotonic, a span's is the wall's: the distance is taken once
        self._zero_ns = wall_ns() - int(clock() * 1e9)

    def ended(
        self,
        request: Request,
        why: Why,
        ended_s: float,
        *,
        sent_s: float = math.nan,
        server: str = "",
        widths: Sequence[int] = (),
        reason: str = "",
    ) -> None:
        """Record a request that has ended; times on the front's clock, NaN = it was never sent."""
        parent = parent_of(request)
        context = self._extract(parent) if parent else None
        known = context is not None and self._span_of(context).get_span_context().is_valid
        # drawn here and not by the SDK: what is not traced then costs next to nothing
        if not known and self._draw() >= self.share:
            return
        span = self._tracer.start_span(
            "infer",
            context=context,
            kind=self._kind,
            start_time=self._ns(request.arrived_s),
            attributes=_attributes(request, why, server, widths),
        )
        if span.is_recording():
            if not math.isnan(sent_s):
                span.set_attribute("trimtab.queued_s", sent_s - request.arrived_s)
                span.add_event("sent", {"trimtab.server": server}, timestamp=self._ns(sent_s))
            done = why is Why.DONE
            span.set_status(self._status(self._ok if done else self._error, reason or None))
        span.end(self._ns(ended_s))

    def close(self) -> None:
        """Send what is left, within the SDK's own limit of time."""
        self._provider.shutdown()

    def _ns(self, at_s: float) -> int:
        return self._zero_ns + int(at_s * 1e9)


def checked_endpoint(endpoint: str) -> str:
    """The address that spans are posted to."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ServeError(
            f"trace endpoint {endpoint!r} is no address; give one such as http://collector:4318"
        )
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}{PATH}"


def parent_of(request: Request) -> dict[str, str]:
    """The caller's trace context: a header or metadata entry, else a parameter of the request."""
    parent = {}
    for name in (PARENT, STATE):
        value = request.trace.get(name, request.parameters.get(name))
        if isinstance(value, str):
            parent[name] = value
    return parent


def _attributes(request: Request, why: Why, server: str, widths: Sequence[int]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"trimtab.outcome": why.value, "trimtab.rows": _rows(request)}
    if request.request_id:
        attributes["trimtab.request_id"] = request.request_id
    if not math.isinf(request.deadline_s):
        attributes["trimtab.deadline_s"] = request.deadline_s - request.arrived_s
    if server:
        attributes["trimtab.server"] = server
    if widths:
        attributes["trimtab.widths"] = [WIDTHS[width] for width in widths]
    return attributes


def _rows(request: Request) -> int:
    return len(next(iter(request.inputs.values()), ()))


def _exporter(address: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as missing:
        raise _missing() from missing
    return OTLPSpanExporter(endpoint=address)


def _missing() -> ServeError:
    return ServeError(
        "tracing needs OpenTelemetry, which is not installed; pip install 'trimtab[otel]'"
    )
