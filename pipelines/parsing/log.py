"""Parse one log file into typed rows, block by block: clean blocks by Arrow, others record by record.

Every record of the file is a row, a blank line, a header, or a :class:`Reject`. The result of a record depends on the
record and the schema, not on other records or the bounds of blocks. :mod:`pipelines.parsing.quoted_records` finds the
ends of records, :mod:`pipelines.parsing.delimited_lines` and :mod:`pipelines.parsing.json_lines` split them into texts,
and :mod:`pipelines.cells.typed_cells` converts the texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from pipelines.cells.made_up_times import made_up_times
from pipelines.cells.typed_cells import null_spellings, text_cells
from pipelines.errors import UnknownFormat
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import BLOCK_BYTES, LONGEST_LINE_BYTES, LineBlock, LongLine, read_blocks
from pipelines.parsing.delimited_lines import Layout, Positions, good_lines, quoted_plainly, split_line
from pipelines.parsing.json_lines import parse_json_block
from pipelines.parsing.quoted_records import whole_records
from pipelines.parsing.rejects import Reject, printable
from pipelines.parsing.text import escape_bytes
from pipelines.parsing.typed_rows import ParsedBlock, RowLines, TextColumn, typed_rows
from transforms.errors import DataError, nearest

_BOM = b"\xef\xbb\xbf"
#: Most columns of a header; each column takes memory in every block.
_MOST_COLUMNS = 100_000


def parse_log(
    path: str,
    schema: LogSchema,
    *,
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
    first_row: int = 0,
) -> Iterator[ParsedBlock]:
    """The rows of one log file, in file order.

    ``first_row``: the number of records in the files before this one, for times by the order of rows.
    Raises :class:`~pipelines.errors.TruncatedLog` for a damaged gzip file and :class:`~transforms.errors.DataError`
    for a bad header.
    """
    layout = None if _has_header(schema) else _layout(schema)
    empty = schema.read_schema.empty_table()
    for block in _records(path, schema, block_bytes, longest_line_bytes):
        if isinstance(block, LongLine):
            if layout is None:
                raise _bad_header(path, f"{block.length_bytes} bytes", f"at most {longest_line_bytes} bytes")
            yield _timed(ParsedBlock(empty, (_long_reject(block, longest_line_bytes),)), schema, path, first_row)
            first_row += 1
            continue
        if layout is None:
            if not block.data.strip(b"\n"):
                continue
            layout, block = _open_layout(block, schema, path)
        if block.data.strip(b"\n"):
            parsed = (
                parse_json_block(block, schema) if schema.format == "jsonl" else _parse_delimited(block, schema, layout)
            )
            yield _timed(parsed, schema, path, first_row)
        first_row += block.records


def count_records(path: str, schema: LogSchema, *, longest_line_bytes: int = LONGEST_LINE_BYTES) -> int:
    """The number of records of a file, without its header."""
    count = 0
    for block in _records(path, schema, BLOCK_BYTES, longest_line_bytes):
        count += 1 if isinstance(block, LongLine) else block.records
    return max(count - _has_header(schema), 0)


def _has_header(schema: LogSchema) -> bool:
    return schema.header and schema.format != "jsonl"


def _records(path: str, schema: LogSchema, block_bytes: int, longest_line_bytes: int) -> Iterator[LineBlock | LongLine]:
    """The file's records in order, without the byte order mark."""
    blocks = _without_mark(read_blocks(path, block_bytes, longest_line_bytes, schema.encoding))
    if schema.format == "jsonl" or not schema.quoted:
        return blocks
    return whole_records(blocks, schema.cell_delimiter, longest_line_bytes)


def _without_mark(blocks: Iterator[LineBlock | LongLine]) -> Iterator[LineBlock | LongLine]:
    for block in blocks:
        if isinstance(block, LineBlock) and block.first_line == 1 and block.data.startswith(_BOM):
            block = LineBlock(1, block.data.removeprefix(_BOM))
        yield block


def _timed(parsed: ParsedBlock, schema: LogSchema, path: str, first_row: int) -> ParsedBlock:
    """The same rows with made-up times, if the schema has them."""
    if schema.time is None or schema.time.made_up is None:
        return parsed
    places = np.arange(parsed.table.num_rows) if parsed.places is None else parsed.places
    times = made_up_times(schema.time, path, places.astype(np.int64) + first_row)
    table = parsed.table.append_column(schema.arrow_schema.field(schema.time.column), times)
    return replace(parsed, table=table)


def parse_whole_log(path: str, schema: LogSchema) -> ParsedBlock:
    """:func:`parse_log` in one piece, for files that fit in memory."""
    blocks = list(parse_log(path, schema))
    tables = [block.table for block in blocks] or [schema.arrow_schema.empty_table()]
    notes: Counter[str] = Counter()
    for block in blocks:
        notes.update(block.notes)
    return ParsedBlock(
        pa.concat_tables(tables), tuple(reject for block in blocks for reject in block.rejects), dict(notes)
    )


def _long_reject(line: LongLine, longest_line_bytes: int) -> Reject:
    return Reject(line.number, "the line is too long", line.start, value=f"{line.length_bytes} bytes",
                  expected=f"at most {longest_line_bytes} bytes")  # fmt: skip


def _layout(schema: LogSchema) -> Layout:
    return Layout(schema.cell_delimiter, schema.quoted, len(schema.columns), tuple(range(len(schema.columns))))


def _open_layout(block: LineBlock, schema: LogSchema, path: str) -> tuple[Layout, LineBlock]:
    """The layout by the header, and the block after the header."""
    plain = _layout(schema)
    first, rest = block.after_first()
    line = first.removesuffix(b"\r")
    cells = split_line(line, plain.delimiter, plain.quoted)
    if cells is None or b"\r" in line or b"\n" in line:
        raise _bad_header(path, printable(line)[:200], "column names on one line, quotes closed, no carriage return")
    if len(cells) > _MOST_COLUMNS:
        raise _bad_header(path, f"{len(cells)} columns", f"at most {_MOST_COLUMNS} columns")
    names = [escape_bytes(cell).decode("utf-8", "backslashreplace") for cell in cells]
    counts = Counter(names)
    for name in schema.names:
        if counts[name] > 1:
            found = [str(position) for position, other in enumerate(names, 1) if other == name]
            raise _bad_header(path, f"{name} at {', '.join(found[:-1])} and {found[-1]} of {len(names)}",
                              "each column of the schema once")  # fmt: skip
        if not counts[name]:
            raise DataError("the header must name every column of the schema", where=f"{path}, line 1", value=name,
                            allowed=nearest(name, names),
                            next_step="correct the name, or say \"header\": false if the first line is a row")  # fmt: skip
    at = {name: position for position, name in enumerate(names)}
    layout = Layout(plain.delimiter, plain.quoted, len(names), tuple(at[name] for name in schema.names))
    return layout, rest


def _bad_header(path: str, value: str, allowed: str) -> DataError:
    return DataError(f"the header must have {allowed}", where=f"{path}, line 1", value=value, allowed=allowed,
                     next_step="correct the first line, or say \"header\": false if it is a row")  # fmt: skip


def _parse_delimited(block: LineBlock, schema: LogSchema, layout: Layout) -> ParsedBlock:
    raw = _read_cells(block.data, layout, block.starts is not None) if _is_plain(block, layout) else None
    rejects: list[Reject] = []
    places: Positions | None = None
    if raw is None or raw.num_rows != block.records:
        places, kept, rejects = good_lines(block, layout)
        raw = _read_cells(kept, layout, True)
        if raw is None or raw.num_rows != len(places):
            raise UnknownFormat(f"the log must be {schema.format} with one row per line",
                                where=f"line {block.first_line} and after",
                                next_step="correct format, delimiter or quote of the schema file")  # fmt: skip
    parsed = typed_rows(
        [_text_column(_one_array(raw.column(str(position))), schema, column)
         for position, column in zip(layout.positions, schema.columns, strict=True)],
        schema,
        _row_lines(block, places),
    )  # fmt: skip
    if places is not None:
        kept_places = places if parsed.places is None else places[parsed.places]
        parsed = replace(parsed, places=kept_places)
    return replace(parsed, rejects=tuple(sorted([*rejects, *parsed.rejects], key=lambda reject: reject.line)))


def _is_plain(block: LineBlock, layout: Layout) -> bool:
    """Whether Arrow's reader splits the block into the same cells as :func:`split_line`."""
    data = block.data
    if data.count(b"\r") != data.count(b"\r\n"):
        return False
    if block.plain or not layout.quoted:
        return True
    return block.starts is None and quoted_plainly(data, layout.delimiter)


def _read_cells(data: bytes, layout: Layout, many_lines: bool) -> pa.Table | None:
    """All cells as bytes; None if a row has another number of cells. ``many_lines``: values hold line breaks."""
    names = [str(position) for position in range(layout.width)]
    wanted = [str(position) for position in layout.positions]
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in wanted})
    if data.startswith(_BOM):
        data = _BOM + data  # Arrow drops one at the start of its input; here it belongs to a value
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char='"' if layout.quoted else False,
                double_quote=layout.quoted,
                newlines_in_values=many_lines and layout.quoted,
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


def _text_column(cells: pa.Array, schema: LogSchema, column: LogColumn) -> TextColumn:
    text, not_text = text_cells(cells)
    encoding = "UTF-8" if schema.encoding == "utf-8" else schema.encoding
    unread = dict.fromkeys(np.flatnonzero(not_text).tolist(), f"not {encoding}")
    text = null_spellings(text, schema.null, trim=column.trim)
    return TextColumn(text, unread, lambda row: printable(cells[row].as_py()))


def _row_lines(block: LineBlock, places: Positions | None) -> RowLines:
    split: list[bytes] = []
    numbers: list[Positions] = []

    def number(row: int) -> int:
        if not numbers:
            numbers.append(block.numbers)
        return int(numbers[0][row if places is None else places[row]])

    def raw(row: int) -> bytes:
        if not split:
            split.extend(block.each())
        return split[row if places is None else int(places[row])].removesuffix(b"\r")

    return RowLines(number, raw)
