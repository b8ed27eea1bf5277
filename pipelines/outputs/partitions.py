"""Hive partitions by event time, and the Parquet encoding of a partition's rows.

The bytes of a file depend on its rows alone: fixed row groups and encodings, no time of writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from pipelines.log_schemas.schema import PartitionBy

ROW_GROUP_ROWS = 131_072
_MOST_SPAN_BY_HOUR = timedelta(days=14)
_LEAST_ROWS_BY_HOUR = 1_000
#: With more, a table's manifest and the registration of each import take seconds and more.
ADVISED_PARTITIONS = 10_000
#: Numbers are stored as codes if at most this share of the first so many of a file are different.
_SAMPLED, _CODED_SHARE = 8192, 0.25
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTITION_US: dict[PartitionBy, int] = {"hour": 3_600_000_000, "day": 86_400_000_000}


Ordinals = np.ndarray[Any, np.dtype[np.int64]]


def suited_partitions(span: timedelta, rows: int) -> PartitionBy:
    """The default partitioning: days if the log spans more than 14 days or an hour has under 1,000 rows, else hours."""
    hours = max(span / timedelta(hours=1), 1)
    return "day" if span > _MOST_SPAN_BY_HOUR or rows < _LEAST_ROWS_BY_HOUR * hours else "hour"


def many_partitions_warning(partitions: int, partition_by: PartitionBy) -> str:
    """What a layout of so many partitions costs, with the coarser one; empty for at most :data:`ADVISED_PARTITIONS`."""
    if partitions <= ADVISED_PARTITIONS:
        return ""
    advice = {
        "hour": '"partition_by": "day" in the schema, or --partition-by day for Parquet',
        "day": "import the years that models read, older ones as a table of their own",
    }
    return (
        f"{partitions:,} partitions, one for each {partition_by} with events: above {ADVISED_PARTITIONS:,}, importing and "
        f"registering them takes minutes; next: {advice[partition_by]}"
    )


def partition_ordinals(times: pa.ChunkedArray | pa.Array, partition_by: PartitionBy) -> Ordinals:
    """The number of whole hours (or days) between 1970 and each time (UTC microseconds, no nulls): int64."""
    microseconds = np.asarray(times.cast(pa.int64()))
    return np.floor_divide(microseconds, _PARTITION_US[partition_by])


def partition_path(ordinal: int, partition_by: PartitionBy) -> str:
    """``date=YYYY-MM-DD/hour=HH``, or ``date=YYYY-MM-DD`` for days."""
    if partition_by == "day":
        return f"date={(_EPOCH + timedelta(days=ordinal)).date().isoformat()}"
    start = _EPOCH + timedelta(hours=ordinal)
    return f"date={start.date().isoformat()}/hour={start.hour:02d}"


def split_by_partition(table: pa.Table, time_column: str, partition_by: PartitionBy) -> Iterator[tuple[str, pa.Table]]:
    """``table`` split into partitions, in time order; rows within a partition keep their order."""
    if not table.num_rows:
        return
    ordinals = partition_ordinals(table.column(time_column), partition_by)
    order = np.argsort(ordinals, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        table, ordinals = table.take(pa.array(order)), ordinals[order]
    starts = np.flatnonzero(np.diff(ordinals, prepend=ordinals[0] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(ordinals)], strict=True):
        yield partition_path(int(ordinals[start]), partition_by), table.slice(start, end - start)


def sort_by_time(table: pa.Table, time_column: str) -> pa.Table:
    """The rows in time order; rows of one time keep theirs."""
    times = np.asarray(table.column(time_column).cast(pa.int64()))
    if not len(times) or np.all(times[:-1] <= times[1:]):
        return table
    return table.take(pa.array(np.argsort(times, kind="stable")))


def parquet_bytes(table: pa.Table) -> bytes:
    """``table`` as one Parquet file, zstd, in row groups of 131,072 rows; equal rows give equal bytes."""
    sink = pa.BufferOutputStream()
    coded = [path for field in table.schema for path in _coded_paths(table.column(field.name), field.name)]
    parquet.write_table(
        table.combine_chunks(), sink, row_group_size=ROW_GROUP_ROWS, compression="zstd", use_dictionary=coded or False
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _coded_paths(column: pa.ChunkedArray, path: str) -> list[str]:
    """The paths of a column's values that are stored as codes of a dictionary.

    All are, but for numbers and times that rarely repeat: Parquet would begin a dictionary and give it up, which takes longer and
    leaves larger files.
    """
    kind = column.type
    if pa.types.is_list(kind):
        items = pa.chunked_array(
            [pc.list_flatten(chunk) for chunk in column.slice(0, _SAMPLED).chunks], kind.value_type
        )
        return _coded_paths(items, f"{path}.list.element")
    if pa.types.is_struct(kind):
        fields = zip(kind, column.flatten(), strict=True)
        return [one for field, values in fields for one in _coded_paths(values, f"{path}.{field.name}")]
    if pa.types.is_map(kind):
        return [f"{path}.key_value.key", f"{path}.key_value.value"]
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)):
        return [path]
    sample = column.slice(0, _SAMPLED)
    return [path] if pc.count_distinct(sample).as_py() <= len(sample) * _CODED_SHARE else []


def content_id(content: bytes) -> str:
    """The first 16 hexadecimal digits of the content's SHA-256, part of a file's name."""
    return hashlib.sha256(content).hexdigest()[:16]
