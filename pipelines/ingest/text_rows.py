"""Rows of text files for changes of a table, parsed in memory by the rules of an import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.inference.json_values import json_rows
from pipelines.inference.sample import read_sample
from pipelines.inference.sampled_rows import header_names
from pipelines.inference.text_encoding import utf8_lines
from pipelines.log_schemas.columns import LogColumn, LogFormat, TimeUnit
from pipelines.log_schemas.file_names import uncompressed_name
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.log import parse_log
from pipelines.parsing.rejects import RejectFile, check_share, reject_file_paths
from pipelines.parsing.sources import expand_files, identify
from transforms.errors import InputError
from transforms.types import ColumnType, Dense, DType, Ragged

_FORMATS: dict[str, LogFormat] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}

_LINES_LOOKED_AT = 1_000


@dataclass(frozen=True)
class TextRows:
    """The rows of some text files, and the rejected ones.

    Attributes:
        rows: with the schema's columns.
        rejected: how many rows could not be parsed.
        rejects: the reject files that hold them.
    """

    rows: pa.Table
    rejected: int
    rejects: tuple[str, ...]


def text_format(path: str) -> LogFormat | None:
    """The format by a file's suffix, before that of a compression; None for Parquet and other files."""
    return _FORMATS.get(Path(uncompressed_name(path)).suffix.lower())


def read_text_rows(
    files: Sequence[str], schema: LogSchema, *, rejects: str = "", max_reject_share: float = 0.05
) -> TextRows:
    """All rows of these files, in the order of their names; rejected ones are written to the folder ``rejects``, if given.

    Raises :class:`~pipelines.errors.TooManyRejects` above ``max_reject_share``, and what
    :func:`~pipelines.parsing.log.parse_log` raises.
    """
    if not 0 <= max_reject_share <= 1:
        raise InputError("max_reject_share must be a share", where="--max-reject-share", value=max_reject_share,
                         allowed="0 to 1", next_step="give --max-reject-share such as 0.05")  # fmt: skip
    sources = identify(expand_files(files))
    tables = [schema.arrow_schema.empty_table()]
    reasons: Counter[str] = Counter()
    places = reject_file_paths(sources, Path(rejects)) if rejects else [""] * len(sources)
    written = []
    for source, place in zip(sources, places, strict=True):
        side = RejectFile(place, source.path)
        for block in parse_log(source.path, schema):
            side.add(block.rejects)
            tables.append(block.table)
        if place:
            side.finish()
            written += [place] if side.reasons else []
        reasons.update(side.reasons)
    rows = pa.concat_tables(tables)
    check_share(rows.num_rows, reasons, max_reject_share, rejects or ", ".join(files))
    return TextRows(rows, reasons.total(), tuple(written))


def table_log_schema(columns: Sequence[tuple[str, ColumnType | None]], log_format: LogFormat) -> LogSchema:
    """The schema for text files of a table's columns: columns by name, times in ISO 8601, no lists in CSV.

    ``columns``: the table's columns with their types; columns without a type are left out.
    """
    read = [_column(name, kind, log_format) for name, kind in columns if isinstance(kind, Dense | Ragged)]
    return LogSchema(log_format, tuple(one for one in read if one is not None), None, header=log_format != "jsonl")


def _column(name: str, kind: ColumnType, log_format: LogFormat) -> LogColumn | None:
    unit: TimeUnit | None = "iso8601" if kind.dtype is DType.TIMESTAMP else None
    if isinstance(kind, Dense):
        return LogColumn(name, kind.dtype, unit=unit)
    return LogColumn(name, kind.dtype, unit=unit, is_list=True) if log_format == "jsonl" else None


def held_columns(path: str, schema: LogSchema) -> list[str]:
    """The schema's columns that a file's header, or its first JSON lines, name."""
    sample = read_sample(path)
    if schema.format != "jsonl":
        return header_names(sample, schema)
    text = b"".join(utf8_lines(sample.head, schema.encoding, first=True)).removeprefix(b"\xef\xbb\xbf")
    found = json_rows(text.split(b"\n")[:_LINES_LOOKED_AT])
    held = [column.name for column in schema.columns if any(_holds(row, column.keys) for row in found)]
    known = {column.keys[0] for column in schema.columns}
    return held + [key for key in dict.fromkeys(key for row in found for key in row) if key not in known]


def _holds(row: object, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(row, dict) or key not in row:
            return False
        row = row[key]
    return True
