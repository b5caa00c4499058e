"""Every request ends once, is counted once and leaves one span; a full fleet reads no request."""

import asyncio
import json
import math

import numpy as np
import pytest
from tests.fleets import Scripted, play, soon, until

pytest.importorskip("orjson")
pytest.importorskip("httptools")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trimtab.serving.fleet.tracing import Tracer
from trimtab.serving.front.http_front import HttpFront
from trimtab.serving.nouns import Why

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"traceparent: 00-{TRACE}-{SPAN}-01"
IMAGE = {"name": "image", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": [1.0] * 192}
BODY = json.dumps({"inputs": [IMAGE], "outputs": [{"name": "class"}]}).encode()


def traced(scenario, router="shortest_queue", share=1.0, **options):
    """The spans of a scenario, in the order in which requests ended."""
    exporter = InMemorySpanExporter()
    tracer = Tracer("http://127.0.0.1:1", share, exporter=exporter)
    play(scenario, router, tracer=tracer, **options)
    tracer.close()
    return exporter.get_finished_spans()


async def posted(front, body=BODY, *fields, count=1):
    """The answers to one request sent `count` times on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = ["POST /v2/models/slim/infer HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    found = []
    for _ in range(count):
        writer.write(("\r\n".join([*head, *fields]) + "\r\n\r\n").encode() + body)
        top = await reader.readuntil(b"\r\n\r\n")
        size = int(top.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        found.append((int(top.split()[1]), top, json.loads(await reader.readexactly(size))))
    writer.close()
    return found


async def fronted(fleet):
    front = HttpFront(fleet)
    await front.start(port=0)
    return front


async def filled(rig):
    """A fleet whose queue of one is full, and the gate that its server waits at."""
    runner = Scripted()
    await rig.add(runner)
    runner.gate.clear()
    first = rig.ask(1.0)
    await until(lambda: rig.fleet.view().in_flight == 1)
    return first, runner.gate


def test_a_request_over_http_leaves_one_span_in_its_callers_trace():
    async def scenario(rig):
        await rig.add()
        front = await fronted(rig.fleet)
        ((status, _, body),) = await posted(front, BODY, PARENT)
        assert (status, body["parameters"]["server"]) == (200, "s0")
        front.close()

    (span,) = traced(scenario, share=0.0)  # by the caller's choice alone
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN
    told = span.attributes
    assert (told["trimtab.outcome"], told["trimtab.rows"]) == ("done", 1)
    assert (told["trimtab.server"], told["trimtab.widths"]) == ("s0", (1.0, 1.0, 1.0, 1.0))
    (sent,) = span.events
    assert span.start_time <= sent.timestamp <= span.end_time


def test_every_outcome_leaves_one_span():
    async def scenario(rig):
        first, gate = await filled(rig)
        assert (await rig.submit(np.zeros((99, 3, 8, 8), "f4"))).why is Why.INVALID
        assert (await rig.ask()).why is Why.BUSY
        first.withdraw()
        late = rig.ask(deadline_s=soon(0.05), arrived_s=soon(0.0))
        assert (await late).why is Why.LATE
        gate.set()
        assert (await rig.ask()).why is Why.DONE

    spans = traced(scenario, queue_max=1)
    told = [span.attributes["trimtab.outcome"] for span in spans]
    assert told == ["invalid", "busy", "cancelled", "late", "done"]
    assert [len(span.events) for span in spans] == [0, 0, 1, 1, 1]


def test_a_full_fleet_turns_requests_away_unread_and_counts_them():
    async def scenario(rig):
        first, gate = await filled(rig)
        front = await fronted(rig.fleet)
        answers = await posted(front, b"nobody reads this", PARENT, count=3)
        for status, top, body in answers:
            assert status == 429
            assert b"Retry-After-Ms: " in top
            assert body == {"error": "1 images wait, which is all that can be answered in time; "
                                     "come back later"}  # fmt: skip
        ((status, top, _),) = await posted(front, BODY, "Connection: close")
        assert (status, b"Connection: close" in top) == (429, True)
        assert front.in_flight == 0
        view = rig.fleet.view()
        assert (view.arrived, view.refused, front.answers[429]) == (5, 4, 4)
        gate.set()
        assert (await first).why is Why.DONE
        assert [status for status, *_ in await posted(front)] == [200]
        assert (await posted(front, b"now it is read"))[0][0] == 400
        front.close()

    spans = traced(scenario, share=0.0, queue_max=1)
    assert [span.attributes["trimtab.outcome"] for span in spans] == ["busy"] * 3


def test_a_refusal_is_one_object_until_the_queue_changes():
    async def scenario(rig):
        first, gate = await filled(rig)
        fleet = rig.fleet
        refused = fleet.turn_away({})
        assert fleet.turn_away({}) is refused
        gate.set()
        await first
        assert fleet.turn_away({}) is None

    play(scenario, queue_max=1)


def test_a_refusal_comes_before_the_pixels_are_looked_at():
    async def scenario(rig):
        first, gate = await filled(rig)
        image = np.full((1, 3, 8, 8), math.nan, "f4")
        assert (await rig.submit(image)).why is Why.BUSY
        gate.set()
        await first
        await until(lambda: rig.books.open == 0)
        assert (await rig.submit(image)).why is Why.INVALID

    play(scenario, queue_max=1)
