"""Validation asks what policies are compared by."""

from trimtab.policies.peers.validation import cost
from trimtab.reproduce import frontier


def test_a_peer_is_validated_by_the_cost_that_tables_show():
    told = {"awt_s": 50.0, "ldi": 0.1, "dag_jct_mean_s": 600.0, "jct_mean_s": 90.0, "tsr": 0.93}
    assert cost(told) == frontier.cost(told)
    del told["dag_jct_mean_s"]
    assert cost(told) == frontier.cost(told)
