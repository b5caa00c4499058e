"""Where kernels are measured: the first GPU that torch sees, or the processor in its place.

Both time a call the same way: warm, with cold caches, as the median of a short burst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np
import psutil
import torch

from trimtab.errors import PlanError

LEAST_REPEATS, MOST_REPEATS = 3, 30
BURST_S = 0.03  # of one kind of call: long enough for a median, too short to heat the chip
FLUSH_B = 512 * 2**20  # above every cache of a GPU, the 256 MB of an MI300 included
CPU_FLUSH_B = 64 * 2**20
MOST_ROOM_B, CPU_ROOM_B = 8 * 2**30, 512 * 2**20  # inputs and outputs, half each
BUSY_LOAD = 0.1  # a GPU that others use so much gives wrong times
BUSY_B = 2e9  # more than a context and a desktop hold
QUEUE = 200  # launches that no queue is too short for
SUSTAINED_S = 0.05  # a batch of sustained load: the host looks at the meter between two
CPU_RANKS = 2  # processes that play the GPUs of a machine
Call = Callable[[], object]


class Device(Protocol):
    """Something that runs kernels and can be timed."""

    kind: str  # cuda or cpu
    name: str  # as the driver says
    at: torch.device
    dtype: torch.dtype  # of 16-bit products
    units: int  # multiprocessors: the tiles that are computed at once
    memory_b: float
    ranks: int  # how many of it this machine has
    inputs: torch.Tensor  # (elements,) normal numbers, to be cut into operands
    outputs: torch.Tensor  # (elements,)

    def timed(self, call: Call, most_s: float = BURST_S) -> float:
        """Seconds of one call: the median of repeats that take about `most_s`."""
        ...

    def host_s(self, call: Call) -> float:
        """Host seconds to start one call of a long queue that the device keeps up with."""
        ...

    def sustained(self, call: Call, seconds: float) -> Iterator[tuple[float, float]]:
        """Keep calling; batch by batch the seconds since the start and those of one call."""
        ...

    def synchronise(self) -> None:
        """Wait until all calls are done."""
        ...

    def watts(self) -> float | None:
        """Power now, None where there is no meter."""
        ...

    def driver(self) -> dict[str, str]:
        """Versions of what runs the device."""
        ...


@contextmanager
def opened(kind: str) -> Iterator[Device]:
    """The device of that kind for a while, or PlanError where there is none or others use it."""
    if kind == "cpu":
        threads = torch.get_num_threads()
        # one core: two that wait for each other are as slow as what else runs on either
        torch.set_num_threads(1)
        try:
            yield Cpu()
        finally:
            torch.set_num_threads(threads)
        return
    if kind != "cuda":
        raise PlanError(f"--device {kind} is unknown; take cuda (NVIDIA and AMD) or cpu")
    # NVML counts cards by their bus; CUDA would put the fastest first
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if not torch.cuda.is_available():
        raise PlanError(
            f"--device cuda: torch {torch.__version__} sees no GPU; install torch for your CUDA or"
            " ROCm, or measure the processor with --device cpu"
        )
    if others := used_by_others(0):
        raise PlanError(
            f"--device cuda: the first GPU is busy ({others}); stop that work, or choose another"
            " with CUDA_VISIBLE_DEVICES"
        )
    try:
        yield Cuda()
    finally:
        torch.cuda.empty_cache()


def used_by_others(index: int) -> str:
    """What others do on a GPU, empty where it is free or does not tell."""
    free_b, total_b = torch.cuda.mem_get_info(index)
    if total_b - free_b > BUSY_B:
        return f"{(total_b - free_b) / 1e9:.1f} GB are held"
    load = _told(lambda: torch.cuda.utilization(index)) or 0.0
    return f"{load:.0f} % used" if load > 100 * BUSY_LOAD else ""


def _told(ask: Callable[[], Any]) -> float | None:
    """What a driver says, None where it has no such sensor."""
    # NVML and amdsmi raise classes of their own, which torch does not name
    with suppress(Exception):
        return float(ask())
    return None


def _filled(elements: int, dtype: torch.dtype, at: torch.device) -> torch.Tensor:
    """Normal numbers: zeros would draw less power and so run faster."""
    block = torch.randn(2**20, device=at, dtype=torch.float32).to(dtype)
    return block.repeat(max(elements // len(block), 1))


class Cuda:
    """The first visible GPU, by CUDA or ROCm."""

    kind = "cuda"

    def __init__(
        self, clock: Callable[[], float] = perf_counter, rest: Callable[[float], None] = sleep
    ) -> None:
        self.clock, self.rest = clock, rest
        self.at = torch.device("cuda", 0)
        torch.cuda.set_device(self.at)
        about = torch.cuda.get_device_properties(self.at)
        self.name = about.name or getattr(about, "gcnArchName", "GPU")
        self.units, self.memory_b = about.multi_processor_count, float(about.total_memory)
        self.ranks = torch.cuda.device_count()
        # emulated bf16 would be measured as a slow GPU
        half = torch.cuda.is_bf16_supported(including_emulation=False)
        self.dtype = torch.bfloat16 if half else torch.float16
        room_b = min(0.3 * torch.cuda.mem_get_info(self.at)[0], MOST_ROOM_B)
        self.inputs = _filled(int(room_b) // 2 // self.dtype.itemsize, self.dtype, self.at)
        self.outputs = torch.empty_like(self.inputs)
        flush_b = min(FLUSH_B, int(room_b) // 2)
        self._cold = torch.empty(flush_b, dtype=torch.int8, device=self.at)

    def timed(self, call: Call, most_s: float = BURST_S) -> float:
        call()  # loads the library and lets it choose
        self.synchronise()
        began_s = self.clock()
        once_s = self._burst(call, 1)[0]
        repeats = int(min(max(most_s / (self.clock() - began_s), LEAST_REPEATS), MOST_REPEATS))
        found = self._burst(call, repeats)
        # as long as the work was: a chip that is never at rest is not in a burst
        self.rest(min(self.clock() - began_s, 1.0))
        return float(np.median([once_s, *found]))

    def _burst(self, call: Call, repeats: int) -> list[float]:
        pairs = [(_event(), _event()) for _ in range(repeats)]
        for before, after in pairs:
            # caches are cold, and the host is ahead by the time the call's turn comes
            self._cold.zero_()
            before.record()
            call()
            after.record()
        self.synchronise()
        return [before.elapsed_time(after) * 1e-3 for before, after in pairs]

    def host_s(self, call: Call) -> float:
        call()
        self.synchronise()
        began_s = self.clock()
        for _ in range(QUEUE):
            call()
        found_s = self.clock() - began_s
        self.synchronise()
        return found_s / QUEUE

    def sustained(self, call: Call, seconds: float) -> Iterator[tuple[float, float]]:
        batch = max(int(SUSTAINED_S / self._burst(call, 1)[0]), 1)
        began_s, waiting = self.clock(), None
        try:
            while self.clock() - began_s < seconds:
                pair = _event(), _event()
                pair[0].record()
                for _ in range(batch):
                    call()
                pair[1].record()
                if waiting is not None:
                    # the next batch is queued already, so the chip does not rest while we look
                    waiting[1].synchronize()
                    run_s = waiting[0].elapsed_time(waiting[1]) * 1e-3 / batch
                    yield self.clock() - began_s, run_s
                waiting = pair
        finally:
            self.synchronise()

    def synchronise(self) -> None:
        torch.cuda.synchronize(self.at)

    def watts(self) -> float | None:
        # milliwatts by NVIDIA's library, watts by AMD's
        unit_w = 1.0 if torch.version.hip else 1e-3
        found = _told(lambda: torch.cuda.power_draw(self.at))
        return found * unit_w if found else None

    def driver(self) -> dict[str, str]:
        made = {"rocm": torch.version.hip} if torch.version.hip else {"cuda": torch.version.cuda}
        with suppress(Exception):  # not NVIDIA's, or the library does not match the driver
            import pynvml

            pynvml.nvmlInit()
            version = pynvml.nvmlSystemGetDriverVersion()
            made["driver"] = version.decode() if isinstance(version, bytes) else version
        return {name: str(value) for name, value in made.items()}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


class Cpu:
    """One core of the processor in the place of a GPU: to try the command where there is none."""

    kind, name = "cpu", "CPU"

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self.at = torch.device("cpu")
        self.units, self.ranks = 1, CPU_RANKS
        self.memory_b = float(psutil.virtual_memory().total)
        self._cold = torch.empty(CPU_FLUSH_B, dtype=torch.int8)
        self.dtype = min((torch.bfloat16, torch.float32), key=self._product_s)
        self.inputs = _filled(CPU_ROOM_B // 2 // self.dtype.itemsize, self.dtype, self.at)
        self.outputs = torch.empty_like(self.inputs)

    def _product_s(self, dtype: torch.dtype) -> float:
        one = torch.ones(512, 512, dtype=dtype)
        return self.timed(lambda: torch.mm(one, one))

    def timed(self, call: Call, most_s: float = BURST_S) -> float:
        call()
        found: list[float] = []
        began_s = self.clock()
        while len(found) < LEAST_REPEATS or self.clock() - began_s < most_s:
            self._cold.zero_()
            start_s = self.clock()
            call()
            found.append(self.clock() - start_s)
        return float(np.median(found))

    def host_s(self, call: Call) -> float:
        began_s = self.clock()
        for _ in range(QUEUE):
            call()
        return (self.clock() - began_s) / QUEUE

    def sustained(self, call: Call, seconds: float) -> Iterator[tuple[float, float]]:
        began_s = self.clock()
        while (start_s := self.clock()) - began_s < seconds:
            batch = 0
            while batch == 0 or self.clock() - start_s < SUSTAINED_S:
                call()
                batch += 1
            now_s = self.clock()
            yield now_s - began_s, (now_s - start_s) / batch

    def synchronise(self) -> None:
        """Nothing runs behind the caller's back."""

    def watts(self) -> float | None:
        return None

    def driver(self) -> dict[str, str]:
        return {}
