"""The ``cpu`` engine as a side of ``benchmarks.embedding_kernels``."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.support.embedding_cases import EPSILON, RATE, START, Case, serve
from trainer.tables import Constant, CpuEngine, FeatureSpec, IdBatch, RowWiseAdagrad, TableSpec

Array = np.ndarray[Any, np.dtype[Any]]


class EngineRunner:
    """Row-wise Adagrad on the ``cpu`` engine. Each call takes a batch that the engine has not seen."""

    def __init__(self, case: Case, threads: int) -> None:
        tables = [
            TableSpec(f"t{t}", rows, dim, RowWiseAdagrad(RATE, 0.0, EPSILON), "sum", Constant(START))
            for t, (rows, dim) in enumerate(case.tables)
        ]
        features = [FeatureSpec(f"f{f}", tables[t]) for f, (t, _) in enumerate(case.inputs)]
        self._engine = CpuEngine(features, seed=0, threads=threads)
        self._ids = np.concatenate(case.ids())
        sizes = np.array([valency for _, valency in case.inputs])
        starts = (np.cumsum(sizes) - sizes) * case.events
        self._offsets = starts[:, None] + sizes[:, None] * np.arange(case.events + 1)[None]
        self._bounds = tuple(case.tables[t][0] for t, _ in case.inputs)
        self._gradients = case.gradients()

    def _batch(self) -> IdBatch:
        return IdBatch(self._ids, self._offsets, None, self._bounds)

    def lookup(self) -> Array:
        """See :class:`Runner`."""
        return self._engine.lookup(self._batch())

    def both(self) -> None:
        """See :class:`Runner`."""
        batch = self._batch()
        self._engine.lookup(batch)
        self._engine.apply_gradients(batch, self._gradients)


if __name__ == "__main__":
    serve(EngineRunner)
