"""Embedding tables: their specs, and the engine that holds, looks up and trains them."""

from trainer.embedding.engine import CpuEngine, IdBatch, TableState
from trainer.embedding.from_tensorflow import from_tensorflow
from trainer.embedding.spec import (
    SGD,
    Adagrad,
    Constant,
    FeatureSpec,
    Initializer,
    Normal,
    Optimizer,
    TableSpec,
    Uniform,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Constant",
    "CpuEngine",
    "FeatureSpec",
    "IdBatch",
    "Initializer",
    "Normal",
    "Optimizer",
    "TableSpec",
    "TableState",
    "Uniform",
    "from_tensorflow",
]
