"""A log of search ads for benchmarks: texts over a Zipf vocabulary, titles that share words with queries, 26 categoricals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TEXTS = ("query", "title", "category")
IDS = tuple(f"c{i}" for i in range(1, 27))
GROUP_ROWS = 131_072


def generate(path: Path, rows: int, seed: int = 20) -> None:
    """Write a Parquet file of ``rows`` events with some nulls; equal seeds give equal files."""
    source = np.random.default_rng(seed)
    words = np.array([f"{'aeiou'[i % 5]}{np.base_repr(i * 7919 + 40, 36).lower()}" for i in range(50_000)])
    writer = None
    for first in range(0, rows, GROUP_ROWS):
        batch = _generated(min(GROUP_ROWS, rows - first), words, source)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch, row_group_size=GROUP_ROWS)
    assert writer is not None, "no rows were asked for"
    writer.close()


def generate_labelled(folder: Path, rows: int) -> Path:
    """Write a log of one partition with a column ``clicked`` of zeros, for benchmarks that need a label and train nothing; its file."""
    log = folder / "log" / "date=2026-01-01" / "log.parquet"
    log.parent.mkdir(parents=True)
    generate(log, rows)
    table = pq.read_table(log)
    pq.write_table(table.append_column("clicked", pa.array([0.0] * len(table), pa.float32())), log)
    return log


def _generated(rows: int, words: np.ndarray, source: np.random.Generator) -> pa.Table:
    query = _token_lists(rows, 1, 6, words, source)
    title = pc.binary_join(_mixed(query, _token_lists(rows, 3, 10, words, source)), " ")
    columns = {
        "query": _with_nulls(pc.binary_join(query, " "), 0.01, source),
        "title": _with_nulls(title, 0.01, source),
        "category": _with_nulls(pc.binary_join(_token_lists(rows, 1, 3, words[:500], source), " "), 0.02, source),
    }
    for i, name in enumerate(IDS):
        distinct = int(10 ** (1 + i % 6))
        ids = np.minimum(source.zipf(1.2, rows), distinct).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        values = pc.binary_slice(pa.array(_hexadecimal(ids)), 0, 8).cast(pa.string())
        columns[name] = _with_nulls(values, 0.05 if i % 3 == 0 else 0.0, source)
    return pa.table(columns)


def _hexadecimal(values: np.ndarray) -> pa.Array:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    nibbles = values[:, None] >> np.arange(60, -4, -4, dtype=np.uint64) & np.uint64(15)
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(values), [None, pa.py_buffer(digits[nibbles].copy())]
    )


def _token_lists(rows: int, low: int, high: int, words: np.ndarray, source: np.random.Generator) -> pa.Array:
    counts = source.integers(low, high + 1, rows)
    ranks = np.minimum(source.zipf(1.15, int(counts.sum())) - 1, len(words) - 1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(words).take(pa.array(ranks)))


def _mixed(query: pa.Array, title: pa.Array) -> pa.Array:
    """The title's words, every third one taken from the same row's query."""
    query_offsets, title_offsets = query.offsets.to_numpy(), title.offsets.to_numpy()
    row = np.repeat(np.arange(len(title)), np.diff(title_offsets))
    position = np.arange(len(row)) - title_offsets[row]
    pick = query_offsets[row] + position % np.diff(query_offsets)[row]
    taken = pc.if_else(pa.array(position % 3 == 0), query.values.take(pa.array(pick)), title.values)
    return pa.ListArray.from_arrays(title.offsets, taken)


def _with_nulls(array: pa.Array, share: float, source: np.random.Generator) -> pa.Array:
    return pc.if_else(pa.array(source.random(len(array)) < share), pa.scalar(None, array.type), array)
