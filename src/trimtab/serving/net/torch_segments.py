"""Segments of the slimmable network in torch: on a CPU, or on a GPU as captured graphs.

The weights are those of the ONNX segments, sliced and standardised once. A captured graph replays
a segment at one batch size with no cost a kernel on the host, which is most of a narrow segment's
time on a fast GPU; a batch between two sizes is padded to the larger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.segments import NORM_EPSILON, check_input, checked_key, taken
from trimtab.serving.net.slim_form import Layer, layers, segment_parameters
from trimtab.serving.net.slim_weights import Weights, dense
from trimtab.serving.nouns import SEGMENTS

Key = tuple[int, int, int]  # segment, width before, width
WARM_RUNS = 3  # before a capture: libraries choose kernels and take their workspace in the first


class Way(NamedTuple):
    """How torch runs a segment."""

    last: bool = False  # channels last in memory
    half: bool = False  # 16-bit weights and activations; pooling and logits stay 32-bit
    graph: bool = False  # replayed as a captured CUDA graph, a batch bucket each
    compiled: bool = False  # by torch.compile: many seconds a segment


class Device:
    """One device of this process, and what all that runs on it shares.

    Graphs share one memory pool, so one lock covers everything that touches the GPU: a replay may
    overwrite what the graph before it left, and a capture must see no other thread's work.
    """

    def __init__(
        self, name: str = "cpu", buckets: Sequence[int] = (1,), threads: int = 1, half: bool = False
    ) -> None:
        self.at = checked_device(name)
        self.on_gpu = self.at.type == "cuda"
        if not self.on_gpu:
            torch.set_num_threads(threads)  # of the process: a server has one kind of worker
        self.buckets = tuple(sorted(buckets))
        # what one segment hands to the next without leaving the device
        self.dtype = torch.float16 if half else torch.float32
        self.lock = threading.RLock()
        # workers on a CPU run beside each other
        self.guard: AbstractContextManager[Any] = self.lock if self.on_gpu else nullcontext()
        self._buffers: dict[tuple[Any, ...], Tensor] = {}
        self._anchor: Any = None
        self.side = torch.cuda.Stream(self.at) if self.on_gpu else None
        self.pool = torch.cuda.graph_pool_handle() if self.on_gpu else None

    @property
    def name(self) -> str:
        """The product's name, or the kind of processor."""
        return torch.cuda.get_device_name(self.at) if self.on_gpu else "cpu"

    def placed(self, x: Array | Tensor) -> Tensor:
        """A batch on the device."""
        if isinstance(x, Tensor):
            return x.to(self.at)
        return torch.from_numpy(x if x.flags.writeable else x.copy()).to(self.at)

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if self.on_gpu:
            with self.lock:
                torch.cuda.current_stream(self.at).synchronize()

    def buffer(self, role: str, shape: Sequence[int], way: Way) -> Tensor:
        """Memory at one address for the largest bucket; graphs of one shape and way share it."""
        key = (role, *shape, way.last, way.half)
        if key not in self._buffers:
            form = torch.channels_last if way.last and len(shape) == 3 else torch.contiguous_format
            # logits are 32-bit in every way
            dtype = torch.float16 if way.half and len(shape) == 3 else torch.float32
            # zeros, and no values left over from others: rows of padding stay finite
            self._buffers[key] = torch.zeros(
                (self.buckets[-1], *shape), dtype=dtype, device=self.at
            ).contiguous(memory_format=form)
        return self._buffers[key]

    def captured(self, work: Callable[[Tensor], Tensor], given: Tensor, made: Tensor) -> Any:
        """A graph that reads `given` and writes `made`, at their addresses."""
        if self._anchor is None:
            # a pool whose last graph is gone can take no other: this one stays
            self._anchor = self._recorded(torch.zeros(1, device=self.at).zero_)
        return self._recorded(lambda: made.copy_(work(given)))

    def _recorded(self, work: Callable[[], object]) -> Any:
        assert self.side is not None
        self.side.wait_stream(torch.cuda.current_stream(self.at))
        with torch.cuda.stream(self.side):
            for _ in range(WARM_RUNS):
                work()
        torch.cuda.synchronize(self.at)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.side):
            # not torch.cuda.graph(): it empties the allocator's cache before each of hundreds
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.synchronize(self.at)
        return graph


def checked_device(name: str) -> torch.device:
    """The device of that name, if it is there."""
    try:
        found = torch.device(name)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ServeError(f"device={name!r} is unknown; give cpu, cuda or cuda:1")
    count = torch.cuda.device_count() if found.type == "cuda" else 1
    if (found.index or 0) >= count:
        raise ServeError(f"device={name!r}: torch sees {count} CUDA devices; give cpu or another")
    return found


class Part:
    """One segment's weights on a device, and its layers in order."""

    def __init__(self, weights: Weights, key: Key, way: Way, device: Device) -> None:
        self.way, self.key, self.segment, self.form = way, key, key[0], weights.form
        self.layers = {a.name: a for a in layers(weights.form) if a.segment == key[0]}
        self.arrays = {
            name: self._placed(name, array, device) for name, array in dense(weights, *key).items()
        }
        self.graphs: dict[int, Any] = {}  # by bucket
        # torch's own kernel for GPUs turns channels-last into channels-first and leaves it so
        self.norm = group_norm_last if way.last and device.on_gpu else F.group_norm
        self.call: Callable[[Tensor], Tensor] = self._forward
        if way.compiled:
            self.call = torch.compile(self._forward, dynamic=True)

    def _placed(self, name: str, array: Array, device: Device) -> Tensor:
        value = torch.from_numpy(array).to(device.at)
        if self.way.half and not name.startswith("head"):
            value = value.half()
        if self.way.last and value.dim() == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        return value

    def __call__(self, x: Tensor) -> Tensor:
        """Of any batch; the result has the way's type and memory format."""
        x = x.half() if self.way.half else x.float()
        if self.way.last:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.call(x)

    def _forward(self, x: Tensor) -> Tensor:
        if self.segment == 0:
            x = (x - self.arrays["mean"]) / self.arrays["spread"]
            x = F.relu_(self._normed(self.layers["stem"], x))
        for block in range(self.form.blocks[self.segment]):
            name = f"{self.segment}_{block}"
            inner = F.relu_(self._normed(self.layers[f"{name}_first"], x))
            inner = self._normed(self.layers[f"{name}_second"], inner)
            skip = self.layers.get(f"{name}_skip")
            x = F.relu_(inner.add_(self._normed(skip, x) if skip else x))
        if self.segment == SEGMENTS - 1:
            pooled = x.float().mean((2, 3))
            x = F.linear(pooled, self.arrays["head.weight"], self.arrays["head.bias"])
        return x

    def _normed(self, layer: Layer, x: Tensor) -> Tensor:
        weight = self.arrays[f"{layer.name}.weight"]
        x = F.conv2d(x, weight, stride=layer.stride, padding=layer.kernel // 2)
        gain, shift = self.arrays[f"{layer.name}.gain"], self.arrays[f"{layer.name}.shift"]
        return self.norm(x, x.shape[1] // self.form.group, gain, shift)


def group_norm_last(x: Tensor, groups: int, gain: Tensor, shift: Tensor) -> Tensor:
    """Group normalisation of channels-last memory that reads and writes it as it lies."""
    count, channels, high, wide = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(count, high * wide, groups, channels // groups)
    spread, mean = torch.var_mean(rows, dim=(1, 3), keepdim=True, correction=0)
    scale = torch.rsqrt(spread + NORM_EPSILON) * gain.view(1, 1, groups, -1)
    rows = torch.addcmul(shift.view(1, 1, groups, -1) - mean * scale, rows, scale)
    return rows.view(count, high, wide, channels).permute(0, 3, 1, 2)


class TorchSegments:
    """Runs segments in one way, with the interface of `segments.Segments`.

    What comes as an array leaves as one; a tensor stays on the device, for the next segment there.
    """

    def __init__(self, weights: Weights, way: Way | None = None, device: Device | None = None):
        self.weights, self.way, self.device = weights, way or Way(), device or Device()
        if self.way.graph and not self.device.on_gpu:
            raise ServeError("a captured graph needs a CUDA device; give device='cuda'")
        self._parts: dict[Key, Part] = {}

    def run(self, segment: int, before: int, width: int, x: Any) -> Any:
        """A segment's output for a batch, as `Segments.run`."""
        made = self.begun(segment, before, width, x)
        self.device.wait()
        return made

    def begun(self, segment: int, before: int, width: int, x: Any) -> Any:
        """As `run`; a tensor on a GPU may still be in the making, which the next segment there
        need not wait for.
        """
        if not isinstance(x, Tensor):
            check_input(x, segment, before, self.takes(segment, before))
        with self.device.guard, torch.inference_mode():
            part = self.load(segment, before, width)
            bucket = self._bucket(len(x))
            if bucket:
                made = self._replayed(part, x, bucket)
            else:
                made = part(self.device.placed(x))
            if isinstance(x, Tensor):
                return made.to(self.device.dtype) if made.dim() == 4 else made
            return fetched(made)

    def _bucket(self, count: int) -> int:
        """The graph's size for a batch, or 0 to run without one."""
        if not self.way.graph:
            return 0
        return next((size for size in self.device.buckets if size >= count), 0)

    def _replayed(self, part: Part, x: Any, bucket: int) -> Tensor:
        segment, before, width = part.key
        given = self.device.buffer("in", self.takes(segment, before), self.way)
        shape: tuple[int, ...] = (self.weights.form.classes,)
        if segment < SEGMENTS - 1:
            shape = self.takes(segment + 1, width)
        made = self.device.buffer("out", shape, self.way)
        if bucket not in part.graphs:
            part.graphs[bucket] = self.device.captured(part, given[:bucket], made[:bucket])
        given[: len(x)].copy_(self.device.placed(x))  # casts, and reorders the channels
        part.graphs[bucket].replay()
        return made[: len(x)].clone()  # the next replay overwrites the buffer

    def load(self, segment: int, before: int, width: int) -> Part:
        """The weights of one segment on the device, put there where they are not yet."""
        key = checked_key(segment, before, width)
        with self.device.lock, torch.inference_mode():
            if key not in self._parts:
                self._parts[key] = Part(self.weights, key, self.way, self.device)
            return self._parts[key]

    def unload(self, segment: int, before: int, width: int) -> bool:
        """Forget a segment and its graphs. Returns whether it was loaded."""
        with self.device.lock:
            return self._parts.pop(checked_key(segment, before, width), None) is not None

    @property
    def loaded(self) -> tuple[Key, ...]:
        return tuple(self._parts)

    def bytes_of(self, segment: int, before: int, width: int) -> int:
        """Memory of a segment's weights."""
        count = segment_parameters(self.weights.form, *checked_key(segment, before, width))
        return (2 if self.way.half else 4) * count

    def takes(self, segment: int, before: int) -> tuple[int, int, int]:
        """(channels, side, side) of what a segment is given."""
        return taken(self.weights, segment, before)

    def resident(self, x: Array) -> Any:
        """A batch as one segment hands it to the next: on a GPU a tensor there."""
        return self.device.placed(x).to(self.device.dtype) if self.device.on_gpu else x

    def stack(self, rows: Sequence[Any]) -> Any:
        """One batch of several; all are arrays, or all are tensors."""
        return torch.cat(list(rows)) if isinstance(rows[0], Tensor) else np.concatenate(rows)

    def fetched(self, x: Any) -> Array:
        """A batch as an array in the host's memory."""
        return fetched(x)


def fetched(x: Array | Tensor) -> Array:
    """A batch as an array in the host's memory, whatever it is."""
    return x.float().contiguous().cpu().numpy() if isinstance(x, Tensor) else x
