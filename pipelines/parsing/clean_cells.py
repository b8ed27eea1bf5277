"""Read clean blocks of a delimited log by compiled loops, or with Arrow's own conversions: the same rows as :func:`~pipelines.parsing.log.parse_block`, in less time.

The cells of most columns are then never made as texts. A block is clean if Arrow splits its records as the definition does, every cell
is a value of its column, and Arrow reads no cell otherwise: it drops spaces and tabs around numbers, and takes ``0x1F`` as one.
Other blocks are left to the definition, which names what is wrong with them.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from pipelines.cells.numbers import finite
from pipelines.cells.times import epoch_times
from pipelines.cells.typed_cells import typed_cells
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.arrow_cells import one_cell_array, plain_data, read_cells
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.compiled.unquoted_cells import NotPlainError, unquoted_rows
from pipelines.parsing.delimited_lines import Layout
from pipelines.parsing.typed_rows import ParsedBlock, implausible
from transforms.columns.arrow_types import ARROW_ELEMENT
from transforms.types import DType

_TEXT = pa.string()
#: Blocks of fewer bytes are read by Arrow: to load the compiled loops takes longer.
LOOPS_BYTES = 1 << 20
#: After a block that is not clean so many are left to the definition: bad rows are often spread over the whole file.
_LEFT_AFTER = 7


class CleanCells:
    """Reads the clean blocks of one file."""

    def __init__(self, schema: LogSchema, layout: Layout) -> None:
        self._schema, self._layout = schema, layout
        self._types = arrow_types(schema, layout)
        self._left = 0

    def rows(self, block: LineBlock) -> ParsedBlock | None:
        """The rows of a block; None if it is not known to be clean."""
        if self._types is None:
            return None
        if self._left:
            self._left -= 1
            return None
        found = self._found(block)
        self._left = 0 if found is not None else _LEFT_AFTER
        return found

    def _found(self, block: LineBlock) -> ParsedBlock | None:
        if len(block.data) >= LOOPS_BYTES:
            try:
                return unquoted_rows(block, self._schema, self._layout)
            except NotPlainError:
                pass
        assert self._types is not None
        return clean_rows(block, self._schema, self._layout, self._types)


def arrow_types(schema: LogSchema, layout: Layout) -> dict[str, pa.DataType] | None:
    """As which types Arrow reads the schema's columns, by their positions; None if it must not read them."""
    if schema.format == "jsonl" or layout.trailing or any(column.trim for column in schema.columns):
        return None
    types = {str(at): _arrow_type(column) for at, column in zip(layout.positions, schema.columns, strict=True)}
    return types if len(types) == len(schema.columns) else None


def clean_rows(
    block: LineBlock, schema: LogSchema, layout: Layout, types: dict[str, pa.DataType]
) -> ParsedBlock | None:
    """The rows of a block whose cells Arrow reads as these types; None if it is not known to be clean."""
    data = plain_data(block, layout.syntax)
    if not data:
        return None
    if any(kind != _TEXT for kind in types.values()) and not _numbers_are_plain(data, layout.syntax.delimiter):
        return None
    raw = read_cells(data, layout, block.starts is not None, types, schema.null)
    if raw is None or raw.num_rows != block.records:
        return None
    notes: Counter[str] = Counter()
    arrays = []
    for position, column in zip(layout.positions, schema.columns, strict=True):
        array = _finished(one_cell_array(raw.column(str(position))), column, schema, notes)
        if array is None:
            return None
        arrays.append(array)
    return ParsedBlock(pa.Table.from_arrays(arrays, schema=schema.read_schema), (), dict(notes))


def _arrow_type(column: LogColumn) -> pa.DataType:
    """A number that Arrow converts as :mod:`pipelines.cells` does, or text."""
    is_list = column.is_list or column.separator is not None
    if is_list or column.thousands or column.decimal != "." or column.hexadecimal:
        return _TEXT
    if column.dtype is DType.TIMESTAMP:
        return _TEXT if column.formats or column.unit == "iso8601" else pa.int64()
    if column.dtype in (DType.INT64, DType.FLOAT32, DType.FLOAT64):
        return ARROW_ELEMENT[column.dtype]
    return _TEXT


def _numbers_are_plain(data: bytes, delimiter: str) -> bool:
    """Whether no cell begins or ends with a space or a tab, and no ``0x`` is in the block."""
    content = np.frombuffer(data, np.uint8)
    edges = np.zeros(256, np.bool_)
    edges[[ord("\n"), ord("\r"), ord('"'), ord(delimiter)]] = True
    for space in b" \t":
        if space == ord(delimiter):
            if b'"' in data:  # it may be inside quotes
                return False
            continue
        if bytes([space]) in data and _has_neighbour(content, content == space, edges, edges):
            return False
    nothing, digit = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
    digit[ord("0")] = True
    return not any(bytes([mark]) in data and _has_neighbour(content, content == mark, digit, nothing) for mark in b"xX")


def _has_neighbour(content: np.ndarray, places: np.ndarray, before: np.ndarray, behind: np.ndarray) -> bool:
    """Whether a byte at one of the places is next to one of the given bytes, or to the beginning or the end, which are a line feed."""
    at = np.flatnonzero(places)
    ahead = before[np.where(at > 0, content[at - 1], ord("\n"))]
    after = behind[np.where(at < len(content) - 1, content[np.minimum(at + 1, len(content) - 1)], ord("\n"))]
    return bool(ahead.any() or after.any())


def _finished(array: pa.Array, column: LogColumn, schema: LogSchema, notes: Counter[str]) -> pa.Array | None:
    """The column with the table's type; None if a row is bad."""
    if column.required and array.null_count:
        return None
    seen: Counter[str] = Counter()
    if pa.types.is_string(array.type):
        array, bad = typed_cells(array, column, seen)
        if bad.any():
            return None
    else:
        try:
            array = epoch_times(array, str(column.unit), seen) if column.dtype is DType.TIMESTAMP else array
            array = finite(array, column) if pa.types.is_floating(array.type) else array
        except pa.ArrowInvalid:
            return None
    notes.update({f"{column.name}: {what}": count for what, count in seen.items()})
    return None if implausible(array, column, schema) else array
