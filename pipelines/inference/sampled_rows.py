"""The records of a sample, cut and split by the rules of an import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pipelines.inference.sample import Sample
from pipelines.inference.text_encoding import utf8_lines
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LONGEST_LINE_BYTES, LineBlock, LongLine, line_blocks
from pipelines.parsing.delimited_lines import Layout
from pipelines.parsing.log import parse_block, read_records
from pipelines.parsing.openings import open_rows, read_header
from pipelines.parsing.rejects import Reject
from pipelines.parsing.typed_rows import ParsedBlock

_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class SampledPart:
    """Records of one part of a file, after the preamble and the header.

    Attributes:
        path: the file.
        block: the records.
        layout: how they are split into cells.
        begins_file: whether the part begins the file; other parts may begin inside a record.
    """

    path: str
    block: LineBlock
    layout: Layout
    begins_file: bool

    def parse(self, schema: LogSchema) -> ParsedBlock:
        """The rows and rejects of the part; without rejected records where a part may begin inside one."""
        parsed = parse_block(self.block, schema, self.layout)
        return parsed if self.begins_file else replace(parsed, rejects=tuple(filter(_is_of_value, parsed.rejects)))


def _is_of_value(reject: Reject) -> bool:
    return bool(reject.column)


def common_names(samples: Sequence[Sample], schema: LogSchema) -> tuple[list[str], dict[str, str]]:
    """The names that the headers of all files share, and the other names with a file that has each."""
    found = {sample.path: header_names(sample, schema) for sample in samples}
    headers = {path: [name for name in names if name] for path, names in found.items() if names}
    first = next(iter(headers.values()), [])
    common = [name for name in dict.fromkeys(first) if all(names.count(name) == 1 for names in headers.values())]
    others = {name: path for path, names in headers.items() for name in names if name not in common}
    return common, others


def header_names(sample: Sample, schema: LogSchema) -> list[str]:
    """The cells of the first record with a value; none for a file without one."""
    header = read_header(_head_records(sample, schema), schema, sample.path, LONGEST_LINE_BYTES)
    return [] if header is None else header.names


def sample_parts(samples: Sequence[Sample], schema: LogSchema, most_rows: int) -> list[SampledPart]:
    """The parts of the samples, beginnings of files first, each with an equal share of at most ``most_rows`` records."""
    share = max(most_rows // sum(1 + len(sample.pieces) for sample in samples), 1)
    parts, left = [], most_rows
    for part in _all_parts(samples, schema):
        block = part.block.first(min(share, left))
        if left and block.data:
            parts.append(replace(part, block=block))
            left -= block.records
    return parts


def _all_parts(samples: Sequence[Sample], schema: LogSchema) -> Iterator[SampledPart]:
    layouts: dict[str, Layout] = {}
    for sample in samples:
        layout, records = open_rows(_head_records(sample, schema), schema, sample.path, LONGEST_LINE_BYTES)
        if layout is not None:
            layouts[sample.path] = layout
            yield from (SampledPart(sample.path, block, layout, True) for block in _filled(records))
    for sample in samples:
        for piece in sample.pieces if sample.path in layouts else ():
            lines = line_blocks(utf8_lines(piece, schema.encoding, first=False), _BLOCK_BYTES)
            records = read_records(lines, replace(schema, preamble=""), LONGEST_LINE_BYTES, is_cut=True)
            yield from (SampledPart(sample.path, block, layouts[sample.path], False) for block in _filled(records))


def _head_records(sample: Sample, schema: LogSchema) -> Iterator[LineBlock | LongLine]:
    lines = line_blocks(utf8_lines(sample.head, schema.encoding, first=True, last=sample.is_whole), _BLOCK_BYTES)
    return read_records(lines, schema, LONGEST_LINE_BYTES, is_cut=not sample.is_whole)


def _filled(records: Iterator[LineBlock | LongLine]) -> Iterator[LineBlock]:
    return (block for block in records if isinstance(block, LineBlock) and block.data.strip(b"\n"))


def text_columns(parts: Sequence[SampledPart], schema: LogSchema) -> tuple[dict[str, list[str]], int]:
    """The texts of each column, by name, and the number of records that have other cells.

    ``schema``: one whose columns are all plain texts.
    """
    parsed = [part.parse(schema) for part in parts]
    table = pa.concat_tables([schema.read_schema.empty_table(), *(one.table for one in parsed)])
    return {name: table.column(name).to_pylist() for name in table.column_names}, sum(
        len(one.rejects) for one in parsed
    )
