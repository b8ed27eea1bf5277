"""Approximate quantiles by the sketch that ``tft.quantiles`` uses, with its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.analysis.batch import Batch
from transforms.errors import DataError
from transforms.operators.declaration import Scalar
from transforms.operators.full_pass import QUANTILE_EPSILON

#: The error stays below epsilon up to this number of values; tf.Transform's bound, since only equal bounds merge.
_MOST_VALUES = 1 << 32
_STREAMS = 1


class QuantilesAccumulator:
    """A sketch of finite numbers."""

    def __init__(self) -> None:
        self._sketch = _new_sketch()

    def add(self, batch: Batch) -> None:
        """Add a batch of numbers."""
        self._sketch.AddValues(batch.items)

    def contribution(self) -> pa.RecordBatch:
        """One row: the sketch, as its library serialises it."""
        self._sketch.Compact()
        return pa.record_batch({"sketch": pa.array([self._sketch.__getstate__()], pa.binary())})

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Merge the contribution of a later partition. Raises :class:`DataError` for bytes that are no sketch."""
        kind: Any = type(self._sketch)
        sketch = kind.__new__(kind)
        try:
            sketch.__setstate__(contribution.column("sketch")[0].as_py())
            self._sketch.Merge(sketch)
        except RuntimeError as error:
            raise DataError("the quantiles of a partition must be a sketch", value=str(error),
                            next_step="analyze again: the partition is read again") from None  # fmt: skip

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """The distinct inner boundaries of ``n`` buckets, rounded to float32; empty for no numbers. Ends the sketch."""
        (boundaries,) = self._sketch.GetQuantiles(params["n"]).to_pylist() or ([],)
        inner = np.asarray(boundaries, np.float32)[1:-1].astype(np.float64) + 0.0
        return pa.array(np.unique(inner[np.isfinite(inner)]), pa.float64())


def _new_sketch() -> Any:
    from tfx_bsl.sketches import QuantilesSketch

    return QuantilesSketch(QUANTILE_EPSILON, _MOST_VALUES, _STREAMS)
