"""Packer is one policy: in the loop, compiled whole, and where lists are packed."""

import numpy as np
import pytest
from tests.worlds import Logged, random_cluster, random_jobs, random_profile

from trimtab.build import cluster, workload
from trimtab.policies import named
from trimtab.policies.packer.policy import PackerPolicy
from trimtab.rules.worth import CLASSES, FEATURES, write_weights
from trimtab.run import run
from trimtab.sim import packing
from trimtab.sim.backend import events_of
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models, outages

SHAPE = (len(CLASSES), len(FEATURES))


@pytest.mark.parametrize("seed", range(4))
def test_own_weights_decide_alike_in_the_loop_and_compiled(tmp_path, seed):
    rng = np.random.default_rng(seed)
    machine, jobs = random_cluster(rng), random_jobs(rng)
    models = Models(startup_s=2.0, outages=outages(machine, 500.0, rng, mtbf_s=600.0, mttr_s=40.0))
    write_weights(tmp_path / "packer.json", rng.normal(size=SHAPE))
    policy = named(f"packer:{tmp_path}")
    stepped = Logged(jobs, machine, random_profile(), models)
    run(stepped, policy)
    whole = policy.whole(jobs, machine, random_profile(), models, log=True)
    assert events_of(whole.log) == stepped.seen
    assert whole.totals == stepped.snapshot().totals
    assert stepped.total("refused") == 0


def test_weights_of_a_file_place_otherwise_than_the_shipped_ones(tmp_path):
    """Two nodes with room: one feature alone chooses, by the sign of its weight."""
    machine = cluster([[8, 2], [8, 8]], resources=("cpu", "gpu"))
    jobs = workload([0.0], 5.0, [[1, 1]], resources=("cpu", "gpu"), gpus=1)
    for sign, node in ((1.0, 1), (-1.0, 0)):
        weights = np.zeros(SHAPE)
        weights[:, list(FEATURES).index("devices")] = sign
        write_weights(tmp_path / "packer.json", weights)
        done = PackerPolicy(tmp_path).whole(jobs, machine, random_profile(), Models(), log=True)
        started = [event for event in events_of(done.log) if event.nodes]
        assert {event.nodes for event in started} == {(node,)}


def many_pods(rng, count=400):
    """Amounts that a binary fraction holds exactly, so that both engines add alike."""
    gpus = rng.choice([0, 1, 1, 1, 2, 4], count)
    share = np.where(gpus == 1, rng.choice([0.25, 0.5, 0.75, 1.0], count), 1.0)
    return gpus, share, rng.choice([2, 4, 8, 16], count), rng.choice([4, 8, 32], count)


@pytest.mark.parametrize("seed", range(3))
def test_the_engine_places_pods_where_the_packing_of_a_list_does(seed):
    rng = np.random.default_rng(seed)
    gpus, share, cpu, mem_gb = many_pods(rng)
    nodes = {
        "sn": np.array([f"n{i:02d}" for i in range(40)]),
        "cpu_milli": np.repeat([96_000, 64_000, 32_000], [20, 12, 8]),
        "memory_mib": np.repeat([384, 128, 256], [20, 12, 8]) * 1024,
        "gpu": np.repeat([8, 2, 4], [20, 12, 8]),
        "model": np.full(40, "G2"),
    }
    pods = {
        "cpu_milli": cpu * 1000,
        "memory_mib": mem_gb * 1024,
        "num_gpu": gpus,
        "gpu_milli": np.where(gpus > 0, share * 1000, 0).astype(np.int64),
        "gpu_spec": np.full(len(gpus), ""),
    }
    # quarters: what both engines add is exact, whatever the order
    weights = rng.integers(-8, 9, SHAPE) / 4
    weights[:, list(FEATURES).index("relief")] = 0.0  # each engine has an expected mix of its own
    packed = packing.pack(
        *packing.columns(nodes, pods), np.arange(len(gpus)), packing.PACKER, weights=weights
    )
    fit = int(np.flatnonzero(packed.node < 0)[0]) if (packed.node < 0).any() else len(gpus)
    assert fit > 60  # as long as none is dropped the two are the same question
    machine = cluster(
        np.stack((nodes["cpu_milli"] / 1000, nodes["memory_mib"] / 1024, nodes["gpu"]), 1),
        resources=("cpu", "mem_gb", "gpu"),
    )
    jobs = workload(
        np.arange(fit, dtype=float), 1e6, np.stack((cpu, mem_gb, gpus * share), 1)[:fit],
        resources=("cpu", "mem_gb", "gpu"), gpus=gpus[:fit], gpu_share=share[:fit],
    )  # fmt: skip
    done = simulate(jobs, machine, "fcfs+greedy+packer", log=True, packer=weights)
    placed = {e.job: e.nodes[0] for e in events_of(done.log) if e.nodes}
    assert [placed[job] for job in range(fit)] == packed.node[:fit].tolist()
