"""The same site read from the dumps of every release: one cluster, one set of rules."""

import itertools
import subprocess

import pytest
from tests.unit.traces.dumps import versions
from tests.unit.traces.dumps.versions import VERSIONS, WITH_JSON, write_all

from trimtab.errors import TraceError
from trimtab.site import Account, Partition, Qos, Reservation
from trimtab.traces.dumps import slurm
from trimtab.traces.dumps.slurm import from_slurm
from trimtab.traces.scenes.cluster_file import read_cluster, save_cluster

TEN = 1_741_593_600  # 2025-03-10T08:00:00
DAY_S = 86400.0


def written(tmp_path, *texts: str):
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"dump{number}.txt")
        paths[-1].write_text(text)
    return paths


def hardware(made) -> list[tuple]:
    rows = zip(made.names.tolist(), made.capacity.tolist(), made.nodes["kind"].tolist())
    return [(name, capacity, made.kinds[kind]) for name, capacity, kind in rows]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_tells_the_same_nodes_and_rules(tmp_path, version):
    made, _, notes = from_slurm(write_all(tmp_path, version))
    # (515000 - 1000) / 1024 = 501.953125; 64 CPUs less one core of two threads = 62
    assert hardware(made) == [
        ("cpu1", [32, 125, 0], "cpu"),
        ("gpu01", [62, 501.953125, 8], "a100"),
        ("gpu02", [62, 501.953125, 8], "a100"),
    ]
    assert made.site.gpu_kind == ("", "a100", "a100")
    assert made.site.features == ((), ("a100", "nvlink"), ("a100", "nvlink"))
    gpus = ("gpu01", "gpu02")
    assert made.site.partitions == (
        Partition("cpu", ("cpu1",), default=True, max_s=DAY_S, default_s=3600),
        Partition("gpu", gpus, max_s=2 * DAY_S, default_s=3600, tier=5),
        Partition("all", ("cpu1", *gpus), default_s=3600),
    )
    assert made.site.qos == (
        Qos("normal"),
        Qos("urgent", 100, ("normal",), 4 * 3600, user={"gpu": 4, "mem_gb": 512, "jobs": 8}),
    )
    assert made.site.accounts == (
        Account("science", shares=3, group={"cpu": 500}),
        Account("physics", "science", 2, users={"ana": 1, "bo": 4}),
        Account("art"),
    )
    assert made.site.reservations == (
        Reservation("course", ("gpu01",), TEN, TEN + 12 * 3600, users=("ana", "bo")),
    )
    assert made.site.slurm["PriorityWeightFairShare"] == "10000"
    assert made.site.slurm["SchedulerParameters"] == "bf_interval=30,bf_window=4320"
    assert "SlurmctldPort" not in made.site.slurm
    assert notes[0].startswith("cpu[2-3]: down, drained or not answering, left out")


def test_the_order_of_files_makes_no_difference_to_the_cluster(tmp_path):
    paths = write_all(tmp_path, "23.11")
    first = from_slurm(paths).cluster
    for order in itertools.islice(itertools.permutations(paths), 0, 720, 97):
        again = from_slurm(order).cluster
        assert hardware(again) == hardware(first) and again.site == first.site


def test_all_dumps_in_one_file_are_read_alike(tmp_path):
    paths = write_all(tmp_path, "24.05")
    (whole,) = written(tmp_path, "\n".join(path.read_text() for path in paths))
    assert from_slurm([whole]).cluster.site == from_slurm(paths).cluster.site


@pytest.mark.parametrize("version", ["20.11", "24.11"])
def test_a_record_in_one_line_is_the_record_of_several(tmp_path, version):
    lines = versions.nodes_text(version, oneliner=True)
    parts = versions.partitions_text(version, oneliner=True)
    assert len(lines.splitlines()) == 5 and len(parts.splitlines()) == 3
    one = from_slurm(written(tmp_path, lines, parts)).cluster
    several = from_slurm(
        written(tmp_path, versions.nodes_text(version), versions.partitions_text(version))
    ).cluster
    assert hardware(one) == hardware(several) and one.site == several.site


@pytest.mark.parametrize("version", WITH_JSON)
def test_json_of_nodes_tells_what_the_text_tells(tmp_path, version):
    told = from_slurm(written(tmp_path, versions.nodes_json(version))).cluster
    text = from_slurm(written(tmp_path, versions.nodes_text(version))).cluster
    assert hardware(told) == hardware(text) and told.site == text.site


@pytest.mark.parametrize("version", ["23.02", "24.11"])
def test_json_of_partitions_tells_what_the_text_tells(tmp_path, version):
    nodes = versions.nodes_text(version)
    told = from_slurm(written(tmp_path, nodes, versions.partitions_json(version))).cluster
    text = from_slurm(written(tmp_path, nodes, versions.partitions_text(version))).cluster
    assert told.site.partitions == text.site.partitions


@pytest.mark.parametrize("bars", [True, False])
def test_sinfo_tells_nodes_and_who_is_in_which_partition(tmp_path, bars):
    made, _, notes = from_slurm(written(tmp_path, versions.sinfo_text(bars=bars)))
    # sinfo knows nothing of what is reserved: 515000 / 1024
    assert made.capacity[1].tolist() == [62, 515000 / 1024, 8]
    assert {part.name: (part.nodes, part.default) for part in made.site.partitions} == {
        "cpu": (("cpu1",), True),
        "gpu": (("gpu01", "gpu02"), False),
        "all": (("cpu1", "gpu01", "gpu02"), False),
    }
    assert "cpu[2-3]" in notes[0]


def test_json_of_sinfo_tells_what_its_table_tells(tmp_path):
    told = from_slurm(written(tmp_path, versions.sinfo_json())).cluster
    text = from_slurm(written(tmp_path, versions.sinfo_text(bars=True))).cluster
    assert hardware(told) == hardware(text)
    sets = [{part.name: part.nodes for part in one.site.partitions} for one in (told, text)]
    assert sets[0] == sets[1]


def test_nodes_that_are_down_are_kept_where_asked(tmp_path):
    made, _, notes = from_slurm(write_all(tmp_path, "22.05"), keep_down=True)
    assert made.names.tolist() == ["cpu1", "cpu2", "cpu3", "gpu01", "gpu02"]
    assert made.site.partitions[0].nodes == ("cpu1", "cpu2", "cpu3")
    # 127500 MB and 128000 MB are one kind of node
    assert made.kinds == ("cpu", "a100") and notes == []


def test_nodes_alone_say_who_is_in_which_partition_and_that_limits_are_missing(tmp_path):
    made, _, notes = from_slurm(written(tmp_path, versions.nodes_text("23.11")))
    assert {part.name for part in made.site.partitions} == {"all", "cpu", "gpu"}
    assert "scontrol show partition" in notes[-1]


def test_a_slurm_conf_tells_nodes_partitions_and_parameters_in_any_case(tmp_path):
    conf = """\
# of a small site
ClusterName=tt
priorityweightage=500   # a comment
SchedulerParameters=bf_continue
NodeName=DEFAULT Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=256000
NodeName=n[1-2] Feature=ib Weight=5
NodeName=g1 CPUs=32 Gres=gpu:v100:2 \\
    RealMemory=64000
PartitionName=DEFAULT MaxTime=1440 State=UP
PartitionName=batch Nodes=n[1-2],g1 Default=YES
PartitionName=long Nodes=n[1-2] MaxTime=7-0 OverSubscribe=EXCLUSIVE
"""
    made = from_slurm(written(tmp_path, conf)).cluster
    # 2 sockets of 16 cores of 2 threads = 64
    assert hardware(made) == [
        ("g1", [32, 62.5, 2], "v100"),
        ("n1", [64, 250, 0], "cpu"),
        ("n2", [64, 250, 0], "cpu"),
    ]
    assert made.site.weight == (1, 5, 5)
    batch, long = made.site.partitions
    assert (batch.max_s, batch.default, batch.exclusive) == (DAY_S, True, False)
    assert (long.max_s, long.exclusive, long.nodes) == (7 * DAY_S, True, ("n1", "n2"))
    assert made.site.slurm == {"SchedulerParameters": "bf_continue", "PriorityWeightAge": "500"}


def test_the_switches_of_a_topology_are_regions(tmp_path):
    topology = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=gpu[01-02]\n"
    topology += "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=cpu[1-3]\n"
    topology += "SwitchName=top Level=1 LinkSpeed=1 Nodes=gpu[01-02],cpu[1-3] Switches=s[0-1]\n"
    made = from_slurm(written(tmp_path, versions.nodes_text("23.11"), topology)).cluster
    regions = [made.regions[region] for region in made.nodes["region"]]
    assert regions == ["s1", "s0", "s0"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("NodeName=a CPUTot=x RealMemory=1", [":1: CPUTot=x", "whole number"]),
        ("NodeName=a RealMemory=1000", ["CPUTot=", "leaves node a nothing", "%c"]),
        ("NodeName=a CPUTot=4", ["RealMemory=", "leaves node a nothing", "%m"]),
        ("NodeName=a[1 CPUTot=4", ["NodeName=a[1", "bracket too many", "node[01-04"]),
        ("NodeName=a CPUTot=4 RealMemory=9 Gres=gpu:a:b:c", ["Gres=gpu:a:b:c", "gpu:a100:8"]),
        ("NodeName=a CPUTot=4 RealMemory=9 Gres=gpu:65", ["Gres=gpu:65", "more than 64"]),
        ("NodeName=a CPUTot=4 RealMemory=9 State=DOWN", ["all nodes are down", "--keep-down"]),
        ("PartitionName=p Nodes=a", ["no dump tells of nodes", "scontrol show node"]),
        ("hello world", [":1: 'hello world'", "sinfo", "drop it"]),
        ("", ["holds nothing", "scontrol show node"]),
        ("NODELIST CPUS MEMORY\na 64+ 1000", [":2: CPUTot=64+", "sinfo -N"]),
        ("NODELIST CPUS MEMORY\na 64", [":2: 'a 64'", "2 fields", "3", "sinfo -N -o"]),
        ("Name|Priority\n----|----", [":2: is a table for the screen", "-P"]),
        ("{", ["is not JSON", "make the dump again"]),
        ('{"jobs": []}', ["has none of nodes", "scontrol show node --json"]),
        ('{"nodes": 3}', ["nodes=3 is no list", "make the dump again"]),
        ('{"nodes": [3]}', ["nodes[1]", "scontrol show node instead"]),
    ],
)
def test_what_cannot_be_read_is_a_sentence_with_place_value_and_remedy(tmp_path, text, parts):
    paths = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        from_slurm(paths)
    for part in (str(paths[0]), *parts):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "parts"),
    [
        ("MaxTime=soon", ["MaxTime=soon", "time limit"]),
        ("MaxNodes=many", ["MaxNodes=many", "number"]),
        ("Nodes=a[", ["Nodes=a[", "bracket"]),
    ],
)
def test_a_wrong_field_of_a_partition_is_named(tmp_path, field, parts):
    nodes = "NodeName=a CPUTot=4 RealMemory=9\n\n"
    with pytest.raises(TraceError) as caught:
        from_slurm(written(tmp_path, f"{nodes}PartitionName=p {field}"))
    for part in (":3: ", *parts):
        assert part in str(caught.value)


def test_what_is_not_modelled_is_said_by_name(tmp_path):
    text = "NodeName=a CPUTot=4 RealMemory=9 Gres=gpu:a100:2,gpu:t4:1\n\n"
    text += "PartitionName=p Nodes=a,b AllowGroups=chem MaxCPUsPerNode=8 QoS=big"
    text += " OverSubscribe=FORCE:4\n"
    text += "ReservationName=r Nodes=a Users=-bo Flags=DAILY StartTime=2025-03-10T08:00:00"
    text += " EndTime=2025-03-10T09:00:00\n\n"
    text += "Name|Priority|GrpTRESMins|MaxTRES\nnormal|0|cpu=100|license/x=2\n"
    made, _, notes = from_slurm(written(tmp_path, text))
    said = "\n".join(notes)
    for part in (
        "partition p: AllowGroups=chem is not modelled",
        "partition p: MaxCPUsPerNode=8 is not modelled",
        "partition p: no dump tells of node b; left out",
        "partition p: OverSubscribe=FORCE:4 is not modelled",
        "partition p: the limits of its QOS big are not known",
        "a: its t4 are taken as a100: one model a node",
        "qos normal: GrpTRESMins=cpu=100 is not modelled",
        "qos normal: MaxTRES=license/x=2 is not modelled",
        "reservation r: DAILY is not modelled",
        "reservation r: those whom it keeps out",
    ):
        assert part in said
    assert made.capacity[0, 2] == 3 and made.site.partitions[0].qos == ""


def test_a_list_without_states_is_taken_as_up_and_says_so(tmp_path):
    text = "NODELIST CPUS MEMORY GRES\nn1 4 1000 (null)\nn2 4 1000 (null)\n"
    made, _, notes = from_slurm(written(tmp_path, text))
    assert len(made) == 2 and notes == [
        "n[1-2]: no state is told, taken as up (sinfo tells it with %T)"
    ]


def test_limits_that_a_user_inherits_are_said_once(tmp_path):
    text = versions.nodes_text("22.05") + "\nCluster|Account|User|Share|ParentName|MaxJobs\n"
    text += "tt|root||1||\ntt|art||1|root|20\ntt|art|ana|1||20\ntt|art|bo|1||5\n"
    made, _, notes = from_slurm(written(tmp_path, text))
    said = [note for note in notes if "MaxJobs" in note]
    assert said == [
        "account art: MaxJobs=20 is not modelled",
        "user bo of art: MaxJobs=5 is not modelled",
    ]
    assert made.site.accounts == (Account("art", users={"ana": 1, "bo": 1}),)


def test_two_clusters_in_one_list_of_accounts_are_refused(tmp_path):
    text = versions.assoc_text("23.11").replace("tt| art", "other| art")
    with pytest.raises(TraceError, match=r"is one of 2 .*add cluster=NAME"):
        from_slurm([*write_all(tmp_path, "23.11"), *written(tmp_path, text)])


def test_the_file_that_is_written_reads_back_the_same(tmp_path):
    made, comments, _ = from_slurm(write_all(tmp_path, "23.11"))
    save_cluster(made, tmp_path / "c.yaml", comments=comments)
    back, _ = read_cluster(tmp_path / "c.yaml")
    assert hardware(back) == hardware(made) and back.site == made.site
    first = (tmp_path / "c.yaml").read_bytes()
    save_cluster(
        *[from_slurm(write_all(tmp_path, "23.11")).cluster, tmp_path / "c.yaml"], comments=comments
    )
    assert (tmp_path / "c.yaml").read_bytes() == first


def test_without_files_the_client_is_asked_and_without_a_client_files_are_asked_for(monkeypatch):
    answers = {"node": versions.nodes_text("23.11"), "partition": versions.partitions_text("23.11")}

    def run(command, **_):
        text = answers.get(command[2], "")
        return subprocess.CompletedProcess(command, 0 if text else 1, text, "no such thing")

    monkeypatch.setattr(slurm.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(slurm.subprocess, "run", run)
    made = from_slurm([]).cluster
    assert len(made) == 3 and made.source == "Slurm: scontrol show node, scontrol show partition"
    answers.clear()
    with pytest.raises(TraceError, match="scontrol show node: no such thing; give its output"):
        from_slurm([])
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    with pytest.raises(TraceError, match="scontrol is not on this machine; give files"):
        from_slurm([])
