"""Ctrl-C is heard inside compiled code: a run that would take hours ends at once, and cleanly."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.compiled import interruptible
from trimtab.sim import rlscheduler
from trimtab.sim.pool import CONSERVATIVE, run_pool
from trimtab.sim.whole import simulate

MOST_S = 20.0  # generous: a loaded machine; without being heard each of these takes hours
pytestmark = pytest.mark.usefixtures("ctrl_c")


def crowd(jobs: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Submit, run, width: all come at once and hardly two are alike, so that a queue is long."""
    rng = np.random.default_rng(seed)
    run_s = rng.integers(100, 100_000, jobs).astype(float)
    return np.zeros(jobs), run_s, rng.integers(1, 100, jobs)


def pressed(run, after_s=1.0) -> float:
    """Seconds from Ctrl-C to the end of `run`, which it must interrupt; no thread is left."""
    threads = threading.active_count()
    at = [0.0]

    def press():
        at[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after_s, press)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        timer.cancel()
        timer.join()
    assert threading.active_count() == threads
    return time.monotonic() - at[0]


def on_pool(jobs: int) -> object:
    submit_s, run_s, width = crowd(jobs)
    none = np.zeros(jobs + 1, np.int64)
    one = np.ones(jobs, np.int64)
    return run_pool(
        submit_s, run_s, 2 * run_s, width, np.arange(jobs), 100, CONSERVATIVE, one, none, none[:0]
    )


def on_engine(jobs: int, rule: str) -> object:
    submit_s, run_s, width = crowd(jobs)
    work = workload(submit_s, run_s, np.minimum(width, 16)[:, None], request_s=2 * run_s)
    return simulate(work, cluster([[16.0]] * 8), rule)


def by_rlscheduler(jobs: int) -> object:
    submit_s, run_s, width = crowd(jobs)
    code = rlscheduler.POLICIES["wfp3"]
    return rlscheduler.schedule(submit_s, run_s, run_s, width, 100, code, True)


RUNS = {
    "pool": on_pool,
    "engine, conservative": lambda jobs: on_engine(jobs, "fcfs+conservative"),
    "engine, EASY by fair share": lambda jobs: on_engine(jobs, "drf+easy"),
    "rlscheduler": by_rlscheduler,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_long_run_is_interrupted_within_seconds(name):
    run = RUNS[name]
    run(4)  # compiles
    assert pressed(lambda: run(300_000)) < MOST_S


def test_what_is_not_interrupted_is_as_it_would_be_without_a_thread():
    told = []
    submit_s, run_s, width = crowd(400)
    none, one = np.zeros(401, np.int64), np.ones(400, np.int64)
    words = (submit_s, run_s, run_s, width, np.arange(400), 100, CONSERVATIVE, one, none, none[:0])
    alone = run_pool(*words, told.append)
    beside: list = []
    thread = threading.Thread(target=lambda: beside.append(run_pool(*words)))
    thread.start()
    thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(alone, beside[0]))


def test_a_mistake_inside_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda x: 1 / x, 0, halt=lambda: None)


def test_a_second_ctrl_c_does_not_leave_the_thread_behind():
    """The code goes on for half a second after it was told to stop, and it is waited for."""
    stopped = threading.Event()

    def work():
        stopped.wait(MOST_S)
        time.sleep(0.5)

    def halt():
        stopped.set()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    took_s = pressed(lambda: interruptible(work, halt=halt))
    assert 0.4 < took_s < MOST_S


def test_how_far_it_is_can_be_looked_at_meanwhile():
    looks = []
    interruptible(time.sleep, 0.5, halt=lambda: None, look=lambda: looks.append(1))
    assert looks
