"""What Slurm says of a node: its GPUs, its state, and what a person would call it."""

import pytest

from trimtab.traces.dumps.nodes import Node, away, gpus_of, kinds_of


def node(cpu: float = 32, mem_gb: float = 128, gpu: int = 0, model: str = "", state: str = "IDLE"):
    return Node("n", cpu, mem_gb, gpu, model, (), "all", 1, state, (), (), "")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:t4", {"t4": 1}),
        ("gpu:a100:no_consume:4", {"a100": 4}),
        ("gpu:a100:3(IDX:0,1,2),gpu:v100:2,nvme:4", {"a100": 3, "v100": 2}),
        ("gpu:1g.5gb:7(S:0),gpu:1g.5gb:7(S:1)", {"1g.5gb": 14}),
        ("shard:a100:16,mps:100", {}),
        ("", {}),
        ("gpu:a:b:c", None),
    ],
)
def test_gpus_are_counted_by_model(gres, gpus):
    assert gpus_of(gres) == gpus


@pytest.mark.parametrize(
    ("state", "gone"),
    [
        *((state, False) for state in ("IDLE", "mix", "allocated", "idle~", "IDLE+CLOUD")),
        *((state, False) for state in ("IDLE+POWERED_DOWN", "resv", "maint", "PLANNED", "comp")),
        *((state, True) for state in ("DOWN", "down*", "IDLE*", "IDLE+DRAIN", "drng", "drained")),
        *(
            (state, True)
            for state in ("MIXED+DRAIN", "fail", "futr", "unk*", "IDLE+NOT_RESPONDING")
        ),
    ],
)
def test_nodes_where_no_job_starts_are_away(state, gone):
    assert away(node(state=state)) == gone


@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        ([node(), node(gpu=4, model="A100")], ["cpu", "a100"]),
        ([node(gpu=1), node()], ["gpu", "cpu"]),
        ([node(gpu=4, model="a100"), node(gpu=8, model="a100")], ["a100-4x", "a100-8x"]),
        ([node(mem_gb=125.5), node(mem_gb=128)], ["cpu", "cpu"]),
        ([node(mem_gb=128), node(mem_gb=512)], ["cpu-128g", "cpu-512g"]),
        ([node(cpu=64, mem_gb=128), node(mem_gb=64)], ["cpu-64c-128g", "cpu-32c-64g"]),
    ],
)
def test_a_kind_has_the_shortest_name_that_tells_it_from_others(nodes, kinds):
    assert kinds_of(nodes) == kinds
