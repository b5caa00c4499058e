"""Servers that die, hang, lie or cannot load lose no request, and none is answered twice."""

import asyncio
import socket

import pytest
from tests.fleets import Scripted, mean_of, play, until

from trimtab.serving.nouns import ServerState, Why
from trimtab.serving.server.wire import FrameReader, connected, framed, said


def cut(server):
    """End a server's connection as a killed process would."""
    server.sock.shutdown(socket.SHUT_RDWR)


def test_what_a_dead_server_had_is_sent_elsewhere_and_answered_once():
    async def scenario(rig):
        doomed = Scripted()
        await rig.add(doomed)
        doomed.gate.clear()
        asked = [rig.ask(float(at), rows=2) for at in range(5)]
        await until(lambda: rig.fleet.view().in_flight == 10)
        await rig.add()
        cut(rig.servers[0])
        doomed.gate.set()
        assert [mean_of(await answer) for answer in asked] == [[at, at + 1.0] for at in range(5)]
        await asyncio.sleep(0.05)
        assert [answer.answers for answer in asked] == [1] * 5
        view = rig.fleet.view()
        assert (view.resent, view.failed, view.in_flight) == (10, 0, 0)

    play(scenario, "shortest_queue", queue_max=100)


def test_a_request_that_loses_two_servers_fails_with_a_sentence():
    async def scenario(rig):
        runners = [Scripted(), Scripted()]
        for runner in runners:
            await rig.add(runner)
            runner.gate.clear()
        answer = rig.ask(1.0)
        for _ in runners:
            await until(lambda: rig.fleet.view().in_flight == 1)
            uid, count = int(rig.books.x.slot["uid"].max()), len(rig.books.roster.seated)
            name = rig.books.roster.members[uid].name
            cut(next(server for server in rig.servers if server.hello["name"] == name))
            await until(lambda count=count: len(rig.books.roster.seated) < count)
        for runner in runners:
            runner.gate.set()
        found = await answer
        assert found.why is Why.FAILED
        assert "two servers" in found.reason
        await until(lambda: len(rig.books.slots.free) == len(rig.books.slots.rows))

    play(scenario, "shortest_queue")


def test_a_silent_server_gets_no_work_and_may_come_back():
    async def scenario(rig):
        quiet = Scripted()
        server = await rig.add(quiet)
        quiet.gate.clear()
        server.sending.acquire()  # as SIGSTOP would: no beat, no answer
        answer = rig.ask(1.0)
        await rig.add()
        await until(lambda: ServerState.SUSPECT in [s.state for s in rig.fleet.view().servers])
        assert mean_of(await answer) == [1.0]
        assert answer.result().parameters["server"] == "s1"
        server.sending.release()
        quiet.gate.set()
        await until(lambda: len(rig.books.roster.seated) == 2)
        assert answer.answers == 1

    play(scenario, "shortest_queue", silent_s=0.6)


def test_stuck_work_is_sent_elsewhere_while_its_server_still_beats():
    async def scenario(rig):
        stuck = Scripted()
        await rig.add(stuck)
        stuck.gate.clear()
        answer = rig.ask(4.0)
        await until(lambda: rig.fleet.view().in_flight == 1)
        await rig.add()
        assert mean_of(await answer) == [4.0]
        assert answer.result().parameters["server"] == "s1"
        stuck.gate.set()
        await until(lambda: not rig.servers[0].shop.busy())
        await asyncio.sleep(0.02)
        assert answer.answers == 1
        assert rig.fleet.view().in_flight == 0

    play(scenario, "shortest_queue")


def test_a_batch_that_raises_is_run_elsewhere():
    async def scenario(rig):
        broken = Scripted()
        broken.fails = lambda *key: broken.gate.is_set() and bool(rig.servers[1:])
        await rig.add(broken)
        await rig.add()
        asked = [rig.ask(float(at)) for at in range(6)]
        assert [mean_of(await answer) for answer in asked] == [[float(at)] for at in range(6)]
        assert {answer.result().parameters["server"] for answer in asked} == {"s1"}

    play(scenario, "round_robin", queue_max=100)


def test_a_batch_that_raises_everywhere_fails_and_the_server_lives_on():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        runner.fails = lambda *key: True
        found = await rig.ask(1.0)
        assert found.why is Why.FAILED
        assert "told to fail" in found.reason
        runner.fails = lambda *key: False
        assert mean_of(await rig.ask(2.0)) == [2.0]

    play(scenario)


def test_a_width_that_does_not_load_is_answered_by_a_wider_one():
    async def scenario(rig):
        runner = Scripted()
        runner.fails_to_load = lambda segment, before, width: (segment, width) == (0, 0)
        await rig.add(runner)
        asked = [rig.ask(float(at)) for at in range(30)]
        assert [mean_of(await answer) for answer in asked] == [[float(at)] for at in range(30)]
        firsts = {answer.result().parameters["widths"].split(",")[0] for answer in asked}
        assert firsts == {"0.5", "0.75", "1"}

    play(scenario, "random", queue_max=100)


def test_a_server_that_loads_nothing_says_so_and_goes():
    async def scenario(rig):
        runner = Scripted()
        runner.fails_to_load = lambda *key: True
        await rig.add(runner, ready=False)
        await until(lambda: rig.refused)
        assert "no memory" in rig.refused[0]
        await until(lambda: not rig.books.roster.members)

    play(scenario)


def test_nothing_that_loads_gives_the_row_back_as_failed():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        for row in rig.servers[0].shop.executor.arrays.instance[0]:
            row["state"] = 0  # as if all had been unloaded
        runner.fails_to_load = lambda *key: True
        found = await rig.ask(1.0)
        assert found.why is Why.FAILED
        assert "no memory" in found.reason
        assert rig.fleet.ready

    play(scenario)


def test_bytes_that_are_no_frame_end_that_connection_only():
    async def scenario(rig):
        await rig.add()
        sock = connected(rig.address)
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
        await until(lambda: len(rig.books.roster.members) == 1)
        sock.close()
        assert mean_of(await rig.ask(1.0)) == [1.0]

    play(scenario)


@pytest.mark.parametrize(
    "greeting",
    [
        said(0, name="x"),
        said(0, name="x", kind="k", workers=0, share=1, pid=1, digest=""),
        said(0, name="x", kind="k", workers="many", share=1, pid=1, digest=""),
        framed(0, b"[1]"),
        framed(0, b"not json"),
        framed(5, b"\0" * 160),
        framed(0, b"{}", b"a tensor"),
        framed(0, b" " * (1 << 17)),
    ],
)
def test_a_greeting_that_is_wrong_is_refused_with_a_sentence(greeting):
    async def scenario(rig):
        sock = connected(rig.address)
        sock.sendall(greeting)
        sock.settimeout(10)
        reader, frames = FrameReader(trusted=True), []
        while not frames:
            count = await asyncio.to_thread(sock.recv_into, reader.room())
            assert count
            frames += reader.fill(count)
        assert b"reason" in bytes(frames[0][1])
        sock.close()
        await until(lambda: not rig.books.roster.members)

    play(scenario)


def test_a_wrong_token_or_network_does_not_join():
    async def scenario(rig):
        await rig.add(ready=False, token="wrong", digest="good")
        await rig.add(ready=False, token="right", digest="other")
        await until(lambda: len(rig.refused) == 2)
        assert "--weights" in min(rig.refused)
        assert "token" in max(rig.refused)
        await rig.add(token="right", digest="good")
        assert rig.fleet.ready

    play(scenario, token="right", digest="good")


def test_servers_join_and_leave_while_requests_run():
    async def scenario(rig):
        await rig.add(Scripted(spent_s=0.001))
        asked = []
        for at in range(60):
            asked.append(rig.ask(float(at)))
            await asyncio.sleep(0.003)
            if at == 15:
                await rig.add(Scripted(spent_s=0.001))
            if at == 30:
                rig.servers[0].leave()
        assert [mean_of(await answer) for answer in asked] == [[float(at)] for at in range(60)]
        await until(lambda: len(rig.books.roster.members) == 1)
        assert rig.fleet.view().resent == 0

    play(scenario, "shortest_queue", queue_max=100)
