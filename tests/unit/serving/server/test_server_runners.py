"""A server runs each segment as its profile found best, and leaves batches on the device."""

import os
import socket
import threading
from dataclasses import replace

import numpy as np
import pytest
from tests.fleets import FORM, LIMIT_S, Scripted
from tests.unit.serving.server.test_runners import SMALL, GraphsOnCpu, weights

from trimtab.errors import ServeError
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.serve_profile import modelled, processor_name, save
from trimtab.serving.net.torch_segments import TorchSegments, Way
from trimtab.serving.server import server as server_module
from trimtab.serving.server.power import Model
from trimtab.serving.server.runners import Runners, as_measured, is_of
from trimtab.serving.server.server import Server, limit_sms, main, runner_of
from trimtab.serving.server.wire import ANSWER, UNRUN, Work
from trimtab.serving.server.workshop import Workshop
from trimtab.serving.settings import ServerSettings

__all__ = ["weights"]  # a fixture
HERE = {"device": "cpu", "processor": processor_name()}
BUCKETS = (1, 2, 4)
PLANS = [(0, 1, 2, 3), (3, 2, 1, 0), (3, 3, 3, 3), (1, 1, 0, 2)]


def profile_in(ways, machine=HERE):
    """A profile whose cells take the ways in turns."""
    found = modelled(SMALL, buckets=BUCKETS)
    table = np.array([ways[sum(at) % len(ways)] for at in np.ndindex(*found.time_s.shape)])
    table = table.reshape(found.time_s.shape)
    table[0] = table[0, :1]
    return replace(found, way=table, machine=machine)


def answers(runner, plans, image):
    """{row: logits} of a workshop that is given row k to run by plan k."""
    found, done = {}, threading.Event()

    def post(outcome):
        assert outcome.kind == ANSWER, outcome.tensor
        widths = map(tuple, outcome.widths.tolist())
        found.update(zip(outcome.ids.tolist(), zip(widths, np.array(outcome.tensor))))
        if len(found) == len(plans):
            done.set()

    shop = Workshop(runner, modelled(SMALL), post)
    # put before the start: rows of different plans meet and part on their way
    for row, plan in enumerate(plans):
        shop.put(Work(row + 1, 0, 0, plan, [row]), image[row : row + 1])
    shop.start()
    assert done.wait(LIMIT_S)
    assert shop.close(5.0)
    return found


def wanted(weights, widths, image):
    ran = [width for width in widths if width != UNRUN]
    return Segments(weights).through(0, ran[0], ran, image[None])[0]


@pytest.fixture
def image():
    return np.random.default_rng(3).random((24, 3, 8, 8), np.float32)


@pytest.mark.parametrize(
    "ways", [("onnx", "onnx-extended"), ("onnx-extended", "onnx", "torch", "torch-last")]
)
def test_mixed_ways_answer_as_plain_segments_do(weights, image, tmp_path, ways):
    save(profile_in(ways), tmp_path / "a.npz")
    runner = runner_of(weights, profile=str(tmp_path / "a.npz"))
    assert isinstance(runner, Runners) and set(runner.engines) == set(ways)
    plans = [PLANS[row % 4] for row in range(24)]
    for row, (widths, logits) in answers(runner, plans, image).items():
        np.testing.assert_allclose(logits, wanted(weights, widths, image[row]), atol=1e-4)


def test_the_way_of_every_cell_is_the_profiles():
    profile = profile_in(("onnx", "onnx-extended", "torch"))
    tuning = as_measured(profile)
    found = Runners(tuning, dict.fromkeys(tuning.ways))
    for segment, before, width, at in np.ndindex(*profile.way.shape):
        way = found.way_of(segment, before, width, BUCKETS[at])
        assert way == profile.way[segment, before, width, at]


def test_ways_of_another_kind_of_device_or_unknown_ones_are_not_taken(weights, tmp_path):
    mixed = ("onnx", "onnx-extended")
    assert is_of(profile_in(mixed), "cpu")
    odd = [
        profile_in(mixed, {"device": "NVIDIA H200", "processor": processor_name()}),
        profile_in(mixed, {"device": "cpu", "processor": "another"}),
        profile_in(mixed, {}),
        profile_in(("onnx", "of-tomorrow")),
        modelled(SMALL, buckets=BUCKETS),
    ]
    for at, profile in enumerate(odd):
        save(profile, tmp_path / f"{at}.npz")
        assert type(runner_of(weights, profile=str(tmp_path / f"{at}.npz"))) is Segments


def test_one_way_for_all_needs_no_choice(weights, tmp_path):
    save(profile_in(("onnx-extended",)), tmp_path / "a.npz")
    found = runner_of(weights, profile=str(tmp_path / "a.npz"))
    assert isinstance(found, Segments) and found.level == "EXTENDED"


class Counted(TorchSegments):
    """Counts what crosses between host and device."""

    def __init__(self, weights):
        super().__init__(weights, Way(graph=True), GraphsOnCpu())
        self.up, self.down = [], []

    def resident(self, x):
        if isinstance(x, np.ndarray):
            self.up.append(len(x))
        return super().resident(x)

    def fetched(self, x):
        self.down.append(len(x))
        return super().fetched(x)


def test_batches_stay_on_the_device_from_the_image_to_the_logits(weights, image):
    runner = Counted(weights)
    plans = [PLANS[row % 4] for row in range(24)]
    for row, (widths, logits) in answers(runner, plans, image).items():
        np.testing.assert_allclose(logits, wanted(weights, widths, image[row]), atol=1e-4)
    assert (sum(runner.up), sum(runner.down)) == (24, 24)


def test_rows_that_come_home_midway_are_arrays_and_the_others_go_on(weights, image):
    plans = [(3, 3, UNRUN, UNRUN), (3, 3, 3, 3)] * 4
    for row, (widths, found) in answers(Counted(weights), plans, image).items():
        assert widths == plans[row]
        np.testing.assert_allclose(found, wanted(weights, widths, image[row]), atol=1e-4)


def test_the_meter_is_that_of_the_device(monkeypatch):
    asked = []
    monkeypatch.setattr(
        server_module, "meter", lambda device, **watts: asked.append(device) or Model(**watts)
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = Server(ours, Scripted(), FORM, digest="", name="x", device="cuda:1")
        threads = server.begin({"warm": [], "idle_w": 1.0, "busy_w": 2.0, "knobs": {}})
        server.end()
        for thread in threads:
            thread.join(LIMIT_S)
        server.shop.close(0.0)
    assert asked == ["cuda:1"]


def test_a_gpu_shared_out_by_mps_keeps_a_server_to_its_share(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    assert not limit_sms(0.4)
    (tmp_path / "control").touch()
    assert limit_sms(0.4)
    assert os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cuda:", ""])
def test_an_unknown_device_is_named(device, capsys):
    assert main(["unix:none", ServerSettings(noop=True, device=device).text()]) == 2
    assert "give cpu, cuda or cuda:1" in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_a_mistake_in_one_sentence(weights):
    with pytest.raises(ServeError, match="CUDA devices"):
        runner_of(weights, "cuda:99")
