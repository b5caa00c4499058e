"""Jobs x nodes: what a pair means, and what it shows."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.codecs.grid import SINGLE, GridCodec
from trimtab.core import Profile, Shape, Start, Wait
from trimtab.errors import UnknownName
from trimtab.sim.backend import SimBackend

CODEC = GridCodec(nodes=3, resources=1, window=2)


def snapshot_of(work, profile=None):
    machine = cluster([4.0, 2.0, 2.0], kind=[0, 1, 1], idle_w=50.0, peak_w=100.0)
    backend = SimBackend(work, machine, profile)
    backend.wait()
    return backend.snapshot()


def test_an_action_is_a_job_and_a_node():
    seen = snapshot_of(workload([0, 0], [9.0, 9.0], [2, 3]))
    assert CODEC.mask(seen).tolist() == [
        1,
        1,
        1,
        1,
        0,
        0,
        0,
    ]  # job 1 fits on node 0 alone; nothing runs
    assert CODEC.decode(2, seen) == [Start(0, (2,))]
    assert CODEC.decode(3, seen) == [Start(1, (0,))]


@pytest.mark.parametrize("action", [4, 6, 7, -1])
def test_an_action_that_starts_nothing_waits(action):
    seen = snapshot_of(workload([0, 0], [9.0, 9.0], [2, 3]))
    assert CODEC.decode(action, seen) == [Wait()]


def test_a_gang_is_led_by_the_node_and_the_rest_is_placed_by_the_rule():
    seen = snapshot_of(workload([0], [9.0], [2], instances=3))
    # node 1 holds one instance; best fit puts the next on node 2, the last on node 0
    assert CODEC.decode(1, seen) == [Start(0, (1, 2, 0))]
    assert CODEC.decode(0, seen) == [Start(0, (0, 0, 1))]


def test_a_gang_that_fits_nowhere_whole_is_masked():
    seen = snapshot_of(workload([0, 0], [9.0, 9.0], [3, 2], instances=[1, 4]))
    backend_free = CODEC.mask(seen)
    assert backend_free.tolist() == [1, 0, 0, 1, 1, 1, 0]
    crowded = snapshot_of(workload([0], [9.0], [2], instances=4))
    less = crowded._replace(free=np.array([[3.0], [2.0], [2.0]]))
    assert CODEC.mask(less).tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_an_array_starts_what_fits_on_the_node():
    seen = snapshot_of(workload([0], [9.0], [1], instances=7, gang=0))
    assert CODEC.decode(1, seen) == [Start(0, (1, 1))]


def test_the_channels_are_what_their_names_say():
    fast = Profile(
        rate=np.array([[[3.0], [1.0]]]), slow=np.zeros((1, 1)), draw=np.ones((1, 2)),
        quality=np.ones((1, 1)), shapes=(Shape(),),
    )  # fmt: skip
    backend = SimBackend(
        workload([0, 0], [9.0, 9.0], [1, 2]),
        cluster([4.0, 2.0, 2.0], kind=[0, 1, 1], idle_w=50.0, peak_w=100.0),
        fast,
    )
    backend.wait()
    backend.apply(Start(0, (1,)))
    grid, rows = CODEC.split(CODEC.encode(backend.snapshot()))
    up, load, power, device, left, memory, free, speed, later = grid.T
    assert grid.shape == (3, SINGLE + 1 + 2)
    assert up.tolist() == [1, 1, 1]
    assert load.tolist() == [0, 0.5, 0]
    assert power == pytest.approx([0.5, 0.75, 0.5])
    assert device.tolist() == memory.tolist() == [0, 0, 0]
    assert left == pytest.approx([0, np.log1p(9) / np.log1p(30 * 86400), 0])
    assert free.tolist() == [1, 0.5, 1]
    assert speed == pytest.approx([0.75, 0, 0.5])  # 3 / 4, does not fit, 1 / 2
    assert later.tolist() == [0, 0, 0]
    assert rows[0, :7] == pytest.approx([1, 0, np.log1p(9) / np.log1p(30 * 86400), 0, 0.25, 0, 1])
    assert not rows[1].any()


def test_a_node_shows_its_free_gpu_memory_and_its_next_end():
    machine = cluster([[2.0], [2.0]], resources=("gpu",), gpu_mem_gb=16.0)
    work = workload(
        [0, 0], [900.0, 90.0], [1, 1], resources=("gpu",), gpus=1, gpu_mem_gb=[8.0, 4.0]
    )
    backend = SimBackend(work, machine)
    backend.wait()
    backend.apply(Start(0, (0,)))
    backend.apply(Start(1, (0,)))
    codec = GridCodec(nodes=2, resources=1, window=2)
    left, memory = codec.split(codec.encode(backend.snapshot()))[0].T[4:6]
    assert left == pytest.approx([np.log1p(90) / np.log1p(30 * 86400), 0])
    assert memory == pytest.approx([20 / 32, 1])


def test_an_unknown_place_is_named():
    with pytest.raises(UnknownName, match="best"):
        GridCodec(3, place="bets")
