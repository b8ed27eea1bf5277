"""Writes tables into one file atomically: Parquet, CSV or JSON lines."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transforms.errors import InputError, StorageError
from warehouse.storage.durable_files import sync_path

if TYPE_CHECKING:
    import pyarrow as pa

#: Formats by file suffix.
FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl"}
_JSON_ROWS = 4096

Write = Callable[["pa.Table"], None]


class OutputExists(InputError):
    """The output file exists already."""


def check_output(output: str, *, force: bool) -> str:
    """The format of a file's suffix. Raises :class:`InputError` for an unknown suffix, and for an existing file."""
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise InputError("the output must be a file of a known format", where="--output", value=output,
                         allowed=", ".join(f"*{suffix}" for suffix in FORMATS))  # fmt: skip
    if path.is_dir():
        raise InputError("the output must be a file, not a folder", where="--output", value=output)
    if path.exists() and not force:
        raise OutputExists("the output must not exist yet", where="--output", value=output,
                           next_step="give another name, or --force to replace it")  # fmt: skip
    return FORMATS[path.suffix.lower()]


def write_tables(tables: Iterable[pa.Table], output: str, *, force: bool) -> tuple[int, int]:
    """Write one or more tables of one schema in order; returns (rows, bytes).

    The file has a temporary name until it is complete; on an error ``output`` is unchanged. Raises :class:`StorageError`.
    """
    kind, target, rows = check_output(output, force=force), Path(output), 0
    ahead = iter(tables)
    first = next(ahead)
    try:
        with _replacing(target) as path:
            with _WRITERS[kind](path, first.schema) as write:
                for table in _chained(first, ahead):
                    write(table)
                    rows += table.num_rows
            size_bytes = path.stat().st_size
    except OSError as error:
        raise StorageError("the output cannot be written", where="--output", value=str(error),
                           next_step="name a file in a folder that exists and has space") from error  # fmt: skip
    return rows, size_bytes


def _chained(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from others


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A temporary file that is renamed to ``target`` at the end, and deleted on an error."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(descriptor)
    path = Path(name)
    try:
        yield path
        sync_path(path)
        path.chmod(0o666 & ~_umask())
        os.replace(path, target)
    finally:
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield writer.write_table


@contextmanager
def _csv(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """Lists are JSON; null is an empty cell, and empty text is two quotes."""
    import pyarrow as pa
    from pyarrow import csv

    flat = pa.schema([pa.field(field.name, pa.string() if _is_nested(field.type) else field.type) for field in schema])

    def flattened(table: pa.Table) -> pa.Table:
        return pa.table(
            [_as_json(column) if _is_nested(column.type) else column for column in table.columns], schema=flat
        )

    with csv.CSVWriter(path, flat) as writer:
        yield lambda table: writer.write_table(flattened(table))


@contextmanager
def _json_lines(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """One object per row; NaN and infinities, which JSON lacks, are null."""
    with path.open("w", encoding="utf-8", newline="\n") as file:

        def write(table: pa.Table) -> None:
            for batch in table.to_batches(max_chunksize=_JSON_ROWS):
                file.writelines(_spelled(row) + "\n" for row in batch.to_pylist())

        yield write


_WRITERS = {"parquet": _parquet, "csv": _csv, "jsonl": _json_lines}


def _is_nested(column_type: pa.DataType) -> bool:
    return bool(column_type.num_fields)


def _as_json(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if value is None else _spelled(value) for value in column.to_pylist()], pa.string())


def _spelled(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _ if value is None or isinstance(value, str | int):
            return value
        case _:
            return str(value)
