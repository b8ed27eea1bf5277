"""JSON Lines to typed rows: Arrow's parser for a clean block, Python's line by line for a block with any bad line.

The line-by-line reader is the meaning; Arrow's is used only for blocks that both read alike (the tests hold them
against each other), and only for lines that begin and end as objects: a block that begins with a bare ``null`` crashes
it. Types are strict: ``"5"`` is not an int64 and ``1.5`` is not either; ``null`` and an absent key are missing.
Numbers are converted from their digits by :mod:`pipelines.cells`, like the cells of other formats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from pipelines.cells import epoch_times, has_infinity, null_spellings, typed_cells
from pipelines.delimited_lines import numbered_lines
from pipelines.log_blocks import BLOCK_LINES, LineBlock, line_ends
from pipelines.log_schema import LogColumn, LogSchema
from pipelines.rejects import Reject
from pipelines.typed_rows import NOT_ITS_TYPE, ParsedBlock, RowLines, TextColumn, typed_rows
from transforms.types import ARROW_ELEMENT, DType

#: How many lines are read at once; where some line is bad, the fewer are tried next, and after the last come single lines.
_PIECES = (BLOCK_LINES, 4096, 256)
_DEEPEST = 100
_WHITE = b" \t\r"
_TEXT = pa.string()
#: Where a value that is no JSON, but that Arrow reads, may end: ``Inf`` too, which Python does not read.
_CONSTANT = re.compile(rb"(?:NaN|Inf(?:inity)?)[ \t\r]*[,\]}]")
_NOT_OPENING = bytes(byte for byte in range(256) if byte not in b"{[\n")
_MANY_OPENING = re.compile(rb"[^\n]{%d}" % (_DEEPEST + 1))
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]')


def parse_json_block(block: LineBlock, schema: LogSchema, pieces: Sequence[int] = _PIECES) -> ParsedBlock:
    """The block's rows in order as the schema's columns, and a reject for every line that is not a row.

    Around a bad line ever smaller pieces are tried, so that few good lines are read one by one.
    """
    if not pieces:
        return slow_block(block, schema)
    parsed = []
    for piece in block.pieces(pieces[0]):
        table = fast_block(piece, schema)
        parsed.append(ParsedBlock(table, ()) if table is not None else parse_json_block(piece, schema, pieces[1:]))
    tables = [one.table for one in parsed] or [schema.arrow_schema.empty_table()]
    return ParsedBlock(pa.concat_tables(tables).combine_chunks(), tuple(bad for one in parsed for bad in one.rejects))


def _json_type(column: LogColumn) -> pa.DataType:
    """How a value stands in JSON, before times and separated lists are read."""
    if column.dtype is DType.TIMESTAMP:
        return _TEXT if column.unit == "iso8601" else pa.int64()
    if column.separator is not None:
        return _TEXT
    return ARROW_ELEMENT[column.dtype]


def fast_block(block: LineBlock, schema: LogSchema) -> pa.Table | None:
    """What :func:`slow_block` reads, where it rejects nothing and Arrow can be trusted with the lines; else None."""
    fields = pa.schema([(column.name, _json_type(column)) for column in schema.columns])
    if not _is_plain(block.data):
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
    arrays = [_finished(raw.column(column.name).combine_chunks(), column, schema) for column in schema.columns]
    if any(array is None for array in arrays):
        return None
    return pa.Table.from_arrays(arrays, schema=schema.arrow_schema)


def _is_plain(data: bytes) -> bool:
    """Whether every line begins with ``{``, ends with ``}`` and nests little, without NUL bytes, NaN and infinities.

    No value then spans two lines: inside a value a line feed cannot stand between ``}`` and ``{``. A block of as many
    rows as lines has one object a line.
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


def _finished(array: pa.Array, column: LogColumn, schema: LogSchema) -> pa.Array | None:
    """The column as the table holds it; None where some row is at fault."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_string(array.type):
        array = null_spellings(array, schema.null)
    if column.required and array.null_count:
        return None
    if pa.types.is_string(array.type):
        array, bad = typed_cells(array, column)
        return None if bad.any() else array
    if column.dtype is DType.TIMESTAMP:
        try:
            return epoch_times(array, str(column.unit))
        except pa.ArrowInvalid:
            return None
    return None if pa.types.is_floating(array.type) and has_infinity(array) else array


def slow_block(block: LineBlock, schema: LogSchema) -> ParsedBlock:
    """Each line by itself: its row, or why it is none."""
    rows: list[_Line] = []
    rejects: list[Reject] = []
    for number, line in numbered_lines(block):
        if not line.strip(_WHITE):
            continue
        read = _read_line(number, line, schema)
        if isinstance(read, Reject):
            rejects.append(read)
        else:
            rows.append(read)
    lines = RowLines(lambda row: rows[row].number, lambda row: rows[row].raw)
    columns = [_text_column(at, rows, column, schema) for at, column in enumerate(schema.columns)]
    parsed = typed_rows(columns, schema, lines)
    return ParsedBlock(parsed.table, tuple(sorted([*rejects, *parsed.rejects], key=lambda reject: reject.line)))


@dataclass(frozen=True, slots=True)
class _Line:
    """One line that is an object; ``values``: what it gives each column, None where it gives nothing."""

    number: int
    raw: bytes
    values: tuple[object, ...]


class _Number(str):
    """A JSON number as it is written."""

    __slots__ = ()
    __repr__ = str.__str__


class _Object(list[tuple[str, object]]):
    """The keys and values of a JSON object, in order."""

    __slots__ = ()


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _read_line(number: int, line: bytes, schema: LogSchema) -> _Line | Reject:
    try:
        text = line.decode("utf-8")
        if _is_deep(text):
            return Reject(number, "not a JSON object", line, expected=f"at most {_DEEPEST} levels of objects and lists")
        document = _DECODER.decode(text)
    except UnicodeDecodeError:
        return Reject(number, "not UTF-8", line, expected="UTF-8 text")
    except json.JSONDecodeError as error:
        return Reject(number, "not a JSON object", line, value=str(error)[:200], expected="one JSON object a line")
    if not isinstance(document, _Object):
        return Reject(number, "not a JSON object", line, value=_spell(document), expected="one JSON object a line")
    given = dict(document)
    if len(given) != len(document):
        names = [key for key, _ in document]
        for name in schema.names:
            if names.count(name) > 1:
                return Reject(number, "not a JSON object", line, name, "a key appears twice", "each key once")
    return _Line(number, line, tuple(given.get(name) for name in schema.names))


def _is_deep(text: str) -> bool:
    """Whether more than :data:`_DEEPEST` objects and lists stand in each other."""
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
    kind = _json_type(column)
    texts: list[str | None] = []
    unread: dict[int, str] = {}
    for row, line in enumerate(rows):
        value = line.values[at]
        text = None if value is None else _as_text(value, kind)
        texts.append(text)
        if value is not None and text is None:
            unread[row] = NOT_ITS_TYPE
    array = pa.array(texts, _TEXT)
    text_column = null_spellings(array, schema.null) if pa.types.is_string(kind) else array
    return TextColumn(text_column, unread, lambda row: _spell(rows[row].values[at]))


def _as_text(value: object, kind: pa.DataType) -> str | None:
    """The text that stands for a JSON value of the right kind; None for another kind."""
    if pa.types.is_boolean(kind):
        return ("true" if value else "false") if isinstance(value, bool) else None
    if not pa.types.is_string(kind):
        return str(value) if isinstance(value, _Number) and value[-1:].isdigit() else None
    if not isinstance(value, str) or isinstance(value, _Number):
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return None  # an escaped lone surrogate is no text
    return value


def _spell(value: object) -> str:
    """A JSON value as a reject shows it: at most 200 characters."""
    if isinstance(value, _Object):
        return "an object"
    if isinstance(value, str) and not isinstance(value, _Number):
        return json.dumps(value[:200], ensure_ascii=False)[:200]
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)[:200] if isinstance(value, _Number) or len(cast("list[object]", value)) < 100 else "a long list"
