"""Parse JSON lines into typed rows: by compiled loops or by Arrow for a clean block, by Python line by line for a block with a bad line.

The line-by-line reader is the definition. Large blocks of flat objects are read by :mod:`pipelines.parsing.compiled.flat_json`. Arrow's reader is used only for blocks that both read equally (tests compare
them), and only for lines that begin and end as objects: a block that begins with a bare ``null`` crashes it. A number may be
in quotes; whether those of a column are is decided by the first lines of a block. ``null`` and an absent key are missing.
Numbers are converted from their digits by :mod:`pipelines.cells.typed_cells`, like the cells of other formats. :mod:`pipelines.cells.json_values`
defines the text of a JSON value in a column.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from pipelines.cells.json_values import (
    DECODER,
    NO_TEXT,
    TWICE,
    JsonNumber,
    JsonObject,
    arrow_fields,
    at_path,
    column_text,
    holds_number,
    is_text,
    spelled,
    value_at,
)
from pipelines.cells.numbers import finite
from pipelines.cells.times import epoch_times
from pipelines.cells.typed_cells import list_array, null_spellings, scalar_cells, typed_cells
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import BLOCK_LINES, LineBlock, line_ends
from pipelines.parsing.compiled.flat_json import NotFlatError, can_read, flat_rows
from pipelines.parsing.delimited_lines import numbered_lines
from pipelines.parsing.rejects import Reject
from pipelines.parsing.typed_rows import NOT_ITS_TYPE, ParsedBlock, RowLines, TextColumn, implausible, typed_rows
from transforms.types import DType

#: Blocks of fewer bytes are read by Arrow: to load the compiled loops takes longer.
FLAT_BYTES = 1 << 20
#: Numbers of lines that are read at once: the next smaller one after a bad line, single lines after the last.
_PIECES = (BLOCK_LINES, 4096, 256)
_DEEPEST = 100
_LINES_LOOKED_AT = 16
_WHITE = b" \t\r"
_TEXT = pa.string()
#: The end of a value that Arrow accepts although it is not JSON, such as ``Inf``.
_CONSTANT = re.compile(rb"(?:NaN|Inf(?:inity)?)[ \t\r]*[,\]}]")
_NOT_OPENING = bytes(byte for byte in range(256) if byte not in b"{[\n")
_MANY_OPENING = re.compile(rb"[^\n]{%d}" % (_DEEPEST + 1))
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]')


def parse_json_block(block: LineBlock, schema: LogSchema, pieces: Sequence[int] = _PIECES) -> ParsedBlock:
    """The block's rows in order as the schema's columns, and a reject for every bad line.

    Smaller and smaller pieces are tried around a bad line, so that few good lines are read one by one.
    """
    if not pieces or arrow_fields(schema.columns) is None:
        return slow_block(block, schema)
    parsed, places, before = [], [], 0
    for piece in block.pieces(pieces[0]):
        one = _fast_rows(piece, schema) or parse_json_block(piece, schema, pieces[1:])
        places.append((np.arange(one.table.num_rows) if one.places is None else one.places) + before)
        before += piece.lines
        parsed.append(one)
    tables = [one.table for one in parsed] or [schema.read_schema.empty_table()]
    notes: Counter[str] = Counter()
    for one in parsed:
        notes.update(one.notes)
    return ParsedBlock(
        pa.concat_tables(tables).combine_chunks(),
        tuple(bad for one in parsed for bad in one.rejects),
        dict(notes),
        np.concatenate(places) if places else None,
    )


def fast_block(block: LineBlock, schema: LogSchema) -> pa.Table | None:
    """The same as :func:`slow_block` if that rejects nothing and Arrow reads the lines correctly; else None."""
    parsed = _fast_rows(block, schema)
    return None if parsed is None else parsed.table


def _fast_rows(block: LineBlock, schema: LogSchema) -> ParsedBlock | None:
    if len(block.data) >= FLAT_BYTES and can_read(schema):
        try:
            return flat_rows(block, schema)
        except NotFlatError:
            pass
    return _rows_by_arrow(block, schema)


def _rows_by_arrow(block: LineBlock, schema: LogSchema) -> ParsedBlock | None:
    if not _is_plain(block.data):
        return None
    fields = arrow_fields(schema.columns, _quoted_columns(block, schema))
    if fields is None:
        return None
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
    notes: Counter[str] = Counter()
    arrays = [_finished(value_at(raw, column.keys), column, schema, notes) for column in schema.columns]
    if any(array is None for array in arrays):
        return None
    return ParsedBlock(pa.Table.from_arrays(arrays, schema=schema.read_schema), (), dict(notes))


def _quoted_columns(block: LineBlock, schema: LogSchema) -> frozenset[str]:
    """The columns of numbers whose first value in the first lines of the block is in quotes."""
    undecided = [column for column in schema.columns if holds_number(column)]
    quoted: set[str] = set()
    end = 0
    for _ in range(_LINES_LOOKED_AT):
        if not undecided or end >= len(block.data):
            break
        start, end = end, (block.data.find(b"\n", end) + 1) or len(block.data)
        read = _read_object(block.data[start:end])
        values = {column.name: _first_item(at_path(read, column.keys)) for column in undecided}
        quoted |= {
            name for name, value in values.items() if isinstance(value, str) and not isinstance(value, JsonNumber)
        }
        undecided = [column for column in undecided if values[column.name] is None]
    return frozenset(quoted)


def _read_object(line: bytes) -> JsonObject | None:
    try:
        found = DECODER.decode(line.decode("utf-8").strip())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, JsonObject) else None


def _first_item(value: object) -> object:
    """The value, or the first item of a list; None for a list without items."""
    return (value[0] if value else None) if isinstance(value, list) and not isinstance(value, JsonObject) else value


def _is_plain(data: bytes) -> bool:
    """Whether every line begins with ``{``, ends with ``}`` and nests little, without NUL bytes, NaN and infinities.

    No value then spans two lines: inside a value a line feed cannot be between ``}`` and ``{``. A block with as many
    rows as lines has one object per line.
    """
    if not data or b"\0" in data:
        return False
    if (b"NaN" in data or b"Inf" in data) and _CONSTANT.search(data):
        return False
    content = np.frombuffer(data, np.uint8)
    ends = line_ends(data)
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = np.maximum(ends - 1, starts)
    last = np.where((content[np.minimum(last, len(data) - 1)] == ord("\r")) & (last > starts), last - 1, last)
    if (content[starts] != ord("{")).any() or (content[last] != ord("}")).any():
        return False
    return _MANY_OPENING.search(data.translate(None, _NOT_OPENING)) is None


def _finished(array: pa.Array, column: LogColumn, schema: LogSchema, notes: Counter[str]) -> pa.Array | None:
    """The column with the table's type; None if a row is bad."""
    if pa.types.is_string(array.type):
        array = null_spellings(array, schema.null, trim=column.trim)
    if column.required and array.null_count:
        return None
    seen: Counter[str] = Counter()
    try:
        if column.is_list:
            items = pc.list_flatten(array)
            lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
            array = None if items.null_count else list_array(lengths, _finished_values(items, column, seen), column)
        elif pa.types.is_string(array.type):
            array, bad = typed_cells(array, column, seen)
            array = None if bad.any() else array
        else:
            array = _finished_values(array, column, seen)
    except pa.ArrowInvalid:
        return None
    if array is None or implausible(array, column, schema):
        return None
    notes.update({f"{column.name}: {what}": count for what, count in seen.items()})
    return array


def _finished_values(array: pa.Array, column: LogColumn, notes: Counter[str]) -> pa.Array:
    """Values, or items, as the column's type. Raises ``pa.ArrowInvalid`` for a bad value."""
    if pa.types.is_string(array.type):
        return scalar_cells(array, column, notes)
    if column.dtype is DType.TIMESTAMP:
        return epoch_times(array, str(column.unit), notes)
    return finite(array, column) if pa.types.is_floating(array.type) else array


def slow_block(block: LineBlock, schema: LogSchema) -> ParsedBlock:
    """Parse each line by itself into a row or a reject."""
    rows: list[_Line] = []
    places: list[int] = []
    rejects: list[Reject] = []
    for place, (number, line) in enumerate(numbered_lines(block)):
        if not line.strip(_WHITE):
            continue
        read = _read_line(number, line, schema)
        if isinstance(read, Reject):
            rejects.append(read)
        else:
            rows.append(read)
            places.append(place)
    lines = RowLines(lambda row: rows[row].number, lambda row: rows[row].raw)
    columns = [_text_column(at, rows, column, schema) for at, column in enumerate(schema.columns)]
    parsed = typed_rows(columns, schema, lines)
    every = np.array(places, np.int64)
    return ParsedBlock(
        parsed.table,
        tuple(sorted([*rejects, *parsed.rejects], key=lambda reject: reject.line)),
        parsed.notes,
        every if parsed.places is None else every[parsed.places],
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """One line that is an object; ``values``: its value for each column, None if it has none."""

    number: int
    raw: bytes
    values: tuple[object, ...]


def _read_line(number: int, line: bytes, schema: LogSchema) -> _Line | Reject:
    try:
        text = line.decode("utf-8")
        if _is_deep(text):
            return Reject(number, "not a JSON object", line, expected=f"at most {_DEEPEST} levels of objects and lists")
        document = DECODER.decode(text)
    except UnicodeDecodeError:
        return Reject(number, "not UTF-8", line, expected="UTF-8 text")
    except json.JSONDecodeError as error:
        return Reject(number, "not a JSON object", line, value=str(error)[:200], expected="one JSON object a line")
    if not isinstance(document, JsonObject):
        return Reject(number, "not a JSON object", line, value=spelled(document), expected="one JSON object a line")
    values = []
    alone = dict(document)
    for column in schema.columns:
        at_once = len(column.keys) == 1 and len(alone) == len(document)
        value = alone.get(column.keys[0]) if at_once else at_path(document, column.keys)
        if value is TWICE:
            return Reject(number, "not a JSON object", line, column.name, "a key appears twice", "each key once")
        values.append(value)
    return _Line(number, line, tuple(values))


def _is_deep(text: str) -> bool:
    """Whether objects and lists are nested more than :data:`_DEEPEST` deep."""
    if text.count("{") + text.count("[") <= _DEEPEST:
        return False
    depth = 0
    for found in _STRUCTURE.finditer(text):
        mark = found.group()[0]
        if mark != '"':
            depth += 1 if mark in "[{" else -1
            if depth > _DEEPEST:
                return True
    return False


def _text_column(at: int, rows: Sequence[_Line], column: LogColumn, schema: LogSchema) -> TextColumn:
    texts: list[object] = []
    unread: dict[int, str] = {}
    for row, line in enumerate(rows):
        value = line.values[at]
        text = None if value is None else column_text(value, column, schema.null)
        if text is NO_TEXT:
            unread[row], text = NOT_ITS_TYPE, None
        texts.append(text)
    array = pa.array(texts, pa.list_(_TEXT) if column.is_list else _TEXT)
    if is_text(column):
        array = null_spellings(array, schema.null, trim=column.trim)
    return TextColumn(
        array,
        unread,
        lambda row: spelled(rows[row].values[at]),
        lambda row, other: column_text(rows[row].values[at], other, schema.null),
    )
