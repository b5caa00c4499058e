"""One tensor: bytes, JSON values or protobuf values to numpy and back, by the model's metadata.

Everything a client can get wrong raises ServeError with the field, the value and the remedy.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.nouns import DTYPES, Spec

BYTES_LIMIT = 1 << 20  # elements of one BYTES tensor: each costs the event loop a Python object


def brief(value: Any) -> str:
    """A value short enough for an error message."""
    if isinstance(value, list | dict) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_shape(spec: Spec, datatype: Any, shape: Any) -> tuple[int, ...]:
    """The client's shape, checked with its datatype against the model's."""
    if datatype != spec.datatype:
        raise ServeError(f"{spec.name}: datatype is {brief(datatype)}; send {spec.datatype}")
    given = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else ()
    fits = len(given) == len(spec.shape)
    for size, wanted in zip(given, spec.shape):
        # bool is an int in Python but not a size; 0 rows would leave nothing to answer
        fits = fits and type(size) is int and size > 0 and (size == wanted or wanted < 0)
    if not fits:
        wanted_text = list(spec.shape)
        raise ServeError(f"{spec.name}: shape is {brief(shape)}; send {wanted_text} (-1 = any)")
    return given


def from_bytes(
    spec: Spec, shape: tuple[int, ...], body: bytes, start: int, size_bytes: int
) -> Array:
    """A tensor over the body's own bytes: copied only where they are not aligned."""
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        return split_bytes(spec, shape, memoryview(body)[start : start + size_bytes])
    dtype = np.dtype("<u2") if spec.datatype == "BF16" else DTYPES[spec.datatype]
    if size_bytes != count * dtype.itemsize:
        raise ServeError(
            f"{spec.name}: {size_bytes} bytes for shape {list(shape)} of {spec.datatype};"
            f" send {count * dtype.itemsize}"
        )
    flat = np.frombuffer(body, dtype, count, start)
    if spec.datatype == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    elif not flat.flags.aligned:
        # runtimes may assume alignment; the JSON in front has any length
        flat = flat.copy()
    return checked(spec, flat, shape)


@np.errstate(over="ignore", invalid="ignore")
def all_finite(tensor: Array) -> bool:
    """Whether no float is NaN or infinite."""
    flat = tensor.reshape(-1)
    # one pass without a copy: what is not finite stays so in a sum of squares, which is finite for
    # all but huge numbers
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())


def checked(spec: Spec, flat: Array, shape: tuple[int, ...]) -> Array:
    """The tensor in its shape; raises where a float is NaN or infinite."""
    if flat.dtype.kind == "f" and not all_finite(flat):
        where = np.unravel_index(int(np.argmin(np.isfinite(flat))), shape)
        at = [int(place) for place in where]
        raise ServeError(
            f"{spec.name}: {flat[np.ravel_multi_index(where, shape)]} at {at};"
            f" send finite numbers that {spec.datatype} can hold"
        )
    return flat.reshape(shape)


def split_bytes(spec: Spec, shape: tuple[int, ...], raw: memoryview) -> Array:
    """BYTES elements, each behind its length in 4 little-endian bytes."""
    count, at = math.prod(shape), 0
    if count > BYTES_LIMIT:
        raise ServeError(f"{spec.name}: {count} BYTES elements; send at most {BYTES_LIMIT}")
    items: list[bytes] = []
    while at + 4 <= len(raw) and len(items) < count:
        (size,) = struct.unpack_from("<I", raw, at)
        items.append(bytes(raw[at + 4 : at + 4 + size]))
        at += 4 + size
    if at != len(raw) or len(items) != count:
        raise ServeError(
            f"{spec.name}: {len(raw)} bytes do not hold {count} BYTES elements for shape"
            f" {list(shape)}; put 4 little-endian length bytes before each"
        )
    return objects(items, shape)


def objects(items: Iterable[bytes], shape: tuple[int, ...]) -> Array:
    """An object array of byte strings."""
    tensor = np.empty(math.prod(shape), object)
    # element by element: numpy would turn a list of byte strings into a fixed-width array
    for place, item in enumerate(items):
        tensor[place] = item
    return tensor.reshape(shape)


def from_list(spec: Spec, shape: tuple[int, ...], data: Any) -> Array:
    """A tensor from JSON numbers, nested by its shape or flat."""
    if not isinstance(data, list):
        raise ServeError(f"{spec.name}: data is {brief(data)}; send a list, or binary_data_size")
    flat = flattened(spec, shape, data)
    count = math.prod(shape)
    if len(flat) != count:
        raise ServeError(
            f"{spec.name}: data holds {len(flat)} values; shape {list(shape)} needs {count}"
        )
    return from_values(spec, shape, flat)


def flattened(spec: Spec, shape: tuple[int, ...], data: list[Any]) -> list[Any]:
    """The innermost values of nested lists, each level as long as the shape says."""
    flat = data
    for inner in shape[1:]:
        if not flat or not isinstance(flat[0], list):
            break
        if set(map(type, flat)) != {list} or set(map(len, flat)) != {inner}:
            raise ServeError(
                f"{spec.name}: data is not nested as shape {list(shape)}; nest it so or not at all"
            )
        flat = list(chain.from_iterable(flat))
    return flat


def from_values(spec: Spec, shape: tuple[int, ...], flat: Sequence[Any]) -> Array:
    """A tensor from Python values, without the silent conversions numpy would make."""
    if spec.datatype == "BYTES":
        return from_strings(spec, shape, flat)
    dtype = DTYPES[spec.datatype]
    try:
        if dtype.kind == "b":
            # array('b') would take 7 for true
            if set(map(type, flat)) != {bool}:
                raise TypeError
            return np.array(flat, dtype).reshape(shape)
        # array() refuses text, null and, for whole numbers, fractions: np.array converts them
        wide = np.frombuffer(array({"f": "d", "i": "q", "u": "Q"}[dtype.kind], flat))
    except (TypeError, OverflowError):
        raise ServeError(
            f"{spec.name}: data {brief(odd(flat, dtype))} is not {spec.datatype}; send numbers of"
            " that type (true or false for BOOL)"
        ) from None
    return narrowed(spec, shape, wide, dtype)


def odd(flat: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """The first value that has no place in `dtype`, for the message."""
    fine: tuple[type, ...] = {"b": (bool,), "f": (int, float)}.get(dtype.kind, (int,))
    return next((value for value in flat if not isinstance(value, fine)), "beyond its range")


def narrowed(spec: Spec, shape: tuple[int, ...], wide: Array, dtype: np.dtype[Any]) -> Array:
    """The values in the tensor's own type; raises where one does not fit."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which `checked` refuses
            return checked(spec, wide.astype(dtype, copy=False), shape)
    whole = wide.view(np.int64 if dtype.kind == "i" else np.uint64)
    bounds = np.iinfo(dtype)
    if int(whole.min()) < bounds.min or int(whole.max()) > bounds.max:
        raise ServeError(
            f"{spec.name}: data spans {whole.min()} to {whole.max()}; {spec.datatype} holds"
            f" {bounds.min} to {bounds.max}"
        )
    return whole.astype(dtype, copy=False).reshape(shape)


def from_strings(spec: Spec, shape: tuple[int, ...], flat: Sequence[Any]) -> Array:
    """BYTES from JSON text or from protobuf bytes."""
    if len(flat) > BYTES_LIMIT:
        raise ServeError(f"{spec.name}: {len(flat)} BYTES elements; send at most {BYTES_LIMIT}")
    for item in flat:
        if not isinstance(item, str | bytes):
            raise ServeError(f"{spec.name}: data {brief(item)} is not text; send strings for BYTES")
    return objects((i.encode() if isinstance(i, str) else i for i in flat), shape)


def raw(spec: Spec, tensor: Array) -> bytes | memoryview:
    """The tensor's bytes on the wire."""
    if spec.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(item)) + item for item in tensor.ravel())
    if spec.datatype == "BF16":
        bits = np.ascontiguousarray(tensor, np.float32).view(np.uint32).ravel()
        # round half to even on the 16 bits that go
        return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")).tobytes()
    return np.ascontiguousarray(tensor, DTYPES[spec.datatype]).reshape(-1).data


def listed(spec: Spec, tensor: Array) -> Any:
    """The tensor as flat JSON data."""
    if spec.datatype == "BYTES":
        try:
            return [item.decode() for item in tensor.ravel()]
        except UnicodeDecodeError:
            raise ServeError(f"{spec.name} is not UTF-8 text; ask for binary_data") from None
    flat = np.ascontiguousarray(tensor, DTYPES[spec.datatype]).reshape(-1)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise ServeError(f"{spec.name} is not finite, which JSON cannot say; ask for binary_data")
    return flat.astype(np.float32) if flat.dtype.itemsize == 2 and flat.dtype.kind == "f" else flat
