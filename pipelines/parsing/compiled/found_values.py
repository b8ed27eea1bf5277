"""The values that compiled loops found in a block of lines, as Arrow arrays.

:mod:`pipelines.parsing.compiled.tokens` has the loops. It loads numba, which takes longer than to read a small file, and is imported when a large one is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.cells.numbers import finite
from pipelines.cells.times import epoch_times
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.typed_rows import ParsedBlock, implausible
from transforms.arrays import Array
from transforms.types import DType

_TEXT = pa.string()


@dataclass(frozen=True, slots=True, eq=False)
class FoundValues:
    """The values of some columns of a block: see :func:`~pipelines.parsing.compiled.tokens.find_values`."""

    data: Array
    starts: Array
    lengths: Array
    kinds: Array
    integers: Array

    @classmethod
    def none(cls, data: bytes, columns: int, rows: int) -> FoundValues:
        """Arrays to be filled; data must end with a line feed."""
        starts, lengths = np.empty((2, columns, rows), np.int32)
        kinds, integers = np.zeros((columns, rows), np.uint8), np.zeros((columns, rows), np.int64)
        return cls(np.frombuffer(data, np.uint8), starts, lengths, kinds, integers)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What the loops fill."""
        return self.starts, self.lengths, self.kinds, self.integers, self.integers.view(np.float64)

    def numbers(self, at: int, column: LogColumn, is_missing: Array) -> pa.Array:
        """The numbers of a column all of whose values are known."""
        stored = self.integers[at].view(np.float64) if column.dtype is DType.FLOAT64 else self.integers[at]
        return pa.array(stored, mask=is_missing)

    def texts(self, at: int, is_missing: Array) -> pa.Array:
        """The texts of a column without escapes, and the digits of its numbers."""
        from pipelines.parsing.compiled import tokens

        kinds, lengths = self.kinds[at], self.lengths[at]
        offsets, out = np.empty(len(kinds) + 1, np.int32), np.empty(int(lengths[~is_missing].sum()), np.uint8)
        used = tokens.copy_texts(self.data, self.starts[at], lengths, kinds, offsets, out)
        valid = pa.py_buffer(np.packbits(~is_missing, bitorder="little")) if is_missing.any() else None
        return pa.StringArray.from_buffers(len(kinds), pa.py_buffer(offsets), pa.py_buffer(out[:used]), valid)


def typed_block(
    values: FoundValues,
    schema: LogSchema,
    typed: Callable[[FoundValues, int, LogColumn, LogSchema, Counter[str]], pa.Array | None],
) -> ParsedBlock | None:
    """The rows of a block; None if a row is bad. ``typed``: a column with the table's type, by its place, or None."""
    notes: Counter[str] = Counter()
    arrays = []
    for at, column in enumerate(schema.columns):
        seen: Counter[str] = Counter()
        array = typed(values, at, column, schema, seen)
        if array is None or implausible(array, column, schema):
            return None
        notes.update({f"{column.name}: {what}": count for what, count in seen.items()})
        arrays.append(array)
    return ParsedBlock(pa.Table.from_arrays(arrays, schema=schema.read_schema), (), dict(notes))


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    try:
        pa.BinaryArray.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)]).cast(_TEXT)
    except pa.ArrowInvalid:
        return False
    return True


def number_want(column: LogColumn) -> int:
    """How the numbers of a column of numbers are wanted: float32 is rounded from the digits, not from a float64."""
    from pipelines.parsing.compiled import tokens

    if column.dtype is DType.FLOAT64:
        return tokens.AS_FLOAT
    return tokens.AS_DIGITS if column.dtype is DType.FLOAT32 else tokens.AS_INTEGER


def finished_numbers(array: pa.Array, column: LogColumn, notes: Counter[str]) -> pa.Array | None:
    """Numbers as the column's type; None if one is bad, or a needed one is missing."""
    if column.required and array.null_count:
        return None
    try:
        if column.dtype is DType.TIMESTAMP:
            return epoch_times(array, str(column.unit), notes)
        return finite(array, column) if pa.types.is_floating(array.type) else array
    except pa.ArrowInvalid:
        return None
