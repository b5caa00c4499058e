"""Times, limits, amounts and resources as Slurm's tools print them."""

from __future__ import annotations

import re

import numpy as np

NOTHING = ("", "(null)", "None", "N/A", "n/a", "NONE")
NO_VALUE = ("", "Unknown", "None", "N/A", "0", "INVALID")  # of a time that did not come
NO_LIMIT = ("", "UNLIMITED", "Partition_Limit", "INVALID", "INFINITE", "NONE", "infinite", "n/a")
MB_A_UNIT = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
FACTOR = {"": 1.0, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4, "P": 1024.0**5}
SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)?")
DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?")  # days-hours and days-hours:minutes
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)([cn]?)")
GPU = re.compile(r"gres[/:]gpu(?::([A-Za-z_][^:=]*))?(?::(\d+))?")  # gres/gpu:a100:2, of a request


def instant_s(text: str) -> float | None:
    """Seconds since 1970 of an ISO time or of such seconds; NaN where Slurm has none."""
    if text in NO_VALUE:
        return np.nan
    if text.isdigit():
        return float(text)
    try:
        return _iso_s(text)
    except ValueError:
        return None


def _iso_s(text: str) -> float:
    zone = re.search(r"(?:Z|([+-])(\d\d):?(\d\d))$", text)
    bare = text[: zone.start()] if zone else text
    if not ISO.fullmatch(bare):
        raise ValueError(text)
    offset_s = 0
    if zone and zone[1]:
        offset_s = (int(zone[2]) * 3600 + int(zone[3]) * 60) * (1 if zone[1] == "+" else -1)
    return np.datetime64(bare, "ms").astype(np.int64) / 1000 - offset_s


def span_s(text: str) -> float | None:
    """Seconds of 90, 01:30 or 1-00:01:30; NaN where the job has none."""
    if text in NO_VALUE:
        return np.nan
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return float(text)
    found = SPAN.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def limit_s(text: str) -> float | None:
    """Seconds of a limit in minutes, with days or with colons; NaN where there is none."""
    if text in NO_LIMIT:
        return np.nan
    if text.isdigit():
        return 60.0 * int(text)
    if found := DAYS.fullmatch(text):
        days, hours, minutes = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60)
    return span_s(text)


def count(text: str) -> float | None:
    """A number, 0 where there is none; Slurm writes 2048 as 2K."""
    found = AMOUNT.fullmatch(text or "0")
    return float(found[1]) * FACTOR[found[2]] if found and not found[3] else None


def tres(text: str) -> dict[str, float] | None:
    """Amounts by name, memory in MB: {cpu: 4, mem: 16384, gres/gpu:v100: 2}.

    Requests may tell GPUs with colons alone (gres/gpu:v100:2), and -1 where there is no limit.
    """
    amounts = {}
    for item in filter(None, text.split(",")):
        name, equals, amount = item.rpartition("=")
        found = AMOUNT.fullmatch(amount)
        if not equals and (gpu := GPU.fullmatch(item)):
            amounts[f"gres/gpu:{gpu[1]}" if gpu[1] else "gres/gpu"] = float(gpu[2] or 1)
        elif not name or not (found or amount == "-1"):
            return None
        elif found:
            amounts[name] = float(found[1]) * (MB_A_UNIT if name == "mem" else FACTOR)[found[2]]
    return amounts


def gpus(amounts: dict[str, float]) -> float:
    """GPUs among such amounts: the sum that Slurm tells, or else that over the models."""
    models = [n for name, n in amounts.items() if name.startswith("gres/gpu:")]
    return amounts.get("gres/gpu", sum(models))


def gpu_model(amounts: dict[str, float]) -> str:
    """The GPU model of which there are most, or ""."""
    models = {n: name for name, n in reversed(amounts.items()) if name.startswith("gres/gpu:")}
    return models[max(models)].removeprefix("gres/gpu:") if models else ""
