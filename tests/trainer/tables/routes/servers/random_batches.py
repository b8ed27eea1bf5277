"""Random features and batches, and engines that train on them side by side."""

from __future__ import annotations

import numpy as np

from trainer.tables import FTRL, SGD, Adagrad, AdagradMomentum, Adam, FeatureSpec, IdBatch, TableSpec, Uniform
from trainer.tables.optimizers import RowWiseAdagrad

_ADAGRAD = Adagrad(0.1, 0.25)
_ONE = TableSpec("one", 50, 5, _ADAGRAD, "sum")
#: Tables of several widths and optimizers: three are of one stack, and two features share a table.
FEATURES = (
    FeatureSpec("a", _ONE),
    FeatureSpec("b", TableSpec("two", 301, 16, _ADAGRAD, "mean", Uniform(-1.0, 1.0))),
    FeatureSpec("c", TableSpec("three", 64, 16, _ADAGRAD, "sqrtn")),
    FeatureSpec("sequence", _ONE, 3),
    FeatureSpec("d", TableSpec("sgd", 7, 1, SGD(0.5), "mean")),
    FeatureSpec("e", TableSpec("momentum", 20, 12, AdagradMomentum(0.1, 0.9), "sum")),
    FeatureSpec("f", TableSpec("adam", 90, 16, Adam(0.1), "sqrtn")),
    FeatureSpec("g", TableSpec("ftrl", 33, 3, FTRL(0.1), "mean")),
    FeatureSpec("h", TableSpec("row-wise", 40, 8, RowWiseAdagrad(0.1), "mean")),
)


def random_batch(features, seed: int, *, events: int = 12, longest: int = 4, weighted: bool | None = None) -> IdBatch:
    """Bags of 0 to ``longest`` ids; every third one has weights, or as ``weighted`` says."""
    draw = np.random.default_rng(seed)
    counts = draw.integers(0, longest + 1, (len(features), events))
    starts = np.cumsum(counts.sum(axis=1)) - counts.sum(axis=1)
    offsets = starts[:, None] + np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)
    ids = [
        draw.integers(0, one.table.vocabulary_size, int(own.sum())) for one, own in zip(features, counts, strict=True)
    ]
    is_weighted = seed % 3 == 0 if weighted is None else weighted
    weights = draw.random(int(counts.sum()), np.float32) + np.float32(0.1) if is_weighted else None
    return IdBatch(np.concatenate(ids).astype(np.int64), offsets.astype(np.int64), weights)


def gradients_of(batch: IdBatch, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch.rows, width)).astype(np.float32)


def train(engine, seeds, features=FEATURES, **shape) -> list[bytes]:
    """Look up and update a batch for each seed; returns the bytes of the activations."""
    seen = []
    for seed in seeds:
        batch = random_batch(features, seed, **shape)
        seen.append(engine.lookup(batch).tobytes())
        engine.apply_gradients(batch, gradients_of(batch, engine.width, seed))
    return seen
