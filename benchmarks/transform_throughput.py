"""How many rows a second go through the transforms: Headrace, tf.Transform and Polars, from one Parquet file.

The work is the paper's example graph (unigrams of texts A and B, their intersection, joined with the unigrams of text
C, hashed) and 26 hashed categoricals. Every side reads the same file and writes all 27 columns as an Arrow IPC file.
tf.Transform's columns must equal Headrace's bit for bit. Polars has another hash function, so its tokens are compared
before hashing, and its hashed columns by how many values each row has.

    python benchmarks/transform_throughput.py [--rows N] [--rounds R]
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import Side, machine, measure, table
from transforms.expression import concat, text
from transforms.graph import Node
from transforms.plan import compile_plan

if TYPE_CHECKING:
    import polars as pl

TEXTS = ("query", "title", "category")
IDS = tuple(f"c{i}" for i in range(1, 27))
BUCKETS = 1_000_000
GROUP_ROWS = 131_072
THREADS = os.cpu_count() or 1
#: Carried through tf.Transform untouched, so that its batches can be put back in order.
ROW = "row"
#: On two cores the fastest of in_memory and multi_threading, with batches of 4,096 to 131,072 rows, by a small margin.
TFT_MODE, TFT_WORKERS, TFT_BATCH_ROWS = "multi_threading", THREADS, 32_768


def generate(path: Path, rows: int, seed: int = 20) -> None:
    """A log of search ads: texts over a Zipf vocabulary, titles that share words with queries, nulls, 26 categoricals."""
    source = np.random.default_rng(seed)
    words = np.array([f"{'aeiou'[i % 5]}{np.base_repr(i * 7919 + 40, 36).lower()}" for i in range(50_000)])
    writer = None
    for first in range(0, rows, GROUP_ROWS):
        batch = _generated(min(GROUP_ROWS, rows - first), words, source)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch, row_group_size=GROUP_ROWS)
    assert writer is not None, "no rows were asked for"
    writer.close()


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


# Headrace


def components() -> dict[str, Node]:
    """The benchmark's 27 model inputs."""
    query, title, category = (text(name) for name in TEXTS)
    overlap = concat(query.unigrams() & title.unigrams(), category.unigrams())
    inputs = {"overlap": overlap.hash_buckets(BUCKETS)}
    inputs |= {name: text(name).fill_null("").hash_buckets(BUCKETS) for name in IDS}
    return {name: expr.node for name, expr in inputs.items()}


def run_headrace(source: Path, target: Path) -> None:
    """Row groups are read, computed and handed to the writer by as many threads as there are cores."""
    plan = compile_plan(components())
    names = [column.name for column in plan.columns]
    metadata = pq.read_metadata(source)
    coded = _dictionary_columns(metadata.row_group(0)) if metadata.num_row_groups else []

    def compute(group: int) -> pa.RecordBatch:
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=coded)
        result = plan.run(file.read_row_group(group, columns=names, use_threads=False))
        assert not result.failures, result.failures
        return pa.record_batch(result.columns)

    _write(_in_order(compute, metadata.num_row_groups), target)


def _dictionary_columns(group: pq.RowGroupMetaData) -> list[str]:
    """Text columns that take so few bytes a value that they must be stored as codes of a small dictionary."""
    columns = (group.column(i) for i in range(group.num_columns))
    return [
        column.path_in_schema
        for column in columns
        if column.physical_type == "BYTE_ARRAY" and column.total_uncompressed_size < 4 * column.num_values
    ]


def _in_order(compute: Callable[[int], pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(compute, range(count))


def _write(batches: Iterator[pa.RecordBatch], target: Path) -> None:
    first = next(batches)
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


# tf.Transform


def run_tft(source: Path, target: Path) -> None:
    """AnalyzeAndTransformDataset on the DirectRunner, record batches in and out, a row group an element."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from tfx_bsl.tfxio import tensor_adapter

    names = (*TEXTS, *IDS)
    config = tensor_adapter.TensorAdapterConfig(
        pa.schema([*((name, pa.list_(pa.binary())) for name in names), (ROW, pa.list_(pa.int64()))]),
        {name: _representation(name) for name in names},
    )
    target.mkdir()
    options = PipelineOptions(
        ["--runner=DirectRunner", f"--direct_running_mode={TFT_MODE}", f"--direct_num_workers={TFT_WORKERS}"]
    )
    groups = range(pq.read_metadata(source).num_row_groups)
    with (
        tempfile.TemporaryDirectory() as temporary,
        beam.Pipeline(options=options) as pipeline,
        tft_beam.Context(temp_dir=temporary, passthrough_keys={ROW}),
    ):
        batches = pipeline | beam.Create(groups) | beam.FlatMap(partial(_tft_batches, str(source)))
        (transformed, _), _ = (batches, config) | tft_beam.AnalyzeAndTransformDataset(
            _preprocess, output_record_batches=True
        )
        _ = transformed | beam.Map(partial(_write_tft_batch, str(target)))


def _representation(name: str) -> object:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    spelled = f'dense_tensor {{ column_name: "{name}" shape {{}} }}'
    return text_format.Parse(spelled, schema_pb2.TensorRepresentation())


def _tft_batches(source: str, group: int) -> Iterator[pa.RecordBatch]:
    stored = pq.ParquetFile(source).read_row_group(group, use_threads=False).combine_chunks()
    for first in range(0, stored.num_rows, TFT_BATCH_ROWS):
        part = stored.slice(first, TFT_BATCH_ROWS).combine_chunks()
        lists = {name: _as_lists(part[name].combine_chunks()) for name in (*TEXTS, *IDS)}
        rows = np.arange(len(part), dtype=np.int64) + first + group * GROUP_ROWS
        lists[ROW] = pa.ListArray.from_arrays(np.arange(len(part) + 1, dtype=np.int32), rows)
        yield pa.record_batch(lists)


def _as_lists(array: pa.Array) -> pa.Array:
    """Every value as a list of one, the layout that TFXIO reads dense columns from; a null as the empty text."""
    filled = pc.fill_null(array, "") if array.null_count else array
    return pa.ListArray.from_arrays(np.arange(len(array) + 1, dtype=np.int32), filled.view(pa.binary()))


def _preprocess(inputs: dict) -> dict:
    import tensorflow as tf
    import tensorflow_transform as tft

    query, title, category = (tf.strings.split(inputs[name]) for name in TEXTS)
    common = tf.RaggedTensor.from_sparse(tf.sets.intersection(query.to_sparse(), title.to_sparse()))
    tokens = tf.concat([common, category], axis=1)
    outputs = {"overlap": tft.hash_strings(tokens.to_sparse(), BUCKETS)}
    return outputs | {name: tft.hash_strings(inputs[name], BUCKETS) for name in IDS}


def _write_tft_batch(folder: str, element: tuple[pa.RecordBatch, dict]) -> None:
    batch = element[0]
    handle, path = tempfile.mkstemp(".arrow", dir=folder)
    os.close(handle)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


# Polars


def run_polars(source: Path, target: Path) -> None:
    """One lazy query, with all its threads, into its streaming sink."""
    import polars as pl

    hashed = polars_tokens().list.eval(pl.element().hash() % BUCKETS).alias("overlap")
    ids = [(pl.col(name).fill_null("").hash() % BUCKETS).alias(name) for name in IDS]
    pl.scan_parquet(source).select(hashed, *ids).sink_ipc(target, compression="uncompressed")


def polars_tokens() -> pl.Expr:
    """The tokens of the example graph, the fastest of four ways to write it."""
    import polars as pl

    none = pl.lit([], dtype=pl.List(pl.String))
    query, title, category = (pl.col(name).str.split(" ").fill_null(none) for name in TEXTS)
    return query.list.set_intersection(title).list.concat(category)


# Equality


def check_tft(ours: pa.Table, folder: Path) -> list[str]:
    """The columns in which tf.Transform's output differs from Headrace's, in any bit."""
    theirs = pa.concat_tables([_read(path) for path in folder.iterdir()])
    theirs = theirs.append_column("at", theirs[ROW].combine_chunks().flatten()).sort_by("at")
    if theirs.num_rows != ours.num_rows:
        return [f"{theirs.num_rows} rows instead of {ours.num_rows}"]
    return [name for name in ours.column_names if not _same(ours[name], theirs[name])]


def _same(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> bool:
    if pa.types.is_list(ours.type):
        return bool(ours.cast(pa.list_(pa.int64())).equals(theirs.cast(pa.list_(pa.int64()))))
    flat = pc.list_flatten(theirs) if pa.types.is_list(theirs.type) or pa.types.is_large_list(theirs.type) else theirs
    return bool(pa.chunked_array(ours.chunks).combine_chunks().equals(flat.combine_chunks()))


def check_polars(source: Path, ours: pa.Table, target: Path) -> list[str]:
    """What differs between Polars and Headrace: token sets before hashing, then the number of values in each row."""
    import polars as pl

    query, title, category = (text(name) for name in TEXTS)
    tokens = concat(query.unigrams() & title.unigrams(), category.unigrams())
    plan = compile_plan({"tokens": tokens.node})
    differing = []
    for group in range(pq.read_metadata(source).num_row_groups):
        part = pq.ParquetFile(source).read_row_group(group)
        mine = pl.DataFrame({"tokens": pl.from_arrow(plan.run(part).columns["tokens"])})
        other = pl.from_arrow(part).select(polars_tokens().alias("tokens"))
        if not mine.select(pl.col("tokens").list.sort()).equals(other.select(pl.col("tokens").list.sort())):
            differing.append(f"tokens of row group {group}")
    theirs = pl.read_ipc(target)
    counts = theirs.select(pl.col("overlap").list.len().cast(pl.Int64)).to_series().to_arrow()
    if not pc.list_value_length(ours["overlap"]).cast(pa.int64()).combine_chunks().equals(counts):
        differing.append("values a row of overlap")
    return differing + [name for name in IDS if theirs[name].null_count() != ours[name].null_count]


def _read(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


# The measurement


def _sides(folder: Path, source: Path, small: Path, chosen: list[str]) -> list[Side]:
    runs = {"headrace": run_headrace, "tf.Transform": run_tft, "polars": run_polars}
    return [
        Side(name, partial(_afresh, run, source, folder / name), partial(_afresh, run, small, folder / f"{name}-small"))
        for name, run in runs.items()
        if name in chosen
    ]


def _afresh(run: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    run(source, target)


def main() -> int:
    """Generate, measure, compare; the exit status is 1 if any side's output differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=["headrace", "tf.Transform", "polars"])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, small = folder / "log.parquet", folder / "small.parquet"
        generate(source, options.rows)
        generate(small, min(options.rows, 20_000))
        print(f"{options.rows:,} rows, {source.stat().st_size / 1e6:.0f} MB of Parquet; {machine()}, {THREADS} threads")
        measured = measure(_sides(folder, source, small, options.sides), options.rounds)
        print(table(measured, options.rows))
        ours = _read(folder / "headrace")
        differing = check_tft(ours, folder / "tf.Transform") if "tf.Transform" in options.sides else []
        differing += check_polars(source, ours, folder / "polars") if "polars" in options.sides else []
    print("equal:", "no: " + ", ".join(differing) if differing else "yes")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
