"""A server's workshop runs what it is given by algorithm 1, and its process ends when it should."""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.fleets import FORM, LIMIT_S, PROFILE, Scripted

from trimtab.errors import ServeError
from trimtab.serving.net.runner import Zeros
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.server.server import Server, main, parsed_cpus
from trimtab.serving.server.wire import ANSWER, FAILED, UNRUN, Work
from trimtab.serving.server.workshop import ROWS_MAX, Workshop

WHOLE = (3, 3, 3, 3)
WARM = [(segment, 3 if segment else 0, 3) for segment in range(4)]


class Shop:
    """A workshop whose outcomes are kept."""

    def __init__(self, runner=None, warm=WARM, **options):
        self.outcomes, self.came = [], threading.Condition()
        self.runner = runner or Scripted()
        self.shop = Workshop(self.runner, PROFILE, self.post, warm=warm, **options)
        self.shop.warm_up(warm)
        self.runner.ran.clear()
        self.shop.start()

    def post(self, outcome):
        with self.came:
            self.outcomes.append(outcome)
            self.came.notify_all()

    def put(self, ids, widths=WHOLE, segment=0, before=0):
        shape = self.runner.takes(segment, before)
        tensor = np.stack([np.full(shape, id, "f4") for id in ids])
        self.shop.put(Work(len(ids), segment, before, widths, list(ids)), tensor)

    def rows(self, count):
        """{id: (kind, next segment, widths, value or sentence)} once so many have come back."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.found()) >= count, LIMIT_S)
            return self.found()

    def found(self):
        return {
            id: (o.kind, o.segment, tuple(used), o.tensor if o.kind == FAILED else o.tensor[at])
            for o in self.outcomes
            for at, (id, used) in enumerate(zip(o.ids.tolist(), o.widths.tolist(), strict=True))
        }


def eventually(fact):
    """Whether something becomes so."""
    pause = threading.Event()
    for _ in range(2000):
        if fact():
            return True
        pause.wait(0.005)
    return False


@pytest.fixture
def shop(request):
    made = Shop(**getattr(request, "param", {}))
    yield made
    made.runner.gate.set()
    made.shop.close(5.0)
    assert not any(thread.is_alive() for thread in made.shop.threads)


def test_a_batch_goes_the_whole_way_without_coming_back(shop):
    shop.put([1, 2, 3])
    rows = shop.rows(3)
    assert {row[:3] for row in rows.values()} == {(ANSWER, 4, WHOLE)}
    assert [float(rows[id][3][0]) for id in (1, 2, 3)] == [5.0, 6.0, 7.0]
    assert [run[0] for run in shop.runner.ran] == [0, 1, 2, 3]


def test_one_segment_comes_back_with_its_tensor(shop):
    shop.put([4], widths=(UNRUN, 3, UNRUN, UNRUN), segment=1, before=3)
    kind, segment, widths, tensor = shop.rows(1)[4]
    assert (kind, segment, widths) == (ANSWER, 2, (UNRUN, 3, UNRUN, UNRUN))
    assert tensor.shape == shop.runner.takes(2, 3)


@pytest.mark.parametrize("shop", [{"knobs": Knobs(batch_max=4)}], indirect=True)
def test_rows_of_several_sendings_run_together_up_to_batch_max(shop):
    shop.runner.gate.clear()
    for id in range(9):
        shop.put([id])
    shop.runner.gate.set()
    rows = shop.rows(9)
    assert [float(rows[id][3][0]) for id in range(9)] == [id + 4.0 for id in range(9)]
    assert max(count for *_, count in shop.runner.ran) == 4


def test_a_wider_instance_that_is_free_runs_narrower_rows(shop):
    shop.put([1], widths=(0, 1, 2, 3))
    assert shop.rows(1)[1][2] == (3, 3, 3, 3)


@pytest.mark.parametrize("shop", [{"warm": []}], indirect=True)
def test_what_is_not_there_is_loaded(shop):
    shop.put([1], widths=(0, 1, 2, 3))
    assert shop.rows(1)[1][2] == (0, 1, 2, 3)
    assert shop.shop.report()[0].loaded == 4


def test_a_batch_that_raises_comes_back_and_the_next_one_runs(shop):
    shop.runner.fails = lambda *key: True
    shop.put([1, 2])
    rows = shop.rows(2)
    assert {rows[id][0] for id in (1, 2)} == {FAILED}
    assert "told to fail" in rows[1][3]
    shop.runner.fails = lambda *key: False
    shop.put([3])
    assert shop.rows(3)[3][0] == ANSWER


@pytest.mark.parametrize("shop", [{"workers": 3}], indirect=True)
def test_every_worker_runs_a_batch_of_its_own(shop):
    meet = threading.Barrier(3, timeout=LIMIT_S)
    run = shop.runner.run

    def together(segment, *rest):
        if segment == 0:
            meet.wait()  # passes only when three batches run at once
        return run(segment, *rest)

    shop.runner.run = together
    for id in range(3):
        shop.put([id])
        # one at a time, or a worker takes several as one batch
        assert eventually(lambda id=id: shop.shop.report()[0].busy == id + 1 or shop.outcomes)
    assert len(shop.rows(3)) == 3


def test_more_rows_than_the_queue_holds_wait_before_it(shop):
    shop.runner.gate.clear()
    count = ROWS_MAX + 50
    shop.put(range(count))
    assert shop.shop.report()[0].waiting > 0
    shop.runner.gate.set()
    assert len(shop.rows(count)) == count


def test_a_report_tells_of_the_queue_and_of_batches_once(shop):
    shop.runner.gate.clear()
    shop.put([1])
    shop.put([2, 3], segment=1, before=3)
    report, runs = shop.shop.report()
    assert (report.received, report.workers, runs) == (2, 1, [])
    shop.runner.gate.set()
    shop.rows(3)
    told = [run for outcome in shop.outcomes for run in outcome.runs] + shop.shop.report()[1]
    assert sorted(int(segment) for segment, *_ in told) in ([0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3])
    assert shop.shop.report()[1] == []


@pytest.mark.parametrize("shop", [{"share": 0.25}], indirect=True)
def test_a_share_makes_batches_longer_by_its_inverse(shop):
    shop.runner.spent_s = 0.01
    shop.put([1])
    shop.rows(1)
    spent_s = [run[4] for outcome in shop.outcomes for run in outcome.runs]
    assert len(spent_s) == 4
    assert min(spent_s) >= 0.04


@pytest.mark.parametrize("shop", [{"knobs": Knobs(idle_unload_s=0.05)}], indirect=True)
def test_idle_instances_are_unloaded_and_loaded_again(shop):
    shop.put([1])
    shop.rows(1)
    assert eventually(lambda: shop.shop.report()[0].loaded == 0)
    shop.put([2])
    assert shop.rows(2)[2][0] == ANSWER


@pytest.mark.parametrize("options", [{"workers": 0}, {"share": 0.0}, {"share": 1.5}])
def test_a_server_that_makes_no_sense_is_refused(options):
    with pytest.raises(ServeError, match="workers="):
        Server(None, Scripted(), FORM, digest="", name="x", **options)


def test_zeros_have_the_networks_shapes():
    zeros = Zeros(FORM)
    x = np.zeros((2, *zeros.takes(0, 0)), "f4")
    for segment, width in enumerate((0, 3, 1, 2)):
        x = zeros.run(segment, 0, width, x)
    assert x.shape == (2, FORM.classes)


def test_cpu_lists_are_read():
    assert parsed_cpus("0-3,8") == {0, 1, 2, 3, 8}
    with pytest.raises(ServeError, match="0-3,8"):
        parsed_cpus("all")


def test_a_server_without_a_fleet_says_so_in_one_line(capsys, tmp_path):
    assert main([f"unix:{tmp_path}/none", '{"noop": true}']) == 2
    assert "no fleet answers" in capsys.readouterr().err


def test_a_server_process_ends_with_the_one_that_started_it():
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child of its parent's end")
    child = "import os, time; from trimtab.serving.server.server import die_with_parent as d;"
    child += "d(os.getppid()); print(os.getpid(), flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    try:
        assert started.stdout.readline()
        started.send_signal(signal.SIGKILL)
        # the pipe ends when the last process that holds it has ended
        assert started.stdout.read() == b""
    finally:
        started.kill()
        started.wait(60)
        started.stdout.close()
