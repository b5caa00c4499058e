"""The priority of waiting jobs as a real slurmctld's sprio has it, beside ours."""

import time

import numpy as np
import pytest
from tests.slurm_daemon import Node, running, wait_for, why_not

from trimtab.policies.slurm.fair_share import classic, fair_tree, tree_of
from trimtab.policies.slurm.priority import Request, Whole, priority
from trimtab.policies.slurm.settings import settings_of
from trimtab.site import Account

NODES = [Node("a1", 8, gpu_kind="a100", gpus=4), Node("c1", 4), Node("c2", 4)]
PARTITIONS = [
    "batch Nodes=ALL Default=YES MaxTime=60 State=UP PriorityJobFactor=10",
    "fast Nodes=c1,c2 MaxTime=10 State=UP PriorityJobFactor=40",
]
FACTOR = {"batch": 0.25, "fast": 1.0}  # as part of the highest
CPUS = {"batch": 16.0, "fast": 8.0}
GPUS = {"batch": 4.0, "fast": 0.0}
QOS = {"normal": 0.25, "high": 1.0}
ACCOUNTS = (
    Account("industry", users={"mail": 2}),
    Account("science", shares=3),
    Account("physics", parent="science", shares=2, users={"daemon": 3, "bin": 1}),
    Account("biology", parent="science", users={"games": 1}),
)
SETTINGS = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "PriorityWeightFairshare": "10000",
    "PriorityWeightJobSize": "1000",
    "PriorityWeightPartition": "3000",
    "PriorityWeightQOS": "2000",
    "PriorityWeightTRES": "cpu=500,gres/gpu=700",
    "PriorityMaxAge": "00:02:00",
    "PriorityCalcPeriod": "1",
    "AccountingStorageTRES": "gres/gpu",
    "SchedulerParameters": "bf_interval=3600",
}
ASKED = [  # user, CPUs, nodes, GPUs, QOS, partitions, minutes, nice, seconds before the next
    ("daemon", 4, 1, 0, "normal", "batch", 2, 0, 2.0),
    ("bin", 1, 1, 0, "high", "batch", 2, 0, 0.0),
    ("games", 8, 1, 0, "normal", "batch", 5, 0, 2.0),
    ("mail", 2, 1, 0, "normal", "fast", 1, 0, 0.0),
    ("games", 1, 1, 2, "normal", "batch", 5, 0, 0.0),
    ("daemon", 2, 2, 0, "normal", "fast", 5, 50, 0.0),
    ("mail", 1, 1, 0, "normal", "batch,fast", 7, 0, 0.0),
]
FORMS = "%i|%r|%Y|%F|%J|%P|%Q|%a|%f"  # of sprio: weighted, then age and fair share 0..1


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """One with three jobs in its accounts' past, one that holds all nodes, and others that wait."""
    if why_not(accounts=True):
        pytest.skip(why_not(accounts=True))
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder, NODES, PARTITIONS, SETTINGS, accounts=True) as made:
        for account in ACCOUNTS:
            above = f"parent={account.parent or 'root'}"
            made.out("sacctmgr", "-i", "add", "account", account.name, above,
                     f"fairshare={account.shares:g}")  # fmt: skip
        made.out("sacctmgr", "-i", "add", "qos", "high", "priority=100")
        made.out("sacctmgr", "-i", "modify", "qos", "normal", "set", "priority=25")
        for account in ACCOUNTS:
            for user, share in account.users.items():
                made.out("sacctmgr", "-i", "add", "user", user, f"account={account.name}",
                         f"fairshare={share:g}", "qos=normal,high")  # fmt: skip
        for user, cpus, sleep_s in (("daemon", 4, 6.0), ("mail", 2, 9.0), ("bin", 1, 4.0)):
            made.submit(f"--uid={user}", "-D/tmp", f"-n{cpus}", "-t1", sleep_s=sleep_s)
        wait_for(lambda: not made.out("squeue", "-h"), 60.0, "the past")
        made.submit("-N3", "--exclusive", "-t60")
        wait_for(lambda: made.out("squeue", "-h", "-t", "R"), 20.0, "the job that holds all")
        made.waiting = {}
        for user, cpus, nodes, gpus, qos, parts, minutes, nice, after_s in ASKED:
            row = (user, cpus, nodes, gpus, qos, parts, minutes, nice)
            options = [f"-n{cpus}", f"-N{nodes}", f"--qos={qos}", f"-p{parts}", f"-t{minutes}"]
            options += [f"--gres=gpu:{gpus}"] if gpus else []
            options += [f"--nice={nice}"] if nice else []
            made.waiting[made.submit(f"--uid={user}", "-D/tmp", *options)] = row
            time.sleep(after_s)
        yield made


def printed(slurm):
    """What sprio prints of each job in each of its partitions."""
    rows = [line.strip().split("|") for line in slurm.out("sprio", "-h", "-o", FORMS).splitlines()]
    return {(row[0].strip(), row[1].strip()): [float(value) for value in row[2:]] for row in rows}


def usage(slurm, tree):
    """Raw usage of each user, and the factor that sshare prints."""
    used, factor = np.zeros(len(tree.names)), {}
    for line in slurm.out("sshare", "-a", "-h", "-P", "-o",
                          "Account,User,RawUsage,FairShare").splitlines():  # fmt: skip
        account, user, raw, share = (text.strip() for text in line.split("|"))
        if user:
            used[tree.row_of[account, user]] = float(raw)
            factor[account, user] = float(share)
    return used, factor


def asked(slurm, told, shares):
    """What sprio's jobs asked for, at the age that it printed, to the whole second."""
    rows = [(*slurm.waiting[job], part, value) for (job, part), value in told.items()]
    part = [row[8] for row in rows]
    none = np.zeros(len(rows))
    ask = Request(
        age_s=np.round([120.0 * row[9][5] for row in rows]),
        fair_share=np.array([shares[row[0]] for row in rows]),
        cpus=np.array([float(row[1]) for row in rows]),
        nodes=np.array([float(row[2]) for row in rows]),
        mem_gb=none,
        gpus=np.array([float(row[3]) for row in rows]),
        limit_s=np.array([60.0 * row[6] for row in rows]),
        qos=np.array([QOS[row[4]] for row in rows]),
        partition=np.array([FACTOR[name] for name in part]),
        site=-np.array([float(row[7]) for row in rows]),
    )
    cpus, gpus = (np.array([of[name] for name in part]) for of in (CPUS, GPUS))
    return ask, Whole(16.0, 3.0, cpus, none, gpus)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"PriorityFavorSmall": "YES"},
        {"PriorityFlags": "NO_FAIR_TREE"},
        {"PriorityFlags": "SMALL_RELATIVE_TO_TIME"},
    ],
    ids=["as it comes", "small first", "no fair tree", "relative to time"],
)
def test_priorities_and_their_order_are_those_of_sprio(slurm, more):
    slurm.restart({**SETTINGS, **more})  # it works all factors out anew when it comes up
    time.sleep(1.0)
    settings = settings_of({**SETTINGS, **more})
    told, tree = printed(slurm), tree_of(ACCOUNTS)
    used, shown = usage(slurm, tree)
    assert used.sum() > 0, "the past counts"
    factor = fair_tree(tree, used) if settings.fair_tree else classic(tree, used)
    exact = settings.fair_tree  # else sshare's usage is cut off to whole seconds
    for pair, value in shown.items():
        assert factor[tree.row_of[pair]] == pytest.approx(value, abs=1e-6 if exact else 0.02)
    # sprio's own, to seven digits, so that the sum is exact where usage is not
    shares = {slurm.waiting[job][0]: row[6] for (job, _), row in told.items()}
    ask, whole = asked(slurm, told, shares)
    assert (ask.fair_share > 0).any() and (ask.age_s > 0).any()
    ours = dict(zip(told, priority(ask, whole, settings)))
    theirs = {pair: row[0] for pair, row in told.items()}
    assert ours == pytest.approx(theirs, abs=0 if exact else 1)
    assert sorted(ours, key=ours.get) == sorted(theirs, key=theirs.get)
