"""A process of benchmarks: write rows of a read solution as TFRecord examples, parse them with tf.data, print CPU seconds per row."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from warehouse import ReadSolution, read_fragment
from warehouse.storage.storage import Storage

PASSES = 3


def first_rows(home: str, rows: int) -> pa.Table:
    """The first rows of a solution, all inputs and the label."""
    solution = ReadSolution.from_json((Path(home) / "solution.json").read_text())
    tables: list[pa.Table] = []
    for fragment in solution.fragments:
        tables.append(read_fragment(Storage(home), solution, fragment))
        if sum(table.num_rows for table in tables) >= rows:
            break
    return pa.concat_tables(tables).slice(0, rows)


def write(table: pa.Table, target: str) -> dict[str, Any]:
    """Write one example per row; returns the features to parse."""
    import tensorflow as tf

    columns, features = {}, {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_list = pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
        kind = tf.float32 if pa.types.is_floating(column.type.value_type if is_list else column.type) else tf.int64
        values = column.to_pylist()
        if is_list or (column.null_count and kind == tf.int64):
            features[name] = tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
        else:
            features[name] = tf.io.FixedLenFeature([], kind)
            values = [0 if value is None else value for value in values]
        columns[name] = (
            kind,
            [value if isinstance(value, list) else [] if value is None else [value] for value in values],
        )
    with tf.io.TFRecordWriter(target) as writer:
        for row in range(table.num_rows):
            example = tf.train.Example()
            for name, (kind, lists) in columns.items():
                feature = example.features.feature[name]
                (feature.float_list if kind == tf.float32 else feature.int64_list).value.extend(lists[row])
            writer.write(example.SerializeToString())
    return features


def parse(target: str, features: dict[str, Any], batch_rows: int) -> float:
    """CPU seconds of this process to parse all examples."""
    import tensorflow as tf

    dataset = tf.data.TFRecordDataset(target).batch(batch_rows).map(lambda batch: tf.io.parse_example(batch, features))
    begun = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - begun


def main(home: str, target: str, rows: str, batch_rows: str) -> None:
    """Print the least CPU seconds per row."""
    table = first_rows(home, int(rows))
    features = write(table, target)
    print(min(parse(target, features, int(batch_rows)) for _ in range(PASSES)) / table.num_rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
