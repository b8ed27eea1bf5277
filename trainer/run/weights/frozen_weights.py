"""The weights of a moment in this process, for predictions alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.model.unbounded_tables import hashed_tables
from trainer.options.config import TrainConfig
from trainer.options.hashed import HashedOptions
from trainer.run.predictions import Predictor, each_predicted
from trainer.run.weights.run_state import Weights, build_weights
from trainer.run.weights.tpu_weights import TpuWeights
from transforms.arrays import Array


def frozen_weights(layout: InputLayout, config: TrainConfig, head: AnyHead, arrays: Mapping[str, Array]) -> Weights:
    """A model with the arrays of a checkpoint, of any engine. Predictions change nothing, and give no id a row."""
    # Predicting needs no determinism, and must work if TensorFlow already runs with other threads.
    fitted = replace(_fitted(config, layout, arrays), deterministic=False)
    weights = build_weights(layout, fitted, head)
    weights.load(arrays)
    for engine in (weights.engine, weights.linear):
        if engine is not None:
            engine.freeze()
    return weights


def predictor(weights: Weights | TpuWeights, config: TrainConfig) -> Predictor:
    """Predicts with weights that are in training, as they are now, and changes nothing of them.

    Where a lookup is a part of training, or weights are not in this process, that takes a copy in memory.
    """
    return weights.own_predictor or each_predicted(
        frozen_weights(weights.layout, replace(config, engine="cpu"), weights.head, weights.arrays()).predict
    )


def _fitted(config: TrainConfig, layout: InputLayout, arrays: Mapping[str, Array]) -> TrainConfig:
    """The options with hashed tables for the saved rows alone: a prediction gives no id a row."""
    tables = hashed_tables(layout.features, config)
    rows = {
        table: max(len(arrays.get(f"{kind}/rows/{table}", ())) for kind in ("embedding", "linear")) for table in tables
    }
    return replace(config, hashed={table: HashedOptions(capacity=max(count, 1)) for table, count in rows.items()})
