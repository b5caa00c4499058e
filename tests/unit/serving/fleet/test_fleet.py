"""A live fleet answers every request exactly once, whatever its servers do."""

import asyncio
import math

import numpy as np
import pytest
from tests.fleets import PROFILE, WEIGHTS, Scripted, mean_of, play, soon, until

from trimtab.errors import ServeError
from trimtab.serving.fleet.books import LIVE_KNOBS, Books
from trimtab.serving.fleet.router import router_of
from trimtab.serving.nouns import Why


def test_an_answer_names_class_label_widths_and_server():
    async def scenario(rig):
        await rig.add()
        answer = await rig.ask(3.0)
        assert answer.why is Why.DONE
        assert mean_of(answer) == [3.0]
        assert answer.outputs["class"].tolist() == [0]
        assert answer.outputs["label"].tolist() == [b"0"]
        assert answer.parameters == {"widths": "1,1,1,1", "server": "s0"}

    play(scenario, "shortest_queue")


def test_the_rows_of_a_request_come_back_in_order_and_once():
    async def scenario(rig):
        await rig.add()
        await rig.add()
        asked = [rig.ask(10.0 * at, rows=5) for at in range(6)]
        for at, answer in enumerate(asked):
            assert mean_of(await answer) == [10.0 * at + row for row in range(5)]
        assert [answer.answers for answer in asked] == [1] * 6
        view = rig.fleet.view()
        assert (view.answered, view.answered_rows, view.in_flight, view.queued) == (6, 30, 0, 0)
        assert len(rig.books.slots.free) == len(rig.books.slots.rows)

    play(scenario, "shortest_queue", queue_max=100)


@pytest.mark.parametrize("router", ["random", "round_robin", "two_choices", "slack_fit", "rate"])
def test_every_rule_answers_all(router):
    async def scenario(rig):
        for _ in range(3):
            await rig.add()
        asked = [rig.ask(float(at)) for at in range(40)]
        assert [mean_of(await answer) for answer in asked] == [[float(at)] for at in range(40)]
        assert rig.fleet.view().width_counts.sum() == 40

    play(scenario, router, queue_max=100)


def test_the_random_router_sends_one_segment_at_a_time():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        answer = await rig.ask(1.0)
        assert mean_of(answer) == [1.0]
        used = [width for _, _, width, rows in runner.ran[-4:]]
        text = ",".join(f"{(width + 1) / 4:g}" for width in used)
        assert answer.parameters["widths"] == text

    play(scenario, "random")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_an_image_that_is_not_finite_is_invalid_and_harms_nobody(wrong):
    async def scenario(rig):
        await rig.add()
        image = np.zeros((1, 3, 8, 8), "f4")
        image[0, 2, 7, 7] = wrong
        refused = await rig.submit(image)
        assert refused.why is Why.INVALID
        assert "NaN or infinity" in refused.reason
        assert mean_of(await rig.ask(2.0)) == [2.0]

    play(scenario)


def test_large_finite_numbers_are_served():
    async def scenario(rig):
        await rig.add()
        assert (await rig.ask(1e30)).why is Why.DONE

    play(scenario)


@pytest.mark.parametrize("rows", [0, 9])
def test_too_many_rows_or_none_are_invalid(rows):
    async def scenario(rig):
        await rig.add()
        answer = await rig.submit(np.zeros((rows, 3, 8, 8), "f4"))
        assert answer.why is Why.INVALID
        assert str(rows) in answer.reason

    play(scenario, rows_max=8)


def test_beyond_the_queue_requests_are_refused_at_once_and_told_when_to_come_back():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        runner.gate.clear()
        kept = [rig.ask(float(at)) for at in range(4)]
        refused = rig.ask()
        assert refused.done()
        assert refused.result().why is Why.BUSY
        assert refused.result().retry_after_s > 0
        runner.gate.set()
        assert [mean_of(await answer) for answer in kept] == [[0.0], [1.0], [2.0], [3.0]]
        assert rig.fleet.view().refused == 1

    play(scenario, queue_max=4)


def test_the_bound_of_the_queue_follows_the_servers():
    async def scenario(rig):
        await rig.add()
        one = rig.books.limit
        await rig.add()
        assert rig.books.limit == 2 * one
        rig.servers[1].leave()
        await until(lambda: len(rig.books.roster.seated) == 1)
        assert rig.books.limit == one

    play(scenario, objective_s=0.05)


def test_a_deadline_that_passes_ends_the_request_while_a_server_has_it():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        runner.gate.clear()
        answer = rig.ask(deadline_s=soon(0.2))
        other = rig.ask(5.0)
        assert (await answer).why is Why.LATE
        assert not other.done()
        runner.gate.set()
        assert mean_of(await other) == [5.0]
        assert answer.answers == 1

    play(scenario, "shortest_queue")


def test_a_deadline_that_cannot_be_met_is_refused_by_the_rule_at_once():
    async def scenario(rig):
        await rig.add()
        answer = await rig.ask(deadline_s=soon(2e-4))
        assert answer.why is Why.LATE

    play(scenario, "max_batch")


def test_a_request_without_a_deadline_is_answered_though_late():
    async def scenario(rig):
        await rig.add(Scripted(spent_s=0.02))
        answers = [await answer for answer in [rig.ask(float(at)) for at in range(8)]]
        assert {answer.why for answer in answers} == {Why.DONE}
        view = rig.fleet.view()
        assert view.answered == 8
        assert view.in_time < 8

    play(scenario, "max_batch", objective_s=0.03, queue_max=100)


def test_the_more_urgent_go_first():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        runner.gate.clear()
        order = []
        first = rig.ask(0.0)
        await until(lambda: rig.fleet.view().in_flight == 1)
        waiting = {name: rig.ask(1.0, priority=level) for name, level in
                   {"default": 0, "last": 9, "urgent": 1, "also": 2}.items()}  # fmt: skip
        for name, answer in waiting.items():
            answer.add_done_callback(lambda _, name=name: order.append(name))
        runner.gate.set()
        await asyncio.gather(first, *waiting.values())
        assert order.index("urgent") == 0
        assert order.index("last") == 3

    # one row a batch, so that the order shows
    play(scenario, "max_batch", queue_max=100, knobs=one_row())


def one_row():
    return LIVE_KNOBS._replace(batch_max=1)


def test_a_cancelled_request_is_never_answered_and_its_slots_are_free_again():
    async def scenario(rig):
        runner = Scripted()
        await rig.add(runner)
        runner.gate.clear()
        sent, queued = rig.ask(1.0), rig.ask(2.0, rows=3)
        await until(lambda: rig.fleet.view().in_flight > 0)
        for answer in (sent, queued):
            answer.withdraw()
            answer.withdraw()
        runner.gate.set()
        assert mean_of(await rig.ask(3.0)) == [3.0]
        await until(lambda: len(rig.books.slots.free) == len(rig.books.slots.rows))
        assert (sent.answers, queued.answers, rig.fleet.view().cancelled) == (0, 0, 2)

    play(scenario, "max_batch")


def test_a_request_waits_for_a_server_and_is_unavailable_where_none_comes():
    async def scenario(rig):
        waits, gives_up = rig.ask(1.0), None
        await rig.add()
        assert mean_of(await waits) == [1.0]
        rig.servers[0].leave()
        await until(lambda: not rig.books.roster.members)
        assert not rig.fleet.ready
        gives_up = await rig.ask(2.0)
        assert gives_up.why is Why.UNAVAILABLE
        assert gives_up.retry_after_s > 0

    play(scenario, wait_s=0.4)


def test_a_drain_answers_what_is_open_and_lets_the_servers_go():
    async def scenario(rig):
        runner = Scripted(spent_s=0.005)
        await rig.add(runner)
        asked = [rig.ask(float(at)) for at in range(10)]
        drained = asyncio.create_task(rig.fleet.drain(20.0))
        await asyncio.sleep(0)
        assert not rig.fleet.ready
        assert await drained
        assert [mean_of(answer.result()) for answer in asked] == [[float(at)] for at in range(10)]
        assert not rig.books.roster.members
        assert rig.ask().result().why is Why.UNAVAILABLE

    play(scenario, "shortest_queue", queue_max=100)


def test_another_rule_takes_over_between_two_decisions():
    async def scenario(rig):
        await rig.add()
        asked = [rig.ask(float(at)) for at in range(20)]
        await asyncio.sleep(0.005)
        rig.books.use(router_of("slimmest", PROFILE))
        asked += [rig.ask(float(at)) for at in range(20, 40)]
        assert [mean_of(await answer) for answer in asked] == [[float(at)] for at in range(40)]
        assert asked[-1].result().parameters["widths"] == "0.25,0.25,0.25,0.25"

    play(scenario, "random", queue_max=100)


def test_a_slower_server_is_found_out_by_its_batches():
    async def scenario(rig):
        await rig.add(Scripted(spent_s=0.002))
        await rig.add(Scripted(spent_s=0.02))
        for at in range(30):
            await asyncio.gather(rig.ask(float(at)), rig.ask(float(at)))
        speeds = {server.name: server.speed for server in rig.fleet.view().servers}
        assert speeds["s1"] < speeds["s0"] / 3

    play(scenario, "round_robin", queue_max=100)


@pytest.mark.parametrize("options", [{"objective_s": 0.0}, {"margin": 1.0}, {"rows_max": 0}])
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ServeError, match=next(iter(options))):
        Books(WEIGHTS, PROFILE, router_of("rate", PROFILE), **options)
