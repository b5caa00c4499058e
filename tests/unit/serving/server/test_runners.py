"""Every way computes what the ONNX segments do, and the fastest is chosen, kept and found again."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from trimtab.errors import ServeError
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.slim_form import Form
from trimtab.serving.net.slim_weights import Weights, shapes
from trimtab.serving.net.torch_segments import Device, TorchSegments, Way, group_norm_last
from trimtab.serving.server import runners
from trimtab.serving.server.runners import ON_CPU, Runners, Tuning, engines, fastest, keys, tuned

SMALL = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(2, 1, 1, 2), side=8)
BUCKETS = (1, 2, 4)


class Replay:
    """Stands for a captured graph: does again what was captured, at the same addresses."""

    def __init__(self, work, given, made):
        self.work, self.given, self.made = work, given, made

    def replay(self):
        self.made.copy_(self.work(self.given))


class GraphsOnCpu(Device):
    """A device whose graphs are made of calls, to check buffers and padding without a GPU."""

    def __init__(self, half=False):
        super().__init__("cpu", BUCKETS, half=half)
        self.on_gpu, self.captures = True, []

    def captured(self, work, given, made):
        self.captures.append(len(given))
        return Replay(work, given, made)

    def wait(self):
        pass


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in shapes(SMALL).items():
        arrays[name] = rng.standard_normal(shape, np.float32) * 0.3
        if name.endswith("gain") or name == "spread":
            arrays[name] += 1.0
    return Weights(SMALL, arrays, {})


@pytest.fixture(scope="module")
def segments(weights):
    return Segments(weights)


def batch(of, key, count):
    rng = np.random.default_rng(count)
    return rng.random((count, *of.takes(key[0], key[1])), dtype=np.float32)


def table(ways, **faster):
    """A tuning in which each way takes 1 s, and those named what they are given a bucket."""
    time_s = np.ones((len(ways), 4, 4, 4, len(BUCKETS)))
    for name, seconds in faster.items():
        time_s[ways.index(name.replace("_", "-"))] = seconds
    return Tuning(ways, BUCKETS, time_s)


@pytest.mark.parametrize("way", ["onnx-extended", "torch", "torch-last"])
def test_a_way_computes_what_the_segments_do(weights, segments, way):
    engine = engines(weights, [way], "cpu", 1, BUCKETS)[way]
    for key in keys():
        x = batch(segments, key, 3)
        theirs = segments.run(*key, x)
        ours = engine.run(*key, x)
        assert ours.dtype == np.float32 and ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() < 1e-4


def test_half_precision_is_near_and_ranks_alike(weights, segments):
    engine = TorchSegments(weights, Way(half=True))
    x = batch(segments, (0, 0, 0), 16)
    theirs = segments.through(0, 2, (2, 1, 3, 2), x)
    for segment, (before, width) in enumerate(((2, 2), (2, 1), (1, 3), (3, 2))):
        x = engine.run(segment, before, width, x)
    assert np.abs(x - theirs).max() < 1e-2 * np.abs(theirs).max()
    assert (x.argmax(1) == theirs.argmax(1)).mean() > 0.8


@pytest.mark.parametrize("way", [Way(graph=True), Way(graph=True, half=True, last=True)])
def test_a_graph_is_padded_and_right_for_every_batch_size(weights, segments, way):
    device = GraphsOnCpu(way.half)
    engine = TorchSegments(weights, way, device)
    bound = 2e-2 if way.half else 1e-4
    key = (1, 2, 3)
    for count in (3, 1, 4, 2, 9):  # the last is past every bucket and runs without a graph
        x = batch(segments, key, count)
        theirs = segments.run(*key, x)
        assert np.abs(engine.run(*key, x) - theirs).max() < bound * np.abs(theirs).max()
    assert device.captures == [4, 1, 2]


def test_what_a_graph_gave_outlives_the_next_replay(weights, segments):
    engine = TorchSegments(weights, Way(graph=True), GraphsOnCpu())
    first = engine.run(1, 0, 0, engine.resident(batch(segments, (1, 0, 0), 2)))
    held = first.clone()
    engine.run(1, 0, 0, engine.resident(batch(segments, (1, 0, 0), 1)))
    assert torch.equal(first, held)


def test_graphs_of_one_shape_share_their_buffers(weights):
    device = GraphsOnCpu()
    engine = TorchSegments(weights, Way(graph=True), device)
    runs = [engine.load(1, 2, width) for width in (0, 3)]
    for width, count in itertools.product((0, 3), (1, 3)):
        engine.run(1, 2, width, batch(engine, (1, 2, width), count))
    pointers = {graph.given.data_ptr() for part in runs for graph in part.graphs.values()}
    assert len(pointers) == 1


def test_a_batch_stays_on_the_device_on_its_way(weights, segments):
    device = GraphsOnCpu(half=True)
    ways = ("graph-half", "torch")
    made = {
        "graph-half": TorchSegments(weights, Way(graph=True, half=True), device),
        "torch": TorchSegments(weights, Way(), device),
    }
    both = table(ways)
    both.time_s[1, 1:3] = 0.5  # two segments in full precision between two in half
    found = Runners(both, made)
    x = batch(segments, (0, 0, 0), 3)
    assert found.resident(x).dtype == torch.float16
    theirs = segments.through(0, 1, (1, 1, 2, 3), x)
    ours = found.through(0, 1, (1, 1, 2, 3), x)
    assert ours.dtype == np.float32
    assert np.abs(ours - theirs).max() < 2e-2 * np.abs(theirs).max()
    rows = [found.resident(x[at : at + 1]) for at in range(3)]
    assert torch.equal(found.stack(rows), found.resident(x))


def test_our_group_norm_is_torchs():
    x = torch.randn(3, 12, 4, 4).contiguous(memory_format=torch.channels_last)
    gain, shift = torch.randn(12), torch.randn(12)
    ours = group_norm_last(x, 3, gain, shift)
    assert torch.allclose(ours, F.group_norm(x, 3, gain, shift), atol=1e-5)
    assert ours.is_contiguous(memory_format=torch.channels_last)


def test_the_fastest_way_is_chosen_a_batch_size():
    both = table(ON_CPU, onnx_extended=[0.5, 1.0, 4.0])
    assert [fastest(both, 1, 2, 3, count) for count in (1, 2, 4)] == [
        "onnx-extended",
        "onnx",
        "onnx",
    ]


def test_a_gain_within_the_noise_changes_nothing():
    assert fastest(table(ON_CPU, onnx_extended=0.98), 0, 0, 0, 1) == "onnx"
    assert fastest(table(ON_CPU, onnx_extended=0.9), 0, 0, 0, 1) == "onnx-extended"


def test_a_graph_pays_for_its_padding():
    both = table(("torch", "graph"), torch=[1.0, 2.0, 4.0], graph=[0.9, 1.8, 3.5])
    assert fastest(both, 1, 0, 0, 4) == "graph"
    assert fastest(both, 1, 0, 0, 3) == "torch"  # 3 s at that size, where the graph does 4 rows


def test_a_way_that_cannot_run_is_never_chosen():
    assert fastest(table(("torch", "graph"), graph=np.inf), 1, 0, 0, 2) == "torch"


def test_runners_run_what_is_fastest_and_count_its_memory(weights, segments):
    made = engines(weights, ON_CPU, "cpu", 1, BUCKETS)
    found = Runners(table(ON_CPU, onnx_extended=[0.5, 1.0, 4.0]), made)
    x = batch(segments, (1, 2, 3), 3)
    assert np.abs(found.run(1, 2, 3, x) - segments.run(1, 2, 3, x)).max() < 1e-4
    assert made["onnx"].loaded == ((1, 2, 3),) and made["onnx-extended"].loaded == ()
    found.load(1, 2, 3)
    assert made["onnx-extended"].loaded == ((1, 2, 3),)
    assert found.bytes_of(1, 2, 3) == 2 * segments.bytes_of(1, 2, 3)
    assert found.loaded == ((1, 2, 3),)
    assert found.unload(1, 2, 3) and not found.unload(1, 2, 3) and found.loaded == ()


def test_tuning_times_every_way_and_is_found_again(weights, tmp_path, monkeypatch):
    ways = ("onnx", "onnx-extended", "torch")
    done = []
    first = tuned(
        weights, ways=ways, buckets=(1, 2), rounds=2, cache=tmp_path,
        told=lambda what, n: done.append(n),
    )  # fmt: skip
    assert sum(done) == len(keys()) == 52
    assert np.isfinite(first.tuning.time_s).all() and not first.tuning.cached
    assert first.loaded == ()
    monkeypatch.setattr(runners, "_timed", None)  # a second start that measured would fail
    again = tuned(weights, ways=ways, buckets=(1, 2), rounds=2, cache=tmp_path)
    assert again.tuning.cached
    assert (again.tuning.time_s == first.tuning.time_s).all()


def cached(weights, folder):
    """What tuning writes, with times of our own."""
    found = tuned(weights, buckets=(1, 2), rounds=1, cache=folder)
    (file,) = folder.iterdir()
    return found, file


@pytest.mark.parametrize(
    "damage",
    [
        lambda held: "",
        lambda held: "[]",
        lambda held: '{"about": 1}',
        lambda held: json.dumps(held | {"time_s": [[1.0]]}),
        lambda held: json.dumps(held | {"time_s": "soon"}),
        lambda held: json.dumps(held | {"about": held["about"] | {"processor": "another"}}),
        lambda held: json.dumps(held)[:200],
    ],
    ids=["empty", "list", "no times", "shape", "text", "foreign", "cut"],
)
def test_a_cache_that_does_not_fit_is_measured_anew(weights, tmp_path, damage):
    _, file = cached(weights, tmp_path)
    file.write_text(damage(json.loads(file.read_text())))
    assert not tuned(weights, buckets=(1, 2), rounds=1, cache=tmp_path).tuning.cached
    assert tuned(weights, buckets=(1, 2), rounds=1, cache=tmp_path).tuning.cached


def test_a_way_that_failed_is_remembered_as_such(weights, tmp_path):
    found, file = cached(weights, tmp_path)
    about = json.loads(file.read_text())["about"]
    found.tuning.time_s[1, 2, 3, 0] = np.inf
    runners.write_cache(file, about, found.tuning)
    again = runners.read_cache(file, about)
    assert np.isinf(again.time_s[1, 2, 3, 0]).all() and np.isfinite(again.time_s).sum() > 200


def test_other_weights_have_another_cache(weights, tmp_path):
    cached(weights, tmp_path)
    arrays = weights.arrays | {"head.bias": weights.arrays["head.bias"] + 1}
    tuned(weights._replace(arrays=arrays), buckets=(1, 2), rounds=1, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_only_time(weights, tmp_path):
    (tmp_path / "file").write_text("")
    found = tuned(weights, buckets=(1, 2), rounds=1, cache=tmp_path / "file" / "folder")
    assert not found.tuning.cached


def test_ways_of_onnx_import_no_torch():
    code = "import sys, trimtab.serving.server.measure, trimtab.serving.server.runners"
    code += "; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"ways": ["fast"]}, "way 'fast' is unknown; give some of onnx"),
        ({"ways": ["graph"]}, "way 'graph' does not run on device='cpu'"),
        ({"device": "cuda", "ways": ["onnx"]}, "way 'onnx' does not run on device='cuda'"),
        ({"device": "tpu", "ways": ["torch"]}, "device='tpu' is unknown; give cpu, cuda"),
        ({"buckets": (2, 1)}, r"buckets=\(2, 1\)"),
        ({"rounds": 0}, "rounds=0"),
        ({"threads": 0}, "threads=0"),
        ({"threads": 0, "ways": ["torch"]}, "threads=0"),
    ],
)
def test_a_mistake_is_named(weights, asked, named):
    with pytest.raises(ServeError, match=named):
        tuned(weights, **asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_said(weights):
    with pytest.raises(ServeError, match="torch sees 0 CUDA devices; give cpu"):
        tuned(weights, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_way_of_a_gpu_computes_what_the_segments_do(weights, segments):
    found = tuned(weights, "cuda", buckets=BUCKETS, rounds=1)
    for way, key in itertools.product(found.engines, keys()):
        for count in (1, 3, 4):
            x = batch(segments, key, count)
            theirs = segments.run(*key, x)
            ours = found.engines[way].run(*key, x)
            assert np.abs(ours - theirs).max() < 2e-2 * np.abs(theirs).max()
