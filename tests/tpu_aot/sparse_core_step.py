"""Lowers the update of one table as ``TPUEmbeddingV2`` writes it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.tpu.tpu_embedding_v3 import PartitionedCsrFormatTensor

from trainer.tables import to_tensorflow
from trainer.tables.optimizers import Optimizer
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.traced_tables import TracedArray


def lower_update(optimizer: Optimizer, *, dim: int) -> str:
    """The HLO of one update of a small table on one chip with four SparseCores."""
    events, rows, ids, sparse_cores = 32, 64, 64, 4
    embedding = tf.tpu.experimental.embedding
    (feature,) = to_tensorflow([FeatureSpec("f", TableSpec("t", rows, dim, optimizer))])
    feature.output_shape = tf.TensorShape([events])
    with planned_strategy(PlannedSlice(1, sparse_cores=sparse_cores)).scope():
        tables = embedding.TPUEmbeddingV2(
            {"f": feature}, sparse_core_embedding_config=embedding.SparseCoreEmbeddingConfig()
        )
    names = ["parameters", *(slot.name for slot in optimizer.slots)]

    def update(pointers: Any, samples: Any, tokens: Any, gains: Any, gradients: Any, *values: Any) -> list[Any]:
        tables._variables = {"t": {name: TracedArray(value) for name, value in zip(names, values, strict=True)}}
        tables._built = True
        parts = PartitionedCsrFormatTensor(pointers, samples, tokens, gains, events, tf.constant(1))
        tables.apply_gradients({"f": gradients}, {"t": parts})
        return [tables._variables["t"][name].value for name in names]

    spec = tf.TensorSpec
    arguments = [spec([32], tf.int32), spec([ids], tf.int32), spec([ids], tf.int32), spec([ids]), spec([events, dim]),
                 *(spec([rows, dim]) for _ in names)]  # fmt: skip
    function = tf.function(update, jit_compile=True, autograph=False)
    return function.experimental_get_compiler_ir(*arguments)(stage="hlo", platform_name="TPU")
