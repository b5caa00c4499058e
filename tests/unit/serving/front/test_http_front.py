"""The HTTP front over real sockets: the protocol, refusals, order, cancellation and drain."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("orjson")
pytest.importorskip("httptools")

from tests.fronts import (
    BODY,
    INFER,
    LIMIT_S,
    MODEL,
    TENSOR,
    Connect,
    Doubling,
    Held,
    Refusing,
    ask,
    error_of,
    play,
    until,
)

from trimtab.errors import ServeError
from trimtab.serving.front.http_front import HttpFront
from trimtab.serving.nouns import Answer, Request, Why, ZeroFleet


def test_a_json_request_is_answered_and_its_id_echoed():
    status, fields, body = ask("POST", INFER, BODY)
    answer = json.loads(body)
    assert (status, fields["content-type"], answer["id"]) == (200, "application/json", "a")
    assert answer["outputs"] == [
        {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0.0, 0.0]}
    ]
    assert (answer["model_name"], answer["model_version"]) == ("slim net", "2")


def test_a_binary_request_gets_a_binary_answer():
    raw = np.array([3, 4], np.float32).tobytes()
    entry = {**TENSOR, "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    size = f"Inference-Header-Content-Length: {len(head)}"

    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.send("POST", "/v2/models/slim%20net/versions/1/infer", head + raw, size)
        await until(lambda: bool(fleet.waiting))
        fleet.answer(0)
        status, fields, body = await client.read()
        json_bytes = int(fields["inference-header-content-length"])
        assert (status, json.loads(body[:json_bytes])["model_version"]) == (200, "1")
        assert np.frombuffer(body[json_bytes:], np.float32).tolist() == [6.0, 8.0]

    fleet = Held()
    play(scenario, fleet)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2", {"name": "trimtab", "version": "9"}),
        ("/v2/models/slim%20net", {"name": "slim net", "versions": ["1", "2"]}),
        ("/v2/models/slim%20net/versions/2", {"platform": "trimtab"}),
    ],
)
def test_metadata_is_served(path: str, expected: dict):
    status, _, body = ask("GET", path, version="9")
    assert status == 200 and expected.items() <= json.loads(body).items()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "when_unready"),
    [("/v2/health/live", 200), ("/v2/health/ready", 400), ("/v2/models/slim%20net/ready", 400)],
)
def test_health_follows_the_fleet(method: str, path: str, when_unready: int):
    fleet = ZeroFleet(MODEL)
    assert ask(method, path, fleet=fleet)[0] == 200
    fleet.ready = False
    assert ask(method, path, fleet=fleet)[0] == when_unready


def test_metrics_come_from_the_callable():
    status, fields, body = ask("GET", "/metrics", metrics=lambda: (b"up 1\n", b"text/x"))
    assert (status, body) == (200, b"up 1\n")
    assert fields["content-type"] == "text/x"


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        (("GET", "/"), 404, "nothing answers at '/'"),
        (("POST", "/v2/models/fat/infer", BODY), 404, "model 'fat' is not served here"),
        (("GET", "/v2/models/slim%20net/versions/9"), 404, "no version '9'"),
        (("GET", INFER), 405, "GET is not answered"),
        (("DELETE", "/v2"), 405, "DELETE is not answered"),
        (("POST", INFER, b"{"), 400, "not JSON"),
        (("POST", INFER, b""), 400, "not JSON"),
        (("POST", INFER, BODY.replace(b"[1, 2]}", b"[1]}")), 400, "holds 1 values"),
        (("POST", INFER, BODY, "Content-Encoding: br"), 400, "Content-Encoding is b'br'"),
        (("POST", INFER, BODY, "Content-Encoding: gzip"), 400, "the body is not"),
        (("POST", INFER, BODY, "Inference-Header-Content-Length: -1"), 400, "whole number"),
        (("POST", INFER, BODY, "Inference-Header-Content-Length: 9999"), 400, "is 9999"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong_and_the_connection_lives(
    request_: tuple, status: int, message: str
):
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        got, _, body = await client.ask(*request_)
        assert got == status and message in error_of(body)
        assert (await client.ask("POST", INFER, BODY))[0] == 200

    play(scenario)


@pytest.mark.parametrize(
    ("why", "status"),
    [
        (Why.BUSY, 429),
        (Why.LATE, 504),
        (Why.UNAVAILABLE, 503),
        (Why.FAILED, 500),
        (Why.INVALID, 400),
    ],
)
def test_a_refusal_of_the_fleet_has_its_status_and_says_when_to_come_back(why: Why, status: int):
    answer = Answer(why=why, reason="queue: 9 wait, limit 8", retry_after_s=0.25)
    got, fields, body = ask("POST", INFER, BODY, fleet=Refusing(answer))
    assert (got, error_of(body)) == (status, "queue: 9 wait, limit 8")
    assert (fields["retry-after"], fields["retry-after-ms"]) == ("1", "250")


def test_an_answer_that_cannot_be_written_is_a_500_and_the_next_request_is_served():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        loop, seen = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        client = await connect()
        status, _, body = await client.ask("POST", INFER, BODY)
        assert status == 500 and "logits" in error_of(body)
        assert isinstance(seen[0], KeyError) and front.in_flight == 0
        assert (await client.ask("GET", "/v2"))[0] == 200

    play(scenario, Refusing(Answer({})))


def test_a_fleet_that_raises_is_a_500():
    class Broken(ZeroFleet):
        def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
            raise ValueError("secret")

    async def scenario(front: HttpFront, connect: Connect) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        status, _, body = await (await connect()).ask("POST", INFER, BODY)
        assert (status, error_of(body)) == (500, "the fleet failed: ValueError")
        assert front.in_flight == 0

    play(scenario, Broken(MODEL))


def test_pipelined_requests_are_answered_in_order():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        for number in range(3):
            client.send("POST", INFER, BODY.replace(b'"a"', b'"%d"' % number))
        client.send("GET", "/v2/health/live")
        await until(lambda: len(fleet.waiting) == 3)
        for place in (2, 0, 1):  # the fleet finishes in another order
            fleet.answer(place)
        ids = [json.loads((await client.read())[2])["id"] for _ in range(3)]
        assert ids == ["0", "1", "2"]
        assert (await client.read())[0] == 200

    fleet = Held()
    play(scenario, fleet)


def test_a_client_with_many_requests_waiting_is_read_no_further():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        for _ in range(40):
            client.send("POST", INFER, BODY)
            await client.writer.drain()
            await asyncio.sleep(0.001)
        await until(lambda: len(fleet.waiting) >= 32)
        (connection,) = front.connections
        assert connection.paused
        for place in range(40):
            await until(lambda place=place: len(fleet.waiting) > place)
            fleet.answer(place)
            assert (await client.read())[0] == 200
        assert not connection.paused

    fleet = Held()
    play(scenario, fleet)


def test_a_client_that_leaves_cancels_its_requests():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.send("POST", INFER, BODY)
        client.send("POST", INFER, BODY.replace(b'"a"', b'"b"'))
        await until(lambda: len(fleet.waiting) == 2)
        client.writer.close()
        await until(lambda: fleet.cancelled == ["a", "b"])
        assert front.in_flight == 0
        fleet.answer(0)  # too late, and harmless
        assert front.in_flight == 0

    fleet = Held()
    play(scenario, fleet)


def test_requests_behind_the_last_answer_are_cancelled():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.send("POST", INFER, BODY, "Connection: close")
        client.send("POST", INFER, BODY)
        await until(lambda: len(fleet.waiting) == 1)
        fleet.answer(0)
        status, fields, _ = await client.read()
        assert (status, fields["connection"]) == (200, "close")
        assert await client.ended()
        assert (len(fleet.waiting), front.in_flight) == (1, 0)

    fleet = Held()
    play(scenario, fleet)


def test_a_second_answer_to_one_request_is_ignored():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.send("POST", INFER, BODY)
        await until(lambda: bool(fleet.waiting))
        fleet.answer(0)
        fleet.answer(0)
        assert (await client.read())[0] == 200
        assert (await client.ask("GET", "/v2/health/live"))[2] == b""
        assert front.in_flight == 0

    fleet = Held()
    play(scenario, fleet)


def test_connection_close_and_http_1_0_end_the_connection():
    for wire in (b"GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET /v2 HTTP/1.0\r\n\r\n"):

        async def scenario(front: HttpFront, connect: Connect, wire: bytes = wire) -> None:
            client = await connect()
            client.writer.write(wire)
            status, fields, _ = await client.read()
            assert (status, fields["connection"]) == (200, "close")
            assert await client.ended()

        play(scenario)


def test_expect_100_continue_is_answered_before_the_body():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        head = f"POST {INFER} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {len(BODY)}"
        client.writer.write(head.encode() + b"\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(BODY)
        assert (await client.read())[0] == 200

    play(scenario)


def test_drain_is_not_ready_first_then_refuses_then_closes_when_all_is_answered():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        busy, late = await connect(), await connect()
        busy.send("POST", INFER, BODY)
        await until(lambda: len(fleet.waiting) == 1)
        assert (await late.ask("GET", "/v2/health/ready"))[0] == 200
        draining = asyncio.create_task(front.drain(grace_s=0.2))
        await asyncio.sleep(0)
        assert (await late.ask("GET", "/v2/health/ready"))[0] == 400
        assert (await late.ask("GET", "/v2/health/live"))[0] == 200
        await until(lambda: front.closed)
        busy.send("POST", INFER, BODY)  # behind one in flight: its refusal waits its turn
        busy.send("POST", INFER, BODY)
        await until(lambda: front.answers[503] > 0)
        status, _, body = await late.ask("POST", INFER, BODY)
        assert status == 503 and "draining" in error_of(body)
        with pytest.raises(OSError):
            await connect()
        assert not draining.done()
        fleet.answer(0)
        assert [(await busy.read())[0] for _ in range(2)] == [200, 503]
        assert await draining and await busy.ended()

    fleet = Held()
    play(scenario, fleet)


def test_drain_gives_up_on_a_fleet_that_never_answers():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.send("POST", INFER, BODY)
        await until(lambda: len(fleet.waiting) == 1)
        assert not await front.drain(limit_s=0.05)
        await until(lambda: fleet.cancelled == ["a"])

    fleet = Held()
    play(scenario, fleet)


def test_a_port_in_use_is_a_mistake_with_a_remedy():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{front.port}"):
            await HttpFront(ZeroFleet(MODEL)).start("127.0.0.1", front.port)

    play(scenario)


@contextmanager
def serving(fleet: ZeroFleet) -> Iterator[int]:
    """A front on a thread of its own, for clients that block."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    front: list[HttpFront] = []

    async def start() -> None:
        front.append(HttpFront(fleet))
        await front[0].start("127.0.0.1", 0)
        started.set()

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(LIMIT_S)
    try:
        yield front[0].port
    finally:
        asyncio.run_coroutine_threadsafe(front[0].drain(), loop).result(LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
def test_tritonclient_works_unmodified(binary: bool, packing: str | None):
    triton = pytest.importorskip("tritonclient.http")
    with serving(Doubling(MODEL)) as port:
        client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        try:
            assert client.is_server_live() and client.is_server_ready()
            assert client.is_model_ready("slim net") and client.is_model_ready("slim net", "1")
            assert client.get_server_metadata()["name"] == "trimtab"
            assert client.get_model_metadata("slim net")["inputs"][0]["shape"] == [-1, 2]
            tensor = triton.InferInput("image", [2, 2], "FP32")
            tensor.set_data_from_numpy(np.float32([[1, 2], [3, 4]]), binary_data=binary)
            wanted = [triton.InferRequestedOutput("logits", binary_data=binary)]
            result = client.infer(
                "slim net",
                [tensor],
                outputs=None if binary else wanted,
                request_id="r",
                timeout=500_000,
                priority=1,
                request_compression_algorithm=packing,
            )
            assert result.as_numpy("logits").tolist() == [[2.0, 4.0], [6.0, 8.0]]
            assert result.get_response()["id"] == "r"
            assert result.get_response()["parameters"] == {"width": 0.5}
            with pytest.raises(triton.InferenceServerException, match="'fat' is not served"):
                client.infer("fat", [tensor])
        finally:
            client.close()
