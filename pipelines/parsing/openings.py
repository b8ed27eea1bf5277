"""The beginning of a TSV or CSV file: lines before the header, the header, and the layout of rows by it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LineBlock, LongLine
from pipelines.parsing.cell_syntax import Syntax
from pipelines.parsing.delimited_lines import Layout, split_line
from pipelines.parsing.rejects import printable
from pipelines.parsing.text import escape_bytes
from transforms.errors import DataError, nearest

_BOM = b"\xef\xbb\xbf"
#: Most columns of a header; each column takes memory in every block.
_MOST_COLUMNS = 100_000


def syntax_of(schema: LogSchema) -> Syntax:
    """How the records of the schema's files are split."""
    return Syntax(schema.cell_delimiter, schema.quoted, schema.escape)


def without_opening(blocks: Iterable[LineBlock | LongLine], schema: LogSchema) -> Iterator[LineBlock | LongLine]:
    """The lines of a file without its byte order mark, and without the lines of its preamble."""
    found = _without_mark(blocks)
    return _without_preamble(found, schema.preamble.encode()) if schema.preamble else found


def _without_mark(blocks: Iterable[LineBlock | LongLine]) -> Iterator[LineBlock | LongLine]:
    for block in blocks:
        if isinstance(block, LineBlock) and block.first_line == 1 and block.data.startswith(_BOM):
            block = LineBlock(1, block.data.removeprefix(_BOM))
        yield block


def _without_preamble(blocks: Iterable[LineBlock | LongLine], start: bytes) -> Iterator[LineBlock | LongLine]:
    """Leave out the first lines that begin with ``start``, and blank lines between them."""
    lines = re.compile(rb"(?:(?:" + re.escape(start) + rb"[^\n]*|[ \t\r]*)(?:\n|\Z))*")
    left = iter(blocks)
    for block in left:
        if isinstance(block, LongLine):
            if block.start.startswith(start):
                continue
            yield block
            break
        match = lines.match(block.data)
        end = match.end() if match else 0
        if end < len(block.data):
            yield LineBlock(block.first_line + block.data.count(b"\n", 0, end), block.data[end:])
            break
    yield from left


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file.

    Attributes:
        line: its line number, from 1.
        names: the names of the columns.
        records: the records after it.
    """

    line: int
    names: list[str]
    records: Iterator[LineBlock | LongLine]


def open_rows(
    records: Iterable[LineBlock | LongLine], schema: LogSchema, path: str, longest_line_bytes: int
) -> tuple[Layout | None, Iterator[LineBlock | LongLine]]:
    """The layout of a file's rows, and its records after the header; no layout for a file without a header.

    Raises :class:`~transforms.errors.DataError` for a header that does not name every column of the schema once.
    """
    syntax, trailing = syntax_of(schema), schema.trailing_delimiter
    if not schema.header or schema.format == "jsonl":
        return Layout(syntax, len(schema.columns), tuple(range(len(schema.columns))), trailing), iter(records)
    header = read_header(records, schema, path, longest_line_bytes)
    if header is None:
        return None, iter(())
    counts = Counter(header.names)
    for name in schema.names:
        if counts[name] > 1:
            found = [str(position) for position, other in enumerate(header.names, 1) if other == name]
            raise _bad_header(path, header.line, f"{name} at {', '.join(found[:-1])} and {found[-1]} of {len(header.names)}",
                              "each column of the schema once")  # fmt: skip
        if not counts[name]:
            raise DataError("the header must name every column of the schema", where=f"{path}, line {header.line}", value=name,
                            allowed=nearest(name, header.names),
                            next_step="correct the name, or say \"header\": false if the first line is a row")  # fmt: skip
    at = {name: position for position, name in enumerate(header.names)}
    layout = Layout(syntax, len(header.names), tuple(at[name] for name in schema.names), trailing)
    return layout, header.records


def read_header(
    records: Iterable[LineBlock | LongLine], schema: LogSchema, path: str, longest_line_bytes: int
) -> Header | None:
    """The first record with a value as the header; None for a file without one.

    Raises :class:`~transforms.errors.DataError` for one that cannot be split into names.
    """
    left, syntax = iter(records), syntax_of(schema)
    for block in left:
        if isinstance(block, LongLine):
            raise _bad_header(path, block.number, f"{block.length_bytes} bytes", f"at most {longest_line_bytes} bytes")
        block = _without_blank_lines(block, syntax.delimiter)
        if not block.data:
            continue
        first, rest = block.after_first()
        names = _split_header(first.removesuffix(b"\r"), schema, path, block.first_line)
        return Header(block.first_line, names, itertools.chain([rest] if rest.data else [], left))
    return None


def _without_blank_lines(block: LineBlock, delimiter: str) -> LineBlock:
    """The block without its first lines that hold spaces and delimiters only."""
    blank = rb"[ \t\r" + re.escape(delimiter.encode()) + rb"]*"
    match = re.match(rb"(?:" + blank + rb"\n)*(?:" + blank + rb"\Z)?", block.data)
    end = match.end() if match else 0
    lines = block.data.count(b"\n", 0, end)
    starts = None if block.starts is None else block.starts[lines:] - end
    return LineBlock(block.first_line + lines, block.data[end:], starts, block.plain)


def _split_header(line: bytes, schema: LogSchema, path: str, number: int) -> list[str]:
    cells = split_line(line, syntax_of(schema))
    if cells is None or b"\r" in line or b"\n" in line:
        raise _bad_header(
            path, number, printable(line)[:200], "column names on one line, quotes closed, no carriage return"
        )
    if len(cells) > _MOST_COLUMNS:
        raise _bad_header(path, number, f"{len(cells)} columns", f"at most {_MOST_COLUMNS} columns")
    if schema.trailing_delimiter and len(cells) > 1 and not cells[-1]:
        cells = cells[:-1]
    return [escape_bytes(cell).decode("utf-8", "backslashreplace") for cell in cells]


def _bad_header(path: str, line: int, value: str, allowed: str) -> DataError:
    return DataError(f"the header must have {allowed}", where=f"{path}, line {line}", value=value, allowed=allowed,
                     next_step="correct this line, or say \"header\": false if it is a row")  # fmt: skip
