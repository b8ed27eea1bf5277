"""Headrace as a side of ``benchmarks.dlrm_throughput``: training by a read solution, with its checkpoints, counters and scores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.dlrm_case import DlrmCase, Measured, run_side
from trainer.options.config import TrainConfig
from trainer.run.loop import TrainEvent, train
from trainer.run.reading.batches import make_batches
from trainer.run.reading.stream import FragmentRef, fragment_stream
from trainer.serving.trained import load_trained
from transforms.execution.memory import keep_freed_memory
from warehouse import ReadSolution, read_fragment
from warehouse.solution.parts import SolutionFragment
from warehouse.storage.storage import Storage

Array = np.ndarray[Any, np.dtype[Any]]


def build(case: DlrmCase, folder: Path) -> Callable[[Measured], Array]:
    """See :data:`~benchmarks.support.dlrm_case.Build`."""
    import tensorflow as _  # noqa: F401 - an import is no training

    keep_freed_memory()
    storage = Storage(str(folder / "home"))
    older, newer = (ReadSolution.from_json((folder / f"{name}.json").read_text()) for name in ("older", "newer"))
    shutil.rmtree(folder / "run", ignore_errors=True)
    config = TrainConfig(
        str(folder / "run"), batch_rows=case.batch_rows, dim=case.dim, bottom_mlp=case.bottom_mlp, top_mlp=case.top_mlp,
        embedding_learning_rate=case.embedding_rate, embedding_initial_accumulator=case.accumulator,
        embedding_initial_stddev=case.initial_stddev, dense_learning_rate=case.dense_rate,
        initial_bias=case.initial_bias, threads=case.threads, seed=case.seed, events_per_epoch=older.rows,
    )  # fmt: skip

    def read(solution: ReadSolution) -> Callable[[SolutionFragment], Any]:
        return lambda fragment: read_fragment(storage, solution, fragment)

    def run(measured: Measured) -> Array:
        trained = 0

        def tick(event: TrainEvent) -> None:
            nonlocal trained
            if event.kind == "batch":
                measured.tick(event.events - trained)
                trained = event.events

        measured.begin()
        train(older, read(older), config, progress=tick)
        model = load_trained(str(folder / "run"))
        refs = [FragmentRef(part.key, at, one) for part in newer.partitions for at, one in enumerate(part.fragments)]
        stream = fragment_stream(refs, read(newer), model.weights.layout, ahead=1)
        batches = make_batches(stream, model.weights.layout, batch_rows=case.batch_rows)
        return np.concatenate([model.weights.predict(batch) for batch in batches])

    return run


if __name__ == "__main__":
    run_side(build)
