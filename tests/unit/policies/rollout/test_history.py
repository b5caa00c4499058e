"""Guessed run times, with the arithmetic shown."""

import numpy as np
import pytest

from trimtab.policies.rollout.history import History, left


def guess(history, tenant, request_s, job=100):
    asks = np.array([job]), np.array([tenant]), np.array([float(request_s)])
    return float(history.guess_s(*asks)[0])


def test_a_user_who_is_not_known_is_taken_at_the_request():
    assert guess(History(), tenant=40, request_s=500) == 500.0


def test_the_last_two_jobs_of_the_user_count():
    history = History()
    history.learn(0, 3, 900.0, 100.0)
    assert guess(history, 3, 800) == 100.0  # one job: what it took
    history.learn(1, 3, 900.0, 300.0)
    # misses so far: request ln(900/300) = 1.1, own ln(100/300) = 1.1, both the same 100: own 200
    assert guess(history, 4, 800, job=101) == 800.0  # nobody else's


def test_own_is_at_most_the_request():
    history = History()
    history.learn(0, 3, 900.0, 700.0)
    assert guess(history, 3, 60) == 60.0


def test_jobs_with_the_same_request_go_before_the_others():
    history = History()
    history.learn(0, 3, 900.0, 100.0)
    history.learn(1, 3, 50.0, 20.0)
    assert history._of_job[0] != history._of_job[1]
    # misses at the second: request ln(50/20) = .92, own ln(50/20) as it is at most the request,
    # both 50 x 1/9 = 5.6, which counts as 10: ln(10/20) = .69, the least
    assert guess(history, 3, 900, job=2) == pytest.approx(900 * (100 / 900 + 20 / 50) / 2)


def test_whoever_asks_right_is_believed():
    history = History()
    for job, run_s in enumerate([100.0, 700.0, 50.0, 4000.0]):
        history.learn(job, 0, run_s, run_s)
    assert guess(history, 0, 1234, job=9) == 1234.0


def test_who_always_takes_half_is_guessed_at_half():
    history = History()
    for job, run_s in enumerate([100.0, 700.0, 60.0, 4000.0]):
        history.learn(job, 0, 2 * run_s, run_s)
    assert guess(history, 0, 1000, job=9) == pytest.approx(500.0)


def test_many_users_and_requests_fit():
    history = History()
    for job in range(200):
        history.learn(job, job % 50, 1000.0 + job, 10.0 * (job % 50 + 1))
    assert guess(history, 49, 1199, job=500) == pytest.approx(500.0, rel=0.2)


def test_what_passed_its_guess_needs_as_much_again_within_the_request():
    # 30 of 100 s done; 150 s of guessed 100 done: 150 more, but by the request 50; past both: 1
    guess_s, request_s = np.array([100.0, 100.0, 100.0]), np.array([900.0, 200.0, 120.0])
    since_s = np.array([30.0, 150.0, 150.0])
    assert left(guess_s, request_s, since_s).tolist() == [70.0, 50.0, 1.0]
