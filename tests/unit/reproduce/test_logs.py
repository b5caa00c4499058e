"""A log's recorded waits beside those under a rule, with the arithmetic."""

import pytest
from tests.unit.traces.readers.test_swf import line

from trimtab.errors import TraceError
from trimtab.reproduce.logs import beside, rule_of


def written(tmp_path, second_wait: int):
    """Two jobs of 4 of 4 processors and 100 s, a second apart; the second waits as given."""
    path = tmp_path / "toy.swf"
    rows = [line(wait=0), line(number=2, submit=1, wait=second_wait)]
    path.write_text("; MaxNodes: 4\n; MaxProcs: 4\n" + "".join(rows))
    return str(path)


@pytest.mark.parametrize(("waited", "gap", "near"), [(99, 0.0, True), (198, -0.5, False)])
def test_the_waits_of_the_same_jobs_stand_side_by_side(tmp_path, waited, gap, near):
    # the machine is free again at second 100: the second job waits 99 s, or 49.5 s in the mean
    told = beside(written(tmp_path, waited))
    assert told["wait_mean_s"] == {"recorded": waited / 2, "simulated": 49.5, "gap": gap}
    assert told["wait_p95_s"]["gap"] == pytest.approx(gap)
    assert (told["policy"], told["jobs"], told["near"]) == ("fcfs+easy", 2, near)


def test_a_policy_may_stand_in_for_the_rule_of_the_site(tmp_path):
    told = beside(written(tmp_path, 99), "sjf")
    assert (told["policy"], told["because"]) == ("sjf", "--policy sjf")


def test_the_rule_is_that_of_the_installation_as_far_as_it_is_known():
    assert rule_of({"Installation": "UNILU Gaia Cluster"})[0] == "fcfs+conservative"
    assert "the header: uses the EASY" in rule_of({"Installation": "Cornell Theory Center"})[1]
    assert "nothing says" in rule_of({})[1]


def test_a_log_without_starts_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no recorded starts"):
        path = tmp_path / "toy.swf"
        path.write_text(line(wait=-1))
        beside(str(path))
