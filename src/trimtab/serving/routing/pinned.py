"""NamedTuples of arrays that compiled code finds by one number.

Unpacking the forty arrays of a live fleet for every compiled call would cost more than the call
does. So they are pinned once: a table holds their places and lengths, and a compiled function that
is given the table's address has the NamedTuple back for some loads from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

WORDS = 5  # of the table an array takes: its address and up to four lengths


class Pinned:
    """Arrays that stay where they are. `address` is what compiled code gets."""

    def __init__(self, arrays: Any, like: Any) -> None:
        table = np.zeros((len(arrays), WORDS), np.int64)
        # a table that a caller brought may lie otherwise; what compiled code writes never does
        self.arrays = [
            np.require(array, as_dtype(kind.dtype), "C") for array, kind in zip(arrays, like.types)
        ]
        for row, array, kind in zip(table, self.arrays, like.types):
            if array.ndim != kind.ndim:
                raise TypeError(f"{array.ndim} axes where compiled code knows {kind.ndim}")
            row[0], row[1 : 1 + array.ndim] = array.ctypes.data, array.shape
        self.table, self.address = table, table.ctypes.data


def likeness(arrays: Any) -> Any:
    """The compiled type of a NamedTuple of arrays, as contiguous and writable ones."""
    kinds = [types.Array(typeof(array).dtype, array.ndim, "C") for array in arrays]
    return types.BaseTuple.from_types(kinds, type(arrays))


def opener(likeness_of: Callable[[], Any]) -> Any:
    """A compiled function from the address of pinned arrays to their NamedTuple.

    Its type is asked for when a caller is compiled: to make it costs more than an import should.
    """

    @intrinsic
    def opened(typing_context: Any, address: Any) -> Any:
        like = likeness_of()

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            table = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
            made = [
                _array(context, builder, table, at * WORDS, kind)
                for at, kind in enumerate(like.types)
            ]
            return context.make_tuple(builder, like, made)

        return like(types.int64), codegen

    return opened


def _array(context: Any, builder: Any, table: Any, at: int, kind: Any) -> Any:
    """One array: its place and lengths loaded from the table, which never changes."""
    word = ir.IntType(64)
    unchanging = builder.module.add_metadata([])
    words = []
    for place in range(at, at + 1 + kind.ndim):
        loaded = builder.load(builder.gep(table, [ir.Constant(word, place)]))
        loaded.set_metadata("invariant.load", unchanging)
        words.append(loaded)
    array = make_array(kind)(context, builder)
    size_b = ir.Constant(word, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    step, strides = size_b, []
    for length in reversed(words[1:]):
        strides.append(step)
        step = builder.mul(step, length)
    populate_array(
        array,
        data=builder.inttoptr(words[0], array.data.type),
        shape=words[1:],
        strides=strides[::-1],
        itemsize=size_b,
        meminfo=None,
    )
    return array._getvalue()
