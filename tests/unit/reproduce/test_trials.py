"""Trials give the same however many workers run them, and finished ones are not run again."""

import json

import pytest

from trimtab.errors import TrimtabError
from trimtab.reproduce import trials
from trimtab.reproduce.trials import KEPT_IN, Trial, add_kept, finished, read_kept, source_of

ROW = "trimtab.reproduce.tables:row"
RUN = "trimtab.reproduce.adlro.scenes:measured"


def made(*numbers: float) -> list[Trial]:
    """Trials whose outcome is a row with that number."""
    return [Trial(ROW, {"policy": "p", "metric": "m", "ours": ours}) for ours in numbers]


def values(runs) -> list[float]:
    return [outcome["ours"] for _, outcome in runs]


def test_a_trial_calls_its_function_with_its_settings():
    assert values(finished(made(1.5, 2.5), workers=1)) == [1.5, 2.5]


def test_two_workers_find_what_one_finds():
    trace = "adlro:jobs=30,load=0.9,estimate=noisy"
    asked = [
        Trial(RUN, {"policy": policy, "trace": trace, "cluster": None, "seed": seed})
        for policy in ("srtf+fastest", "fluid")
        for seed in (1, 2)
    ]
    one = {trial.key: outcome for trial, outcome in finished(asked, workers=1)}
    two = {trial.key: outcome for trial, outcome in finished(asked, workers=2)}
    assert one == two
    assert len({outcome["jct_mean_s"] for outcome in one.values()}) == 4


def test_what_is_kept_is_not_run_again(tmp_path, monkeypatch):
    assert values(finished(made(1.0, 2.0), 1, tmp_path)) == [1.0, 2.0]
    ran = []
    monkeypatch.setattr(trials, "outcome_of", lambda trial: ran.append(trial) or {"ours": 9.0})
    assert values(finished(made(1.0, 2.0, 3.0), 1, tmp_path)) == [1.0, 2.0, 9.0]
    assert ran == made(3.0)


def test_what_another_source_found_is_run_again(tmp_path):
    (trial,) = made(1.0)
    stale = {"source": "0123456789abcdef", "key": trial.key, "outcome": {"ours": 7.0}}
    (tmp_path / KEPT_IN).write_text(json.dumps(stale) + "\n")
    assert values(finished([trial], 1, tmp_path)) == [1.0]


def test_the_source_of_a_trial_includes_the_file_it_calls():
    assert source_of(ROW) != source_of(RUN)


def test_a_line_that_was_cut_off_is_run_again_and_the_file_stays_whole(tmp_path):
    first, second, third = made(1.0, 2.0, 3.0)
    add_kept(tmp_path, first, {"ours": 1.0})
    add_kept(tmp_path, second, {"ours": 2.0})
    path = tmp_path / KEPT_IN
    path.write_bytes(path.read_bytes()[:-9])
    add_kept(tmp_path, third, {"ours": 3.0})
    assert [outcome["ours"] for outcome in read_kept(tmp_path).values()] == [1.0, 3.0]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_in_a_worker_is_raised_here(workers):
    settings = {"policy": "fcsf", "trace": "adlro:jobs=5", "cluster": None}
    asked = [Trial(RUN, {**settings, "seed": seed}) for seed in (1, 2)]
    with pytest.raises(TrimtabError, match="did you mean 'fcfs'"):
        list(finished(asked, workers))
