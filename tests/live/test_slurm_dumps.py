"""What a real Slurm prints is read: its nodes, its rules and what it ran."""

import time

import pytest
from tests.slurm_daemon import Node, running, wait_for, why_not

from trimtab import site
from trimtab.site import Account, Partition, Qos, Reservation
from trimtab.traces import read
from trimtab.traces.dumps.slurm import from_slurm

NODES = [
    Node("gpu01", 16, 64000, gpu_kind="a100", gpus=4, features="a100,nvlink", weight=20),
    Node("gpu02", 16, 64000, gpu_kind="a100", gpus=4, features="a100,nvlink", weight=20),
    Node("cpu1", 8, 32000),
    Node("cpu2", 8, 32000),
    Node("cpu3", 8, 32000),
]
PARTITIONS = [
    "cpu Nodes=cpu[1-3] Default=YES MaxTime=60 DefaultTime=5 State=UP",
    "gpu Nodes=gpu[01-02] MaxTime=2-0 PriorityTier=3 State=UP",
]
SETTINGS = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "AccountingStorageTRES": "gres/gpu,gres/gpu:a100",
}
FIELDS = (
    "JobID,Submit,Start,End,ElapsedRaw,TimelimitRaw,State,AllocTRES,ReqTRES,Priority,User,Account,"
    "Partition,QOS,Constraints,Reservation,SubmitLine"
)
LONG = "Partition,StateLong,Weight"
PARENTS = "Account,User,Share,ParentName"
MADE_UP = ("Description=x", "Organization=x")
DUMPS = {
    "nodes": ("scontrol", "show", "node"),
    "oneliner": ("scontrol", "show", "node", "--oneliner"),
    "partitions": ("scontrol", "show", "partition"),
    "reservations": ("scontrol", "show", "reservation"),
    "config": ("scontrol", "show", "config"),
    "all": ("sinfo", "-N", "-o", "%all"),
    "bars": ("sinfo", "-N", "-o", "%N|%c|%m|%G|%f|%P|%T|%w"),
    "columns": ("sinfo", "-N", "-O", f"NodeList,CPUs,Memory,Gres,Features,{LONG}"),
    "json": ("sinfo", "--json"),
    "qos": ("sacctmgr", "show", "qos", "-P"),
    "tree": ("sacctmgr", "show", "assoc", "tree", "-P"),
    "parents": ("sacctmgr", "show", "assoc", "-P", f"format=Cluster,{PARENTS},GrpTRES"),
}
ACCOUNTS = (
    ("add", "account", "science", *MADE_UP),
    ("add", "account", "physics", "parent=science", "fairshare=2", *MADE_UP),
    ("add", "user", "root", "account=physics"),
    ("modify", "account", "physics", "set", "GrpTRES=cpu=30"),
    ("add", "qos", "urgent", "priority=100", "preempt=normal", "MaxWall=04:00:00",
     "MaxTRESPerUser=gres/gpu=4", "MaxJobsPerUser=8"),
)  # fmt: skip
ARRAY = ("-Aphysics", "--array=1-4%2")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why_not(accounts=True):
        pytest.skip(why_not(accounts=True))
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder, NODES, PARTITIONS, SETTINGS, accounts=True) as made:
        for words in ACCOUNTS:
            made.out("sacctmgr", "-i", *words)
        starts = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 86400))
        made.out(
            *("scontrol", "create", "reservation", "ReservationName=course"),
            *(f"StartTime={starts}", "Duration=60", "Nodes=cpu1", "Users=root"),
        )
        made.out("scontrol", "update", "NodeName=cpu3", "State=DRAIN", "Reason=a=b test")
        yield made


@pytest.fixture(scope="module")
def dumps(slurm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for name, command in DUMPS.items():
        (folder / f"{name}.txt").write_text(slurm.out(*command))
    return lambda *names: [folder / f"{name}.txt" for name in names]


@pytest.mark.parametrize("nodes", ["nodes", "oneliner", "all", "bars", "columns", "json"])
def test_every_form_of_its_nodes_is_one_cluster(dumps, nodes):
    made, _, notes = from_slurm(dumps(nodes))
    assert made.names.tolist() == ["cpu1", "cpu2", "gpu01", "gpu02"]
    assert made.capacity.tolist() == [[8, 31.25, 0]] * 2 + [[16, 62.5, 4]] * 2
    assert made.kinds == ("cpu", "a100") and made.site.gpu_kind == ("", "", "a100", "a100")
    assert made.site.features[2] == ("a100", "nvlink") and made.site.weight == (1, 1, 20, 20)
    partitions = {one.name: one.nodes for one in made.site.partitions}
    assert partitions == {"cpu": ("cpu1", "cpu2"), "gpu": ("gpu01", "gpu02")}
    assert notes[0].startswith("cpu3: down, drained")


def test_its_rules_are_read(dumps):
    names = ("tree", "qos", "config", "reservations", "partitions", "nodes")
    made = from_slurm(dumps(*names)).cluster
    assert made.site.partitions == (
        Partition("cpu", ("cpu1", "cpu2"), default=True, max_s=3600, default_s=300),
        Partition("gpu", ("gpu01", "gpu02"), max_s=172800, tier=3),
    )
    urgent = Qos("urgent", 100, ("normal",), 4 * 3600, user={"gpu": 4, "jobs": 8})
    assert made.site.qos == (Qos("normal"), urgent)
    physics = Account("physics", "science", 2, group={"cpu": 30}, users={"root": 1})
    assert made.site.accounts == (Account("science"), physics)
    (course,) = made.site.reservations
    assert course == Reservation(
        "course", ("cpu1",), course.start_s, course.start_s + 3600, ("root",)
    )
    assert made.site.slurm["PriorityWeightAge"] == "1000"
    assert from_slurm(dumps("nodes", "parents")).cluster.site.accounts == made.site.accounts


def test_without_files_its_client_is_asked(slurm, dumps, monkeypatch):
    for name, value in slurm.environ().items():
        monkeypatch.setenv(name, value)
    names = ("nodes", "partitions", "reservations", "config", "qos", "tree")
    assert from_slurm([]).cluster.site == from_slurm(dumps(*names)).cluster.site


def test_what_it_ran_is_read_from_its_accounting(slurm, tmp_path):
    gpu = ("-Aphysics", "-pgpu", "-n1", "--gres=gpu:a100:2", "-Cnvlink")
    slurm.submit(*gpu, sleep_s=1)
    array = slurm.submit(*ARRAY, sleep_s=1)
    slurm.submit("-Aphysics", "--exclusive", f"--dependency=afterany:{array}", sleep_s=1)
    wait_for(lambda: not slurm.out("squeue", "-h"), 90.0, "the jobs to end")
    wait_for(
        lambda: slurm.out("sacct", "-anXo", "State").count("COMPLETED") == 6, 30.0, "accounting"
    )
    listed, told = tmp_path / "jobs.txt", tmp_path / "jobs.json"
    listed.write_text(slurm.out("sacct", "--allusers", "--parsable2", "--format", FIELDS))
    told.write_text(slurm.out("sacct", "--allusers", "--json"))
    work, same = read(listed), read(told)
    first, *tasks, last = range(6)
    assert [work.label(site.ARRAY, job) for job in tasks] == [f"{array}%2"] * 4
    assert work.label(site.GPU_KIND, first) == "a100" and work.jobs["gpus"][first] == 2
    assert work.label(site.CONSTRAINT, first) == "nvlink"
    assert {work.label(site.ACCOUNT, job) for job in range(6)} == {"physics"}
    assert [work.label(site.PARTITION, job) for job in (first, last)] == ["gpu", "cpu"]
    # all 8 CPUs of its node were given to the last, which asked for one
    assert work.label(site.EXCLUSIVE, last) == "yes" and work.demand[last, 0] == 1
    assert work.after_idx.tolist() == tasks
    assert (work.meta["recorded"]["start_s"] >= work.jobs["submit_s"]).all()
    assert sorted(same.job_id) == sorted(work.job_id)
    assert same.truth["work_s"].sum() == work.truth["work_s"].sum()
