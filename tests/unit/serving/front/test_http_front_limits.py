"""What the HTTP front bounds: headers, bodies, time, connections, and clients that misbehave."""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest

pytest.importorskip("orjson")
pytest.importorskip("httptools")

from tests.fronts import BODY, INFER, MODEL, Connect, Held, ask, error_of, play, until

from trimtab.serving.front.http_front import HttpFront
from trimtab.serving.front.http_wire import TooLarge, opened
from trimtab.serving.nouns import Metadata, Spec, ZeroFleet

GZIPPED = gzip.compress(BODY)


def test_a_body_in_pieces_is_one_request():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        request = f"POST {INFER} HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
        for at in range(0, len(request), 7):
            client.writer.write(request[at : at + 7])
            await asyncio.sleep(0)
        assert (await client.read())[0] == 200
        assert front.held_bytes == 0

    play(scenario)


CHUNKED = f"POST {INFER} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def test_a_chunked_body_is_read_and_its_trailer_changes_nothing():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        half = len(BODY) // 2
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (BODY[:half], BODY[half:]))
        trailer = b"0\r\nInference-Header-Content-Length: 1\r\n\r\n"
        client.writer.write(CHUNKED + pieces + trailer)
        assert (await client.read())[0] == 200

    play(scenario)


def refused(wire: bytes, status: int, message: str, **limits: object) -> HttpFront:
    """Send bytes; the answer is an error after which the connection ends."""

    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.writer.write(wire)
        got, fields, body = await client.read()
        assert got == status and message in error_of(body)
        assert fields["connection"] == "close"
        assert await client.ended()
        assert front.held_bytes == 0

    return play(scenario, **limits)


def test_a_body_over_the_limit_is_refused_from_its_length_alone():
    wire = f"POST {INFER} HTTP/1.1\r\nContent-Length: 1001\r\n\r\n".encode()
    refused(wire, 413, "Content-Length is 1001; send at most 1000", body_limit_bytes=1000)


def test_the_refusal_of_a_large_body_arrives_though_the_body_is_on_its_way():
    wire = f"POST {INFER} HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n".encode() + b"x" * 4_000_000
    refused(wire, 413, "Content-Length", body_limit_bytes=1000)


def test_a_chunked_body_is_counted():
    wire = CHUNKED + b"3e9\r\n" + b"x" * 1001
    refused(wire, 413, "passes 1000 bytes", body_limit_bytes=1000)


def test_all_bodies_together_are_bounded():
    wire = CHUNKED + b"3e9\r\n" + b"x" * 501
    front = refused(wire, 503, "too many large bodies", held_limit_bytes=500)
    assert front.answers == {503: 1}


def test_json_over_its_own_limit_is_refused():
    status, _, body = ask("POST", INFER, BODY, json_limit_bytes=len(BODY) - 1)
    assert status == 413 and "send tensors as binary" in error_of(body)


@pytest.mark.parametrize("packed", [GZIPPED, zlib.compress(BODY)], ids=["gzip", "deflate"])
def test_gzip_and_deflate_bodies_are_opened(packed: bytes):
    kind = "gzip" if packed[:2] == b"\x1f\x8b" else "deflate"
    assert ask("POST", INFER, packed, f"Content-Encoding: {kind}")[0] == 200


def test_a_compressed_body_is_opened_no_further_than_the_limit():
    bomb = gzip.compress(b" " * 1_000_000)
    assert len(bomb) < 2000
    status, _, body = ask("POST", INFER, bomb, "Content-Encoding: gzip", body_limit_bytes=2000)
    assert status == 413 and "opens to more than 2000" in error_of(body)


def test_opening_a_compressed_body_takes_no_more_memory_than_the_limit():
    bomb = gzip.compress(b" " * 20_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="opens to more than 2000"):
            opened(bomb, b"gzip", 2000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [GZIPPED[:-9], GZIPPED + b"tail"], ids=["cut", "more"])
def test_a_compressed_body_that_is_not_one_stream_is_refused(packed: bytes):
    status, _, body = ask("POST", INFER, packed, "Content-Encoding: gzip")
    assert status == 400 and "cut short or has a tail" in error_of(body)


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /v2 HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nX: " + b"x" * 20_000,  # and never ends
        b"GET /" + b"x" * 20_000,
        b"GET /v2 HTTP/1.1\r\n" + b"X: y\r\n" * 5000,
    ],
    ids=["one long field", "without end", "a long address", "many fields"],
)
def test_a_header_over_the_limit_is_refused(wire: bytes):
    refused(wire, 431, "more than 16384 bytes")


def test_a_large_body_does_not_count_as_header():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        padded = BODY + b" " * 100_000
        client.send("POST", INFER, padded)
        client.send("POST", INFER, padded)
        assert [(await client.read())[0] for _ in range(2)] == [200, 200]
        # in one piece with the start of the next header, whose own share is small
        (connection,) = front.connections
        head = f"POST {INFER} HTTP/1.1\r\nContent-Length: {len(padded)}\r\n\r\n".encode()
        connection.data_received(head + padded + b"GET /v2 HTTP/1.1\r\nX: ")
        connection.data_received(b"y\r\n\r\n")
        assert [(await client.read())[0] for _ in range(2)] == [200, 200]

    play(scenario)


@pytest.mark.parametrize(
    "wire",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",  # a TLS greeting
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nbad name: x\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"zz\r\n",
    ],
)
def test_what_is_not_http_is_refused(wire: bytes):
    refused(wire, 400, "not HTTP/1.1")


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /v2 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\n\r\n",
    ],
)
def test_an_upgrade_is_not_taken(wire: bytes):
    assert refused(wire, 400, "not supported").answers == {400: 1}


def test_a_header_that_comes_too_slowly_ends_the_connection():
    refused(b"GET /v2 HTTP/1.1\r\nX: ", 408, "header took more than 0.1 s", header_s=0.1)


def test_half_a_body_ends_the_connection():
    wire = f"POST {INFER} HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf".encode()
    refused(wire, 408, "stood still for 0.1 s", body_idle_s=0.1)


def test_a_body_that_creeps_ends_the_connection():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.writer.write(f"POST {INFER} HTTP/1.1\r\nContent-Length: 9999\r\n\r\n".encode())
        answer = asyncio.ensure_future(client.read())
        while not answer.done():  # each byte comes well within the time a still body is allowed
            client.writer.write(b"x")
            await asyncio.sleep(0.02)
        assert (await answer)[0] == 408

    play(scenario, body_idle_s=0.2, header_s=0.1)


def test_a_connection_that_never_speaks_is_closed():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        assert await (await connect()).ended()

    play(scenario, header_s=0.1)


def test_an_idle_connection_is_closed_after_its_keep_alive():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        assert (await client.ask("GET", "/v2"))[0] == 200
        assert await client.ended()

    play(scenario, keep_alive_s=0.1, linger_s=0.1)


def test_a_slow_fleet_does_not_count_as_an_idle_connection():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.send("POST", INFER, BODY)
        await until(lambda: bool(fleet.waiting))
        await asyncio.sleep(0.5)
        fleet.answer(0)
        assert (await client.read())[0] == 200

    fleet = Held()
    play(scenario, fleet, keep_alive_s=0.2, header_s=0.2, body_idle_s=0.2, linger_s=0.2)


def test_a_client_that_leaves_with_half_a_body_leaves_nothing_behind():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        wire = f"POST {INFER} HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf"
        client.writer.write(wire.encode())
        await until(lambda: front.held_bytes == 4)
        client.writer.close()
        await until(lambda: not front.connections)
        assert (front.held_bytes, front.in_flight, len(front.answers)) == (0, 0, 0)

    play(scenario)


def test_a_client_that_does_not_read_its_answers_is_cut_off():
    wide = Metadata("slim net", MODEL.inputs, (Spec("logits", "FP32", (-1, 1_000_000)),))

    async def scenario(front: HttpFront, connect: Connect) -> None:
        client = await connect()
        client.writer.transport.pause_reading()
        parameters = b'{"parameters": {"binary_data_output": true}, '
        for _ in range(4):
            client.send("POST", INFER, parameters + BODY[1:])
        await until(lambda: front.answers[200] > 0)
        await until(lambda: not front.connections)

    play(scenario, ZeroFleet(wide), body_idle_s=0.1)


def test_connections_are_bounded():
    async def scenario(front: HttpFront, connect: Connect) -> None:
        first = await connect()
        assert (await first.ask("GET", "/v2"))[0] == 200
        second = await connect()
        status, fields, body = await second.read()
        assert (status, fields["retry-after"]) == (503, "1")
        assert "1 connections are open" in error_of(body)
        assert (await first.ask("GET", "/v2"))[0] == 200
        second.writer.close()
        await until(lambda: len(front.connections) == 1)

    play(scenario, connection_limit=1)
