"""The first row number of each file for made-up times, and a check that every file has a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from pipelines.cells.made_up_times import file_time_us
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.log import count_records
from pipelines.parsing.parquet import ParquetLog
from pipelines.parsing.sources import LogSource


def check_file_times(schema: LogSchema | ParquetLog, sources: Sequence[LogSource]) -> None:
    """Raise :class:`~transforms.errors.DataError` for the first file whose name gives no time, before reading any."""
    if schema.time is not None and schema.time.made_up is not None:
        for source in sources:
            file_time_us(schema.time, source.path)


def first_rows_of(
    schema: LogSchema | ParquetLog,
    sources: Sequence[LogSource],
    imports: Iterable[Mapping[str, object]],
    longest_line_bytes: int,
) -> tuple[int, ...]:
    """The number of records before each file, and after the last one; empty unless times follow the order of rows.

    Files are in import order, after those of all earlier ``imports``.
    """
    made_up = None if schema.time is None else schema.time.made_up
    if isinstance(schema, ParquetLog) or made_up is None or made_up.start is None:
        return ()
    rows = [max((cast(int, entry.get("next_row", 0)) for entry in imports), default=0)]
    for source in sources:
        rows.append(rows[-1] + count_records(source.path, schema, longest_line_bytes=longest_line_bytes))
    return tuple(rows)
