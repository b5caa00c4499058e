"""Slurm's settings from its own words."""

import pytest

from trimtab.errors import PolicyError
from trimtab.policies.slurm.settings import Settings, settings_of


def test_nothing_said_is_slurms_default():
    settings = settings_of({})
    assert settings == Settings()
    assert not any(settings.weights), "every factor weighs nothing: first come, first served"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800.0),  # minutes
        ("30:15", 1815.0),  # minutes:seconds
        ("02:00:00", 7200.0),
        ("7-0", 604800.0),  # days-hours
        ("1-12:30", 131400.0),  # 86400 + 12 * 3600 + 30 * 60
        ("7-00:00:00", 604800.0),
    ],
)
def test_a_time_is_read_in_each_of_slurms_forms(text: str, seconds: float):
    assert settings_of({"PriorityMaxAge": text}).max_age_s == seconds


def test_scontrols_words_and_slurm_confs_are_the_same_to_it():
    printed = {
        "PriorityWeightFairShare": "10000",
        "PriorityDecayHalfLife": "14-00:00:00",
        "PriorityFlags": "SMALL_RELATIVE_TO_TIME,NO_FAIR_TREE",
        "PriorityFavorSmall": "Yes",
        "PriorityWeightTRES": "CPU=1000,Mem=2000,GRES/gpu=3000",
        "SchedulerParameters": "bf_interval=60,bf_window=2880,bf_max_job_test=1000,bf_continue",
        "PreemptType": "preempt/qos",
        "PreemptMode": "GANG,REQUEUE",
    }
    settings = settings_of({name.lower(): value for name, value in printed.items()})
    assert settings == settings_of(printed)
    assert settings.weights.fair_share == 10000
    assert settings.weights[-3:] == (1000, 2000, 3000)
    assert settings.half_life_s == 14 * 86400
    assert settings.size_relative and settings.favor_small and not settings.fair_tree
    assert (settings.fill_interval_s, settings.window_s, settings.most_tests) == (60, 172800, 1000)
    assert (settings.preempt, settings.preempt_mode) == ("qos", "requeue")


@pytest.mark.parametrize(
    ("name", "value"),
    [("PriorityWeightAge", "many"), ("PriorityMaxAge", "a week"), ("PriorityWeightQOS", "-1")],
)
def test_what_is_no_number_or_time_is_named_with_its_value(name: str, value: str):
    with pytest.raises(PolicyError, match=f"{name}='{value}'; give"):
        settings_of({name: value})


def test_a_scheduler_parameter_that_is_no_number_is_named():
    with pytest.raises(PolicyError, match="SchedulerParameters: bf_interval='soon'; give a number"):
        settings_of({"SchedulerParameters": "bf_interval=soon"})
