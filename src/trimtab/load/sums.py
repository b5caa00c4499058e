"""What is summed for each machine and window, as integers: no order of the rows changes a sum.

A measured ratio is kept in whole 2**-30ths and a time in whole milliseconds. A share that is
integrated over time is kept in whole 2**-24ths: 2**30 x a window of 300,000 ms would leave room for
28,600 machines' worth of waiting work only, 2**24 leaves room for 1.8 million.

`sums` is (windows, machines + 1, SUMS) and `queue` is (windows, QUEUE), both int64. The last row
of a window is for machines that are not known (node -1), so that totals of the cluster are whole.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.compiled import compiled

FIXED = 2**30  # a measured ratio of 1
ASKED = 2**24  # a share of 1 that is asked or reserved for some time
FOREVER_MS = 2**62  # the end of what has not ended
TOO_FAR_S = (
    1e12  # a time beyond this, or NaN, is no time: a cast to milliseconds would be undefined
)

# The three columns of an integral stand side by side: number, CPU, memory.
SUMS = (
    "samples",  # of CPU: a window without one is a gap
    "cpu_sum",  # FIXED
    "cpu_max",
    "mem_n",  # other sensors count their own samples: masked, never zero
    "mem_sum",
    "mem_max",
    "net_in_n",
    "net_in_sum",
    "net_out_n",
    "net_out_sum",
    "disk_n",
    "disk_sum",
    "gpu_n",
    "gpu_sum",
    "service_seen",  # services with a sample in the window
    "service_cpu",  # FIXED: sum over services of their mean use
    "service_mem",
    "services_ms",  # integral of the number of services
    "service_cpu_ms",  # ASKED x ms: of what they reserve
    "service_mem_ms",
    "started",  # instances
    "ended",
    "start_wait_ms",  # waiting time of those that started here
    "running_ms",  # integral of the number of running instances
    "batch_cpu_ms",  # ASKED x ms: of what they planned
    "batch_mem_ms",
)
QUEUE = (
    "runnable",  # instances that became so
    "waiting_ms",
    "waiting_cpu_ms",  # ASKED x ms, in units of the mean machine
    "waiting_mem_ms",
)
AT: Any = namedtuple("AT", SUMS)(*range(len(SUMS)))
QUEUE_AT: Any = namedtuple("QUEUE_AT", QUEUE)(*range(len(QUEUE)))
USE = ("seen", "cpu_sum", "mem_sum")  # of one service in one window


def empty_sums(windows: int, nodes: int) -> Array:
    """Zeros for `nodes` machines and the unknown one, (windows, nodes + 1, SUMS)."""
    return np.zeros((windows, nodes + 1, len(SUMS)), np.int64)


def empty_queue(windows: int) -> Array:
    """Zeros for the cluster's queue, (windows, QUEUE)."""
    return np.zeros((windows, len(QUEUE)), np.int64)


def empty_use(windows: int, services: int) -> Array:
    """Zeros for the use of each service, (windows, services, USE)."""
    return np.zeros((windows, services, len(USE)), np.int64)


@compiled
def fixed_share(share: float) -> int | np.int64:
    """Whole 2**-24ths of a share; a plan that is missing asks for nothing."""
    return np.int64(np.rint(share * ASKED)) if np.isfinite(share) else np.int64(0)


@compiled
def fixed(ratio: float) -> int | np.int64:
    """Whole 2**-30ths of a measured ratio."""
    return np.int64(np.rint(ratio * FIXED))


@compiled
def window_at(time_s: float, first_window: int, window_ms: int) -> int | np.int64:
    """Place in the block of the window that has this time; far below zero for what is no time."""
    if not abs(time_s) < TOO_FAR_S:
        return np.int64(-FOREVER_MS)
    return np.int64(np.rint(time_s * 1000.0)) // window_ms - first_window


@compiled
def add_sensor(row: Array, count: int, ratio: float) -> None:
    """Add a reading that may be missing to the count at `count` and the sum beside it."""
    if np.isfinite(ratio):
        row[count] += 1
        row[count + 1] += fixed(ratio)


@compiled
def add_peaking(row: Array, count: int, ratio: float) -> None:
    """The same with the largest reading beside the sum."""
    if np.isfinite(ratio):
        now = fixed(ratio)
        row[count] += 1
        row[count + 1] += now
        row[count + 2] = max(row[count + 2], now)


@compiled
def add_samples(
    sums: Array,  # (W, N + 1, SUMS)
    first_window: int,
    window_ms: int,
    time_s: Array,  # (S,) as the rest: the columns of Samples
    node: Array,
    cpu: Array,
    mem: Array,
    net_in: Array,
    net_out: Array,
    disk: Array,
    gpu: Array,
) -> int:
    """Add samples to the windows that have them; return how many are outside of the block."""
    windows, nodes = sums.shape[0], sums.shape[1] - 1
    outside = 0
    for i in range(len(time_s)):
        window = window_at(time_s[i], first_window, window_ms)
        if window < 0 or window >= windows:
            outside += 1
            continue
        row = sums[window, node[i] if 0 <= node[i] < nodes else nodes]
        add_peaking(row, AT.samples, cpu[i])
        add_peaking(row, AT.mem_n, mem[i])
        add_sensor(row, AT.net_in_n, net_in[i])
        add_sensor(row, AT.net_out_n, net_out[i])
        add_sensor(row, AT.disk_n, disk[i])
        add_sensor(row, AT.gpu_n, gpu[i])
    return outside


@compiled
def add_service_use(
    use: Array,  # (W, services, USE)
    first_window: int,
    window_ms: int,
    time_s: Array,  # (S,)
    service: Array,
    cpu: Array,  # share of the machine the service stands on
    mem: Array,
) -> int:
    """Add samples of services; return how many are outside of the block or of no known service."""
    windows, services = use.shape[0], use.shape[1]
    outside = 0
    for i in range(len(time_s)):
        window = window_at(time_s[i], first_window, window_ms)
        if window < 0 or window >= windows or service[i] < 0 or service[i] >= services:
            outside += 1
        elif np.isfinite(cpu[i]) and np.isfinite(mem[i]):
            row = use[window, service[i]]
            row[0] += 1
            row[1] += fixed(cpu[i])
            row[2] += fixed(mem[i])
    return outside


@compiled
def add_service_means(sums: Array, use: Array, node: Array) -> None:
    """Add each service's mean use to the machine it stands on, `node` (services,).

    The mean is rounded down to a whole number: a sum of means is then exact too.
    """
    nodes = sums.shape[1] - 1
    for window in range(sums.shape[0]):
        for service in range(use.shape[1]):
            seen = use[window, service, 0]
            if seen > 0:
                at = node[service]
                row = sums[window, at if 0 <= at < nodes else nodes]
                row[AT.service_seen] += 1
                row[AT.service_cpu] += use[window, service, 1] // seen
                row[AT.service_mem] += use[window, service, 2] // seen


@compiled
def spread(
    sums: Array,
    row: int,
    column: int,
    first_window: int,
    window_ms: int,
    begin_ms: int,
    end_ms: int,
    count: int,
    cpu: int,
    mem: int,
) -> None:
    """Integrate `count`, `cpu` and `mem` over [begin, end) into three columns of the windows."""
    begin = max(begin_ms, first_window * window_ms)
    end = min(end_ms, (first_window + sums.shape[0]) * window_ms)
    if begin >= end:
        return
    window = begin // window_ms - first_window
    while begin < end:
        edge = min(end, (first_window + window + 1) * window_ms)
        sums[window, row, column] += count * (edge - begin)
        sums[window, row, column + 1] += cpu * (edge - begin)
        sums[window, row, column + 2] += mem * (edge - begin)
        begin = edge
        window += 1


@compiled
def add_running(
    sums: Array,  # (W, N + 1, SUMS)
    first_window: int,
    window_ms: int,
    start_ms: Array,  # (R,) int64, as the rest: a row an interval
    end_ms: Array,  # FOREVER_MS = still running
    node: Array,  # -1 = not known
    count: Array,  # instances that share the interval
    cpu: Array,  # of one instance, share of this machine
    mem: Array,
    wait_ms: Array,  # of each instance, before this start
) -> None:
    """Spread running instances over the windows; what is before or after the block is cut off.

    A start or an end counts in the window that has it, an end on the edge in the later one.
    """
    nodes = sums.shape[1] - 1
    from_ms = first_window * window_ms
    until_ms = from_ms + sums.shape[0] * window_ms
    for i in range(len(start_ms)):
        row = node[i] if 0 <= node[i] < nodes else nodes
        instances = np.int64(count[i])
        if from_ms <= start_ms[i] < until_ms:
            window = (start_ms[i] - from_ms) // window_ms
            sums[window, row, AT.started] += instances
            sums[window, row, AT.start_wait_ms] += instances * wait_ms[i]
        if from_ms <= end_ms[i] < until_ms:
            sums[(end_ms[i] - from_ms) // window_ms, row, AT.ended] += instances
        if start_ms[i] < until_ms and end_ms[i] > from_ms:
            spread(
                sums,
                row,
                AT.running_ms,
                first_window,
                window_ms,
                start_ms[i],
                end_ms[i],
                instances,
                instances * fixed_share(cpu[i]),
                instances * fixed_share(mem[i]),
            )


@compiled
def add_waiting(
    queue: Array,  # (W, QUEUE)
    first_window: int,
    window_ms: int,
    runnable_ms: Array,  # (R,) int64, as the rest: a row an interval
    start_ms: Array,  # or when they were withdrawn; FOREVER_MS = still waiting
    count: Array,
    cpu: Array,  # of one instance, share of the mean machine
    mem: Array,
) -> None:
    """Spread waiting instances over the windows; instances of a job may be several rows."""
    from_ms = first_window * window_ms
    until_ms = from_ms + queue.shape[0] * window_ms
    table = queue.reshape((queue.shape[0], 1, queue.shape[1]))
    for i in range(len(runnable_ms)):
        instances = np.int64(count[i])
        if from_ms <= runnable_ms[i] < until_ms:
            queue[(runnable_ms[i] - from_ms) // window_ms, QUEUE_AT.runnable] += instances
        if runnable_ms[i] < until_ms and start_ms[i] > from_ms:
            spread(
                table,
                0,
                QUEUE_AT.waiting_ms,
                first_window,
                window_ms,
                runnable_ms[i],
                start_ms[i],
                instances,
                instances * fixed_share(cpu[i]),
                instances * fixed_share(mem[i]),
            )


@compiled
def add_services(
    sums: Array,  # (W, N + 1, SUMS)
    first_window: int,
    window_ms: int,
    deploy_ms: Array,  # (R,) int64, as the rest: a row an interval
    remove_ms: Array,  # FOREVER_MS = still there
    node: Array,
    cpu: Array,  # reserved, share of this machine
    mem: Array,
) -> None:
    """Spread deployed services over the windows."""
    nodes = sums.shape[1] - 1
    for i in range(len(deploy_ms)):
        spread(
            sums,
            node[i] if 0 <= node[i] < nodes else nodes,
            AT.services_ms,
            first_window,
            window_ms,
            deploy_ms[i],
            remove_ms[i],
            1,
            fixed_share(cpu[i]),
            fixed_share(mem[i]),
        )
