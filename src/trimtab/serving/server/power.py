"""The power of a server: from the GPU's or the processor's own meter, or from a stated model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from trimtab.errors import ServeError

POWERCAP = Path("/sys/class/powercap")
SHORTEST_S = 0.01  # between two readings of energy: closer ones measure the counter's own steps
IDLE_W, BUSY_W = 20.0, 65.0  # of a small server's processor, where nothing can be measured


class Reading(NamedTuple):
    """Watts now, and who says so: nvml, rapl or model."""

    watts: float
    source: str


class Meter(Protocol):
    """Something that tells the power of a server."""

    source: str

    def read(self, utilisation: float = 0.0) -> Reading:
        """Watts now. `utilisation` in 0..1 is what a model goes by; a real meter ignores it."""
        ...


class Model:
    """Watts as a line from idle to busy."""

    source = "model"

    def __init__(self, idle_w: float = IDLE_W, busy_w: float = BUSY_W) -> None:
        if not 0 <= idle_w <= busy_w < float("inf"):
            raise ServeError(f"idle_w={idle_w}, busy_w={busy_w}: give 0 <= idle_w <= busy_w")
        self.idle_w, self.busy_w = idle_w, busy_w

    def read(self, utilisation: float = 0.0) -> Reading:
        share = min(max(utilisation, 0.0), 1.0)
        return Reading(self.idle_w + share * (self.busy_w - self.idle_w), self.source)


class Rapl:
    """Watts of the processor's packages, from its counters of energy since the last reading.

    They count the whole machine, so several servers on one read the same.
    """

    source = "rapl"

    def __init__(self, folders: Sequence[Path], clock: Callable[[], float] = monotonic) -> None:
        self.folders, self.clock = tuple(folders), clock
        self._range_uj = [int((at / "max_energy_range_uj").read_text()) for at in self.folders]
        self._last_uj, self._last_s = self._energy_uj(), clock()
        self._watts = 0.0

    def read(self, utilisation: float = 0.0) -> Reading:
        now_s = self.clock()
        if now_s - self._last_s >= SHORTEST_S:
            energy_uj = self._energy_uj()
            used_uj = sum(
                (now - last) % (size + 1)  # a counter starts again at 0 past its range
                for now, last, size in zip(energy_uj, self._last_uj, self._range_uj, strict=True)
            )
            self._watts = used_uj / 1e6 / (now_s - self._last_s)
            self._last_uj, self._last_s = energy_uj, now_s
        return Reading(self._watts, self.source)

    def _energy_uj(self) -> list[int]:
        return [int((at / "energy_uj").read_text()) for at in self.folders]


class Nvml:
    """Watts of one GPU by its driver."""

    source = "nvml"

    def __init__(self, library: Any, index: int = 0) -> None:
        library.nvmlInit()
        self.library, self._gpu = library, library.nvmlDeviceGetHandleByIndex(index)
        self.read()  # a card that cannot tell raises here and not while serving

    def read(self, utilisation: float = 0.0) -> Reading:
        return Reading(self.library.nvmlDeviceGetPowerUsage(self._gpu) / 1e3, self.source)


def meter(
    device: str = "cpu",
    *,
    idle_w: float = IDLE_W,
    busy_w: float = BUSY_W,
    powercap: Path = POWERCAP,
    clock: Callable[[], float] = monotonic,
) -> Meter:
    """The best there is for a device: its own meter, else a model of these watts."""
    found = _nvml(device) if device.startswith("cuda") else _rapl(powercap, clock)
    return found or Model(idle_w, busy_w)


def _nvml(device: str) -> Meter | None:
    # CUDA_VISIBLE_DEVICES may number the cards in another way than the driver does; with one card
    # a server, as fleets are run, both say 0
    index = int(device.partition(":")[2] or 0)
    try:
        import pynvml

        return Nvml(pynvml, index)
    except ModuleNotFoundError:
        return None
    except pynvml.NVMLError:
        return None


def _rapl(powercap: Path, clock: Callable[[], float]) -> Meter | None:
    # intel-rapl:0 is a package, intel-rapl:0:1 a part of it that would be counted twice; AMD's
    # driver uses the same names
    packages = sorted(at for at in powercap.glob("intel-rapl:*") if at.name.count(":") == 1)
    with suppress(OSError, ValueError):  # the counters are often readable by root alone
        return Rapl(packages, clock) if packages else None
    return None
