"""Headrace's parameter servers as a side of ``benchmarks.ps_strategy``: the engine on servers, and the dense part of a DLRM."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.server_processes import connects_to
from benchmarks.support.strategy_case import StrategyCase, TrainedSteps, TrainSteps
from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch
from trainer.run.weights.run_state import Weights, build_dense
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.tables.batches import IdBatch
from trainer.tables.routes.servers.engine import PsEngine
from transforms.types import DType, Ragged

Array = np.ndarray[Any, np.dtype[Any]]

_THREADS = 2


def _batches(case: StrategyCase) -> list[Batch]:
    ids, labels = case.events()
    starts = np.arange(case.tables)[:, None] * case.batch_rows + np.arange(case.batch_rows + 1)[None]
    no_numbers, ones = np.zeros((case.batch_rows, 0), np.float32), np.ones(case.batch_rows, np.float32)
    return [
        Batch(
            case.batch_rows,
            IdBatch(own.T.astype(np.int32).reshape(-1), starts, None, (case.rows,) * case.tables),
            no_numbers,
            label,
            ones,
            (),
        )
        for own, label in zip(ids, labels, strict=True)
    ]


def _losses(logits: Array, labels: Array) -> float:
    return float(np.mean(np.logaddexp(0.0, logits) - labels * logits))


def build(case: StrategyCase, addresses: Sequence[Any]) -> TrainSteps:
    """See :data:`~benchmarks.support.strategy_case.BuildSide`; ``addresses``: of the servers."""
    config = TrainConfig(
        "unused", batch_rows=case.batch_rows, dim=case.dim, bottom_mlp=(), top_mlp=case.top_mlp, threads=_THREADS,
        embedding_learning_rate=case.rate, embedding_initial_accumulator=case.accumulator,
        embedding_initial_stddev=case.stddev, dense_optimizer="adagrad", dense_learning_rate=case.rate,
    )  # fmt: skip
    layout = lay_out([TypedInput(f"f{k}", Ragged(DType.INT64, case.rows)) for k in range(case.tables)], config)
    dense = build_dense(layout, config)
    engine = PsEngine(layout.features, seed=0, servers=connects_to(addresses), threads=_THREADS)
    steps, batches, done = StepPipeline(Weights(layout, engine, dense, BINARY, None), 0), _batches(case), 0

    def train(count: int) -> TrainedSteps:
        nonlocal done
        losses, began = [], time.perf_counter()
        for _ in range(count):
            trained = steps.train(batches[done % len(batches)])
            losses += [_losses(one.logits, one.batch.labels) for one in trained]
            done += 1
        engine.finish()
        return TrainedSteps(time.perf_counter() - began, float(np.mean(losses)))

    return train
