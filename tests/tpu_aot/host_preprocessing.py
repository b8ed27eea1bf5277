"""TensorFlow's host preprocessing for SparseCore, by its real kernels, and the lookup that a SparseCore makes of its result.

A process of the environment of ``make tpu``. Standard input: ``{"cases": [{"replicas": …, "sparse_cores": …, "max_ids": …, "counts": …, "batch": path,
"activations": path}]}``; standard output: for each case, the error of the preprocessing, the counts if they are asked for, or nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.tpu_aot.preprocessing_case import EVENTS, SEED, STACK, features
from tests.trainer.tables.tpu.engines import ragged_inputs
from trainer.tables.engine import IdBatch
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine, clear_overflow
from trainer.tables.tpu.table_states import PARAMETERS, initial_arrays

#: The value of positions that pad the ids.
_PADDING = np.iinfo(np.int32).max


def _spans(part: Any, shards: int, sparse_cores: int) -> Iterator[tuple[int, int, range]]:
    """Each SparseCore of a replica, each shard, and the entries that the core has for it."""
    pointers = part.row_pointers.numpy()
    padded = max(8, -(-shards // 8) * 8)
    start = 0
    for core in range(sparse_cores):
        for shard in range(shards):
            end = pointers[core * padded + shard]
            yield core, shard, range(start, end)
            start = -(-end // 8) * 8
        start = -(-pointers[core * padded + padded - 1] // 8) * 8


def _emulated(part: Any, stack: np.ndarray, sparse_cores: int) -> np.ndarray:
    """The activations of one replica: each SparseCore adds the rows that it receives from every shard, times their gains."""
    samples, tokens, gains = (
        getattr(part, name).numpy() for name in ("sorted_sample_ids", "sorted_token_ids", "sorted_gains")
    )
    of_core = part.sample_count // sparse_cores
    out = np.zeros((part.sample_count, stack.shape[2]), np.float32)
    for core, shard, span in _spans(part, stack.shape[0], sparse_cores):
        for k in span:
            if samples[k] != _PADDING:
                out[core * of_core + samples[k]] += gains[k] * stack[shard, tokens[k]]
    return out


def _counts(part: Any, shards: int, sparse_cores: int) -> list[list[tuple[int, int]]]:
    """Of each SparseCore of a replica, the ids and the distinct ids that it has for each shard."""
    samples, tokens = part.sorted_sample_ids.numpy(), part.sorted_token_ids.numpy()
    found: list[list[tuple[int, int]]] = [[] for _ in range(sparse_cores)]
    for core, _, span in _spans(part, shards, sparse_cores):
        own = [tokens[k] for k in span if samples[k] != _PADDING]
        found[core].append((len(own), len(set(own))))
    return found


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Write the activations, or answer the counts of each stack; an error of the preprocessing is the answer."""
    replicas, sparse_cores = request["replicas"], request["sparse_cores"]
    if request["counts"]:
        return _count(request)
    settings = SparseCoreSettings(max_ids_per_table={STACK: request["max_ids"]})
    with planned_strategy(PlannedSlice(replicas, sparse_cores=sparse_cores)).scope():
        engine = SparseCoreEngine(features(), seed=SEED, events_per_replica=EVENTS, settings=settings)
    batch = _batch(request)
    (stack,) = {place.stack for place in engine.places().values()}
    values = np.concatenate(
        [initial_arrays(engine.tables, engine.places(), part, SEED)[PARAMETERS] for part in range(replicas)]
    )
    activations = []
    try:
        for ids, gains in ragged_inputs(engine, batch):
            ((part, _, _),) = engine.embedding.enqueue(ids, gains).values()
            found = {stack: tf.constant(_emulated(part, values, sparse_cores))}
            activations.append(engine.joined(engine.embedding._unstack_activations(found)).numpy())
    except tf.errors.OpError as error:
        clear = clear_overflow(error)
        return {"error": str(error), "clear": str(clear) if clear else ""}
    np.save(request["activations"], np.concatenate(activations))
    return {}


def _count(request: dict[str, Any]) -> dict[str, Any]:
    """By table, what each SparseCore of the slice has for each: tables that are not stacked are not rotated."""
    replicas, sparse_cores = request["replicas"], request["sparse_cores"]
    settings = SparseCoreSettings(disable_table_stacking=True)
    with planned_strategy(PlannedSlice(replicas, sparse_cores=sparse_cores)).scope():
        engine = SparseCoreEngine(features(), seed=SEED, events_per_replica=EVENTS, settings=settings)
    counts: dict[str, list[Any]] = {}
    for ids, gains in ragged_inputs(engine, _batch(request)):
        for table, (part, _, _) in engine.embedding.enqueue(ids, gains).items():
            counts.setdefault(table, []).extend(_counts(part, replicas * sparse_cores, sparse_cores))
    return {"counts": counts}


def _batch(request: dict[str, Any]) -> IdBatch:
    with np.load(request["batch"]) as saved:
        return IdBatch(saved["ids"], saved["offsets"], saved.get("weights", None))


if __name__ == "__main__":
    answers = [run(case) for case in json.load(sys.stdin)["cases"]]
    sys.stdout.write(json.dumps({"answers": answers}) + "\n")
