"""A request leaves one span: when it came, waited and ended, where it ran and how."""

import math
import subprocess
import sys

import numpy as np
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from trimtab.errors import ServeError
from trimtab.serving.fleet.tracing import Tracer, checked_endpoint
from trimtab.serving.nouns import Request, Why

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NOW_NS = 1_700_000_000_000_000_000


def sent(**more):
    return Request({"image": np.zeros((2, 3))}, ("logits",), "r-1", arrived_s=10.0, **more)


def traced(work, share=1.0):
    """The spans that `work` leaves."""
    exporter = InMemorySpanExporter()
    tracer = Tracer(
        "http://127.0.0.1:1", share, exporter=exporter, wall_ns=lambda: NOW_NS, clock=lambda: 10.0
    )
    work(tracer)
    tracer._provider.force_flush()
    spans = exporter.get_finished_spans()
    tracer.close()
    return spans


def test_a_span_tells_the_way_of_a_request():
    (span,) = traced(
        lambda tracer: tracer.ended(
            sent(deadline_s=10.5),
            Why.DONE,
            10.25,
            sent_s=10.125,
            server="a",
            widths=(0, 1, 2, 3),
        )
    )
    assert (span.start_time, span.end_time) == (NOW_NS, NOW_NS + 250_000_000)
    assert span.kind is SpanKind.SERVER and span.status.status_code is StatusCode.OK
    assert dict(span.attributes) == {
        "trimtab.outcome": "done",
        "trimtab.rows": 2,
        "trimtab.request_id": "r-1",
        "trimtab.deadline_s": 0.5,
        "trimtab.server": "a",
        "trimtab.widths": (0.25, 0.5, 0.75, 1.0),
        "trimtab.queued_s": 0.125,
    }
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("sent", NOW_NS + 125_000_000)
    ]


def test_a_refusal_is_an_error_with_its_reason():
    (span,) = traced(
        lambda tracer: tracer.ended(sent(), Why.BUSY, 10.0, reason="the queue is full")
    )
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "the queue is full"
    assert span.attributes["trimtab.outcome"] == "busy" and not span.events


@pytest.mark.parametrize("place", ["trace", "parameters"])
def test_a_callers_trace_goes_on(place):
    given = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    (span,) = traced(
        lambda tracer: tracer.ended(sent(**{place: given}), Why.DONE, 11.0),
        share=0.0,  # the caller has chosen this one
    )
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN


@pytest.mark.parametrize("parent", ["nonsense", 7, "00-00-00-01"])
def test_a_broken_parent_starts_a_new_trace(parent):
    (span,) = traced(
        lambda tracer: tracer.ended(sent(parameters={"traceparent": parent}), Why.DONE, 11.0)
    )
    assert span.parent is None


def test_only_a_share_is_traced():
    def many(tracer):
        for _ in range(400):
            tracer.ended(sent(), Why.DONE, 11.0)

    assert traced(many, share=0.0) == ()
    assert 20 < len(traced(many, share=0.25)) < 200


@pytest.mark.parametrize("flags", ["00", "zz"])
def test_a_parent_that_is_not_sampled_or_is_nonsense_makes_no_span(flags):
    given = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}"}
    spans = traced(lambda tracer: tracer.ended(sent(trace=given), Why.DONE, 11.0), share=0.0)
    assert spans == ()


@pytest.mark.parametrize("module", ["fleet.tracing", "service", "fleet.ends"])
def test_importing_it_costs_no_sdk(module):
    code = f"import sys, trimtab.serving.{module}; sys.exit('opentelemetry' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_address_gets_the_protocols_path_where_it_has_none():
    assert checked_endpoint("http://host:4318") == "http://host:4318/v1/traces"
    assert checked_endpoint("https://host/otlp/v1/traces") == "https://host/otlp/v1/traces"


@pytest.mark.parametrize(
    ("endpoint", "share", "named"),
    [
        ("collector:4318", 1.0, "'collector:4318' is no address"),
        ("http://", 1.0, "is no address"),
        ("http://host", 1.5, "share=1.5: give 0..1"),
        ("http://host", math.nan, "share=nan"),
    ],
)
def test_a_mistake_is_named(endpoint, share, named):
    with pytest.raises(ServeError, match=named):
        Tracer(endpoint, share)
