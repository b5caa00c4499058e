"""A policy that answers rubbish is an error that names it, or refused where it may be."""

import numpy as np
import pytest
from tests.worlds import Answers, Logged

from trimtab.build import cluster, workload
from trimtab.core import Start, Stop, Wait
from trimtab.errors import PolicyError
from trimtab.run import run

NAN = np.nan


class Says:
    """A policy that always gives the same answer."""

    def __init__(self, answer):
        self.answer = answer

    def decide(self, snapshot):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer, told",
    [
        (["start"], r"policy Says returned 'start', which is not a decision; return Start, Stop"),
        ([None], "returned None"),
        (None, "policy Says raised TypeError at second 0"),
        (7, "policy Says raised TypeError at second 0"),
        (ZeroDivisionError("by zero"), "policy Says raised ZeroDivisionError at second 0: by zero"),
        ([], "left 1 jobs waiting .first: row 0. while nothing runs and nothing will happen"),
        ([Wait()], "left 1 jobs waiting"),
        ([Wait(0.0)], "decided 1000 times at second 0"),
        ([Wait(NAN)], "left 1 jobs waiting"),
        ([Start(0, (99,))], "left 1 jobs waiting"),
        ([Start(0, (0,)), Stop(0)], "decided 1000 times at second 0"),
    ],
    ids=str,
)
def test_a_policy_that_answers_rubbish_is_an_error_that_names_it(answer, told):
    backend = Logged(workload([0], [10], [1]), cluster([1]))
    with pytest.raises(PolicyError, match=told):
        run(backend, Says(answer))
    assert backend.instants < 10


def test_the_same_job_started_twice_is_refused_the_second_time():
    backend, answers = Logged(workload([0], [10], [1]), cluster([2])), Answers()
    run(backend, Says([Start(0, (0,)), Start(0, (0,))]), [answers])
    assert answers.refusals()[0] == "job: not waiting"
    assert backend.ends() == [10.0]
