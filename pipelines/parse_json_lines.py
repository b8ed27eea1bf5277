"""JSON Lines to typed rows: Arrow's parser for a clean block, Python's line by line for a block with any bad line.

The line-by-line reader is the meaning; the fast one is used only where both agree (the tests hold them against each
other). Types are strict: ``"5"`` is not an int64 and ``1.5`` is not either; ``null`` and an absent key are missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from pipelines.cells import cast_where_possible, epoch_times, null_spellings, typed_cells
from pipelines.log_blocks import LineBlock
from pipelines.log_schema import LogColumn, LogSchema
from pipelines.rejects import Reject
from transforms.types import ARROW_ELEMENT, DType, arrow_type

_LINE_BY_LINE = 16
_INT64 = range(-(1 << 63), 1 << 63)


def parse_json_block(block: LineBlock, schema: LogSchema) -> tuple[pa.Table, tuple[Reject, ...]]:
    """The block's rows in order as the schema's columns, and a reject for every line that is not a row.

    A block with a bad line is halved, so that only the lines around it are read one by one.
    """
    table = _fast_block(block, schema)
    if table is not None:
        return table, ()
    if block.lines <= _LINE_BY_LINE:
        return _slow_block(block, schema)
    (first, first_rejects), (second, second_rejects) = (parse_json_block(half, schema) for half in block.halves())
    return pa.concat_tables([first, second]), first_rejects + second_rejects


def _json_type(column: LogColumn) -> pa.DataType:
    """How a value stands in JSON, before times and separated lists are read."""
    if column.dtype is DType.TIMESTAMP:
        return pa.string() if column.unit == "iso8601" else pa.int64()
    if column.separator is not None:
        return pa.string()
    return ARROW_ELEMENT[column.dtype]


def _fast_block(block: LineBlock, schema: LogSchema) -> pa.Table | None:
    if not block.data:
        return schema.arrow_schema.empty_table()
    fields = pa.schema([(column.name, _json_type(column)) for column in schema.columns])
    try:
        block.data.decode("utf-8")
        raw = arrow_json.read_json(
            pa.BufferReader(block.data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if raw.num_rows != block.lines:
        return None
    arrays = []
    for column in schema.columns:
        array, bad = _finish_column(raw.column(column.name).combine_chunks(), column, schema)
        if bad.any() or (column.required and array.null_count):
            return None
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema.arrow_schema)


def _finish_column(array: pa.Array, column: LogColumn, schema: LogSchema) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_string(array.type):
        return typed_cells(null_spellings(array, schema.null), column)
    if column.dtype is DType.TIMESTAMP:
        unit = str(column.unit)
        return cast_where_possible(array, lambda counts: epoch_times(counts, unit), ARROW_ELEMENT[DType.TIMESTAMP])
    return array, np.zeros(len(array), np.bool_)


def _slow_block(block: LineBlock, schema: LogSchema) -> tuple[pa.Table, tuple[Reject, ...]]:
    values: dict[str, list[object]] = {column.name: [] for column in schema.columns}
    rejects: list[Reject] = []
    for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
        bare = line.removesuffix(b"\r")
        if not bare.strip():
            continue
        row = _read_line(number, bare, schema)
        if isinstance(row, Reject):
            rejects.append(row)
            continue
        for name, value in row.items():
            values[name].append(value)
    arrays = [pa.array(values[column.name], arrow_type(column.type)) for column in schema.columns]
    return pa.Table.from_arrays(arrays, schema=schema.arrow_schema), tuple(rejects)


def _read_line(number: int, line: bytes, schema: LogSchema) -> dict[str, object] | Reject:
    try:
        document = json.loads(line.decode("utf-8"), object_pairs_hook=_unique_keys)
    except UnicodeDecodeError:
        return Reject(number, "not UTF-8", line, expected="UTF-8 text")
    except (json.JSONDecodeError, _RepeatedKey, RecursionError) as error:
        return Reject(number, "not a JSON object", line, value=str(error)[:200], expected="one JSON object a line")
    if not isinstance(document, Mapping):
        return Reject(number, "not a JSON object", line, value=str(document)[:200], expected="one JSON object a line")
    row: dict[str, object] = {}
    for column in schema.columns:
        given = document.get(column.name)
        try:
            row[column.name] = value = _read_value(given, column, schema)
        except (pa.ArrowInvalid, ValueError):
            return Reject(number, "a value cannot be read as its type", line, column.name, _spell(given),
                          column.expected)  # fmt: skip
        if value is None and column.required:
            return Reject(number, "a required value is missing", line, column.name, _spell(given), column.expected)
    return row


class _RepeatedKey(ValueError):
    """A JSON object names a key twice, so what it means depends on the reader."""


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise _RepeatedKey("a key appears twice")
    return keys


def _spell(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:200]


def _read_value(value: object, column: LogColumn, schema: LogSchema) -> object:
    """One JSON value as the column's Python value. Raises ValueError or ``pa.ArrowInvalid``."""
    kind = _json_type(column)
    if value is None:
        return [] if column.separator is not None else None
    if pa.types.is_string(kind):
        if not isinstance(value, str):
            raise ValueError("expected text")
        if column.dtype is DType.STRING:
            return _read_text(value, column.separator, schema)
        array, bad = typed_cells(null_spellings(pa.array([value], pa.string()), schema.null), column)
        if bad.any():
            raise ValueError("unreadable text")
        return array[0].as_py() if column.dtype is not DType.TIMESTAMP else array[0]
    if pa.types.is_boolean(kind):
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return value
    return _read_number(value, column)


def _read_text(value: str, separator: str | None, schema: LogSchema) -> object:
    value.encode("utf-8")  # a lone surrogate is not text
    missing = value in schema.null
    if separator is None:
        return None if missing else value
    return [] if missing or not value else value.split(separator)


def _read_number(value: object, column: LogColumn) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("expected a number")
    if column.dtype in (DType.FLOAT32, DType.FLOAT64):
        if not math.isfinite(number := float(value)):
            raise ValueError("expected a finite number")
        return number
    if not isinstance(value, int) or value not in _INT64:
        raise ValueError("expected an integer of 64 bits")
    return value if column.dtype is DType.INT64 else epoch_times(pa.array([value], pa.int64()), str(column.unit))[0]
