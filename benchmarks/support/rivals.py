"""The other sides of throughput benchmarks: tf.Transform on Beam, Polars and DuckDB, each in its fastest form.

All columns are text. tf.Transform's batches carry a row number to restore their order.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.support.harness import THREADS

if TYPE_CHECKING:
    import polars as pl

#: Passed through tf.Transform unchanged.
ROW = "row"
#: On two cores the fastest of in_memory and multi_threading, with batches of 4,096 to 131,072 rows, by a small margin.
TFT_MODE, TFT_WORKERS, TFT_BATCH_ROWS = "multi_threading", THREADS, 32_768


def run_tft(
    preprocess: Callable[[dict[str, Any]], dict[str, Any]], names: Sequence[str], source: Path, target: Path
) -> None:
    """Run AnalyzeAndTransformDataset on the DirectRunner over record batches, one row group per element."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from tfx_bsl.tfxio import tensor_adapter

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
        batches = pipeline | beam.Create(groups) | beam.FlatMap(partial(_tft_batches, str(source), tuple(names)))
        (transformed, _), _ = (batches, config) | tft_beam.AnalyzeAndTransformDataset(
            preprocess, output_record_batches=True
        )
        _ = transformed | beam.Map(partial(_write_tft_batch, str(target)))


def _representation(name: str) -> object:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    spelled = f'dense_tensor {{ column_name: "{name}" shape {{}} }}'
    return text_format.Parse(spelled, schema_pb2.TensorRepresentation())


def _tft_batches(source: str, names: Sequence[str], group: int) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(source)
    begin = sum(file.metadata.row_group(i).num_rows for i in range(group))
    stored = file.read_row_group(group, columns=list(names), use_threads=False).combine_chunks()
    for first in range(0, stored.num_rows, TFT_BATCH_ROWS):
        part = stored.slice(first, TFT_BATCH_ROWS).combine_chunks()
        lists = {name: _as_lists(part[name].combine_chunks()) for name in names}
        rows = np.arange(len(part), dtype=np.int64) + first + begin
        lists[ROW] = pa.ListArray.from_arrays(np.arange(len(part) + 1, dtype=np.int32), rows)
        yield pa.record_batch(lists)


def _as_lists(array: pa.Array) -> pa.Array:
    """Every value as a list of one, TFXIO's layout of dense columns; a null as the empty text."""
    filled = pc.fill_null(array, "") if array.null_count else array
    return pa.ListArray.from_arrays(np.arange(len(array) + 1, dtype=np.int32), filled.view(pa.binary()))


def _write_tft_batch(folder: str, element: tuple[pa.RecordBatch, dict[str, Any]]) -> None:
    batch = element[0]
    handle, path = tempfile.mkstemp(".arrow", dir=folder)
    os.close(handle)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def run_polars(expressions: Callable[[], Sequence[pl.Expr]], source: Path, target: Path) -> None:
    """Run one lazy query with all threads into a streaming sink."""
    import polars as pl

    pl.scan_parquet(source).select(*expressions()).sink_ipc(target, compression="uncompressed")


def run_duckdb(query: str, source: Path, target: Path) -> None:
    """Run one query with all threads, streamed as record batches into an Arrow file. ``query`` reads from ``log``."""
    import duckdb

    with duckdb.connect(config={"threads": THREADS, "preserve_insertion_order": True}) as connection:
        connection.execute(f"CREATE VIEW log AS SELECT * FROM read_parquet('{source}')")
        reader = connection.sql(query).to_arrow_reader(131_072)
        with pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)


def read(path: Path) -> pa.Table:
    """Read an Arrow file."""
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def differing_from_tft(ours: pa.Table, folder: Path) -> list[str]:
    """The columns in which tf.Transform's output differs from Headrace's, in any bit."""
    theirs = pa.concat_tables([read(path) for path in folder.iterdir()])
    theirs = theirs.append_column("at", theirs[ROW].combine_chunks().flatten()).sort_by("at")
    if theirs.num_rows != ours.num_rows:
        return [f"{theirs.num_rows} rows instead of {ours.num_rows}"]
    return [name for name in ours.column_names if not _same(ours[name], theirs[name])]


def _same(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> bool:
    if pa.types.is_list(ours.type):
        return bool(ours.cast(pa.list_(pa.int64())).equals(theirs.cast(pa.list_(pa.int64()))))
    flat = pc.list_flatten(theirs) if pa.types.is_list(theirs.type) or pa.types.is_large_list(theirs.type) else theirs
    return bool(pa.chunked_array(ours.chunks).combine_chunks().equals(flat.combine_chunks()))


def differing_counts(ours: pa.Table, theirs: pa.Table) -> list[str]:
    """The columns whose ids, by another hash function, differ in number per row or in number of distinct ids.

    Two hash functions collide differently, so the number of distinct ids may differ by the collisions of 1,000,000 buckets.
    """
    differing = []
    for name in ours.column_names:
        if _lengths(ours[name]) != _lengths(theirs[name]):
            differing.append(f"values per row of {name}")
        mine, other = (len(pc.unique(_flat(table[name]))) for table in (ours, theirs))
        if abs(mine - other) > 0.02 * mine + 10:
            differing.append(f"distinct ids of {name}: {mine} and {other}")
    return differing


def _lengths(column: pa.ChunkedArray) -> object:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return pc.list_value_length(column).cast(pa.int64()).combine_chunks()
    return (len(column), column.null_count)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if _lengths(column).__class__ is not tuple else column
