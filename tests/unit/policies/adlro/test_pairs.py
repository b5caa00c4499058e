"""Pairs: what is shown, what is pruned, and that a pair means what it says."""

from dataclasses import replace

import numpy as np
import pytest
from tests.nets import values_of

from trimtab.build import cluster, uniform_profile, workload
from trimtab.core import Move, Start, Stop
from trimtab.policies.adlro.choice import MARGIN, choose_seen, decisions_of, guided
from trimtab.policies.adlro.net import GUIDE, net_of
from trimtab.policies.adlro.pairs import (
    CELL,
    FEATURES,
    MOST,
    MOVE,
    SPAN,
    START,
    SWAP,
    TINY,
    WIDTH,
)
from trimtab.rules.seen import world_of
from trimtab.sim.backend import SimBackend
from trimtab.sim.world import Models
from trimtab.traces.scenes.adlro import adlro_cluster, adlro_jobs, adlro_profile

COLUMN = {name: i for i, name in enumerate(FEATURES)}


def at(backend, events=1):
    for _ in range(events):
        backend.wait()
    return backend.snapshot()


def look(snapshot):
    """The rows that a policy is shown, (MOST, 32), and the cells of their pairs."""
    rows, cells = np.zeros((MOST, WIDTH), np.float32), np.zeros(MOST, CELL)
    choose_seen(world_of(snapshot, 1), GUIDE, rows, cells)
    return rows, cells[: rows.any(1).sum()]


def two_nodes():
    return cluster([[1.0, 1.0], [1.0, 1.0]], resources=("cpu", "gpu"), gpu_mem_gb=16.0)


def jobs(submit_s, work_s, **columns):
    demand = np.ones((len(submit_s), 2))
    return workload(
        submit_s, work_s, demand, resources=("cpu", "gpu"), gpus=1, checkpoint_s=0.0, **columns
    )


def test_two_free_nodes_of_a_kind_are_one_pair():
    seen = at(SimBackend(jobs([0.0], [100.0]), two_nodes()))
    rows, cells = look(seen)
    assert [(cell["how"], cell["job"]) for cell in cells] == [(START, 0)]
    assert rows[0, COLUMN["start"]] == 1.0 and not rows[1:].any()


def test_where_a_kind_is_full_a_waiting_job_may_take_a_running_ones_place():
    backend = SimBackend(jobs([0.0, 0.0, 10.0], [500.0, 900.0, 50.0]), two_nodes())
    at(backend)
    backend.apply(Start(0, (0,)))
    backend.apply(Start(1, (1,)))
    seen = at(backend)
    _, cells = look(seen)
    assert {(cell["how"], cell["job"], cell["other"]) for cell in cells} == {
        (SWAP, 2, 0), (SWAP, 2, 1)
    }  # fmt: skip
    action = next(i for i, cell in enumerate(cells) if cell["other"] == 1)
    assert decisions_of(seen, cells[action]) == [Stop(1), Start(2, (1,))]


def test_a_job_that_started_at_this_instant_is_not_stopped_again():
    backend = SimBackend(jobs([0.0, 0.0, 0.0], [500.0, 900.0, 50.0]), two_nodes())
    at(backend)
    backend.apply(Start(0, (0,)))
    backend.apply(Start(1, (1,)))
    assert len(look(backend.snapshot())[1]) == 0


def test_a_running_job_may_move_to_a_faster_kind_only():
    machines, profile = adlro_cluster(volta=1, turing=1, radeon=0), adlro_profile()
    work = adlro_jobs(rng=np.random.default_rng(0), jobs=3, cluster=machines)
    backend = SimBackend(work, machines, profile)
    at(backend)
    backend.apply(Start(0, (1,)))  # on the Turing, slower for every kind of job
    seen = at(backend)
    rows, cells = look(seen)
    moves = [i for i, cell in enumerate(cells) if cell["how"] == MOVE]
    assert len(moves) == 1 and decisions_of(seen, cells[moves[0]]) == [Move(0, (0,))]
    row = rows[moves[0]]
    assert row[COLUMN["speed"]] == 1.0 > row[COLUMN["speed_now"]] > 0.0


@pytest.mark.parametrize(
    "second, checkpoint_s, models, finish_s",
    [
        (100, 0.0, {}, 180),  # 50 of 200 done at half the rate: 30 + 150, and 300 s if it stays
        (100, 40.0, {}, 190),  # 40 of the 50 are kept
        (100, np.inf, {}, 230),  # all of it again
        (100, np.inf, {"live_migration": True}, 180),
        (100, np.inf, {"live_migration": True, "move_s": 5.0}, 155),
        (250, 0.0, {}, 105),  # 125 done, 75 to go
        (250, np.inf, {}, None),  # 30 + 200 is more than the 150 s that it has left here
        (380, 0.0, {}, None),  # 30 + 10 is more than 20
    ],
)
def test_a_move_is_priced_as_what_it_costs_and_shown_where_it_pays(
    second, checkpoint_s, models, finish_s
):
    machines = cluster(
        [[1.0, 1.0], [1.0, 1.0]], resources=("cpu", "gpu"), gpu_mem_gb=16.0, kind=[0, 1]
    )
    speeds = replace(uniform_profile(1, 2), rate=np.array([[[1.0], [0.5]]]))
    work = jobs([0.0, second], [200.0, 200.0])
    work.jobs["checkpoint_s"] = checkpoint_s
    backend = SimBackend(work, machines, speeds, Models(**{"move_s": 30.0} | models))
    at(backend)
    backend.apply(Start(0, (1,)))
    rows, cells = look(at(backend))
    finish = [row[COLUMN["finish"]] for row, cell in zip(rows, cells) if cell["how"] == MOVE]
    told = [] if finish_s is None else [np.log(finish_s / 200 + TINY) / SPAN]
    assert finish == pytest.approx(told)


def test_what_a_stop_throws_away_counts_against_it():
    # job 0 has 900 of 1000 left, and checkpoints of 60 s keep 60 of the 100 done: 860 to gain
    work = jobs([0.0, 100.0], [1000.0, 500.0])
    work.jobs["checkpoint_s"] = 60.0
    one = cluster([[1.0, 1.0]], resources=("cpu", "gpu"), gpu_mem_gb=16.0)
    backend = SimBackend(work, one)
    at(backend)
    backend.apply(Start(0, (0,)))
    rows, cells = look(at(backend))
    assert [cell["how"] for cell in cells] == [SWAP]
    assert rows[0, COLUMN["other_keeps"]] == pytest.approx(0.6)
    unit = np.sqrt(1000.0 * 500.0)  # seconds that are usual
    worth = np.log(860 / unit + TINY) - np.log(500 / unit + TINY) - MARGIN
    assert guided.py_func(rows[0]) == pytest.approx(worth, abs=1e-5)


def test_past_its_request_a_job_is_expected_to_need_as_much_again():
    work = jobs([0.0, 50.0, 200.0], [1000.0, 1000.0, 5.0], request_s=[100.0, 100.0, 5.0])
    backend = SimBackend(work, two_nodes())
    at(backend)
    backend.apply(Start(0, (0,)))
    at(backend)
    backend.apply(Start(1, (1,)))
    seen = at(backend)  # second 200: job 0 has done 200 of 100 asked for, job 1 150
    rows, cells = look(seen)
    share = {int(cell["other"]): row[COLUMN["other_share"]] for row, cell in zip(rows, cells)}
    left = {int(cell["other"]): row[COLUMN["other_left"]] for row, cell in zip(rows, cells)}
    assert share == {0: pytest.approx(2.0), 1: pytest.approx(1.5)}
    assert left[0] > left[1]


def test_features_do_not_change_when_every_time_is_ten_times_as_long():
    def rows_at(scale):
        submit = [0.0, 0.0, 10.0 * scale]
        backend = SimBackend(
            jobs(submit, [500.0 * scale, 900.0 * scale, 50.0 * scale]), two_nodes()
        )
        at(backend)
        backend.apply(Start(0, (0,)))
        backend.apply(Start(1, (1,)))
        return look(at(backend))[0]

    assert rows_at(1.0) == pytest.approx(rows_at(10.0), abs=1e-6)


def test_the_compiled_network_is_the_matrix_product():
    rng = np.random.default_rng(0)
    layers = [
        (rng.normal(size=(a, b)), rng.normal(size=b)) for a, b in ((WIDTH, 8), (8, 4), (4, 1))
    ]
    rows = rng.normal(size=(5, WIDTH)).astype(np.float32)
    here = rows
    for i, (matrix, biases) in enumerate(layers):
        here = here @ matrix + biases
        here = np.maximum(here, 0) if i < 2 else here
    assert values_of(rows, net_of(layers, 0.1, 1.0)) == pytest.approx(here[:, 0], rel=1e-5)
    assert len(GUIDE.sizes) == 0
