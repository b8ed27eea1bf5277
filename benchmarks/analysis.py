"""Time and memory of full passes: many analyses of many partitions, in Headrace and in tf.Transform.

    python -m benchmarks.analysis [--partitions N] [--analyses N] [--rows N] [--without-tf-transform]

The log is generated: text, integers, numbers and a label, one file per hourly partition. Each side runs in its own process
and reports its peak memory and the CPU seconds of all threads, which are comparable on a loaded machine. tf.Transform gets
the same rows as one dataset (``AnalyzeDataset``). Results are compared: vocabularies and extremes must be equal, means and
deviations equal to 12 digits, and boundaries within 0.0002 in rank.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import transforms.expressions.expression as hr
from benchmarks.support.harness import machine, peak_bytes
from pipelines.analysis.analyze import analyze_model
from transforms.expressions.model import Model
from transforms.ranges import between
from warehouse.config import WarehouseConfig
from warehouse.files.artifacts import read_artifact
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse

_START = datetime(2026, 1, 1, tzinfo=UTC)
_KINDS = ("vocabulary", "labelled", "quantiles", "mean", "extremes")
_TERMS = 50_000
_BUCKETS = 10


def main() -> int:
    """Write the log, run each side, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--analyses", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--without-tf-transform", action="store_true")
    parser.add_argument("--side", choices=("headrace", "tf_transform"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run = _headrace if options.side == "headrace" else _tf_transform
        print(json.dumps(run(options.folder, options.analyses, options.partitions)))
        return 0
    print(machine())
    print(f"{options.partitions:,} partitions x {options.analyses} analyses, {options.rows:,} rows in all")
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name) / "log", options.partitions, options.rows)
        ours = _side("headrace", name, options)
        if not options.without_tf_transform:
            theirs = _side("tf_transform", name, options)
            _compare(Path(name), options.analyses, ours["found"], theirs["found"])
    return 0


def _side(side: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.analysis", "--side", side, "--folder", folder, "--analyses", str(options.analyses),
               "--partitions", str(options.partitions)]  # fmt: skip
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    print(f"{side:<12}  {found['secs']:8.1f} s   {found['cpu_secs']:8.1f} CPU s   peak RSS "
          f"{found['peak_bytes'] / 1e6:6.0f} MB", flush=True)  # fmt: skip
    return found


def column(position: int) -> str:
    """The column of an analysis: each kind in turn, over its own columns."""
    return f"{_KINDS[position % len(_KINDS)]}{position}"


def write_log(root: Path, partitions: int, rows: int) -> None:
    """Write hourly partitions of equal size with twenty columns and a label."""
    random = np.random.default_rng(11)
    terms = pa.array([f"term {i:05d}" for i in range(_TERMS)])
    for hour in range(partitions):
        size = rows * (hour + 1) // partitions - rows * hour // partitions
        columns: dict[str, pa.Array] = {"clicked": pa.array(random.integers(0, 2, size))}
        for position in range(20):
            if _KINDS[position % len(_KINDS)] in ("vocabulary", "labelled"):
                columns[column(position)] = terms.take(pa.array((random.zipf(1.2, size) - 1) % _TERMS))
            else:
                columns[column(position)] = pa.array(random.lognormal(position, 1.0, size))
        folder = root / (_START + timedelta(hours=hour)).strftime("date=%Y-%m-%d/hour=%H")
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "part.parquet")


def model(analyses: int, partitions: int) -> Model:
    """The first ``analyses`` of the analyses, over all partitions."""
    over = between(_START, _START + timedelta(hours=partitions))
    made = Model("bench", client="bench", label="clicked", table="log")
    for position in range(analyses):
        name = column(position)
        kind = _KINDS[position % len(_KINDS)]
        made.input(name, {
            "vocabulary": lambda name=name: hr.text(name).vocabulary_ids(over=over),
            "labelled": lambda name=name: hr.text(name).vocabulary_ids(over=over, label=hr.int64("clicked")),
            "quantiles": lambda name=name: hr.float64(name).quantile_buckets(_BUCKETS, over=over),
            "mean": lambda name=name: hr.float64(name).z_score(over=over),
            "extremes": lambda name=name: hr.float64(name).min_max_over(over=over),
        }[kind]())  # fmt: skip
    return made


def _headrace(folder: Path, analyses: int, partitions: int) -> dict[str, Any]:
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"))) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
        begun, cpu = time.perf_counter(), time.process_time()
        made = analyze_model(warehouse, model(analyses, partitions))
        secs, cpu_secs = time.perf_counter() - begun, time.process_time() - cpu
        # In the order of the model's inputs: its columns name the analyses.
        found = {one.expression: read_artifact(warehouse.storage, one.artifact).to_pylist() for one in made}
    return {"secs": secs, "cpu_secs": cpu_secs, "peak_bytes": peak_bytes(), "found": found}


def _tf_transform(folder: Path, analyses: int, partitions: int) -> dict[str, Any]:
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0.schema_pb2 import TensorRepresentation
    from tensorflow_transform.saved import saved_transform_io_v2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    names = [column(position) for position in range(analyses)]
    kinds = [_KINDS[position % len(_KINDS)] for position in range(analyses)]

    def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
        outputs = {}
        for name, kind in zip(names, kinds, strict=True):
            values = inputs[name]
            if kind in ("vocabulary", "labelled"):
                labels = inputs["clicked"] if kind == "labelled" else None
                tft.vocabulary(values, labels=labels, vocab_filename=name, file_format="tfrecord_gzip")
            elif kind == "quantiles":
                outputs[name] = tft.quantiles(values, _BUCKETS, epsilon=1e-4)
            elif kind == "mean":
                outputs[name] = tf.stack([tft.mean(values), tf.sqrt(tft.var(values))])
            else:
                outputs[name] = tf.stack([tft.min(values), tft.max(values)])
        events = tf.shape(inputs["clicked"])[:1]
        # tf.Transform has no outputs of float64; 17 digits represent one exactly.
        texts = {name: tf.strings.as_string(value, precision=17, scientific=True) for name, value in outputs.items()}
        return {name: tf.repeat(tf.reshape(value, [1, -1]), events, axis=0) for name, value in texts.items()} | {
            "clicked": inputs["clicked"]
        }

    types = {name: pa.binary() if kind in ("vocabulary", "labelled") else pa.float64()
             for name, kind in zip(names, kinds, strict=True)} | {"clicked": pa.int64()}  # fmt: skip
    dense = {name: text_format.Parse(f'dense_tensor {{ column_name: "{name}" shape {{}} }}', TensorRepresentation())
             for name in types}  # fmt: skip
    config = TensorAdapterConfig(pa.schema([(name, pa.list_(item)) for name, item in types.items()]), dense)
    begun, cpu = time.perf_counter(), time.process_time()
    batches = [_listed(batch, types) for file in sorted((folder / "log").rglob("*.parquet"))
               for batch in pq.read_table(file, partitioning=None, columns=list(types)).to_batches()]  # fmt: skip
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    with beam.Pipeline(runner=runner) as pipeline, tft_beam.Context(temp_dir=str(folder / "tmp")):
        data = pipeline | beam.Create(batches, reshuffle=False)
        transform_fn = (data, config) | tft_beam.AnalyzeDataset(preprocess)
        _ = transform_fn | tft_beam.WriteTransformFn(str(folder / "out"))
    secs, cpu_secs = time.perf_counter() - begun, time.process_time() - cpu
    output = tft.TFTransformOutput(str(folder / "out"))
    example = {name: tf.constant([b"" if item == pa.binary() else 0], tf.as_dtype(item.to_pandas_dtype()))
               for name, item in types.items()}  # fmt: skip
    # transform_raw_features would cast float64 to float32.
    loader = saved_transform_io_v2.SavedModelLoader(output.transform_savedmodel_dir)
    transformed = loader.apply_transform_model(example)
    found = {
        name: [term.decode() for term in output.vocabulary_by_name(name)] if kind in ("vocabulary", "labelled")
        else [float(number) for number in transformed[name].numpy()[0]]
        for name, kind in zip(names, kinds, strict=True)
    }  # fmt: skip
    return {"secs": secs, "cpu_secs": cpu_secs, "peak_bytes": peak_bytes(), "found": found}


def _listed(batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """The rows for tf.Transform: lists of one value."""
    offsets = np.arange(len(batch) + 1, dtype=np.int32)
    return pa.record_batch(
        {name: pa.ListArray.from_arrays(offsets, batch[name].cast(item)) for name, item in types.items()}
    )


def _compare(folder: Path, analyses: int, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    data = pq.ParquetDataset(folder / "log", partitioning=None)
    for position in range(analyses):
        name, kind = column(position), _KINDS[position % len(_KINDS)]
        mine, other = ours[name], theirs[name]
        if kind in ("vocabulary", "labelled"):
            said = "equal" if mine == other else f"DIFFERENT at {_first_difference(mine, other)}"
            print(f"{name:<14} {len(mine):,} terms: {said}")
        elif kind == "quantiles":
            values = np.sort(pc.drop_null(data.read([name])[name]).to_numpy())
            ranks = [np.searchsorted(values, found, "right") / len(values) for found in (mine, other)]
            print(
                f"{name:<14} {len(mine)} boundaries: farthest apart {np.max(np.abs(ranks[0] - ranks[1])):.6f} in rank"
            )
        else:
            far = max(abs(a - b) / abs(b) for a, b in zip(mine, other, strict=True))
            print(f"{name:<14} relative difference {far:.1e}")


def _first_difference(mine: list[str], other: list[str]) -> int:
    pairs = zip(mine, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(other)))


if __name__ == "__main__":
    raise SystemExit(main())
