"""Labels and a site become node kinds, quotas and gates, or an error that names the job."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.build import cluster, uniform_profile, workload
from trimtab.errors import TraceError
from trimtab.sim.world import check_hostable
from trimtab.site import (
    ACCOUNT,
    ARRAY,
    CONSTRAINT,
    EXCLUSIVE,
    GPU_KIND,
    PARTITION,
    QOS,
    RESERVATION,
    USER,
    Account,
    Partition,
    Qos,
    Reservation,
    Site,
    labelled,
)
from trimtab.traces.scenes.constraint import choose
from trimtab.traces.scenes.match import matched

FEATURES = (("intel", "ib"), ("intel",), ("amd", "ib"), ("amd", "nvlink", "ib"))


def machine(site, **more):
    """Four nodes n0 .. n3 of eight cores; the last two have four GPUs."""
    return cluster(
        [[8, 0], [8, 0], [8, 4], [8, 4]],
        resources=("cpu", "gpu"),
        kind=[0, 0, 1, 1],
        kinds=("plain", "a100"),
        names=["n0", "n1", "n2", "n3"],
        source="site.yaml",
        site=site,
        **more,
    )


def jobs(count=1, *, request_s=10.0, instances=1, meta=None, **labels):
    """So many jobs of one core, named job-0 and so on; a label is one text for all or one each."""
    texts = {
        name: labelled([given] * count if isinstance(given, str) else given)
        for name, given in labels.items()
    }
    return workload(
        np.arange(count, dtype=float), 10.0, np.tile([1.0, 0.0], (count, 1)),
        resources=("cpu", "gpu"), request_s=request_s, instances=instances, labels=texts,
        source="log", job_id=[f"job-{j}" for j in range(count)], meta=meta or {},
    )  # fmt: skip


def match(work, nodes, **options):
    return matched(work, nodes, uniform_profile(len(work.kinds), len(nodes.kinds)), **options)


def hosts(work, nodes):
    """The names of the nodes that each job may use."""
    work, nodes, _ = match(work, nodes)
    return [
        [nodes.name(n) for n in range(len(nodes)) if int(mask) >> int(nodes.nodes["kind"][n]) & 1]
        for mask in work.jobs["node_kinds"]
    ]


TWO = Site(
    features=FEATURES,
    gpu_kind=("", "", "nvidia-a100-80gb", "v100"),
    partitions=(
        Partition("cpu", ("n0", "n1"), default=True, max_s=3600.0, max_nodes=2),
        Partition("gpu", ("n2", "n3"), accounts=("physics",), deny_qos=("low",)),
        Partition("old", ("n0",), up=False),
        Partition("all", ("n0", "n1", "n2", "n3"), allow_qos=("high",)),
    ),
    qos=(Qos("high"), Qos("low", max_s=60.0, job={"cpu": 2})),
    accounts=(Account("physics"), Account("chem", max_s=100.0)),
)


@pytest.mark.parametrize(
    "labels, nodes",
    [
        ({}, ["n0", "n1"]),  # the default partition
        ({PARTITION: "cpu"}, ["n0", "n1"]),
        ({PARTITION: "gpu", ACCOUNT: "physics"}, ["n2", "n3"]),
        ({PARTITION: "cpu,gpu", ACCOUNT: "physics"}, ["n0", "n1", "n2", "n3"]),
        ({PARTITION: "cpu,gpu", ACCOUNT: "chem"}, ["n0", "n1"]),  # gpu does not take it
        ({PARTITION: "all", QOS: "high", GPU_KIND: "A100"}, ["n2"]),
        ({PARTITION: "all", QOS: "high", GPU_KIND: "v100"}, ["n3"]),
        ({PARTITION: "all", QOS: "high", CONSTRAINT: "ib"}, ["n0", "n2", "n3"]),
        ({PARTITION: "cpu", CONSTRAINT: "ib"}, ["n0"]),
    ],
)
def test_a_job_may_use_the_nodes_of_its_partitions_that_have_what_it_names(labels, nodes):
    assert hosts(jobs(**labels), machine(TWO)) == [nodes]


@pytest.mark.parametrize(
    "labels, words",
    [
        ({PARTITION: "cpus"}, "partition='cpus' is no partition of site.yaml; did you mean 'cpu'?"),
        ({PARTITION: "old"}, "partition='old' is down: partition old takes no jobs"),
        ({PARTITION: "gpu"}, "account='' may not use partition gpu"),
        ({PARTITION: "gpu", ACCOUNT: "physics", QOS: "low"}, "qos='low' may not use partition gpu"),
        ({PARTITION: "all", QOS: "low"}, "qos='low' may not use partition all"),
        ({"request_s": 4000.0}, "request_s=4000 is above the 3600 of partition cpu"),
        ({"instances": 3}, "nodes=3 is above the 2 of partition cpu"),
        ({QOS: "hihg"}, "qos='hihg' is no QOS of site.yaml; did you mean 'high'?"),
        ({QOS: "low", "request_s": 61.0}, "request_s=61 is above the 60 of qos low"),
        ({QOS: "low", "instances": 2}, ""),
        (
            {ACCOUNT: "physic"},
            "account='physic' is no account of site.yaml; did you mean 'physics'",
        ),
        ({ACCOUNT: "chem", "request_s": 101.0}, "request_s=101 is above the 100 of account chem"),
        ({GPU_KIND: "h100"}, "gpu_kind='h100' is no type of GPU in site.yaml; did you mean"),
        ({GPU_KIND: "a100"}, "gpu_kind=a100 together are on no node of site.yaml"),
        ({CONSTRAINT: "intl"}, "constraint='intl' names a feature 'intl' that no node"),
        ({CONSTRAINT: "ib*2"}, "constraint='ib*2' counts nodes (ib*2), which is not modelled"),
        ({CONSTRAINT: "(ib"}, "constraint='(ib' lacks a closing )"),
        ({CONSTRAINT: "[ib|intel]", "instances": 2}, "wants all nodes of one job alike"),
        ({RESERVATION: "maint"}, "reservation='maint' is no reservation of site.yaml; it has none"),
        ({ARRAY: "12%x"}, "array='12%x' is not such as 1234%4"),
        ({EXCLUSIVE: "user"}, "exclusive='user' is not yes or no"),
    ],
)
def test_what_a_site_would_refuse_is_refused_by_name(labels, words):
    if not words:
        match(jobs(**labels), machine(TWO))
        return
    with pytest.raises(TraceError) as problem:
        match(jobs(**labels), machine(TWO))
    assert str(problem.value).startswith("log: job job-0 (row 0): ")
    assert words in str(problem.value)
    assert "--lenient" in str(problem.value)


def test_leniently_such_jobs_are_dropped_and_counted_by_reason():
    names = ["cpu", "cpux", "old", "cpux"]
    work, _, _ = match(jobs(4, **{PARTITION: names}), machine(TWO), lenient=True)
    assert [work.name(j) for j in range(len(work))] == ["job-0"]
    assert work.meta["dropped"] == {
        "partition is no partition of site.yaml": 2,
        "partition is down: partition old takes no jobs": 1,
    }
    with pytest.raises(TraceError, match="all jobs were dropped"):
        match(jobs(2, **{PARTITION: "x"}), machine(TWO), lenient=True)


@pytest.mark.parametrize(
    "text, nodes, options",
    [
        ("intel", [0, 1], 1),
        ("intel&ib", [0], 1),
        ("nvlink|intel&ib", [0, 3], 1),  # from left to right: (nvlink|intel)&ib
        ("nvlink|(intel&ib)", [0, 3], 1),
        ("intel&ib|amd", [0, 2, 3], 1),
        ("intel&(ib|amd)", [0], 1),
        ("[intel|amd]", [0, 1, 2, 3], 2),
        ("[nvlink|nvlink&ib]", [3], 2),
    ],
)
def test_constraints_are_read_as_slurm_reads_them(text, nodes, options):
    found = choose(text, FEATURES)
    assert np.flatnonzero(found.nodes).tolist() == nodes
    assert found.options == options


@pytest.mark.parametrize("text", ["", "a b", "&ib", "ib&", "ib)", "[ib", "ib ib", "intel&&ib"])
def test_a_constraint_that_cannot_be_read_is_no_choice(text):
    with pytest.raises((ValueError, KeyError)):
        choose(text, FEATURES)


def test_kinds_are_split_only_where_jobs_tell_nodes_apart_and_keep_names_and_rates():
    profile = uniform_profile(1, 2)
    profile.rate[0, :, 0] = 1.0, 3.0
    work, nodes, speeds = matched(jobs(**{PARTITION: "cpu"}), machine(TWO), profile)
    assert nodes.kinds == ("plain", "a100")  # the partition is a kind of node by itself
    work, nodes, speeds = matched(jobs(2, **{CONSTRAINT: ["ib", ""]}), machine(TWO), profile)
    assert nodes.kinds == ("plain", "plain", "a100")
    assert nodes.nodes["kind"].tolist() == [0, 1, 2, 2]
    assert speeds.rate[0, :, 0].tolist() == [1.0, 1.0, 3.0]
    assert work.jobs["node_kinds"].tolist() == [0b001, 0b011]
    assert work.jobs["like"][0] != work.jobs["like"][1]


def test_more_kinds_than_a_mask_has_bits_are_an_error():
    names = [f"n{k}" for k in range(65)]
    site = Site(features=tuple((f"f{k}",) for k in range(65)))
    nodes = cluster([8] * 65, names=names, site=site, source="site.yaml")
    work = replace(jobs(65), resources=("cpu",), demand=np.ones((65, 1)))
    work = replace(work, labels={CONSTRAINT: labelled([f"f{k}" for k in range(65)])})
    with pytest.raises(TraceError, match="tell 65 kinds of node apart, and 64 are the most"):
        match(work, nodes)


def test_without_a_site_labels_describe_but_a_gpu_type_must_be_the_name_of_a_kind():
    bare = machine(None)
    named = {PARTITION: "x", QOS: "y", ACCOUNT: "z", CONSTRAINT: "c", RESERVATION: "r", USER: "u"}
    work = jobs(**named)
    assert match(work, bare)[0] is work
    assert hosts(jobs(**{GPU_KIND: "A100"}), bare) == [["n2", "n3"]]
    with pytest.raises(TraceError, match=r"v100. is no type of GPU"):
        match(jobs(**{GPU_KIND: "v100"}), bare)


def test_quotas_group_the_jobs_of_a_qos_its_users_and_the_account_tree():
    site = Site(
        qos=(Qos("long", group={"cpu": 9}, user={"jobs": 2, "nodes": 3}),),
        accounts=(Account("root", group={"gpu": 1}), Account("lab", parent="root")),
    )
    said = {QOS: ["long", "long", ""], USER: ["ada", "bob", "ada"], ACCOUNT: ["lab", "", "root"]}
    work, _, _ = match(jobs(3, **said), machine(site))
    quotas = work.quotas
    assert quotas.names == ("qos long", "qos long, user ada", "qos long, user bob", "account root")
    inf = np.inf
    assert quotas.cap.tolist() == [  # cpu, gpu, jobs, nodes
        [9, inf, inf, inf], [inf, inf, 2, 3], [inf, inf, 2, 3], [inf, 1, inf, inf],
    ]  # fmt: skip
    groups = [quotas.idx[quotas.ptr[j] : quotas.ptr[j + 1]].tolist() for j in range(3)]
    assert groups == [[0, 1, 3], [0, 2], [3]]


@pytest.mark.parametrize(
    "site, said, words",
    [
        (Site(qos=(Qos("q", group={"cpu": 1}),)), {QOS: "q", "instances": 2},
         "job job-0 (row 0): cpu=2 is above the 1 of qos q"),
        (Site(qos=(Qos("q", user={"jobs": 1}),)), {QOS: "q"},
         "site.yaml: qos q limits each user, but log does not say the user of its jobs"),
        (Site(qos=(Qos("q", group={"fpga": 1}),)), {QOS: "q"},
         "site.yaml: qos q: limit fpga=1 is on nothing that the cluster has (cpu, gpu, jobs,"),
    ],
)  # fmt: skip
def test_a_limit_that_no_job_or_cluster_can_keep_to_is_named(site, said, words):
    with pytest.raises(TraceError) as problem:
        match(jobs(**said), machine(site))
    assert words in str(problem.value)


def test_reservations_become_gates_by_the_clock_of_the_log():
    site = Site(
        reservations=(
            Reservation("gone", ("n0",), 0.0, 900.0),
            Reservation("maint", ("n1", "n3"), 1100.0, 1200.0, users=("ada",)),
        )
    )
    named = {RESERVATION: ["maint", ""], USER: ["ada", "bob"]}
    work, nodes, _ = match(jobs(2, meta={"epoch_s": 1000.0}, **named), machine(site))
    assert work.reserved.tolist() == [0, -1]
    gate = nodes.gates[0]
    assert len(nodes.gates) == 1
    assert (gate["from_s"], gate["to_s"]) == (100.0, 200.0)
    on = [int(gate["kinds"]) >> int(kind) & 1 for kind in nodes.nodes["kind"]]
    assert on == [0, 1, 0, 1]
    assert hosts(jobs(2, meta={"epoch_s": 1000.0}, **named), machine(site)) == [
        ["n1", "n3"], ["n0", "n1", "n2", "n3"],
    ]  # fmt: skip
    for named, words in (
        ({RESERVATION: "maint", USER: "bob"}, "user='bob' may not use reservation maint"),
        ({RESERVATION: "gone", USER: "bob"}, "reservation='gone' ended before the job came"),
    ):
        with pytest.raises(TraceError) as problem:
            match(jobs(meta={"epoch_s": 1000.0}, **named), machine(site))
        assert words in str(problem.value)
    with pytest.raises(TraceError, match="does not say when its time 0 was"):
        match(jobs(), machine(site))


def test_a_job_without_a_time_limit_gets_that_of_its_partition():
    site = Site(partitions=(Partition("p", ("n0",), default=True, default_s=60.0, max_s=100.0),))
    work, _, _ = match(jobs(2, request_s=[np.inf, 5.0]), machine(site))
    assert work.jobs["request_s"].tolist() == [60.0, 5.0]


def test_processors_of_an_exclusive_job_become_whole_nodes():
    # 20 processors on nodes of eight cores: three nodes of their own, eight cores each
    work = jobs(1, instances=20, meta={"nodes": "shared"}, **{EXCLUSIVE: "yes"})
    work, nodes, _ = match(work, machine(None))
    assert work.jobs["instances"].tolist() == [3]
    assert work.demand.tolist() == [[8.0, 0.0, 1.0]]
    assert nodes.capacity[:, -1].tolist() == [1.0] * 4


def test_instances_are_nodes_unless_they_are_processors():
    site = Site(partitions=(Partition("p", ("n0", "n1"), max_nodes=2),))
    match(jobs(1, instances=16, meta={"nodes": "shared"}), machine(site))  # 16 / 8 = 2 nodes
    with pytest.raises(TraceError, match="nodes=16 is above the 2"):
        match(jobs(1, instances=16), machine(site))


def test_a_job_too_wide_for_its_nodes_is_told_how_many_it_may_use():
    work, nodes, _ = match(jobs(1, instances=17, **{GPU_KIND: "a100"}), machine(None))
    with pytest.raises(
        TraceError, match=r"can never run on site.yaml \(4 nodes, of which it may use 2;"
    ):
        check_hostable(work, nodes)


def test_speeds_on_kinds_that_were_split_stay_in_one_block_for_compiled_code():
    site = Site(partitions=(Partition("p", ("n0",)), Partition("q", ("n1", "n2", "n3"))))
    work = jobs(2, partition=["p", "q"])
    profile = uniform_profile(len(work.kinds), 2)
    _, made, split = matched(work, machine(site), profile)
    assert len(made.kinds) == 3 and split.rate.shape[1] == 3
    assert split.rate.flags.c_contiguous and split.draw.flags.c_contiguous
