"""Models to check."""

from __future__ import annotations

from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput
from trainer.options.config import TrainConfig
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tpu_check.checked_model import CheckedModel
from transforms.types import Dense, DType, Ragged, Vector


def dlrm(*, rows=100_000, inputs=8, events=1024, settings=None, head=None, **options) -> CheckedModel:
    """A DLRM with a linear part: inputs of ids, a number and a vector."""
    embedded = [TypedInput(f"f{k}", Ragged(DType.INT64, buckets=rows)) for k in range(inputs)]
    dense = [TypedInput("price", Dense(DType.FLOAT32)), TypedInput("vector", Vector(DType.FLOAT32, 4))]
    config = TrainConfig(run_dir="none", **{"linear": True, "dropout": 0.1, **options})
    return CheckedModel((*embedded, *dense), config, head or BINARY, events, settings=settings or SparseCoreSettings())
