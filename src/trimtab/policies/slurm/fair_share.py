"""Slurm's fair share over the account tree: usage that decays, and the factor of each user.

Fair Tree ranks the users, best off first, by walking the tree from the root and taking those of a
level who have used least of their share first. The older way is 2 ** -(usage / shares).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.site import Account

ROOT = "root"


class Tree(NamedTuple):
    """Slurm's associations. Row 0 is the root, row 1 its own user; a parent stands before."""

    names: tuple[tuple[str, str], ...]  # account and user, no user = the account itself
    above: Array  # (A,) row of the parent; the root's is its own
    shares: Array  # (A,)
    user: Array  # (A,) whether it is a user's, which is a leaf
    row_of: dict[tuple[str, str], int]


def tree_of(accounts: Sequence[Account], pairs: Iterable[tuple[str, str]] = ()) -> Tree:
    """The tree of a site's accounts, and of the (account, user) that jobs name and it lacks.

    Who is not listed has one share; an account that is not listed stands below the root.
    """
    names, above, shares = [(ROOT, ""), (ROOT, ROOT)], [0, 0], [1.0, 1.0]
    row_of = {name: row for row, name in enumerate(names)}

    def add(account: str, user: str, parent: int, share: float) -> int:
        if (account, user) not in row_of:
            row_of[account, user] = len(names)
            names.append((account, user))
            above.append(parent)
            shares.append(share)
        return row_of[account, user]

    waiting = [account for account in accounts if account.name != ROOT]
    listed = {account.name for account in waiting}
    while waiting:
        ready = [a for a in waiting if a.parent not in listed or (a.parent, "") in row_of]
        for account in ready or waiting:  # none is ready in a ring: below the root with them
            add(account.name, "", row_of.get((account.parent, ""), 0), account.shares)
        waiting = [account for account in waiting if (account.name, "") not in row_of]
    for account in accounts:
        for user, share in account.users.items():
            add(account.name, user, row_of[account.name, ""], share)
    for account_name, user in sorted(set(pairs)):
        parent = add(account_name, "", 0, 1.0) if account_name else 0
        add(account_name, user, parent, 1.0)
    return Tree(
        tuple(names),
        np.array(above),
        np.array(shares),
        np.array([bool(user) for _, user in names]),
        row_of,
    )


def decay_of(half_life_s: float) -> float:
    """What a second leaves of usage, as Slurm has it: 1 - 0.693 / half-life."""
    return 1.0 - 0.693 / half_life_s if half_life_s > 0 else 1.0


def grown(usage: Array, rate: Array, decay: float, period_s: float, periods: int) -> Array:
    """Usage after so many calculation periods in which `rate` (A,) was used all the time.

    Each period p leaves usage * decay^p and adds rate * p * decay^p.
    """
    if periods <= 0:
        return usage
    kept = decay**period_s
    added = rate * period_s * kept
    if kept == 1.0:
        return usage + periods * added
    return usage * kept**periods + added * (1.0 - kept**periods) / (1.0 - kept)


def summed(tree: Tree, usage: Array) -> Array:
    """(A,) usage of each row and all below it; the root's is everything."""
    total = usage.astype(np.float64).copy()
    for row in range(len(total) - 1, 0, -1):  # children stand behind their parents
        total[tree.above[row]] += total[row]
    return total


def level_shares(tree: Tree) -> Array:
    """(A,) share of each row among those with the same parent."""
    siblings = np.bincount(tree.above[1:], tree.shares[1:], len(tree.shares))
    of_level = siblings[tree.above]
    share = np.divide(tree.shares, of_level, out=np.zeros(len(of_level)), where=of_level > 0)
    share[0] = 1.0
    return share


def classic(tree: Tree, usage: Array, damping: float = 1.0) -> Array:
    """(A,) 2 ** -(effective usage / shares), both as parts of the whole cluster's."""
    total, part = summed(tree, usage), level_shares(tree)
    shares, used = part.copy(), np.zeros(len(total))
    if total[0] > 0:
        used = total / total[0]
    effective = used.copy()
    for row in range(1, len(total)):
        parent = tree.above[row]
        shares[row] = shares[parent] * part[row]
        if parent != 0:  # a part of what the siblings use counts as its own
            effective[row] = used[row] + (effective[parent] - used[row]) * part[row]
    ratio = np.divide(effective, shares, out=np.full(len(total), np.inf), where=shares > 0)
    return np.asarray(2.0 ** -(ratio / damping))


def fair_tree(tree: Tree, usage: Array) -> Array:
    """(A,) rank / users of each user's row, the best off 1; 0 for accounts."""
    total, part = summed(tree, usage), level_shares(tree)
    parent = total[tree.above]
    of_level = np.divide(total, parent, out=np.zeros(len(total)), where=parent > 0)
    level = np.where(of_level > 0, part / np.where(of_level > 0, of_level, 1.0), np.inf)
    level[part == 0] = 0.0
    below: list[list[int]] = [[] for _ in total]
    for row in range(1, len(total)):
        below[tree.above[row]].append(row)
    factor, users = np.zeros(len(total)), int(tree.user.sum())
    rank = untied = users

    def walk(rows: list[int], account_tied: bool) -> None:
        nonlocal rank, untied
        rows = sorted(rows, key=lambda row: (-level[row], not tree.user[row]))
        before = np.nan
        i = 0
        while i < len(rows):
            row = rows[i]
            tied = (i == 0 and account_tied) or level[row] == before
            if tree.user[row]:
                rank = rank if tied else untied
                factor[row] = rank / users
                untied -= 1
            else:  # accounts that are level are merged before their users are ranked
                children = list(below[row])
                while i + 1 < len(rows) and level[rows[i + 1]] == level[row]:
                    i += 1
                    children += below[rows[i]]
                walk(children, tied)
            before = level[row]
            i += 1

    walk(below[0], False)
    return factor
