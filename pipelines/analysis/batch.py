"""A batch of events for an accumulator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Batch(NamedTuple):
    """The values of one analysis in a batch, one list per event.

    Attributes:
        lists: Terms of their own type, or finite float64 numbers; no nulls among the items.
        label: The class of each event, int64, null where it has none; None for an analysis without a label.
        weight: The weight of each event, float64, null where it has none; None for an analysis without weights.
    """

    lists: pa.ListArray
    label: pa.Array | None = None
    weight: pa.Array | None = None

    @property
    def items(self) -> pa.Array:
        """All values, list after list."""
        return self.lists.flatten()

    @property
    def events(self) -> NDArray[np.int64]:
        """The event of each item, by its place in the batch."""
        lengths = np.asarray(self.lists.value_lengths())
        return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)

    def weighed(self) -> Batch:
        """The events with a label and a weight, where the analysis has them."""
        if self.label is None and self.weight is None:
            return self
        kept = np.ones(len(self.lists), np.bool_)
        for column in (self.label, self.weight):
            if column is not None:
                kept &= np.asarray(column.is_valid())
        if kept.all():
            return self
        return Batch(*(None if column is None else column.filter(pa.array(kept)) for column in self))
