"""Compare file formats for memos: writing, reading all columns, reading one of 50, and size.

    python -m benchmarks.memo_format [--rows 250000] [--repeat 5] [--small]

The columns are typical memos: ragged hashed ids, some of equal lengths, dense hashed ids, dense small ids, floats. Figures
are CPU seconds of this process, all threads. Sides alternate, so that a slow moment affects all of them, and the best of the
repeats counts. Every file is read back and compared in its original type, and written twice and compared byte for byte.
Files of changes and memo files are verified when read and synced (fsync) when written; the others are neither.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from benchmarks.support.harness import machine
from transforms.execution.memory import keep_freed_memory
from warehouse import Storage, write_memo_file
from warehouse.files.arrow_file import read_arrow_columns, write_arrow_file
from warehouse.files.column_files import MemoFile
from warehouse.files.memo_file import read_memo_file

COLUMNS = 50


def memo_columns(rows: int, seed: int = 7) -> pa.Table:
    """50 columns: 25 ragged ids (0-8 per row, Zipf over 1 M buckets, five of equal lengths), 10 dense, 5 small ids, 10 float32."""
    rng = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {}
    for i in range(25):
        if i % 5 == 0:
            offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 9, rows))]).astype(np.int32)
        field = pa.field("item", pa.int64(), nullable=False)
        columns[f"ragged_{i}"] = pa.ListArray.from_arrays(
            pa.array(offsets), pa.array(_ids(rng, int(offsets[-1]), 1_000_000)), type=pa.list_(field)
        )
    for i in range(10):
        columns[f"dense_{i}"] = pa.array(_ids(rng, rows, 1_000_000))
    for i in range(5):
        columns[f"small_{i}"] = pa.array(_ids(rng, rows, 100))
    for i in range(10):
        columns[f"float_{i}"] = pa.array(rng.normal(size=rows).astype(np.float32), mask=rng.random(rows) < 0.05)
    return pa.table(columns)


def _ids(rng: np.random.Generator, count: int, buckets: int) -> np.ndarray:
    """Zipf-distributed ids in random order, like hashes."""
    return (rng.zipf(1.2, count).astype(np.uint64) * np.uint64(11400714819323198485) % np.uint64(buckets)).astype(
        np.int64
    )


def narrowed(table: pa.Table) -> pa.Table:
    """The table with integers in the fewest bytes that hold every value of the column."""
    return pa.table({name: _narrow(table.column(name).combine_chunks()) for name in table.column_names})


def _narrow(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, _narrow(array.values))
    if not pa.types.is_integer(array.type):
        return array
    high = int(np.max(array.to_numpy(), initial=0))
    return array.cast(
        next(t for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.int64()) if high < 2 ** min(t.bit_width, 63))
    )


@dataclass(frozen=True)
class Side:
    """``write(table, path)``; ``read(path, columns, schema)`` in the schema's types."""

    name: str
    write: Callable[[pa.Table, str], None]
    read: Callable[[str, Sequence[str], pa.Schema], pa.Table]


def parquet_side(name: str, narrow: bool = False, **options: object) -> Side:
    def write(table: pa.Table, path: str) -> None:
        pq.write_table(narrowed(table) if narrow else table, path, **options)

    def read(path: str, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        with pq.ParquetFile(path, memory_map=False, pre_buffer=True) as file:
            return file.read(columns=list(columns)).cast(schema)

    return Side(name, write, read)


def ipc_side(name: str, narrow: bool, compression: str | None) -> Side:
    def write(table: pa.Table, path: str) -> None:
        stored = narrowed(table) if narrow else table
        options = ipc.IpcWriteOptions(compression=compression)
        with ipc.new_file(path, stored.schema, options=options) as file:
            file.write_table(stored)

    def read(path: str, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        with pa.OSFile(path) as source:
            stored = ipc.open_file(source).schema
            chosen = [stored.get_field_index(column) for column in columns]
            file = ipc.open_file(source, options=ipc.IpcReadOptions(included_fields=chosen))
            return file.read_all().select(list(columns)).cast(schema)

    return Side(name, write, read)


def memo_side(
    name: str,
    write_file: Callable[..., MemoFile],
    read_file: Callable[[Storage, MemoFile, Sequence[str]], dict[str, pa.Array]],
) -> Side:
    storage = Storage("/")
    files: dict[str, MemoFile] = {}

    def write(table: pa.Table, path: str) -> None:
        columns = {column: table.column(column).chunk(0) for column in table.column_names}
        files[path] = write_file(storage, path, columns)

    def read(path: str, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        found = read_file(storage, files[path], columns)
        return pa.table([found[column] for column in columns], schema=schema)

    return Side(name, write, read)


def read_memo(storage: Storage, file: MemoFile, names: Sequence[str]) -> dict[str, pa.Array]:
    """The columns, verified by the file's checksum."""
    return read_memo_file(storage, file.path, names, file.checksum)


def read_change(storage: Storage, file: MemoFile, names: Sequence[str]) -> dict[str, pa.Array]:
    """The columns, verified by the digest of each column."""
    return read_arrow_columns(storage, file.path, {name: file.columns[name].checksum for name in names})


PLAIN = {"use_dictionary": False, "write_statistics": False}


def sides() -> list[Side]:
    """The formats that are compared."""

    def fitted(table: pa.Table) -> dict[str, str]:
        return {
            (f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name): (
                "BYTE_STREAM_SPLIT" if pa.types.is_floating(field.type) else "DELTA_BINARY_PACKED"
            )
            for field in table.schema
        }

    encodings = fitted(memo_columns(1))
    return [
        parquet_side("parquet zstd, default encodings", compression="zstd"),
        parquet_side("parquet zstd, delta + byte split", compression="zstd", column_encoding=encodings, **PLAIN),
        parquet_side("parquet lz4, plain, narrowed", narrow=True, compression="lz4", **PLAIN),
        parquet_side("parquet zstd, plain, narrowed", narrow=True, compression="zstd", **PLAIN),
        ipc_side("arrow ipc, no compression", False, None),
        ipc_side("arrow ipc, narrowed, no compression", True, None),
        ipc_side("arrow ipc lz4, narrowed", True, "lz4"),
        ipc_side("arrow ipc zstd, narrowed", True, "zstd"),
        memo_side("files of changes: that, with SHA-256", write_arrow_file, read_change),
        memo_side("memo format 3", write_memo_file, read_memo),
    ]  # fmt: skip


@dataclass
class Figures:
    """CPU seconds, the least of all repeats."""

    write_secs: float = float("inf")
    read_secs: float = float("inf")
    read_one_secs: float = float("inf")
    size_bytes: int = 0
    same_bytes: bool = True


ONES = ("ragged_3", "dense_3", "float_3")


def measure(table: pa.Table, folder: str, repeat: int) -> dict[str, Figures]:
    """Measure the sides alternately, ``repeat`` times; one column is the mean of a ragged, a dense and a float column."""
    every = sides()
    found = {side.name: Figures() for side in every}
    schemas = [pa.schema([table.schema.field(name)]) for name in ONES]
    few = memo_columns(2_000)
    for side in every:  # unmeasured: compiles missing kernels
        side.write(few, os.path.join(folder, "few.memo"))
        side.read(os.path.join(folder, "few.memo"), few.column_names, few.schema)
    for turn in range(repeat):
        for side in every:
            path, figures = os.path.join(folder, f"{turn % 2}.memo"), found[side.name]
            write_secs, _ = cpu_secs(lambda side=side, path=path: side.write(table, path))
            read_secs, read = cpu_secs(lambda side=side, path=path: side.read(path, table.column_names, table.schema))
            one_secs, _ = cpu_secs(lambda side=side, path=path: [
                side.read(path, [name], schema) for name, schema in zip(ONES, schemas, strict=True)])  # fmt: skip
            figures.write_secs = min(figures.write_secs, write_secs)
            figures.read_secs = min(figures.read_secs, read_secs)
            figures.read_one_secs = min(figures.read_one_secs, one_secs / len(ONES))
            figures.size_bytes = os.path.getsize(path)
            if turn == 0:
                _check(side, table, read, folder, figures)
    return found


def cpu_secs(work: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    """CPU seconds of this process while ``work`` runs, and what it returns."""
    begun = time.process_time()
    done = work()
    return time.process_time() - begun, done


def _check(side: Side, table: pa.Table, read: pa.Table, folder: str, figures: Figures) -> None:
    for name in table.column_names:
        if not read.column(name).equals(table.column(name)):
            raise SystemExit(f"{side.name} must read column {name} as it was written")
    again = os.path.join(folder, "again.memo")
    side.write(table, again)
    figures.same_bytes = Path(again).read_bytes() == Path(folder, "0.memo").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few rows, once, to test the script")
    options = parser.parse_args()
    rows, repeat = (2_000, 1) if options.small else (options.rows, options.repeat)
    table = memo_columns(rows)
    keep_freed_memory()
    print(f"{machine()}; pyarrow {pa.__version__}")
    print(f"{COLUMNS} columns x {rows:,} rows, {table.nbytes / 1e6:.0f} MB in memory; CPU seconds")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(table, folder, repeat)
    base = found["parquet zstd, default encodings"]
    print(f"{'format':<36} {'write s':>8} {'x':>5} {'MB':>7} {'x':>5} {'read all s':>11} {'x':>5} {'read 1 of 50, ms':>17} "
          f"{'x':>5}  same bytes")  # fmt: skip
    for name, it in found.items():
        print(
            f"{name:<36} {it.write_secs:8.2f} {it.write_secs / base.write_secs:5.2f} {it.size_bytes / 1e6:7.1f} "
            f"{it.size_bytes / base.size_bytes:5.2f} {it.read_secs:11.2f} {it.read_secs / base.read_secs:5.2f} "
            f"{it.read_one_secs * 1e3:17.2f} {it.read_one_secs / base.read_one_secs:5.2f}  "
            f"{'yes' if it.same_bytes else 'NO'}"
        )


if __name__ == "__main__":
    main()
