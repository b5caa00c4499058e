"""The queue window: what an action means."""

import numpy as np
import pytest

from trimtab.build import cluster, workload
from trimtab.codecs.queue import FEATURES, QueueCodec
from trimtab.core import Codec, Start, Wait
from trimtab.sim.backend import SimBackend


def snapshot_of(work, machine=None):
    backend = SimBackend(work, machine or cluster([4.0, 2.0, 2.0]))
    backend.wait()
    return backend.snapshot()


def test_it_is_a_codec_whose_spaces_hold_what_it_encodes():
    codec = QueueCodec(window=3)
    assert isinstance(codec, Codec)
    shown, actions = codec.spaces()
    seen = snapshot_of(workload([0, 0], [9.0, 9.0], [2, 3], priority=[-5, 1e9]))
    assert shown.contains(codec.encode(seen))
    assert shown.shape == (3, len(FEATURES))
    assert actions.n == 4


def test_an_action_starts_the_job_of_its_row_where_the_place_rule_puts_it():
    seen = snapshot_of(workload([0, 0], [9.0, 9.0], [2, 3]))
    assert QueueCodec(3, place="best").decode(0, seen) == [Start(0, (1,))]
    assert QueueCodec(3, place="worst").decode(0, seen) == [Start(0, (0,))]
    assert QueueCodec(3).decode(1, seen) == [Start(1, (0,))]


@pytest.mark.parametrize("action", [2, 3, 4, -1])
def test_an_action_that_starts_nothing_waits(action):
    seen = snapshot_of(workload([0, 0], [9.0, 9.0], [2, 3]))
    assert QueueCodec(3).decode(action, seen) == [Wait()]


def test_decoding_books_nothing():
    seen = snapshot_of(workload([0], [9.0], [2], instances=3))
    before = seen.free.copy()
    assert QueueCodec(3).decode(0, seen) == [Start(0, (1, 2, 0))]
    assert (seen.free == before).all()


def test_a_gpu_share_names_its_device():
    machine = cluster([[8.0, 2], [8.0, 2]], resources=("cpu", "gpu"), gpu_mem_gb=16.0)
    work = workload(
        [0, 0], [9.0, 9.0], [[1, 0.5], [1, 0.5]], resources=("cpu", "gpu"), gpus=1, gpu_share=0.5,
        gpu_mem_gb=8.0,
    )  # fmt: skip
    seen = snapshot_of(work, machine)
    assert QueueCodec(3).decode(1, seen) == [Start(1, (0,), devices=(1,))]


def test_a_window_shorter_than_the_queue_shows_the_oldest():
    seen = snapshot_of(workload([0, 0, 0], [9.0] * 3, [1, 2, 3], request_s=[5.0, 6.0, 7.0]))
    shown = QueueCodec(2).encode(seen)
    assert shown[:, 2] == pytest.approx(np.log1p([5, 6]) / np.log1p(30 * 86400))
