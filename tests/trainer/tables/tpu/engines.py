"""Engines over slices that are planned."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.tables import FTRL, SGD, Adagrad, AdagradMomentum, Adam, FeatureSpec, TableSpec, Uniform
from trainer.tables.tpu.call_inputs import CallInputs
from trainer.tables.tpu.host_inputs import replica_inputs
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine

EVENTS = 8


def features() -> list[FeatureSpec]:
    """Tables of several widths and optimizers: three are one stack, and two features share a table."""
    one = TableSpec("one", 100, 5, Adagrad(0.1, 0.25), "sum")
    two = TableSpec("two", 1000, 7, Adagrad(0.1, 0.25), initializer=Uniform(-1.0, 1.0))
    three = TableSpec("three", 37, 8, Adagrad(0.1, 0.25), "sqrtn")
    return [
        FeatureSpec("a", one),
        FeatureSpec("b", two),
        FeatureSpec("c", three, 3),
        FeatureSpec("d", one),
        FeatureSpec("e", TableSpec("momentum", 64, 12, AdagradMomentum(0.1, 0.9))),
        FeatureSpec("f", TableSpec("adam", 65, 16, Adam(0.1))),
        FeatureSpec("g", TableSpec("ftrl", 300, 16, FTRL(0.1))),
        FeatureSpec("h", TableSpec("sgd", 129, 24, SGD(0.1))),
    ]


def engine_on(replicas: int, *, sparse_cores: int = 4, seed: int = 3, made_of=None, **settings) -> SparseCoreEngine:
    """An engine whose tables are on the CPU of this process."""
    strategy = planned_strategy(PlannedSlice(replicas, sparse_cores=sparse_cores), on_cpu=True)
    with strategy.scope():
        engine = SparseCoreEngine(made_of or features(), seed=seed, events_per_replica=EVENTS, **settings)
        engine.build()
    return engine


def elements_of(engine, batches, specs=()):
    """A dataset of the inputs of each replica in each step, of one machine."""
    inputs = CallInputs(engine, specs)
    (arrays,) = inputs.pack(batches)
    return inputs.elements(arrays)


def ragged_inputs(engine, batch) -> list[tuple[tuple[tf.RaggedTensor, ...], tuple[tf.RaggedTensor, ...]]]:
    """The ids and gains of each feature for each replica, made one by one."""
    found = []
    for replica in range(engine.replicas):
        made = replica_inputs(batch, engine.features, replica, engine.events)
        ids = tuple(tf.RaggedTensor.from_row_splits(one.ids.astype(np.int64), one.splits) for one in made)
        found.append((ids, tuple(of.with_values(tf.constant(one.gains)) for of, one in zip(ids, made, strict=True))))
    return found
