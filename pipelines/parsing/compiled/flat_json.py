"""Read blocks of flat JSON objects by compiled loops: the same rows as :func:`~pipelines.parsing.json_lines.slow_block`, in less time.

The loops (:mod:`pipelines.parsing.compiled.tokens`) find the values of a line, or leave the block to others: they know no nested values, and no line that is not
JSON. Integers, and floats of few digits, are numbers already; other values become texts, which :mod:`pipelines.cells` converts as for all formats.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from pipelines.cells.json_values import holds_number, is_text
from pipelines.cells.typed_cells import null_spellings, typed_cells
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.compiled.found_values import FoundValues, finished_numbers, is_utf8, number_want, typed_block
from pipelines.parsing.typed_rows import ParsedBlock
from transforms.types import DType


class NotFlatError(Exception):
    """A block whose rows these loops do not read."""


def can_read(schema: LogSchema) -> bool:
    """Whether objects that hold the schema's columns can be flat."""
    keys = {column.keys for column in schema.columns}
    is_flat = all(len(one) == 1 for one in keys) and len(keys) == len(schema.columns)
    return is_flat and not any(
        column.is_list or column.is_json or column.thousands or column.decimal != "." for column in schema.columns
    )


def flat_rows(block: LineBlock, schema: LogSchema) -> ParsedBlock | None:
    """The rows of a block for which :func:`can_read`; None if a row is bad. Raises :class:`NotFlatError`."""
    from pipelines.parsing.compiled import tokens  # loads numba, which takes longer than to read a small file

    raw = block.data if block.data.endswith(b"\n") else block.data + b"\n"
    if not is_utf8(raw):
        raise NotFlatError
    columns = schema.columns
    names = [column.keys[0].encode("utf-8", "surrogatepass") for column in columns]
    keys, ends = np.frombuffer(b"".join(names), np.uint8), np.cumsum([len(name) for name in names])
    values = FoundValues.none(raw, len(columns), block.lines)
    wants = np.array(
        [number_want(column) if holds_number(column) else tokens.AS_DIGITS for column in columns], np.int64
    )
    if tokens.find_values(values.data, keys, ends, wants, *values.arrays) != block.lines:
        raise NotFlatError
    return typed_block(values, schema, _typed)


def _typed(values: FoundValues, at: int, column: LogColumn, schema: LogSchema, notes: Counter[str]) -> pa.Array | None:
    """A column with the table's type; None if a row is bad."""
    from pipelines.parsing.compiled import tokens

    kinds = values.kinds[at]
    there = np.bincount(kinds, minlength=tokens.FALSE + 1) > 0
    is_missing = kinds == tokens.ABSENT
    strings = bool(there[tokens.TEXT] or there[tokens.ESCAPED])
    numbers = bool(there[tokens.DIGITS] or there[tokens.INTEGER] or there[tokens.FLOAT])
    literals = bool(there[tokens.TRUE] or there[tokens.FALSE])
    if strings + numbers + literals > 1:
        return None
    is_bool = column.dtype is DType.BOOL and column.separator is None
    if literals:
        if not is_bool:
            return None
        array = pa.array(kinds == tokens.TRUE, pa.bool_(), mask=is_missing)
        return None if column.required and array.null_count else array
    if numbers and not (holds_number(column) or is_bool or column.formats):
        return None
    if strings and is_bool:
        return None
    if numbers and holds_number(column) and not there[tokens.DIGITS]:
        return finished_numbers(values.numbers(at, column, is_missing), column, notes)
    text = values.texts(at, is_missing)
    if numbers and is_bool:
        text = text if set(text.unique().to_pylist()) <= {"0", "1", None} else None
    elif strings or is_text(column):
        text = null_spellings(text, schema.null, trim=column.trim)
    if text is None or (column.required and text.null_count):
        return None
    array, bad = typed_cells(text, column, notes)
    return None if bad.any() else array
