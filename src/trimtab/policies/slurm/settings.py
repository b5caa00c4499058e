"""How a Slurm is set up, from its own words: what `scontrol show config` prints, or slurm.conf.

settings_of({"PriorityWeightAge": "1000", "SchedulerParameters": "bf_interval=60,bf_window=2880"})

What is not named has Slurm's default. What is named and not known here changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from trimtab.errors import PolicyError

DAY_S = 86400.0
UNSET = ("", "(null)", "n/a", "none")
# where a cluster says nothing of its Slurm: what many sites run, and each factor acts
USUAL = {
    "PriorityWeightFairshare": "10000",
    "PriorityWeightAge": "1000",
    "PriorityWeightQOS": "1000",
    "PriorityWeightPartition": "1000",
}


class Weights(NamedTuple):
    """PriorityWeight...: what each factor, 0..1, is multiplied by."""

    age: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    cpu: float = 0.0  # PriorityWeightTRES
    mem: float = 0.0
    gpu: float = 0.0


class Settings(NamedTuple):
    """The settings that the policy keeps to. Times in seconds."""

    weights: Weights = Weights()
    multifactor: bool = True  # else first come, first served
    max_age_s: float = 7 * DAY_S
    half_life_s: float = 7 * DAY_S  # 0 = usage never decays
    calc_s: float = 300.0
    favor_small: bool = False
    size_relative: bool = False  # SMALL_RELATIVE_TO_TIME
    fair_tree: bool = True
    damping: float = 1.0  # FairShareDampeningFactor
    raw_partition: bool = False  # NO_NORMAL_PART
    raw_qos: bool = False  # NO_NORMAL_QOS
    raw_tres: bool = False  # NO_NORMAL_TRES
    preempt: str = ""  # "partition_prio", "qos" or nothing
    preempt_mode: str = "off"  # requeue or cancel
    backfill: bool = True  # SchedulerType
    fill_interval_s: float = 30.0
    window_s: float = DAY_S
    resolution_s: float = 60.0
    most_tests: int = 500  # bf_max_job_test
    most_starts: int = 0  # bf_max_job_start; 0 = any number, and so below
    most_user: int = 0  # bf_max_job_user
    most_part: int = 0  # bf_max_job_part
    most_account: int = 0  # bf_max_job_assoc, by account and user
    most_user_part: int = 0  # bf_max_job_user_part
    min_age_reserve_s: float = 0.0
    min_prio_reserve: float = 0.0
    depth: int = 100  # default_queue_depth
    part_depth: int = 0  # partition_job_depth
    most_main_starts: int = 0  # sched_max_job_start
    full_s: float = 60.0  # sched_interval
    min_gap_s: float = 2e-6  # sched_min_interval
    limit_stop: bool = False  # assoc_limit_stop


def settings_of(given: Mapping[str, str]) -> Settings:
    """The settings in a mapping of Slurm's names to its texts. Letter case does not matter."""
    text = {name.lower(): str(value).strip() for name, value in given.items()}
    flags = _words(text.get("priorityflags", ""))
    scheduler = _parameters(text.get("schedulerparameters", ""))
    preempt = text.get("preempttype", "").partition("/")[2].lower()
    mode = _words(text.get("preemptmode", "off"))

    def number(name: str, default: float, least: float = 0.0) -> float:
        return _number("SchedulerParameters", name, scheduler.get(name, ""), default, least)

    return Settings(
        weights=_weights(text),
        multifactor=text.get("prioritytype", "priority/multifactor") != "priority/basic",
        max_age_s=_time_s(text, "PriorityMaxAge", 7 * DAY_S),
        half_life_s=_time_s(text, "PriorityDecayHalfLife", 7 * DAY_S),
        calc_s=max(_time_s(text, "PriorityCalcPeriod", 300.0), 1.0),
        favor_small=_yes(text.get("priorityfavorsmall", "")),
        size_relative="small_relative_to_time" in flags,
        fair_tree="no_fair_tree" not in flags,
        damping=max(_value(text, "FairShareDampeningFactor", 1.0), 1.0),
        raw_partition="no_normal_all" in flags or "no_normal_part" in flags,
        raw_qos="no_normal_all" in flags or "no_normal_qos" in flags,
        raw_tres="no_normal_all" in flags or "no_normal_tres" in flags,
        preempt=preempt if preempt in ("partition_prio", "qos") else "",
        preempt_mode=next((way for way in mode if way in ("requeue", "cancel")), "off"),
        backfill=text.get("schedulertype", "sched/backfill") != "sched/builtin",
        fill_interval_s=number("bf_interval", 30.0),
        window_s=60 * number("bf_window", 1440.0),
        resolution_s=number("bf_resolution", 60.0, 1.0),
        most_tests=int(number("bf_max_job_test", 500.0)),
        most_starts=int(number("bf_max_job_start", 0.0)),
        most_user=int(number("bf_max_job_user", 0.0)),
        most_part=int(number("bf_max_job_part", 0.0)),
        most_account=int(number("bf_max_job_assoc", 0.0)),
        most_user_part=int(number("bf_max_job_user_part", 0.0)),
        min_age_reserve_s=number("bf_min_age_reserve", 0.0),
        min_prio_reserve=number("bf_min_prio_reserve", 0.0),
        depth=int(number("default_queue_depth", 100.0)),
        part_depth=int(number("partition_job_depth", 0.0)),
        most_main_starts=int(number("sched_max_job_start", 0.0)),
        full_s=number("sched_interval", 60.0, -1.0),
        min_gap_s=1e-6 * number("sched_min_interval", 2.0),
        limit_stop="assoc_limit_stop" in scheduler,
    )


def _weights(text: Mapping[str, str]) -> Weights:
    tres = _parameters(text.get("priorityweighttres", ""))

    def weight(name: str) -> float:
        return _number("PriorityWeightTRES", name, tres.get(name, ""), 0.0, 0.0)

    return Weights(
        age=_value(text, "PriorityWeightAge"),
        fair_share=_value(text, "PriorityWeightFairshare"),
        job_size=_value(text, "PriorityWeightJobSize"),
        partition=_value(text, "PriorityWeightPartition"),
        qos=_value(text, "PriorityWeightQOS"),
        cpu=weight("cpu"),
        mem=weight("mem"),
        gpu=weight("gres/gpu"),
    )


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",") if word.strip()]


def _parameters(text: str) -> dict[str, str]:
    """name=value between commas; a name alone has the value ""."""
    pairs = (word.partition("=") for word in _words(text))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _yes(text: str) -> bool:
    return text.lower() in ("yes", "1", "true")


def _value(text: Mapping[str, str], name: str, default: float = 0.0) -> float:
    return _number("slurm", name, text.get(name.lower(), ""), default, 0.0)


def _number(where: str, name: str, value: str, default: float, least: float) -> float:
    """A number of Slurm's; nothing where it is not set."""
    if value.lower() in UNSET:
        return default
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (least <= number < float("inf")):
        raise PolicyError(f"{where}: {name}={value!r}; give a number of {least:g} or more")
    return number


SPAN = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def _time_s(text: Mapping[str, str], name: str, default: float) -> float:
    """A time in one of Slurm's forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours,
    days-hours:minutes, days-hours:minutes:seconds.
    """
    value = text.get(name.lower(), "")
    if value.lower() in UNSET:
        return default
    parts = SPAN.fullmatch(value)
    if parts is None:
        raise PolicyError(
            f"slurm: {name}={value!r}; give a time such as 30, 12:00:00 or 7-00:00:00"
        )
    days, first, second, third = parts.groups()
    numbers = [float(part or 0) for part in (first, second, third)]
    if days is not None or third is not None:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0.0, numbers[0], numbers[1]
    return float(days or 0) * DAY_S + 3600 * hours + 60 * minutes + seconds
