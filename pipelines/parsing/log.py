"""Parse one log file into typed rows, block by block: clean blocks by Arrow, others record by record.

:func:`parse_block` is the definition of what a block of records means. :mod:`pipelines.parsing.clean_cells` gives the same rows of most blocks in less time.

Every record of the file is a row, a blank line, a header, or a :class:`Reject`. The result of a record depends on the
record and the schema, not on other records or the bounds of blocks. :mod:`pipelines.parsing.quoted_records` finds the
ends of records, :mod:`pipelines.parsing.delimited_lines` and :mod:`pipelines.parsing.json_lines` split them into texts,
and :mod:`pipelines.cells.typed_cells` converts the texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pipelines.cells.made_up_times import made_up_times
from pipelines.cells.typed_cells import null_spellings, text_cells
from pipelines.errors import UnknownFormat
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.arrow_cells import one_cell_array, plain_cells, read_cells
from pipelines.parsing.blocks import BLOCK_BYTES, LONGEST_LINE_BYTES, LineBlock, LongLine, read_blocks
from pipelines.parsing.clean_cells import CleanCells
from pipelines.parsing.delimited_lines import Layout, Positions, good_lines, rewritten
from pipelines.parsing.json_lines import parse_json_block
from pipelines.parsing.openings import open_rows, syntax_of, without_opening
from pipelines.parsing.quoted_records import whole_records
from pipelines.parsing.rejects import Reject, printable
from pipelines.parsing.typed_rows import ParsedBlock, RowLines, TextColumn, typed_rows


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
    records = read_records(
        read_blocks(path, block_bytes, longest_line_bytes, schema.encoding), schema, longest_line_bytes
    )
    layout, records = open_rows(records, schema, path, longest_line_bytes)
    if layout is None:
        return
    clean = CleanCells(schema, layout)
    for block in records:
        if isinstance(block, LongLine):
            reject = _long_reject(block, longest_line_bytes)
            yield _timed(ParsedBlock(schema.read_schema.empty_table(), (reject,)), schema, path, first_row)
            first_row += 1
            continue
        if block.data.strip(b"\n"):
            parsed = clean.rows(block) or parse_block(block, schema, layout)
            yield _timed(parsed, schema, path, first_row)
        first_row += block.records


def count_records(path: str, schema: LogSchema, *, longest_line_bytes: int = LONGEST_LINE_BYTES) -> int:
    """The number of records of a file that :func:`parse_log` counts: without its preamble and its header."""
    records = read_records(
        read_blocks(path, BLOCK_BYTES, longest_line_bytes, schema.encoding), schema, longest_line_bytes
    )
    _, records = open_rows(records, schema, path, longest_line_bytes)
    return sum(1 if isinstance(block, LongLine) else block.records for block in records)


def read_records(
    blocks: Iterable[LineBlock | LongLine], schema: LogSchema, longest_line_bytes: int, *, is_cut: bool = False
) -> Iterator[LineBlock | LongLine]:
    """The records of the lines of a file, in order, without the byte order mark and the preamble.

    ``is_cut``: whether the file goes on after these lines.
    """
    lines = without_opening(blocks, schema)
    syntax = syntax_of(schema)
    if schema.format == "jsonl" or not (syntax.quoted or syntax.escape):
        return lines
    return whole_records(lines, syntax, longest_line_bytes, is_cut=is_cut)


def parse_block(block: LineBlock, schema: LogSchema, layout: Layout) -> ParsedBlock:
    """The rows and rejects of a block of records."""
    return parse_json_block(block, schema) if schema.format == "jsonl" else _parse_delimited(block, schema, layout)


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


def _parse_delimited(block: LineBlock, schema: LogSchema, layout: Layout) -> ParsedBlock:
    raw = plain_cells(block, layout)
    rejects: list[Reject] = []
    places: Positions | None = None
    if raw is None or raw.num_rows != block.records:
        places, kept, rejects = good_lines(block, layout)
        raw = read_cells(kept, rewritten(layout), True)
        if raw is None or raw.num_rows != len(places):
            raise UnknownFormat(
                f"the log must be {schema.format} with one row per line",
                where=f"line {block.first_line} and after",
                next_step="correct format, delimiter or quote of the schema file",
            )
    parsed = typed_rows(
        [
            _text_column(one_cell_array(raw.column(str(position))), schema, column)
            for position, column in zip(layout.positions, schema.columns, strict=True)
        ],
        schema,
        _row_lines(block, places),
    )
    if places is not None:
        kept_places = places if parsed.places is None else places[parsed.places]
        parsed = replace(parsed, places=kept_places)
    return replace(parsed, rejects=tuple(sorted([*rejects, *parsed.rejects], key=lambda reject: reject.line)))


def _text_column(cells: pa.Array, schema: LogSchema, column: LogColumn) -> TextColumn:
    text, not_text = text_cells(cells)
    encoding = "UTF-8" if schema.encoding == "utf-8" else schema.encoding
    unread = dict.fromkeys(np.flatnonzero(not_text).tolist(), f"not {encoding}")
    text = null_spellings(text, schema.null, trim=column.trim)
    return TextColumn(text, unread, lambda row: printable(cells[row].as_py()), lambda row, _: text[row].as_py())


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
