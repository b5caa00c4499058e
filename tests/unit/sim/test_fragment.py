"""The scores of the FGD paper on nodes small enough to work out by hand."""

import numpy as np
import pytest

from trimtab.rules.worth import CLASSES, FEATURES
from trimtab.sim import fragment, packing
from trimtab.sim.fragment import ANY_MODEL, Demand, Typical

CPU_POD = Demand(1000, 0, 0, 0, ANY_MODEL)
HALF = Demand(4000, 8192, 500, 1, ANY_MODEL)
WHOLE = Demand(4000, 8192, 1000, 1, ANY_MODEL)
PAIR = Demand(8000, 8192, 1000, 2, ANY_MODEL)


def gpus(*free_milli: int) -> np.ndarray:
    return np.array(free_milli, np.int64)


def typical(*rows: tuple) -> Typical:
    """Rows of (cpu_milli, gpu_milli, num_gpu, models, share)."""
    columns = [np.array(column) for column in zip(*rows)]
    return Typical(*columns)


ONE_WHOLE = typical((1000, 1000, 1, ANY_MODEL, 1.0))


@pytest.mark.parametrize(
    ("free", "pod", "expected"),
    [
        ((4000, 8192, gpus(300, 500)), HALF, True),  # exactly enough of everything
        ((3999, 8192, gpus(1000)), HALF, False),  # CPU
        ((4000, 8191, gpus(1000)), HALF, False),  # memory
        ((4000, 8192, gpus(499, 499)), HALF, False),  # two parts do not make one
        ((8000, 8192, gpus(1000, 999)), PAIR, False),
        ((8000, 8192, gpus(1000, 0, 1000)), PAIR, True),
        ((1000, 0, gpus()), CPU_POD, True),  # a node without GPUs
        ((4000, 8192, gpus()), HALF, False),
    ],
)
def test_a_pod_fits_where_cpu_memory_and_one_gpu_suffice(free, pod, expected):
    assert fragment.fits(*free, 0, pod) == expected
    assert fragment.fits.py_func(*free, 0, pod) == expected


@pytest.mark.parametrize(("models", "expected"), [(ANY_MODEL, True), (0b100, True), (0b011, False)])
def test_a_pod_fits_only_gpu_models_it_accepts(models, expected):
    assert fragment.fits(4000, 8192, gpus(1000), 2, HALF._replace(models=models)) == expected


def test_a_node_without_gpus_is_accessible_only_to_pods_that_accept_any_model():
    assert fragment.accessible(-1, ANY_MODEL)
    assert not fragment.accessible(-1, 0b111)


def test_fragmentation_is_the_idle_gpu_a_typical_pod_cannot_use():
    pods = typical(
        (4000, 500, 1, ANY_MODEL, 0.4),  # runs on device 1, so device 0 is scrap: 0.4 *  300 = 120
        (1000, 0, 0, ANY_MODEL, 0.1),  # needs no GPU:                             0.1 * 1300 = 130
        (9000, 1000, 1, ANY_MODEL, 0.2),  # lacks CPU:                             0.2 * 1300 = 260
        (4000, 1000, 2, ANY_MODEL, 0.1),  # lacks a GPU:                           0.1 * 1300 = 130
        (4000, 100, 1, 0b10, 0.2),  # another model:                               0.2 * 1300 = 260
    )
    assert fragment.node_frag(8000, gpus(300, 1000), 0, pods) == pytest.approx(900)
    assert fragment.node_frag.py_func(8000, gpus(300, 1000), 0, pods) == pytest.approx(900)


def test_a_node_without_idle_gpu_is_not_fragmented():
    assert fragment.node_frag(8000, gpus(0, 0), 0, ONE_WHOLE) == 0
    assert fragment.node_frag(8000, gpus(), -1, ONE_WHOLE) == 0


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (700.0, 700.0, 50),  # 100 / (1 + e^0)  = 50
        (1000.0, 0.0, 73),  # 100 / (1 + e^-1) = 73.1
        (0.0, 1000.0, 26),  # 100 / (1 + e^1)  = 26.9, truncated
    ],
)
def test_descent_is_a_truncated_sigmoid_of_the_fall_in_fragmentation(before, after, expected):
    assert fragment.descent(before, after) == expected


def test_fgd_puts_a_share_on_the_device_that_leaves_least_fragmentation():
    # frag before: device 1 is scrap, 500. On device 0: (500, 500) hosts nothing, frag 1000, so
    # 100 sigmoid(-0.5) = 37.8. On device 1: (1000, 0), frag 0, so 100 sigmoid(0.5) = 62.2.
    free = gpus(1000, 500)
    assert fragment.frag_score(500.0, 8000, free, 0, HALF, ONE_WHOLE) == (62, 0b10)
    assert fragment.frag_score.py_func(500.0, 8000, free, 0, HALF, ONE_WHOLE) == (62, 0b10)
    assert free.tolist() == [1000, 500]


def test_fgd_takes_the_first_of_equally_good_devices():
    assert fragment.frag_score(0.0, 8000, gpus(0, 1000, 1000), 0, HALF, ONE_WHOLE)[1] == 0b010


def test_fgd_takes_whole_gpus_for_a_pod_that_asks_for_them():
    # frag 300 before (device 0) and after, for the typical pod then has one whole GPU left: 50
    score, devices = fragment.frag_score(
        300.0, 9000, gpus(300, 1000, 1000, 1000), 0, PAIR, ONE_WHOLE
    )
    assert (score, devices) == (50, 0b0110)


def test_fgd_sees_the_cpu_that_a_pod_takes():
    # 1000 of 1500 milli CPU gone: the typical pod no longer runs, all 1000 GPU milli are lost
    assert fragment.frag_score(0.0, 1500, gpus(1000), 0, CPU_POD, ONE_WHOLE) == (26, 0)


def test_best_fit_scores_what_is_left_against_the_largest_machine():
    # cpu (64000 - 4000) / 128000 / 2 = 0.234375, gpu (1500 - 500) / 8000 / 2 = 0.0625
    # 100 (1 - 0.296875) = 70.3; device 1 is the tighter
    assert fragment.best_score(64000, gpus(1000, 500), HALF) == (70, 0b10)


def test_dot_product_prefers_the_fuller_node():
    # cpu 0.5 * 0.03125 = 0.015625, gpu 0.1875 * 0.0625 = 0.01171875
    # 100 (1 - 0.02734375 / 2) = 98.6
    assert fragment.dot_score(64000, gpus(1000, 500), HALF) == (98, 0b10)
    assert fragment.dot_score(128000, gpus(1000, 1000), HALF)[0] < 98


@pytest.mark.parametrize(
    ("free", "pod", "expected"),
    [
        ((1000, 700), HALF, (93, 0b10)),  # shared device, 70 % free: 100 - 70 / 10
        ((1000, 999), HALF, (91, 0b10)),  # 99 % free, the tenth truncated: 100 - 9
        ((1000, 400), HALF, (49, 0b01)),  # one idle device of a used node: 50 - 1
        ((1000, 400, 1000), PAIR, (48, 0b101)),  # two: 50 - 2
        ((1000, 1000), HALF, (31, 0b01)),  # idle node of two: 33 - 2
        ((1000,) * 8, WHOLE, (25, 0b1)),  # idle node of eight: 33 - 8
        ((1000, 400), CPU_POD, (0, 0)),
    ],
)
def test_gpu_packing_prefers_shared_devices_then_used_nodes(free, pod, expected):
    assert fragment.packing_score(gpus(*free), pod) == expected


@pytest.mark.parametrize(
    ("affinities", "free", "pod", "expected"),
    [
        (0b001, (1000, 500), HALF, 95),  # shares only: 25 * 6500 / 8000 = 20.3, and 75
        (0b011, (1000, 500), HALF, 70),  # shares among others: 50
        (0b000, (1000, 1000), HALF, 43),  # idle: 25 * 6000 / 8000 = 18.75, and 25
        (0b010, (1000, 500), HALF, 20),  # other groups only
        (0b100, (1000, 1000, 0, 0), PAIR, 93),  # two whole GPUs are a group of their own
        (0b001, (1000, 500), CPU_POD, 0),
    ],
)
def test_gpu_clustering_keeps_like_pods_together(affinities, free, pod, expected):
    assert fragment.clustering_score(affinities, gpus(*free), pod)[0] == expected


@pytest.mark.parametrize(("draw", "device"), [(0.0, 0), (0.49, 0), (0.5, 2), (0.99, 2)])
def test_random_devices_are_drawn_among_those_that_suffice(draw, device):
    assert fragment.random_devices(gpus(500, 499, 900), HALF, draw) == 1 << device


def test_typical_pods_are_the_most_frequent_and_ties_go_to_the_larger():
    # 12 + 4 + 2 + 2 pods; 90 % are 18: the two largest groups and the larger of the two pairs
    cpu = np.repeat([2000, 1000, 3000, 4000], [12, 4, 2, 2])
    half = np.full(20, 500)
    one = np.ones(20, int)
    found = fragment.typical_pods(cpu, half, one, np.zeros(20, int), [ANY_MODEL], cover=0.9)
    assert found.cpu_milli.tolist() == [2000, 1000, 4000]
    assert found.share == pytest.approx([12 / 18, 4 / 18, 2 / 18])


def test_two_spellings_of_one_model_list_are_two_typical_pods():
    same = np.full(4, 1000)
    found = fragment.typical_pods(same, same, same // 1000, np.array([0, 1, 1, 0]), [0b1, 0b1])
    assert found.models.tolist() == [0b1, 0b1]
    assert found.share.tolist() == [0.5, 0.5]


def small_cluster(rng: np.random.Generator) -> tuple[packing.Nodes, packing.Pods, np.ndarray]:
    """Twelve nodes of three kinds, one without GPUs, and more pods than they hold."""
    kind = rng.integers(0, 3, 12)
    nodes = packing.Nodes(
        np.array([16000, 32000, 8000])[kind],
        np.array([65536, 65536, 32768])[kind],
        np.array([2, 4, 0])[kind],
        np.array([0, 1, -1])[kind],
    )
    size = rng.integers(0, 5, 60)
    pods = packing.Pods(
        rng.choice([1000, 2000, 4000], 60),
        rng.choice([0, 2048, 4096], 60),
        np.array([0, 250, 600, 1000, 1000])[size],
        np.array([0, 1, 1, 1, 2])[size],
        np.where(size > 0, rng.integers(0, 2, 60), 0),
        np.array([ANY_MODEL, 0b10]),
    )
    return nodes, pods, rng.integers(0, 60, 120)


def place_naively(nodes, pods, order, policy, draws, weights) -> tuple[list[int], list[int]]:
    """Score every node anew for every pod, in plain Python."""
    of = fragment.typical_pods(
        pods.cpu_milli, pods.gpu_milli, pods.num_gpu, pods.spec, pods.spec_models
    )
    cpu, memory = nodes.cpu_milli.copy(), nodes.memory_mib.copy()
    free = [np.full(gpu, 1000) for gpu in nodes.gpu]
    groups = [0] * len(free)
    placed, taken = [], []
    for a, p in enumerate(order):
        models = int(pods.spec_models[pods.spec[p]])
        pod = Demand(*(int(column[p]) for column in pods[:4]), models)
        options = {}
        for n in range(len(free)):
            if fragment.fits.py_func(cpu[n], memory[n], free[n], nodes.model[n], pod):
                frag = fragment.node_frag.py_func(cpu[n], free[n], nodes.model[n], of)
                machine = np.array([column[n] for column in nodes])
                node = (frag, machine, cpu[n], memory[n], free[n], groups[n])
                value, devices = packing.score.py_func(policy, weights, *node, pod, of, draws[a, 1])
                options[n] = np.float32(value), devices  # as they are remembered
        best = max(options, key=lambda n: options[n][0], default=-1)
        if policy == packing.RANDOM and options:
            best = list(options)[int(draws[a, 0] * len(options))]
        placed.append(best)
        taken.append(int(options[best][1]) if options else 0)
        if options:
            cpu[best] -= pod.cpu_milli
            memory[best] -= pod.memory_mib
            fragment.take.py_func(free[best], pod, taken[-1], -1)
            groups[best] |= fragment.affinity.py_func(pod)
    return placed, taken


@pytest.mark.parametrize("policy", packing.BY_NAME.values(), ids=packing.BY_NAME)
@pytest.mark.parametrize("seed", range(3))
def test_remembered_scores_place_every_pod_as_scores_computed_anew(policy, seed):
    nodes, pods, order = small_cluster(np.random.default_rng(seed))
    draws = np.random.default_rng(seed).random((len(order), 2))
    table = np.random.default_rng(seed).normal(size=(len(CLASSES), len(FEATURES)))
    weights = table if policy == packing.PACKER else None
    node, devices = place_naively(nodes, pods, order, policy, draws, table)
    rng = np.random.default_rng(seed)
    found = packing.pack(nodes, pods, order, policy, rng=rng, weights=weights)
    assert found.node.tolist() == node
    assert found.devices.tolist() == devices
    assert -1 in node, "the cluster should overflow"


def test_a_pod_that_fits_nowhere_is_dropped_and_counts_as_arrived():
    nodes = packing.Nodes(*(np.array([v]) for v in (8000, 8192, 1, 0)))
    pods = packing.Pods(*(np.array([v]) for v in (1000, 0, 600, 1, 0)), np.array([ANY_MODEL]))
    found = packing.pack(nodes, pods, np.zeros(2, int), packing.FGD)
    assert found.node.tolist() == [0, -1]
    assert found.used_gpu_milli.tolist() == [600, 600]
    assert found.arrived_gpu_milli.tolist() == [600, 1200]
    # the pod is its own typical pod: 400 milli are too little for another
    assert found.frag_gpu_milli.tolist() == [400, 400]
    assert found.gpu_allocation == 0.6
    assert packing.at_load(found, 120) == (60.0, 100.0)
