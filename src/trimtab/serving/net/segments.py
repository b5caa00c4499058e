"""Segments of the slimmable network as ONNX models, run by onnxruntime on one thread of a CPU.

Each (segment, width before, width) gets dense weights of its own: a copy costs a few megabytes
once, where slicing would cost a copy at every call. The graph is built here and not traced from
torch, so that serving needs no torch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.memory_left import check_room
from trimtab.serving.net.slim_form import COLOURS, Layer, channels_at, layers, segment_parameters
from trimtab.serving.net.slim_weights import Weights, dense
from trimtab.serving.nouns import SEGMENTS, WIDTHS

OPSET, IR_VERSION = 17, 8
NORM_EPSILON = 1e-5  # of the group normalisation, as in torch
# how far onnxruntime rewrites the graph: all = also blocks of channels, which a layer of many
# channels and few pixels is better off without
LEVELS = ("ALL", "EXTENDED")
LOAD_COPIES = 6  # of a segment's weights that are held while it loads, as measured; 4 stay
MOVING = "batch"  # the name of the dimension that may differ from call to call


class Segments:
    """Runs segments, each loaded at its first use and kept until `unload`.

    Safe to call from several threads: onnxruntime runs one session from many, without the GIL.
    """

    def __init__(self, weights: Weights, threads: int = 1, level: str = "ALL") -> None:
        if threads < 1:
            raise ServeError(f"threads={threads}: give 1 or more")
        if level not in LEVELS:
            raise ServeError(f"level={level!r}: give one of {', '.join(LEVELS)}")
        self.weights, self.threads, self.level = weights, threads, level
        self._sessions: dict[tuple[int, int, int], Any] = {}
        self._loading = threading.Lock()  # two threads that want one segment load it once

    def run(self, segment: int, before: int, width: int, x: Array) -> Array:
        """A segment's output for a batch: (N, channels, side, side), from the last one (N, classes)
        logits. The first takes (N, 3, side, side) pixels in 0..1 and has no width before it.
        """
        session = self.load(segment, before, width)
        check_input(x, segment, before, self.takes(segment, before))
        found: Array = session.run(None, {"x": x})[0]
        return found

    begun = run  # a CPU is done when the call returns

    def through(self, segment: int, before: int, widths: Sequence[int], x: Array) -> Array:
        """The output after `segment` and those that follow it, at these widths."""
        for after, width in enumerate(widths):
            x = self.run(segment + after, before, width, x)
            before = width
        return x

    def load(self, segment: int, before: int, width: int) -> Any:
        """The session of one segment, made where there is none yet; MemoryError = no room."""
        key = checked_key(segment, before, width)
        session = self._sessions.get(key)
        if session is None:
            with self._loading:
                session = self._sessions.get(key)
                if session is None:
                    check_room(LOAD_COPIES * self.bytes_of(*key))
                    session = self._sessions[key] = _session(model(self.weights, *key), self)
        return session

    def unload(self, segment: int, before: int, width: int) -> bool:
        """Forget a segment, and its memory with its last call. Returns whether it was loaded."""
        with self._loading:
            return self._sessions.pop(checked_key(segment, before, width), None) is not None

    @property
    def loaded(self) -> tuple[tuple[int, int, int], ...]:
        """(segment, width before, width) of what is loaded, in the order of loading."""
        return tuple(self._sessions)

    def bytes_of(self, segment: int, before: int, width: int) -> int:
        """Memory of a segment's weights."""
        return 4 * segment_parameters(self.weights.form, *checked_key(segment, before, width))

    def takes(self, segment: int, before: int) -> tuple[int, int, int]:
        """(channels, side, side) of what a segment is given."""
        return taken(self.weights, segment, before)

    def resident(self, x: Array) -> Array:
        """A batch as one segment hands it to the next: here the array itself."""
        return x

    def stack(self, rows: Sequence[Array]) -> Array:
        """One batch of several."""
        return np.concatenate(rows)

    def fetched(self, x: Array) -> Array:
        """A batch as an array in the host's memory: here the array itself."""
        return x


def checked_key(segment: int, before: int, width: int) -> tuple[int, int, int]:
    """The key that a segment is kept by: the first one has no width before it but its own."""
    for name, value, count in (
        ("segment", segment, SEGMENTS),
        ("before", before, len(WIDTHS)),
        ("width", width, len(WIDTHS)),
    ):
        if value not in range(count):
            raise ServeError(f"{name}={value} is unknown; give 0..{count - 1}")
    return int(segment), int(width if segment == 0 else before), int(width)


def check_input(x: Array, segment: int, before: int, wanted: tuple[int, ...]) -> None:
    """Refuse what the segment cannot take."""
    if x.dtype != np.float32 or x.shape[1:] != wanted:
        raise ServeError(
            f"segment {segment} after width {before}: {x.dtype} of shape {x.shape} was given; "
            f"give float32 of shape (N, {', '.join(map(str, wanted))})"
        )


def taken(weights: Weights, segment: int, before: int) -> tuple[int, int, int]:
    """(channels, side, side) of what a segment is given."""
    if segment == 0:
        return COLOURS, weights.form.side, weights.form.side
    side = _side(weights, segment - 1)
    return channels_at(weights.form, segment - 1, before), side, side


def model(weights: Weights, segment: int, before: int, width: int) -> bytes:
    """One segment as a serialised ONNX model with input `x`, output `y` and any batch size."""
    onnx = _onnx()
    graph = _Graph(onnx, dense(weights, segment, before, width), weights.form.group)
    here = {layer.name: layer for layer in layers(weights.form) if layer.segment == segment}
    outputs = channels_at(weights.form, segment, width)
    x = "x"
    if segment == 0:
        x = graph.add("Sub", x, "mean")
        x = graph.add("Div", x, "spread")
        x = graph.add("Relu", graph.normed(here["stem"], x, outputs))
    for block in range(weights.form.blocks[segment]):
        name = f"{segment}_{block}"
        inner = graph.add("Relu", graph.normed(here[f"{name}_first"], x, outputs))
        inner = graph.normed(here[f"{name}_second"], inner, outputs)
        skip = here.get(f"{name}_skip")
        x = graph.add(
            "Relu", graph.add("Add", inner, graph.normed(skip, x, outputs) if skip else x)
        )
    if segment == SEGMENTS - 1:
        x = graph.add("Flatten", graph.add("GlobalAveragePool", x))
        x = graph.add("Gemm", x, "head.weight", "head.bias", transB=1)
    last = segment == SEGMENTS - 1
    side = _side(weights, segment)
    made = (weights.form.classes,) if last else (outputs, side, side)
    return graph.serialised(taken(weights, segment, before), made)


class _Graph:
    """ONNX nodes and constants as they are added."""

    def __init__(self, onnx: Any, arrays: dict[str, Array], group: int) -> None:
        self.onnx, self.group = onnx, group
        self.nodes: list[Any] = []
        self.constants = dict(arrays)

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [out], **attributes))
        return out

    def constant(self, name: str, value: Array) -> str:
        self.constants[name] = value
        return name

    def normed(self, layer: Layer, x: str, outputs: int) -> str:
        """A convolution and its group normalisation.

        Instance normalisation of whole groups, then batch normalisation with fixed statistics as
        gain and shift a channel: onnxruntime has kernels for both, and takes GroupNormalization
        apart into many steps, which costs most where channels are few.
        """
        pad = layer.kernel // 2
        x = self.add(
            "Conv", x, f"{layer.name}.weight",
            kernel_shape=[layer.kernel] * 2, strides=[layer.stride] * 2, pads=[pad] * 4,
        )  # fmt: skip
        groups = outputs // self.group
        grouped = self.constant("grouped", np.array([0, groups, -1]))
        apart = self.constant(f"apart{layer.side}", np.array([0, outputs, layer.side, layer.side]))
        one = self.constant("one", np.ones(groups, np.float32))
        none = self.constant("none", np.zeros(groups, np.float32))
        x = self.add("Reshape", x, grouped)
        x = self.add("InstanceNormalization", x, one, none, epsilon=NORM_EPSILON)
        x = self.add("Reshape", x, apart)
        rest = self.constant("rest", np.zeros(outputs, np.float32))
        unit = self.constant("unit", np.ones(outputs, np.float32))
        gain, shift = f"{layer.name}.gain", f"{layer.name}.shift"
        return self.add("BatchNormalization", x, gain, shift, rest, unit, epsilon=0.0)

    def serialised(self, given: tuple[int, ...], made: tuple[int, ...]) -> bytes:
        helper, numbers = self.onnx.helper, self.onnx.TensorProto.FLOAT
        self.nodes[-1].output[0] = "y"  # the last node made the last tensor
        graph = helper.make_graph(
            self.nodes,
            "segment",
            [helper.make_tensor_value_info("x", numbers, [MOVING, *given])],
            [helper.make_tensor_value_info("y", numbers, [MOVING, *made])],
            [self.onnx.numpy_helper.from_array(v, name) for name, v in self.constants.items()],
        )
        opset = [helper.make_opsetid("", OPSET)]
        whole = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
        found: bytes = whole.SerializeToString()
        return found


def _side(weights: Weights, segment: int) -> int:
    """Pixels of a segment's output."""
    return [layer.side for layer in layers(weights.form) if layer.segment == segment][-1]


def _session(serialised: bytes, of: Segments) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = of.threads
    options.inter_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, f"ORT_ENABLE_{of.level}")
    # a worker that waits for its next batch must not burn a core that another one needs
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(serialised, options, providers=["CPUExecutionProvider"])


def _onnx() -> Any:
    try:
        import onnx
        import onnx.numpy_helper
    except ModuleNotFoundError as missing:
        raise ServeError(
            "building a segment needs onnx, which is not installed; pip install 'trimtab[train]'"
        ) from missing
    return onnx
