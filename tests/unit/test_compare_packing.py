"""`trimtab compare` where pods are packed: drawn lists and orders, packer with its weights."""

import numpy as np
import pytest

from trimtab.compare import answers, check_names, metrics_of, packs
from trimtab.comparison import Question
from trimtab.errors import TraceError, UnknownName
from trimtab.rules.worth import CLASSES, FEATURES, write_weights

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(
    f"p{i},2000,4096,1,{250 if i % 2 else 1000}\n" for i in range(8)
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,32000,65536,4,T4\nb,32000,65536,4,T4\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "nodes.csv").write_text(NODES)
    return {"trace": str(tmp_path / "pods.csv"), "cluster": str(tmp_path / "nodes.csv")}


def test_packer_packs_beside_packers_and_replays_beside_rules():
    assert packs(Question(policies=("packer", "fgd")))
    assert packs(Question(policies=("packer",), order="drawn"))
    assert packs(Question(policies=("packer",), trace="openb"))
    assert not packs(Question(policies=("packer", "fcfs")))
    check_names(Question(policies=("packer", "fcfs")))
    with pytest.raises(UnknownName, match="packing policy 'fcfs'"):
        check_names(Question(policies=("packer", "fgd", "fcfs")))


def test_drawn_lists_are_those_of_their_seed():
    question = Question(policies=("packer", "fgd", "packer"), trace="openb", seeds=2, jobs=150)
    found = list(answers(question))
    assert [(one.policy, one.seed) for one in found] == [
        (name, seed) for seed in (0, 1) for name in question.policies
    ]
    filled = [metrics_of(one)["gpu_allocation"] for one in found]
    assert filled[0] == filled[2] and filled[0] != filled[3]


def test_an_order_is_drawn_anew_by_each_seed_and_meets_the_load(files):
    question = Question(policies=("packer", "fgd"), order="drawn", seeds=3, load=0.8, **files)
    found = list(answers(question))
    for one in found:
        assert 0.7 < metrics_of(one)["gpu_arrived"] <= 0.8
        assert metrics_of(one)["dropped"] == 0
    orders = {tuple(one.workload.demand[:, 2]) for one in found}
    assert len(orders) > 1


def test_weights_of_a_folder_go_into_the_packing(files, tmp_path):
    """By the weight of devices that are opened, parts share one GPU or take one each."""
    spread = {}
    for sign in (1.0, -1.0):
        weights = np.zeros((len(CLASSES), len(FEATURES)))
        weights[:, list(FEATURES).index("fresh")] = sign
        write_weights(tmp_path / "packer.json", weights)
        question = Question(policies=(f"packer:{tmp_path}", "fgd"), jobs=2, **files)
        done = next(answers(question)).workload.meta["packing"]
        spread[sign] = len(set(done.node.tolist()))
    assert spread == {1.0: 2, -1.0: 1}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"trace": "openb", "cluster": "nodes.csv"}, "leave --cluster out"),
        ({"trace": "openb", "order": "drawn"}, "leave --order out"),
        ({"trace": "pods.csv"}, "give --cluster NODES.csv"),
        ({"trace": "pods.csv", "cluster": "nodes.csv", "load": 1.2}, "add --order drawn"),
    ],
)
def test_what_does_not_go_together_is_refused(given, told):
    with pytest.raises(TraceError, match=told):
        list(answers(Question(policies=("packer", "fgd"), **given)))
