"""Fair share over the account tree, beside what sshare of a real Slurm 22.05 printed."""

import numpy as np
import pytest

from trimtab.policies.slurm.fair_share import classic, decay_of, fair_tree, grown, tree_of
from trimtab.site import Account

ACCOUNTS = (
    Account("industry", users={"mail": 2}),
    Account("science", shares=3),
    Account("physics", parent="science", shares=2, users={"daemon": 3, "bin": 1}),
    Account("biology", parent="science", users={"games": 1}),
)
USED = {  # CPU-seconds
    ("root", "root"): 635,
    ("industry", "mail"): 19,
    ("physics", "bin"): 4,
    ("physics", "daemon"): 23,
    ("biology", "games"): 0,
}


def usage_of(tree, used):
    usage = np.zeros(len(tree.names))
    for name, amount in used.items():
        usage[tree.row_of[name]] = amount
    return usage


def test_fair_tree_ranks_the_users_as_sshare_does():
    tree = tree_of(ACCOUNTS)
    factor = fair_tree(tree, usage_of(tree, USED))
    told = {name: float(factor[tree.row_of[name]]) for name in USED}
    # of 5 users: science (14.3 of its share) before industry (6.9) before root (0.2);
    # in it biology, which used nothing, before physics; there bin (1.45) before daemon (0.91)
    assert told == {
        ("biology", "games"): 1.0,
        ("physics", "bin"): 0.8,
        ("physics", "daemon"): 0.6,
        ("industry", "mail"): 0.4,
        ("root", "root"): 0.2,
    }


def test_users_who_are_level_have_one_rank_and_the_next_is_not_moved_up():
    accounts = (Account("a", users={"ann": 1, "bob": 1, "cid": 1}),)
    tree = tree_of(accounts)
    factor = fair_tree(tree, usage_of(tree, {("a", "cid"): 5.0, ("root", "root"): 9.0}))
    # 4 users; root has half of the shares and used 9 of 14, the account half and 5 of 14
    told = [float(factor[tree.row_of["a", user]]) for user in ("ann", "bob", "cid")]
    assert told == [1.0, 1.0, 0.5]
    assert factor[tree.row_of["root", "root"]] == 0.25


def test_accounts_that_are_level_are_merged_before_their_users_are_ranked():
    accounts = (Account("a", users={"ann": 1, "bob": 1}), Account("b", users={"cid": 1, "dan": 1}))
    tree = tree_of(accounts)
    used = {("a", "ann"): 3, ("a", "bob"): 1, ("b", "cid"): 2, ("b", "dan"): 2}
    factor = fair_tree(tree, usage_of(tree, used))
    # root, of 5, is first with no use. Each account used 4 of 8; level within: bob 0.5/0.25 = 2,
    # cid and dan 1, ann 0.5/0.75
    assert factor[tree.row_of["root", "root"]] == 1.0
    assert [float(factor[tree.row_of[pair]]) for pair in used] == [0.2, 0.8, 0.6, 0.6]


def test_the_older_way_halves_for_each_whole_share_that_was_used():
    accounts = (Account("a", shares=3, users={"ann": 1}), Account("b", users={"bob": 1}))
    tree = tree_of(accounts)
    factor = classic(tree, usage_of(tree, {("a", "ann"): 30.0, ("b", "bob"): 10.0}))
    # shares: a 3 of 5 (root's own user has one), b 1 of 5; used: 3/4 and 1/4
    assert factor[tree.row_of["a", "ann"]] == pytest.approx(2 ** -(0.75 / 0.6))
    assert factor[tree.row_of["b", "bob"]] == pytest.approx(2 ** -(0.25 / 0.2))


def test_a_siblings_use_counts_in_part_as_ones_own_in_the_older_way():
    accounts = (Account("a", users={"ann": 1, "bob": 3}),)
    tree = tree_of(accounts)
    factor = classic(tree, usage_of(tree, {("a", "bob"): 10.0}))
    # a used all and has half of the shares; ann's part of it is 1/4: 0 + (1 - 0) / 4 = 0.25
    assert factor[tree.row_of["a", "ann"]] == pytest.approx(2 ** -(0.25 / (0.5 * 0.25)))


def test_usage_halves_in_a_half_life():
    decay = decay_of(7 * 86400.0)
    assert decay ** (7 * 86400) == pytest.approx(0.5, rel=3e-4)  # 0.693 stands for ln 2
    assert decay_of(0.0) == 1.0, "no half-life: nothing is forgotten"


def test_many_periods_at_once_are_the_same_as_one_by_one():
    decay, period_s, rate = decay_of(86400.0), 300.0, np.array([4.0, 0.0])
    one_by_one = np.array([1000.0, 50.0])
    for _ in range(40):
        one_by_one = one_by_one * decay**period_s + rate * period_s * decay**period_s
    assert grown(np.array([1000.0, 50.0]), rate, decay, period_s, 40) == pytest.approx(one_by_one)


def test_who_is_not_listed_gets_a_share_of_his_own():
    tree = tree_of((), [("", "tenant 0"), ("new", "eve")])
    assert tree.row_of.keys() >= {("", "tenant 0"), ("new", ""), ("new", "eve")}
    assert tree.above[tree.row_of["new", "eve"]] == tree.row_of["new", ""]


def test_accounts_in_a_ring_stand_below_the_root():
    tree = tree_of((Account("a", parent="b"), Account("b", parent="a")))
    assert (tree.above < np.arange(len(tree.above)))[1:].all(), "a parent stands before its own"
