"""The rules in a cluster file: read, refused by name, and written back the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.build import cluster
from trimtab.errors import TraceError
from trimtab.site import Account, Partition, Qos, Reservation, Site
from trimtab.traces.scenes.cluster_file import read_cluster, save_cluster

NODES = """
nodes:
  - {kind: a100, count: 2, cpu: 64, mem_gb: 512, gpu: 8, gpu_kind: a100, features: [nvlink, ib],
     names: "gpu[01-02]"}
  - {kind: cpu, count: 3, cpu: 32, mem_gb: 128, weight: 5}
"""
RULES = """
site:
  partitions:
    - {name: gpu, nodes: "gpu[01-02]", max_s: 86400, tier: 2, preempt: requeue, qos: short}
    - {name: all, nodes: all, default: true, accounts: [physics]}
    - {name: spare, nodes: [cpu, gpu01], up: false, exclusive: true}
  qos:
    - {name: normal}
    - {name: short, priority: 100, preempts: [normal], user: {gpu: 8, jobs: 20, nodes: 2}}
  accounts:
    - {name: science, shares: 3, group: {cpu: 100}}
    - {name: physics, parent: science, users: {ana: 2, bo: 1}}
  reservations:
    - {name: course, nodes: gpu01, start_s: 1741600000, end_s: 1741680000, users: [ana]}
  slurm: {PriorityWeightAge: 1000, SchedulerParameters: "bf_interval=30", PriorityFavorSmall: no}
"""
CPUS = ("cpu-2", "cpu-3", "cpu-4")


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return path

    return write


def test_rules_are_read_with_the_nodes_that_they_name(file):
    made, _ = read_cluster(file(NODES + RULES))
    assert made.names.tolist() == ["gpu01", "gpu02", *CPUS]
    assert made.site.gpu_kind == ("a100", "a100", "", "", "")
    assert made.site.features == (("nvlink", "ib"), ("nvlink", "ib"), (), (), ())
    assert made.site.weight == (1, 1, 5, 5, 5)
    gpu, everything, spare = made.site.partitions
    assert gpu == Partition(
        "gpu", ("gpu01", "gpu02"), max_s=86400, tier=2, preempt="requeue", qos="short"
    )
    assert everything.nodes == ("gpu01", "gpu02", *CPUS) and everything.default
    assert spare.nodes == (*CPUS, "gpu01") and spare.exclusive and not spare.up
    short = Qos("short", 100, ("normal",), user={"gpu": 8, "jobs": 20, "nodes": 2})
    assert made.site.qos == (Qos("normal"), short)
    assert made.site.accounts[1] == Account("physics", "science", users={"ana": 2, "bo": 1})
    course = Reservation("course", ("gpu01",), 1741600000, 1741680000, users=("ana",))
    assert made.site.reservations == (course,)
    assert made.site.slurm == {
        "PriorityWeightAge": "1000",
        "SchedulerParameters": "bf_interval=30",
        "PriorityFavorSmall": "NO",
    }


def test_a_file_without_rules_features_or_models_has_no_site(file):
    assert read_cluster(file("- {kind: a, cpu: 4}"))[0].site is None
    assert read_cluster(file("- {kind: a, cpu: 4, gpu: 1, gpu_kind: t4}"))[0].site.gpu_kind == (
        "t4",
    )


def test_rules_are_written_and_read_back_the_same(file, tmp_path):
    made, _ = read_cluster(file(NODES + RULES))
    save_cluster(made, tmp_path / "again.yaml", comments={"": "ours\nby hand", "qos": "of ours"})
    back, _ = read_cluster(tmp_path / "again.yaml")
    assert back.site == made.site and back.names.tolist() == made.names.tolist()
    assert (back.capacity == made.capacity).all() and (back.nodes == made.nodes).all()
    text = (tmp_path / "again.yaml").read_text()
    assert text.startswith("# ours\n# by hand\nsource:") and "  # of ours\n  qos:" in text
    assert "names: 'gpu[01-02]'" in text and "nodes: 'gpu[01-02]'" in text


NAMES = st.text("ab-_.=/+é #:'", min_size=1, max_size=8)
SPANS = st.one_of(st.just(np.inf), st.floats(0, 1e9))
LIMITS = st.dictionaries(st.sampled_from(["cpu", "mem_gb", "jobs", "nodes"]), st.floats(0, 1e6))


@given(
    st.lists(
        st.builds(
            Partition,
            NAMES,
            st.just(("n1", "n2")),
            max_s=SPANS,
            default=st.booleans(),
            tier=st.integers(0, 9),
            factor=st.floats(0, 1e4),
            accounts=st.lists(NAMES, max_size=2).map(tuple),
        ),
        max_size=3,
        unique_by=lambda part: part.name,
    ),
    st.lists(
        st.builds(Qos, NAMES, max_s=SPANS, group=LIMITS), max_size=3, unique_by=lambda q: q.name
    ),
    st.dictionaries(NAMES, NAMES, max_size=3),
)
def test_any_rules_are_read_back_the_same(tmp_path_factory, partitions, qos, slurm):
    path = tmp_path_factory.mktemp("rules") / "c.yaml"
    site = Site(
        features=((), ()),
        gpu_kind=("", ""),
        partitions=tuple(partitions),
        qos=tuple(qos),
        slurm=slurm,
    )
    made = cluster([[4, 8], [4, 8]], resources=("cpu", "mem_gb"), names=["n1", "n2"], site=site)
    save_cluster(made, path)
    back = read_cluster(path)[0].site
    if partitions or qos or slurm:
        assert back == site


@pytest.mark.parametrize(
    ("rules", "parts"),
    [
        ("partition: []", ["site: field 'partition'", "did you mean 'partitions'?"]),
        ("partitions: {}\n  qos: 3", ["qos=3 is no list", "- {name: ...}"]),
        ("partitions: [{nodes: all}]", ["partitions: number 1: name is missing", "add name"]),
        ("partitions: [{name: p}]", ["partitions: p: nodes is missing"]),
        ("partitions: [{name: p, nodes: gpu03}]", ["p: nodes: 'gpu03' is no", "'gpu02'"]),
        ("partitions: [{name: p, nodes: 'g[2-1]'}]", ["p: nodes=g[2-1]", "runs backwards"]),
        ("partitions: [{name: p, nodes: 3}]", ["p: nodes=3 is no list of names"]),
        ("partitions: [{name: p, nodes: all, tier: 1.5}]", ["tier=1.5", "whole number"]),
        ("partitions: [{name: p, nodes: all, max_s: 1 day}]", ["max_s='1 day'", "unit"]),
        ("partitions: [{name: p, nodes: all, default: 1}]", ["default=1 is neither true nor"]),
        ("partitions: [{name: p, nodes: all, time: 1}]", ["p: field 'time'", "known: name, nodes"]),
        ("partitions: [{name: p, nodes: all, qos: x}]", ["p: qos: QOS 'x'", "is unknown"]),
        ("partitions: [{name: p, nodes: all}, {name: p, nodes: all}]", ["'p' stands there twice"]),
        ("qos: [{name: q, user: {gpus: 1}}]", ["q: user: field 'gpus'", "did you mean 'gpu'?"]),
        ("qos: [{name: q, user: {gpu: -1}}]", ["q: user: gpu=-1 is below 0"]),
        ("qos: [{name: q, preempts: [low]}]", ["q: preempts: QOS 'low'"]),
        ("accounts: [{name: a, parent: b}]", ["a: parent: account 'b'", "known: a"]),
        ("accounts: [{name: no}]", ["number 1: name=False is not a name", "quotes"]),
        ("reservations: [{name: r, nodes: all, start_s: 0}]", ["r: end_s is missing"]),
        ("slurm: {PriorityWeightAge: [1]}", ["slurm: PriorityWeightAge=[1] is no text"]),
    ],
)
def test_a_wrong_rule_is_refused_by_file_field_value_and_remedy(file, rules, parts):
    path = file(f"{NODES}site:\n  {rules}")
    with pytest.raises(TraceError) as caught:
        read_cluster(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)
