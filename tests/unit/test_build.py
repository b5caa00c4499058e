"""A mistake in jobs or machines is an error that names row, field, value and remedy."""

import numpy as np
import pytest
from tests.worlds import two

from trimtab.build import cluster, workload
from trimtab.errors import TraceError

NAN = np.nan
INF = np.inf


@pytest.mark.parametrize(
    "columns, told",
    [
        (
            {"submit_s": [5.0, 1.0]},
            "submit_s=1.0 is before the row above it; sort the rows by submit time",
        ),
        ({"submit_s": [0.0, NAN]}, "submit_s=nan is not a finite time"),
        ({"work_s": [10.0, -1.0]}, "work_s=-1.0 is not a number >= 0"),
        ({"work_s": [10.0, NAN]}, "work_s=nan"),
        ({"work_s": [10.0, INF]}, "work_s=inf never ends; set service=1 or a cancel_s"),
        ({"request_s": [1, NAN]}, "request_s=nan"),
        ({"cpu": [1.0, -2.0]}, "cpu=-2.0 is not a finite number >= 0"),
        ({"cpu": [1.0, NAN]}, "cpu=nan"),
        ({"instances": [1, 0]}, "instances=0 is below 1"),
        ({"gpus": [0, -1]}, "gpus=-1 is negative"),
        ({"gpus": [0, 65]}, "gpus=65 is above 64"),
        ({"gpu_share": [1, 0]}, "gpu_share=0.0 is not in (0, 1]"),
        ({"gpu_share": [1, 0.5], "gpus": [0, 2]}, "is fractional on several GPUs"),
        ({"gpu_mem_gb": [0, -1]}, "gpu_mem_gb=-1.0"),
        ({"checkpoint_s": [0, NAN]}, "checkpoint_s=nan"),
        ({"deadline_s": [0, NAN]}, "deadline_s=nan"),
        ({"cancel_s": [0, NAN]}, "cancel_s=nan"),
        ({"priority": [0, INF]}, "priority=inf is not finite"),
        ({"use": [1, -0.1]}, "use=-0.1"),
        ({"kind": [0, 1]}, "kind=1 is not in 0..0"),
        ({"tenant": [0, -1]}, "tenant=-1 is not in 0..0"),
    ],
)
def test_a_bad_number_is_named_with_its_source_row_and_remedy(columns, told):
    with pytest.raises(TraceError) as caught:
        two(**columns)
    text = str(caught.value)
    assert text.startswith("log.csv: job b (row 1): ") and told in text and ";" in text


def test_a_cycle_of_dependencies_names_a_job_in_it():
    with pytest.raises(
        TraceError, match=r"log.csv: job b \(row 1\) waits for itself through a cycle.*2 jobs.*drop"
    ):
        workload(
            [0, 0, 0],
            [1, 1, 1],
            [1, 1, 1],
            source="log.csv",
            job_id=["a", "b", "c"],
            after=[[], [2], [1]],
        )


def test_a_job_that_waits_for_itself_is_a_cycle():
    with pytest.raises(TraceError, match="waits for itself"):
        workload([0], [1], [1], after=[[0]])


@pytest.mark.parametrize("after", [[[], [7]], [[], [-1]]])
def test_a_parent_that_is_not_there_is_named(after):
    with pytest.raises(TraceError, match=r"after names a job outside 0\.\.1; drop that edge"):
        workload([0, 0], [1, 1], [1, 1], after=after)


def test_an_empty_trace_says_so():
    with pytest.raises(TraceError, match=r"log\.csv: the trace holds no jobs"):
        workload([], [], np.zeros((0, 1)), source="log.csv")


def test_an_unknown_column_lists_the_known_ones():
    with pytest.raises(
        TraceError, match=r"column 'gpu' is unknown; known columns: submit_s, .*gpus"
    ):
        two(gpu=[1, 1])


def test_a_demand_table_of_another_shape_says_what_it_should_be():
    with pytest.raises(TraceError, match=r"demand has shape \(2, 1\), want \(2, 2\)"):
        workload([0, 0], [1, 1], [1, 1], resources=("cpu", "mem_gb"))


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda: cluster([]), "no nodes"),
        (lambda: cluster([1, -4]), "node 1: cpu=-4.0 is not a finite number >= 0"),
        (lambda: cluster([[1, 0.5]], resources=("cpu", "gpu")), "whole number of devices"),
        (lambda: cluster([[1, 65]], resources=("cpu", "gpu")), "at most 64"),
        (lambda: cluster([1, 1], region=[0, 1], link=[[1, 0], [0, 1]]), r"numbers in \(0, 1\]"),
        (lambda: cluster([1], kind=3, kinds=("a",)), "kind is not in 0..0"),
    ],
)
def test_a_bad_cluster_is_an_error_that_says_where(make, told):
    with pytest.raises(TraceError, match=told):
        make()
