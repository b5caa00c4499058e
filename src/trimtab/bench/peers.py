"""Other simulators on the same work, where they are installed (`pip install trimtab[bench]`).

SimPy is the general-purpose one: `simpy_fcfs` is a plain pool as one would write it. hpcsim has the
closest environment. AccaSim 1.1.3 is not here: it imports `collections.Mapping`, which Python 3.10
removed, so that it does not start on any Python that Trimtab supports. Other rows have no peer.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trimtab.arrays import Array


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def simpy_fcfs(submit_s: Array, run_s: Array, width: Array, capacity: int) -> Array:
    """Start times of jobs that take their units strictly in order of arrival, by SimPy."""
    import simpy

    env = simpy.Environment()
    pool = simpy.Container(env, capacity, capacity)
    start_s = np.empty(len(submit_s))

    def job(row: int, run: float, units: int) -> Iterator[Any]:
        yield pool.get(units)
        start_s[row] = env.now
        yield env.timeout(run)
        yield pool.put(units)

    def arrivals() -> Iterator[Any]:
        columns = submit_s.tolist(), run_s.tolist(), width.tolist()
        for row, (submit, run, units) in enumerate(zip(*columns)):
            yield env.timeout(submit - env.now)
            env.process(job(row, run, units))

    env.process(arrivals())
    env.run()
    return start_s


def hpcsim_play(steps: int, seed: int = 0) -> Callable[[], None]:
    """A call that steps hpcsim's environment (121 x 12 observation) on its own kind of jobs.

    A trace of 7,680 s holds about the 256 jobs of an episode. With its default of a day the last
    step of an episode runs ten times as many more to their ends, and is nearly all of the time.
    """
    from hpcsim.rl.env import EnvConfig, HPCGreenEnv

    env = HPCGreenEnv(EnvConfig(seq_len=256, sim_duration_sec=7680.0, seed=seed))

    def play() -> None:
        env.seed(seed)
        env.reset()
        for _ in range(steps):
            _, _, done, *_ = env.step(int(env.action_mask1().argmax()))
            if done:
                env.reset()

    return play
