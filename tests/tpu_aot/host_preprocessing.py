"""TensorFlow's host preprocessing for SparseCore, by its real kernels, and the lookup that a SparseCore makes of its result.

A process of the environment of ``make tpu``. Standard input: ``{"cases": [{"replicas": …, "sparse_cores": …, "max_ids": …, "batch": path,
"activations": path}]}``; standard output: for each case, the error of the preprocessing, or nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from tests.tpu_aot.preprocessing_case import EVENTS, SEED, STACK, features
from trainer.embedding.engine import IdBatch
from trainer.embedding.sparse_core import SparseCoreSettings
from trainer.embedding.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.embedding.tpu.sparse_core_engine import SparseCoreEngine, clear_overflow
from trainer.embedding.tpu.table_states import PARAMETERS, initial_arrays

#: The value of positions that pad the ids.
_PADDING = np.iinfo(np.int32).max


def _emulated(part: Any, stack: np.ndarray, sparse_cores: int) -> np.ndarray:
    """The activations of one replica: each SparseCore adds the rows that it receives from every shard, times their gains."""
    pointers, samples, tokens, gains = (
        getattr(part, name).numpy()
        for name in ("row_pointers", "sorted_sample_ids", "sorted_token_ids", "sorted_gains")
    )
    shards = stack.shape[0]
    padded = max(8, -(-shards // 8) * 8)
    of_core = part.sample_count // sparse_cores
    out = np.zeros((part.sample_count, stack.shape[2]), np.float32)
    start = 0
    for core in range(sparse_cores):
        for shard in range(shards):
            end = pointers[core * padded + shard]
            for k in range(start, end):
                if samples[k] != _PADDING:
                    out[core * of_core + samples[k]] += gains[k] * stack[shard, tokens[k]]
            start = -(-end // 8) * 8
        start = -(-pointers[core * padded + padded - 1] // 8) * 8
    return out


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Write the activations; an error of the preprocessing is the answer."""
    replicas, sparse_cores = request["replicas"], request["sparse_cores"]
    settings = SparseCoreSettings(max_ids_per_table={STACK: request["max_ids"]})
    with planned_strategy(PlannedSlice(replicas, sparse_cores=sparse_cores)).scope():
        engine = SparseCoreEngine(features(), seed=SEED, events_per_replica=EVENTS, settings=settings)
    with np.load(request["batch"]) as saved:
        batch = IdBatch(saved["ids"], saved["offsets"], saved.get("weights", None))
    (stack,) = {place.stack for place in engine.places().values()}
    values = initial_arrays(engine.tables, engine.places(), SEED)[PARAMETERS]
    activations = []
    try:
        for ids, gains in engine.inputs(batch):
            ((part, _, _),) = engine.embedding.enqueue(ids, gains).values()
            found = {stack: tf.constant(_emulated(part, values, sparse_cores))}
            activations.append(engine.joined(engine.embedding._unstack_activations(found)).numpy())
    except tf.errors.OpError as error:
        clear = clear_overflow(error)
        return {"error": str(error), "clear": str(clear) if clear else ""}
    np.save(request["activations"], np.concatenate(activations))
    return {}


if __name__ == "__main__":
    answers = [run(case) for case in json.load(sys.stdin)["cases"]]
    sys.stdout.write(json.dumps({"answers": answers}) + "\n")
