"""One log file to typed rows, block by block: the clean blocks at Arrow's speed, the rest line by line.

Nothing is dropped silently: every line of the file is a row, a blank line, a header, or a :class:`Reject`. What a line
becomes depends on the line and the schema, never on the lines around it or on where blocks are cut:
:mod:`pipelines.delimited_lines` and :mod:`pipelines.parse_json_lines` say how a line is cut into texts, and
:mod:`pipelines.cells` what a text means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from pipelines.cells import null_spellings, text_cells
from pipelines.delimited_lines import Layout, good_lines, quoted_plainly, split_line
from pipelines.errors import UnknownFormat
from pipelines.log_blocks import BLOCK_BYTES, LONGEST_LINE_BYTES, LineBlock, LongLine, read_blocks
from pipelines.log_schema import LogSchema
from pipelines.parse_json_lines import parse_json_block
from pipelines.rejects import Reject, printable
from pipelines.typed_rows import ParsedBlock, RowLines, TextColumn, typed_rows
from transforms.errors import DataError, nearest

_BOM = b"\xef\xbb\xbf"
#: A header of more columns is a file of another kind; each takes memory in every block.
_MOST_COLUMNS = 100_000


def parse_log(
    path: str,
    schema: LogSchema,
    *,
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
) -> Iterator[ParsedBlock]:
    """The rows of one log file, in file order. A file without rows yields nothing.

    Raises :class:`~pipelines.errors.TruncatedLog` for a damaged gzip file and :class:`~transforms.errors.DataError`
    for a header that cannot be read or lacks a column of the schema.
    """
    layout = None if schema.header and schema.format != "jsonl" else _layout(schema)
    for block in read_blocks(path, block_bytes, longest_line_bytes):
        if isinstance(block, LongLine):
            if layout is None:
                raise _bad_header(path, f"{block.length_bytes} bytes", f"at most {longest_line_bytes} bytes")
            yield ParsedBlock(schema.arrow_schema.empty_table(), (_long_reject(block, longest_line_bytes),))
            continue
        if not block.data.strip(b"\n"):
            continue
        if block.first_line == 1:
            block = LineBlock(1, block.data.removeprefix(_BOM))
        if layout is None:
            layout, block = _open_layout(block, schema, path)
        yield parse_json_block(block, schema) if schema.format == "jsonl" else _parse_delimited(block, schema, layout)


def parse_whole_log(path: str, schema: LogSchema) -> ParsedBlock:
    """:func:`parse_log` in one piece, for files that fit in memory."""
    blocks = list(parse_log(path, schema))
    tables = [block.table for block in blocks] or [schema.arrow_schema.empty_table()]
    return ParsedBlock(pa.concat_tables(tables), tuple(reject for block in blocks for reject in block.rejects))


def _long_reject(line: LongLine, longest_line_bytes: int) -> Reject:
    return Reject(line.number, "the line is too long", line.start, value=f"{line.length_bytes} bytes",
                  expected=f"at most {longest_line_bytes} bytes")  # fmt: skip


def _layout(schema: LogSchema) -> Layout:
    delimiter, quoted = ("\t", False) if schema.format == "tsv" else (",", True)
    return Layout(delimiter, quoted, len(schema.columns), tuple(range(len(schema.columns))))


def _open_layout(block: LineBlock, schema: LogSchema, path: str) -> tuple[Layout, LineBlock]:
    """The layout that the header names, and the block after the header."""
    plain = _layout(schema)
    first, _, rest = block.data.partition(b"\n")
    line = first.removesuffix(b"\r")
    cells = split_line(line, plain.delimiter, plain.quoted)
    if cells is None or b"\r" in line:
        raise _bad_header(path, printable(line)[:200], "column names on one line, quotes closed, no carriage return")
    if len(cells) > _MOST_COLUMNS:
        raise _bad_header(path, f"{len(cells)} columns", f"at most {_MOST_COLUMNS} columns")
    names = [cell.decode("utf-8", "backslashreplace") for cell in cells]
    counts = Counter(names)
    for name in schema.names:
        if counts[name] > 1:
            raise _bad_header(path, name, "each column of the schema once")
        if not counts[name]:
            raise DataError("the header lacks a column of the schema", where=f"{path}, line 1", value=name,
                            allowed=nearest(name, names),
                            next_step="correct the name, or say \"header\": false if the first line is a row")  # fmt: skip
    at = {name: position for position, name in enumerate(names)}
    layout = Layout(plain.delimiter, plain.quoted, len(names), tuple(at[name] for name in schema.names))
    return layout, LineBlock(block.first_line + 1, rest)


def _bad_header(path: str, value: str, allowed: str) -> DataError:
    return DataError("the header cannot be read", where=f"{path}, line 1", value=value, allowed=allowed,
                     next_step="correct the first line, or say \"header\": false if it is a row")  # fmt: skip


def _parse_delimited(block: LineBlock, schema: LogSchema, layout: Layout) -> ParsedBlock:
    raw = _read_cells(block.data, layout) if _is_plain(block.data, layout) else None
    rejects: list[Reject] = []
    if raw is not None and raw.num_rows == block.lines:
        numbers = np.arange(block.first_line, block.first_line + block.lines)
    else:
        numbers, kept, rejects = good_lines(block, layout)
        raw = _read_cells(kept, layout)
        if raw is None or raw.num_rows != len(numbers):
            raise UnknownFormat("rows of this log cannot be told apart", where=f"line {block.first_line} and after",
                                allowed=f"{schema.format} with one row a line")  # fmt: skip
    parsed = typed_rows(
        [_text_column(_one_array(raw.column(str(position))), schema.null) for position in layout.positions],
        schema,
        _row_lines(block, numbers),
    )
    return ParsedBlock(parsed.table, tuple(sorted([*rejects, *parsed.rejects], key=lambda reject: reject.line)))


def _is_plain(data: bytes, layout: Layout) -> bool:
    """Whether Arrow's reader cuts the block into the cells that :func:`split_line` cuts its lines into."""
    return data.count(b"\r") == data.count(b"\r\n") and (not layout.quoted or quoted_plainly(data))


def _read_cells(data: bytes, layout: Layout) -> pa.Table | None:
    """Every cell as bytes, or None when some row has another number of cells."""
    names = [str(position) for position in range(layout.width)]
    wanted = [str(position) for position in layout.positions]
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in wanted})
    if data.startswith(_BOM):
        data = _BOM + data  # Arrow drops one at the start of what it reads; here it belongs to a value
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


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pc.cast(pa.concat_arrays(column.chunks), pa.binary())


def _text_column(cells: pa.Array, null: tuple[str, ...]) -> TextColumn:
    text, not_text = text_cells(cells)
    unread = dict.fromkeys(np.flatnonzero(not_text).tolist(), "not UTF-8")
    return TextColumn(null_spellings(text, null), unread, lambda row: printable(cells[row].as_py()))


def _row_lines(block: LineBlock, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> RowLines:
    split: list[bytes] = []

    def raw(row: int) -> bytes:
        if not split:
            split.extend(block.data.split(b"\n"))
        return split[int(numbers[row]) - block.first_line].removesuffix(b"\r")

    return RowLines(lambda row: int(numbers[row]), raw)
