"""Parse columns of numbers, with separators between thousands where the schema allows them.

``0x1F`` is an integer, and ``inf``, ``nan`` and ``1e400`` are floats, only if the column allows it.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.log_schemas.columns import LogColumn
from transforms.columns.arrow_types import ARROW_ELEMENT
from transforms.types import DType

_FLOATS = (DType.FLOAT32, DType.FLOAT64)


def number_cells(text: pa.Array, column: LogColumn) -> pa.Array:
    """Texts as numbers of the column's type. Raises ``pa.ArrowInvalid`` for a text that is not a number."""
    if column.thousands or column.decimal != ".":
        text = _plain_digits(text, column)
    if column.dtype in _FLOATS:
        return finite(text.cast(ARROW_ELEMENT[column.dtype]), column)
    if not column.hexadecimal and holds_x(text):
        raise pa.ArrowInvalid("a hexadecimal number")
    return text.cast(ARROW_ELEMENT[column.dtype])


def finite(array: pa.Array, column: LogColumn) -> pa.Array:
    """``array``. Raises ``pa.ArrowInvalid`` for an infinity or NaN that the column does not allow."""
    if not column.non_finite and not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise pa.ArrowInvalid("a number that is not finite")
    return array


def holds_x(text: pa.Array) -> bool:
    """Whether any text contains an x, as hexadecimal numbers do: one search through the bytes of the column."""
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    if not len(offsets) or text.buffers()[2] is None:
        return False
    content = text.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return b"x" in content or b"X" in content


def _plain_digits(text: pa.Array, column: LogColumn) -> pa.Array:
    """The numbers with a decimal point and without separators between thousands."""
    if not pc.all(pc.match_substring_regex(text, _form(column)), min_count=0).as_py():
        raise pa.ArrowInvalid("digits that are not grouped as the column says")
    if column.thousands:
        text = pc.replace_substring(text, column.thousands, "")
    return text if column.decimal == "." else pc.replace_substring(text, column.decimal, ".")


def _form(column: LogColumn) -> str:
    """The regular expression of the column's numbers; groups have three digits."""
    whole = "[0-9]*"
    if column.thousands:
        whole = f"(?:[0-9]{{1,3}}(?:{re.escape(column.thousands)}[0-9]{{3}})+|[0-9]*)"
    if column.dtype is DType.INT64:
        return f"^-?{whole}$"
    words = "|[+-]?(?i:inf|infinity|nan)" if column.non_finite else ""
    return f"^(?:[+-]?{whole}(?:{re.escape(column.decimal)}[0-9]*)?(?:[eE][+-]?[0-9]+)?{words})$"
