"""The least and the greatest number of a range, as ``tft.min`` with a second output."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa

from pipelines.analysis.batch import Batch
from transforms.errors import DataError
from transforms.operators.declaration import Scalar


class ExtremesAccumulator:
    """Least and greatest of the finite numbers; infinite while there is none."""

    def __init__(self) -> None:
        self._least, self._greatest = math.inf, -math.inf

    def add(self, batch: Batch) -> None:
        """Add a batch of numbers."""
        values = batch.items.to_numpy(zero_copy_only=False)
        if len(values):
            self._include(float(values.min()), float(values.max()))

    def contribution(self) -> pa.RecordBatch:
        """One row: least, greatest."""
        return pa.record_batch({"least": [self._least], "greatest": [self._greatest]})

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Merge the contribution of a later partition."""
        (row,) = contribution.to_pylist()
        self._include(row["least"], row["greatest"])

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """Least and greatest; empty for no numbers. Raises :class:`DataError` unless least < greatest."""
        if not math.isfinite(self._greatest):
            return pa.array([], pa.float64())
        least, greatest = self._least + 0.0, self._greatest + 0.0
        if not least < greatest or math.isinf(greatest - least):
            raise DataError("the least number of min_max must be below the greatest", value=(least, greatest),
                            allowed="least < greatest, and their difference a finite number",
                            next_step="widen the range of time, or leave the input out")  # fmt: skip
        return pa.array([least, greatest], pa.float64())

    def _include(self, least: float, greatest: float) -> None:
        self._least, self._greatest = min(self._least, least), max(self._greatest, greatest)
