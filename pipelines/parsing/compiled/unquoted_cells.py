"""Read blocks of delimited records without quotes and escapes by compiled loops: the same rows as :func:`~pipelines.parsing.log.parse_block`.

Integers, and floats of few digits, are numbers already; other cells become texts, which :mod:`pipelines.cells` converts as for all formats.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa

from pipelines.cells.typed_cells import null_spellings, typed_cells
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.compiled.found_values import FoundValues, finished_numbers, is_utf8, number_want, typed_block
from pipelines.parsing.delimited_lines import Layout
from pipelines.parsing.typed_rows import ParsedBlock
from transforms.types import DType

#: The beginning of a spelling of a missing value that may be a number.
_NUMBER = re.compile(r"-?[0-9]")


class NotPlainError(Exception):
    """A block whose records these loops do not read."""


def unquoted_rows(block: LineBlock, schema: LogSchema, layout: Layout) -> ParsedBlock | None:
    """The rows of a block; None if a row is bad. Raises :class:`NotPlainError`."""
    from pipelines.parsing.compiled import tokens

    raw = block.data if block.data.endswith(b"\n") else block.data + b"\n"
    if layout.trailing or layout.syntax.may_span_lines(raw) or not is_utf8(raw):
        raise NotPlainError
    columns = schema.columns
    numbers = [_is_number(column) and not any(map(_NUMBER.match, schema.null)) for column in columns]
    wants = np.array(
        [number_want(one) if known else tokens.AS_DIGITS for one, known in zip(columns, numbers, strict=True)]
    )
    column_of = np.full(layout.width, -1, np.int64)
    column_of[list(layout.positions)] = np.arange(len(columns))
    values = FoundValues.none(raw, len(columns), block.lines)
    if (
        tokens.find_cells(values.data, ord(layout.syntax.delimiter), column_of, wants.astype(np.int64), *values.arrays)
        != block.lines
    ):
        raise NotPlainError
    return typed_block(values, schema, _typed)


def _is_number(column: LogColumn) -> bool:
    """Whether the cells of a column are plain numbers."""
    is_counted = column.dtype is DType.TIMESTAMP and not column.formats and column.unit != "iso8601"
    is_plain = column.separator is None and not column.thousands and column.decimal == "."
    return is_plain and (is_counted or column.dtype in (DType.INT64, DType.FLOAT64))


def _typed(values: FoundValues, at: int, column: LogColumn, schema: LogSchema, notes: Counter[str]) -> pa.Array | None:
    """A column with the table's type; None if a row is bad."""
    from pipelines.parsing.compiled import tokens

    kinds = values.kinds[at]
    is_text = kinds == tokens.TEXT
    if "" in schema.null and _is_number(column) and not (kinds == tokens.DIGITS).any():
        is_missing = is_text & (values.lengths[at] == 0)
        if np.array_equal(is_missing, is_text) and not is_text.all():
            return finished_numbers(values.numbers(at, column, is_missing), column, notes)
    text = null_spellings(values.texts(at, np.zeros(len(kinds), np.bool_)), schema.null, trim=column.trim)
    if column.required and text.null_count:
        return None
    array, bad = typed_cells(text, column, notes)
    return None if bad.any() else array
