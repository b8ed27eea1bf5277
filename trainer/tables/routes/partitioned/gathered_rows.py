"""Combine the bags of a batch from the rows that have arrived, and sum its gradients by row."""

from __future__ import annotations

from functools import partial

import numpy as np

from trainer.tables.kernels.gradients import sum_positions
from trainer.tables.kernels.layout import FeatureLayout, TableLayout, TableValues
from trainer.tables.kernels.lookup import combine_bags
from trainer.tables.kernels.threads import Team, split_evenly, split_events
from trainer.tables.routes.partitioned.request_kernels import count_lookups
from trainer.tables.routes.partitioned.requests import Requests
from trainer.tables.routes.partitioned.table_parts import TableParts
from transforms.arrays import Array

_NO_SLOTS = np.zeros(0, np.float32)


def lookups_of(requests: Requests, of_features: FeatureLayout, parts: TableParts) -> Array:
    """How often each row of the updates of a batch was looked up, int32, in the order of these."""
    layout, updates = requests.layout, requests.updates
    of_slots = np.zeros(int(layout.vocabulary.sum()), np.int32)
    count_lookups(requests.bags, of_features, layout, of_slots)
    bases = np.tile(layout.row_base[parts.layout.table], len(updates.counts))
    found: Array = of_slots[np.repeat(bases, updates.counts.ravel()) + updates.places]
    return found


class GatheredRows:
    """Combines gathered rows, which are in the order of their requests' slots, and sums their gradients; on all threads of ``team``."""

    def __init__(self, of_features: FeatureLayout, layout: TableLayout, width: int, team: Team) -> None:
        self._of_features, self._width, self._team = of_features, width, team
        self._costs = layout.dims[of_features.table]

    def combine(self, requests: Requests, weights: Array) -> Array:
        """Activations, float32 [rows, width], of a batch whose rows have these weights."""
        batch, layout = requests.batch, requests.layout
        values = TableValues(weights, _NO_SLOTS, np.ones(int(layout.vocabulary.sum()), np.uint8))
        out = np.empty(batch.rows * self._width, np.float32)
        parts = split_events(batch.offsets, self._costs, self._team.threads)
        tile = max(batch.rows, 1)
        self._team.run([
            partial(combine_bags, *part, tile, requests.bags, self._of_features, layout, values, out, self._width, False)
            for part in parts
        ])  # fmt: skip
        return out.reshape(batch.rows, self._width)

    def sum_gradients(self, requests: Requests, gradients: Array, sums: Array) -> None:
        """Write the gradient of each slot, summed over the batch, to ``sums``; ``gradients``: of the activations, flat."""
        sums[:] = 0.0
        layout = requests.layout
        used = np.flatnonzero(layout.vocabulary)
        chosen = [used[part] for part in split_evenly(layout.vocabulary[used], self._team.threads)]
        self._team.run(
            [
                partial(sum_positions, one, requests.bags, self._of_features, layout, gradients, self._width, sums)
                for one in chosen
            ]
        )
