"""The options of a twin and what follows from them before anything is drawn."""

import math
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import TraceError
from trimtab.traces.alibaba2018 import quantiles
from trimtab.traces.alibaba2018.published import BY_HOUR, MACHINES, TASKS_AN_HOUR
from trimtab.traces.twin.shapes import MEAN_TASKS

VERSION = 1  # of what the options make; a change of any drawn number raises it
HOUR_S = 3600
DAY_0_RATE = 0.0005  # the real day 0: a handful of tasks an hour
LAST_HOUR_OF_DAY_0_RATE = 0.025  # and 2,164 in its last hour
LARGEST_SHARE = 1 / 500  # of all instances that one task may have, so that totals come out
LEAST_LARGEST = 1000
# Streams of random numbers, one a table; numpy seeds each with (seed, stream, period, ...).
STREAMS = {
    "shapes": 1,
    "machine_meta": 2,
    "container_meta": 3,
    "batch_task": 4,
    "batch_instance": 5,
    "machine_usage": 6,
    "container_usage": 7,
    "weather": 8,
    "dirt": 9,
}


class Options(NamedTuple):
    """What the caller chose; two runs with equal options make equal bytes."""

    machines: int
    days: float
    seed: int
    dirt: float
    instances: int | None
    version: int = VERSION


class Plan(NamedTuple):
    """Options and the rates they lead to."""

    options: Options
    periods: int  # hours of trace time, the last one maybe cut
    jobs_hz: float  # at relative rate 1
    largest: int  # instances a task may have
    job_block: int  # numbers set aside for the jobs of a period
    instance_block: int


def planned(options: Options) -> Plan:
    """Check the options and derive the rates from them."""
    _checked(options)
    periods = math.ceil(options.days * 24 - 1e-9)
    hours = sum(relative_rate(period) * seconds_of(options, period) for period in range(periods))
    tasks = TASKS_AN_HOUR * options.machines / MACHINES * hours / HOUR_S
    wanted = options.instances or tasks * quantiles.mean(quantiles.INSTANCES)
    largest = int(np.clip(wanted * LARGEST_SHARE, LEAST_LARGEST, quantiles.INSTANCES[1][-1]))
    each = quantiles.mean(quantiles.INSTANCES, largest)
    thinned = options.instances / (tasks * each) if options.instances else 1.0
    jobs_an_hour = TASKS_AN_HOUR * options.machines / MACHINES * thinned / MEAN_TASKS
    return Plan(
        options,
        periods,
        jobs_an_hour / HOUR_S,
        largest,
        _block(3 * jobs_an_hour + 10_000),
        _block(8 * jobs_an_hour * MEAN_TASKS * each + 10_000_000),
    )


def relative_rate(period: int) -> float:
    """Rate of task starts in an hour of the trace against the mean of hours 24 to 191."""
    if period < 24:
        return LAST_HOUR_OF_DAY_0_RATE if period == 23 else DAY_0_RATE
    return BY_HOUR[period % 24]


def seconds_of(options: Options, period: int) -> int:
    """Seconds of the trace in a period: 3600, but for a last hour that is cut."""
    return min(HOUR_S, math.ceil(options.days * 86400 - 1e-6) - period * HOUR_S)


def stream(plan: Plan, table: str, *place: int) -> np.random.Generator:
    """Random numbers of one table and one place in it, the same whatever was made before."""
    return np.random.default_rng((plan.options.seed, STREAMS[table], *place))


def _block(numbers: float) -> int:
    """The power of ten that holds so many numbers, so that ids of a period show it."""
    return 10 ** math.ceil(math.log10(numbers))


def _checked(options: Options) -> None:
    rules: dict[str, tuple[Any, bool, str]] = {
        "machines": (options.machines, options.machines >= 1, "give 1 or more"),
        "days": (options.days, 0 < options.days <= 1000, "give more than 0, at most 1000"),
        "seed": (options.seed, options.seed >= 0, "give 0 or more"),
        "dirt": (options.dirt, 0 <= options.dirt <= 0.5, "give a share from 0 to 0.5"),
        "instances": (
            options.instances,
            options.instances is None or options.instances >= 1,
            "give 1 or more rows, or None for the rate of the real trace",
        ),
    }
    for name, (value, holds, remedy) in rules.items():
        if not holds:
            raise TraceError(f"a twin with {name}={value} cannot be made; {remedy}")
    if options.instances and options.days <= 23 / 24:
        # nearly nothing runs on day 0: a wanted number of rows there would be one storm
        raise TraceError(
            f"instances={options.instances} with days={options.days}: day 0 of the trace is nearly"
            " empty; give days of more than 1"
        )
