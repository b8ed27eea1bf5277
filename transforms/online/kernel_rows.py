"""Rows in memory as kernels read them: the memory of their columns, without a copy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.kernels.history_event import FLOATS, NO_VALUES, TRUTHS, WHOLE
from transforms.kernels.spans import frozen
from transforms.online.row_block import RowBlock

_NO_BITS = frozen(np.empty(0, np.uint8))
_NO_TIMES = frozen(np.empty(0, np.int64))


class KernelValues(NamedTuple):
    """The values of rows; arrays that do not fit their type are empty.

    Attributes:
        kind: what they are, as :mod:`transforms.kernels.history_event` has it; texts are none.
        whole: numbers, times, or the bits of floats: int64.
        truths: truth values, as bits: uint8.
        valid: which rows have a value, as bits; empty if all have: uint8.
    """

    kind: int
    whole: Array
    truths: Array
    valid: Array


#: Of aggregates without a value.
_NONE = KernelValues(NO_VALUES, _NO_TIMES, _NO_BITS, _NO_BITS)


class KernelRows:
    """The rows of a block, and views of their memory, made as they are first asked for.

    A float32 column is held a second time, as float64: 8 bytes per row. Other numbers and times are views.
    """

    def __init__(self, block: RowBlock) -> None:
        self.block, self.time = block, frozen(block.time)
        self._known = {name: frozen(one) for name, one in block.known.items()}
        self._values: dict[str, KernelValues] = {}
        self._used: dict[str, Array] = {}

    def known(self, name: str) -> Array:
        """From when on rows are known by a column, empty without one."""
        return self._known[name] if name else _NO_TIMES

    def used(self, condition: str) -> Array:
        """The rows for which a condition is true, as bits, empty without one. ``condition``: the identity of its expression."""
        if not condition:
            return _NO_BITS
        found = self._used.get(condition)
        if found is None:
            column = self.block.columns[condition]
            found = self._used[condition] = _bits(pc.fill_null(column, False) if column.null_count else column)
        return found

    def values(self, value: str) -> KernelValues:
        """The values of an expression, by its identity; empty: none."""
        if not value:
            return _NONE
        found = self._values.get(value)
        if found is None:
            found = self._values[value] = _values(self.block.columns[value])
        return found


class KeyRows(NamedTuple):
    """The rows of a key: those of ``rows`` from ``start`` to ``stop``, in order of time."""

    rows: KernelRows
    start: int
    stop: int

    @property
    def block(self) -> RowBlock:
        """The rows alone."""
        return self.rows.block.part(self.start, self.stop)


def _values(column: pa.Array) -> KernelValues:
    made = _NONE
    if pa.types.is_boolean(column.type):
        made = made._replace(kind=TRUTHS, truths=_bits(column))
    elif pa.types.is_floating(column.type):
        made = made._replace(kind=FLOATS, whole=_whole(column.cast(pa.float64())))
    elif not pa.types.is_string(column.type):
        made = made._replace(kind=WHOLE, whole=_whole(column))
    return made._replace(valid=_bits(column.is_valid())) if column.null_count else made


def _whole(column: pa.Array) -> Array:
    """Numbers of 64 bits as whole ones."""
    if not len(column):
        return _NO_TIMES
    return frozen(np.frombuffer(column.buffers()[1], np.int64, column.offset + len(column))[column.offset :])


def _bits(column: pa.Array) -> Array:
    """Truth values as bits; those of a slice in the middle of a byte are copied."""
    if not len(column):
        return _NO_BITS
    found = np.frombuffer(column.buffers()[1], np.uint8)
    if column.offset % 8:
        shifted = np.unpackbits(found, count=column.offset + len(column), bitorder="little")[column.offset :]
        return frozen(np.packbits(shifted, bitorder="little"))
    return frozen(found[column.offset // 8 :])
