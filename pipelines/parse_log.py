"""One log file to typed rows, block by block: the clean blocks at Arrow's speed, the rest line by line.

Nothing is dropped silently: every line of the file is a row, a blank line, a header, or a :class:`Reject`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from pipelines.cells import null_spellings, text_cells, typed_cells
from pipelines.errors import UnknownFormat
from pipelines.log_blocks import BLOCK_BYTES, LineBlock, read_blocks
from pipelines.log_schema import LogColumn, LogSchema
from pipelines.parse_json_lines import parse_json_block
from pipelines.rejects import Reject, printable
from transforms.errors import DataError, nearest

Lines = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """``table`` has the schema's columns in order; ``rejects`` are the block's rows that are not in it."""

    table: pa.Table
    rejects: tuple[Reject, ...]


def parse_log(path: str, schema: LogSchema, *, block_bytes: int = BLOCK_BYTES) -> Iterator[ParsedBlock]:
    """The rows of one log file, in file order. A file without rows yields nothing.

    Raises :class:`~pipelines.errors.TruncatedLog` for a damaged gzip file and :class:`~transforms.errors.DataError`
    for a header that lacks a column of the schema.
    """
    layout: _Layout | None = None
    for block in read_blocks(path, block_bytes):
        if schema.format == "jsonl":
            table, rejects = parse_json_block(block, schema)
            yield ParsedBlock(table.combine_chunks(), rejects)
            continue
        if layout is None:
            layout, block = _open_layout(block, schema, path)
        yield _parse_delimited(block, schema, layout)


def parse_whole_log(path: str, schema: LogSchema) -> ParsedBlock:
    """:func:`parse_log` in one piece, for files that fit in memory."""
    blocks = list(parse_log(path, schema))
    tables = [block.table for block in blocks] or [schema.arrow_schema.empty_table()]
    return ParsedBlock(pa.concat_tables(tables), tuple(reject for block in blocks for reject in block.rejects))


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a delimited file's columns lie: the width of every row and, by name, where each wanted column stands."""

    delimiter: str
    quoted: bool
    width: int
    positions: tuple[int, ...]


def _open_layout(block: LineBlock, schema: LogSchema, path: str) -> tuple[_Layout, LineBlock]:
    delimiter, quoted = ("\t", False) if schema.format == "tsv" else (",", True)
    if not schema.header:
        return _Layout(delimiter, quoted, len(schema.columns), tuple(range(len(schema.columns)))), block
    first, _, rest = block.data.partition(b"\n")
    names = _split_line(first.removeprefix(b"\xef\xbb\xbf"), delimiter, quoted)
    missing = [name for name in schema.names if name not in names]
    if missing:
        raise DataError("the header lacks a column of the schema", where=f"{path}, line 1", value=missing[0],
                        allowed=nearest(missing[0], names),
                        next_step="correct the name, or say \"header\": false if the first line is a row")  # fmt: skip
    positions = tuple(names.index(name) for name in schema.names)
    return _Layout(delimiter, quoted, len(names), positions), LineBlock(block.first_line + 1, rest)


def _split_line(line: bytes, delimiter: str, quoted: bool) -> list[str]:
    text = line.rstrip(b"\r").decode("utf-8", "backslashreplace")
    return next(csv.reader([text], delimiter=delimiter), [""]) if quoted else text.split(delimiter)


def _parse_delimited(block: LineBlock, schema: LogSchema, layout: _Layout) -> ParsedBlock:
    rejects: list[Reject] = []
    one_row_a_line = block.data.count(b"\r") == block.data.count(b"\r\n")
    raw = _read_cells(block.data, layout) if one_row_a_line else None
    if raw is not None and raw.num_rows == block.lines:
        numbers = np.arange(block.first_line, block.first_line + block.lines)
    else:
        numbers, kept, rejects = _whole_lines(block, layout)
        raw = _read_cells(kept, layout)
        if raw is None or raw.num_rows != len(numbers):
            raise UnknownFormat("rows of this log cannot be told apart", where=f"line {block.first_line} and after",
                                allowed=f"{schema.format} with one row a line")  # fmt: skip
    table, bad = _typed_table(raw, schema, layout)
    if not bad:
        return ParsedBlock(table, tuple(rejects))
    every_line = block.data.split(b"\n")
    faults = [_cell_reject(fault, numbers, every_line, block.first_line) for fault in bad.values()]
    keep = np.ones(table.num_rows, np.bool_)
    keep[list(bad)] = False
    return ParsedBlock(table.filter(pa.array(keep)), tuple(rejects + faults))


def _read_cells(data: bytes, layout: _Layout) -> pa.Table | None:
    """Every cell as bytes, or None when some row has another number of cells."""
    names = [str(position) for position in range(layout.width)]
    wanted = [str(position) for position in layout.positions]
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in wanted})
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter, quote_char='"' if layout.quoted else False, double_quote=layout.quoted
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.binary()),
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None


def _whole_lines(block: LineBlock, layout: _Layout) -> tuple[Lines, bytes, list[Reject]]:
    """The lines with the right number of cells: their numbers, their bytes, and a reject for each other line."""
    data = np.frombuffer(block.data, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(data) and data[-1] != ord("\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    bare_ends = ends - ((ends > starts) & (data[np.maximum(ends, 1) - 1] == ord("\r")))
    counts = _count_between(data, layout.delimiter, starts, bare_ends) + 1
    if layout.quoted:
        for at in np.flatnonzero(_count_between(data, '"', starts, bare_ends)).tolist():
            counts[at] = _cell_count(block.data[starts[at] : bare_ends[at]], layout)
    blank = bare_ends == starts
    good = ~blank & (counts == layout.width) & (_count_between(data, "\r", starts, bare_ends) == 0)
    rejects = [
        _line_reject(block.first_line + at, block.data[starts[at] : bare_ends[at]], int(counts[at]), layout)
        for at in np.flatnonzero(~blank & ~good).tolist()
    ]
    kept = data[np.repeat(good, ends + 1 - starts)[: len(data)]].tobytes()
    return block.first_line + np.flatnonzero(good), kept, rejects


def _count_between(data: Bytes, character: str, starts: Lines, ends: Lines) -> Lines:
    """How often ``character`` occurs in each ``data[start:end]``."""
    positions = np.flatnonzero(data == ord(character))
    return np.searchsorted(positions, ends) - np.searchsorted(positions, starts)


def _cell_count(line: bytes, layout: _Layout) -> int:
    """The number of cells of a line with quotes; 0 when a quoted value does not end on it."""
    try:
        return len(next(csv.reader([line.decode("latin-1")], delimiter=layout.delimiter, strict=True)))
    except csv.Error:
        return 0


def _line_reject(number: int, line: bytes, count: int, layout: _Layout) -> Reject:
    if b"\r" in line:
        return Reject(number, "a carriage return inside the line", line, expected="one row a line")
    if count == 0:
        return Reject(number, "a quoted value does not end on its line", line, expected="doubled or closing quotes")
    return Reject(number, "wrong number of columns", line, value=str(count), expected=str(layout.width))


@dataclass(frozen=True, slots=True)
class _Fault:
    row: int
    column: LogColumn
    what: str
    cell: bytes


def _typed_table(raw: pa.Table, schema: LogSchema, layout: _Layout) -> tuple[pa.Table, dict[int, _Fault]]:
    """The typed columns and, by row, the first column at fault."""
    faults: dict[int, _Fault] = {}
    arrays = []
    for position, column in zip(layout.positions, schema.columns, strict=True):
        cells = _one_array(raw.column(str(position)))
        text, not_text = text_cells(cells)
        text = null_spellings(text, schema.null)
        array, not_typed = typed_cells(text, column)
        missing = np.asarray(text.is_null()) & ~not_text if column.required else np.zeros(len(text), np.bool_)
        for mask, what in (
            (not_text, "not UTF-8"),
            (missing, "a required value is missing"),
            (not_typed, "a value cannot be read as its type"),
        ):
            for row in np.flatnonzero(mask).tolist():
                faults.setdefault(row, _Fault(row, column, what, cells[row].as_py()))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema.arrow_schema), faults


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pc.cast(pa.concat_arrays(column.chunks), pa.binary())


def _cell_reject(fault: _Fault, numbers: Lines, every_line: list[bytes], first_line: int) -> Reject:
    line = int(numbers[fault.row])
    raw = every_line[line - first_line].removesuffix(b"\r")
    return Reject(line, fault.what, raw, fault.column.name, printable(fault.cell), fault.column.expected)
