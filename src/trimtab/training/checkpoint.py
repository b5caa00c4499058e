"""What trainings with torch share: devices, checkpoints, logs, a Ctrl-C that cuts no step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trimtab.errors import PolicyError
from trimtab.files import whole

CHECKPOINT = "checkpoint.pt"
Log = Callable[[int, Mapping[str, float]], None]


def device_of(name: str) -> str:
    """The device to train on: `auto` takes a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as problem:
        raise PolicyError(f"device={name!r} cannot be used here; give auto or cpu") from problem
    return name


def write_checkpoint(out: Path, settings: dict[str, Any], held: dict[str, Any]) -> None:
    """Write the checkpoint of these settings into `out`, whole or not at all."""
    with whole(out / CHECKPOINT) as place:
        torch.save({"settings": settings, **held}, place)


def read_checkpoint(
    out: Path, settings: dict[str, Any], free: Collection[str]
) -> dict[str, Any] | None:
    """The checkpoint of `out`, or None where there is none; makes the folder.

    All settings but the `free` ones must be those that it was made with.
    """
    path = out / CHECKPOINT
    if not path.is_file():
        out.mkdir(parents=True, exist_ok=True)
        return None
    try:
        held: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        before = held["settings"]
    except Exception as problem:
        raise PolicyError(
            f"{path}: not a checkpoint of ours ({type(problem).__name__}); give another --out"
        ) from problem
    differs = [name for name in settings if name not in free and before.get(name) != settings[name]]
    if differs:
        name = differs[0]
        raise PolicyError(
            f"{path}: made with {name}={before.get(name)!r}, and now {name}={settings[name]!r}; "
            "give another --out, or the same settings to go on"
        )
    return held


@contextmanager
def stopped_by_key() -> Iterator[list[int]]:
    """Ctrl-C adds to the list, so that a step is never cut in two; the second one ends at once."""
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, _: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    heard = threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN
    if heard:
        signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        if heard:
            signal.signal(signal.SIGINT, before)


@contextmanager
def log_to(out: Path, step: int) -> Iterator[Log]:
    """A TensorBoard log in `out` that goes on at this step."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:  # the rows are told in any case
        yield lambda step, values: None
        return
    writer = SummaryWriter(str(out / "log"), purge_step=step or None)

    def log(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    try:
        yield log
    finally:
        writer.close()
