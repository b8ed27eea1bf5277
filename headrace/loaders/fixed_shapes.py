"""Batches as arrays whose shapes do not depend on their events, for programs that are compiled for shapes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.loaders.feature_batch import ragged_inputs
from trainer.model.inputs import InputLayout
from trainer.run.reading.batches import Batch
from transforms.errors import DataError, InputError, nearest
from transforms.types import Dense, Vector

_MOST_IDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FixedShapes:
    """The shapes of batches.

    Attributes:
        layout: the inputs.
        most_ids: of each input of ids, the most ids in a batch.
    """

    layout: InputLayout
    most_ids: Mapping[str, int]

    @classmethod
    def of(cls, layout: InputLayout, batch_rows: int, most_ids: int | Mapping[str, int]) -> FixedShapes:
        """The shapes of batches; ``most_ids``: for all inputs, or by name; not needed where events have equally many ids.

        Raises :class:`InputError` for an input without a bound, an unknown name, a bound out of range, and buckets that int32 cannot count.
        """
        names = [item.name for item in layout.embedded]
        given = most_ids if isinstance(most_ids, Mapping) else dict.fromkeys(names, most_ids)
        for name, bound in given.items():
            if name not in names:
                raise InputError("most_ids must name an input of ids", where="most_ids", value=name, allowed=nearest(str(name), names))  # fmt: skip
            if type(bound) is not int or not 1 <= bound <= _MOST_IDS:
                raise InputError("most_ids must be an integer from 1 on", where=f"most_ids, input {name}", value=bound, allowed=f"[1, {_MOST_IDS}]")  # fmt: skip
        found = {}
        for item in layout.embedded:
            if (item.type.buckets or 0) > 2**31:
                raise InputError("an input for fixed shapes must have at most 2**31 buckets: its ids are int32", where=f"input {item.name}",
                                 value=item.type.buckets, next_step="use .hash_buckets(n) with fewer buckets, or hr.batches")  # fmt: skip
            fixed = item.type.size if isinstance(item.type, Vector) else 1 if isinstance(item.type, Dense) else 0
            if not fixed and item.name not in given:
                raise InputError("an input with any number of ids must have a bound of those of a batch", where="most_ids", value=item.name,
                                 next_step=f"most_ids={{{item.name!r}: …}}")  # fmt: skip
            found[item.name] = fixed * batch_rows or given[item.name]
        return cls(layout, found)

    def arrays(self, batch: Batch) -> dict[str, Any]:
        """A batch that is filled up to its rows, with ids filled up with 0; offsets are int32.

        Raises :class:`DataError` for more ids of an input than its bound.
        """
        ids: dict[str, dict[str, Any]] = {}
        for name, one in ragged_inputs(batch, self.layout):
            bound, count = self.most_ids[name], len(one.values)
            if count > bound:
                raise DataError("a batch must have no more ids of an input than most_ids", where=f"input {name}", value=count, allowed=str(bound),
                                next_step="raise most_ids, or use fewer batch_rows")  # fmt: skip
            values = np.zeros(bound, np.int32)
            values[:count] = one.values
            ids[name] = {"values": values, "offsets": one.offsets.astype(np.int32)}
            if one.weights is not None:
                weights = np.zeros(bound, np.float32)
                weights[:count] = one.weights
                ids[name]["weights"] = weights
        return {"ids": ids, "dense": batch.dense, "labels": batch.labels, "weights": batch.weights}
