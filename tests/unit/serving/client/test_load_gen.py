"""The load generator: arrivals are kept, latency counts from the plan, faults have names."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.client.load_gen import Driven, drive, drive_closed, http_request, parameters_of

httptools = pytest.importorskip("httptools")

ASK = http_request("/", b"one")
OTHER = http_request("/", b"two")


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Scripted:
    """A server on a thread that answers as told; counts its requests and connections."""

    def __init__(self, reply) -> None:
        self.reply, self.asked, self.connections = reply, 0, 0
        self.port = 0

    async def talk(self, reader, writer) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(size)
                self.asked += 1
                await self.reply(writer, body, self.asked)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def serving(reply):
    scripted, loop, started = Scripted(reply), asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        server = await asyncio.start_server(scripted.talk, "127.0.0.1", 0)
        scripted.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield scripted
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def echo(writer, body, number) -> None:
    writer.write(ok(body))


def test_every_arrival_is_sent_in_order_and_answered():
    arrival_s = np.linspace(0, 0.3, 60)
    with serving(echo) as server:
        found = drive(server.port, [ASK, OTHER], arrival_s, keep_every=1)
    assert (found.status == 200).all() and server.asked == 60
    assert np.allclose(found.planned_s, arrival_s)
    assert (found.sent_s >= found.planned_s - 1e-6).all()
    assert (found.latency_s >= found.sent_s - found.planned_s).all()
    assert [found.kept[row] for row in range(4)] == [b"one", b"two", b"one", b"two"]
    assert found.body_of[:4].tolist() == [0, 1, 0, 1]
    assert (found.errors(), found.cpu_s > 0) == ({}, True)


def test_a_given_choice_of_bodies_is_sent():
    with serving(echo) as server:
        found = drive(server.port, [ASK, OTHER], [0, 0, 0], body_of=[1, 1, 0], keep_every=2)
    assert found.kept == {0: b"two", 2: b"one"}


def test_latency_counts_from_the_planned_moment_where_the_server_holds_the_sender_up():
    async def slow(writer, body, number) -> None:
        await asyncio.sleep(0.05)
        writer.write(ok(b""))

    with serving(slow) as server:
        found = drive(server.port, [ASK], np.zeros(4), connections=1)
    # one connection: each waits for all before it and is sent only then
    assert (np.diff(found.sent_s) >= 0.05).all()
    assert (found.latency_s >= found.sent_s + 0.05).all()
    assert found.sent_s[2] < found.late_ms / 1e3 <= found.sent_s[3]


def test_connections_are_kept_and_no_more_are_opened_than_allowed():
    with serving(echo) as server:
        drive(server.port, [ASK], np.zeros(100), connections=3)
        assert (server.asked, server.connections) == (100, 3)


def test_each_client_of_a_closed_run_waits_for_its_answer():
    flying, most, together = 0, 0, asyncio.Event()

    async def count(writer, body, number) -> None:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        if flying == 3:
            together.set()
        await together.wait()
        await asyncio.sleep(0.01)
        flying -= 1
        writer.write(ok(b""))

    with serving(count) as server:
        found = drive_closed(server.port, [ASK], 0.3, clients=3)
    assert most == 3
    assert found.good.all() and len(found.status) <= 93
    done_s = found.planned_s + found.latency_s
    assert (
        len(found.status) > 3 or done_s.min() > 0.29
    )  # an answer in time is followed by a request
    assert 0 < found.rate_hz <= 3 / 0.01


def test_faults_are_counted_by_kind():
    async def fail(writer, body, number) -> None:
        if number % 3 == 0:
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        elif number % 3 == 1:
            writer.close()
        else:
            writer.write(ok(b""))

    with serving(fail) as server:
        found = drive(server.port, [ASK], np.linspace(0, 0.2, 9), connections=1)
    assert found.errors() == {"connection broken": 3, "status 503": 3}
    assert found.good.sum() == 3
    assert np.isnan(found.latency_s[found.status < 0]).all()
    assert found.latency_ms(0.99) == np.inf


def test_what_is_not_answered_in_time_is_given_up():
    async def silent(writer, body, number) -> None:
        pass

    with serving(silent) as server:
        found = drive(server.port, [ASK], [0.0, 0.0], connections=1, timeout_s=0.2)
    assert sorted(found.errors()) == ["never sent", "timed out"]


def test_a_port_where_nobody_listens_is_no_connection():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = drive(taken.getsockname()[1], [ASK], np.linspace(0, 0.05, 5), timeout_s=1.0)
    assert found.errors() == {"no connection": 5}
    assert (found.rate_hz, found.late_ms) == (0.0, np.inf)


def test_a_server_that_closes_after_each_answer_is_asked_on_new_connections():
    async def last(writer, body, number) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    with serving(last) as server:
        found = drive(server.port, [ASK], np.linspace(0, 0.2, 10), connections=2)
        assert found.good.all() and server.connections >= 10
        assert drive_closed(server.port, [ASK], 0.3, 2).good.all()


def test_who_waits_for_a_connection_that_closes_gets_another():
    async def last(writer, body, number) -> None:
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    with serving(last) as server:
        found = drive(server.port, [ASK], np.zeros(9), connections=2)
    assert found.good.all() and server.connections >= 9


def test_a_body_in_pieces_is_one_answer():
    async def pieces(writer, body, number) -> None:
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        whole += b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        for at in range(0, len(whole), 7):
            writer.write(whole[at : at + 7])
            await writer.drain()
            await asyncio.sleep(0.001)

    with serving(pieces) as server:
        found = drive(server.port, [ASK], [0.0], keep_every=1)
    assert found.kept == {0: b"onetwo"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arrival_s": [1.0, 0.5]}, "rise"),
        ({"arrival_s": [-1.0]}, "rise"),
        ({"arrival_s": [0.0], "body_of": [2]}, "body_of"),
        ({"arrival_s": [0.0], "connections": 0}, "connections=0"),
        ({"arrival_s": [0.0], "timeout_s": 0}, "timeout_s=0"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused_before_it_starts(given, said):
    with pytest.raises(ServeError, match=said):
        drive(1, [ASK], **given)


def test_no_arrivals_are_no_requests():
    found = drive(1, [ASK], [], connections=1, timeout_s=0.2)
    assert (len(found.status), found.rate_hz, found.latency_ms(0.5)) == (0, 0.0, np.inf)


def test_the_slowest_percent_counts_and_a_failure_is_slowest():
    latency_s = np.arange(1, 101) / 1e3
    none = np.zeros(100)
    status = np.full(100, 200)
    found = Driven(none, none, latency_s, status, none, {}, 1.0, 1e-3)
    assert found.latency_ms(0.5) == pytest.approx(51)
    assert found.latency_ms(0.99) == pytest.approx(100)
    assert found.cpu_us == pytest.approx(10)
    status[:2] = -1
    assert found.latency_ms(0.99) == np.inf


def test_the_widths_that_answers_tell_are_read_also_before_binary_tensors():
    told = [b'{"parameters":{"widths":"1"}}', b'{"parameters":{"widths":"0.5"}}\x00\xff{', b"busy"]
    none = np.zeros(3)
    kept = dict(enumerate(told))
    found = Driven(none, none, none, np.array([200, 200, 503]), none, kept, 1.0, 1.0)
    assert parameters_of(found) == {0: {"widths": "1"}, 1: {"widths": "0.5"}}


def test_a_request_is_whole_http():
    body = json.dumps({"a": 1}).encode()
    text = http_request("/p", body, {"X-A": "b"})
    head, _, rest = text.partition(b"\r\n\r\n")
    assert rest == body
    assert head.split(b"\r\n")[0] == b"POST /p HTTP/1.1"
    assert b"Content-Length: 8" in head and b"X-A: b" in head
