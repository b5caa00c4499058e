"""The weight file of a slimmable network: small enough to ship, readable without torch.

Convolutions are 8-bit integers with one scale a filter, everything else is float16. A filter is
standardised before use, so its length carries no meaning: it is stored at a mean square of 1, where
float16 scales are exact to 3 digits whatever weight decay left of the trained filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.packed import read_packed, refusing, write_packed
from trimtab.serving.net.slim_form import COLOURS, IMAGE, Form, channels_at, layers
from trimtab.serving.nouns import SEGMENTS, TUPLES

FORMAT = "trimtab slim 1"
SHIPPED = Path(__file__).with_name("slim.npz")
SCALE = ".scale"
LEVELS = 127  # symmetric: -127..127
TINY = 1e-8  # as in the network: see slim_net


class Weights(NamedTuple):
    """What a weight file holds, as float32 arrays by name, and the facts of their making."""

    form: Form
    arrays: dict[str, Array]
    facts: dict[str, Any]

    @property
    def accuracy(self) -> Array:
        """(256,) share of test images right at every tuple of widths, of these very weights; NaN
        where it was not measured.
        """
        found = self.facts.get("accuracy_stored")
        return np.full(len(TUPLES), np.nan) if found is None else np.asarray(found, float)


def quantised(weight: Array) -> tuple[Array, Array]:
    """A convolution's (outputs, inputs, k, k) as int8, and the (outputs,) float16 scales."""
    flat: Array = np.asarray(weight, np.float32).reshape(len(weight), -1)
    length = np.sqrt((flat**2).mean(axis=1, keepdims=True))
    flat = flat / np.where(length > 0, length, 1.0)
    scale = np.maximum(np.abs(flat).max(axis=1) / LEVELS, 1e-4).astype(np.float16)
    # by the scale as it is stored, so that rounding it costs nothing
    levels = np.rint(flat / scale[:, None].astype(np.float32))
    return np.clip(levels, -LEVELS, LEVELS).astype(np.int8).reshape(weight.shape), scale


def as_stored(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What of these numbers comes back from a weight file, as float32."""
    return _unpacked(_packed(arrays))


def save(
    path: str | Path, form: Form, arrays: Mapping[str, Array], facts: Mapping[str, Any]
) -> None:
    """Write the weight file whole or not at all; `facts` must be JSON."""
    for name, shape in shapes(form).items():
        if name not in arrays or arrays[name].size != np.prod(shape):
            raise ServeError(f"weights lack {name} of shape {shape}; give all of a network's")
        if not np.isfinite(arrays[name]).all():
            raise ServeError(f"weights {name} hold NaN or infinity; train with a smaller rate")
    packed = _packed({name: arrays[name] for name in shapes(form)})
    write_packed(path, FORMAT, packed, {"form": form._asdict(), **facts})


def load(path: str | Path) -> Weights:
    """Read a weight file."""
    remedy = "give a .npz that `trimtab train slim` wrote"
    with refusing(path, "a weight file of a slimmable network", remedy):
        packed, facts = read_packed(path, FORMAT)
        form = Form(**facts.pop("form"))
        form = form._replace(channels=tuple(form.channels), blocks=tuple(form.blocks)).check()
        arrays = _unpacked(packed)
    for name, shape in shapes(form).items():
        if name not in arrays or arrays[name].shape != shape:
            raise ServeError(f"{path}: {name} of shape {shape} is missing; fetch the file again")
    return Weights(form, arrays, facts)


def shapes(form: Form) -> dict[str, tuple[int, ...]]:
    """The shape of every array of a network, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for layer in layers(form):
        outputs = form.channels[layer.segment]
        inputs = COLOURS if layer.takes == IMAGE else form.channels[layer.takes]
        found[f"{layer.name}.weight"] = (outputs, inputs, layer.kernel, layer.kernel)
        found[f"{layer.name}.gain"] = found[f"{layer.name}.shift"] = (outputs,)
    found["head.weight"] = (form.classes, form.channels[-1])
    found["head.bias"] = (form.classes,)
    found["mean"] = found["spread"] = (1, COLOURS, 1, 1)
    return found


def dense(weights: Weights, segment: int, before: int, width: int) -> dict[str, Array]:
    """The arrays of one segment at its widths, sliced and standardised: what a server multiplies
    with. The first segment has the stem, the last the head.
    """
    form, arrays, found = weights.form, weights.arrays, {}
    outputs = channels_at(form, segment, width)
    for layer in layers(form):
        if layer.segment != segment:
            continue
        inputs = channels_at(form, layer.takes, width if layer.takes == segment else before)
        name = layer.name
        found[f"{name}.weight"] = standardised(arrays[f"{name}.weight"][:outputs, :inputs])
        found[f"{name}.gain"] = arrays[f"{name}.gain"][:outputs]
        found[f"{name}.shift"] = arrays[f"{name}.shift"][:outputs]
    if segment == 0:
        found |= {"mean": arrays["mean"], "spread": arrays["spread"]}
    if segment == SEGMENTS - 1:
        found["head.weight"] = arrays["head.weight"][:, :outputs]
        found["head.bias"] = arrays["head.bias"]
    return {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def standardised(weight: Array) -> Array:
    """Filters of mean 0 and length 1, as the network makes them."""
    flat = weight.reshape(len(weight), -1).astype(np.float64)
    flat = flat - flat.mean(axis=1, keepdims=True)
    length = np.sqrt((flat**2).sum(axis=1, keepdims=True) + TINY)
    return (flat / length).astype(np.float32).reshape(weight.shape)


def _packed(arrays: Mapping[str, Array]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, value in arrays.items():
        if value.ndim == 4 and name.endswith(".weight"):
            found[name], found[f"{name}{SCALE}"] = quantised(value)
        else:
            found[name] = np.asarray(value, np.float16)
    return found


def _unpacked(packed: Mapping[str, Array]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, value in packed.items():
        if name.endswith(SCALE):
            continue
        found[name] = value.astype(np.float32)
        if value.dtype == np.int8:
            found[name] *= packed[f"{name}{SCALE}"].astype(np.float32)[:, None, None, None]
    return found
