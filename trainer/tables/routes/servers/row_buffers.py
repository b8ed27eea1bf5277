"""The arrays that a batch's rows are received into and its gradients are sent from, by the kind of plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.gathered_rows import GatheredRows
from trainer.tables.routes.partitioned.request_kernels import put_rows, take_rows
from trainer.tables.routes.partitioned.requests import Requests
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.placed_rows import PlacedRows, Places, place_bags, places_of
from transforms.arrays import Array

#: The arrays of lookups and updates that are in use at once.
_KEPT = 6


class BatchRows(Protocol):
    """The rows of one batch."""

    @property
    def requests(self) -> Requests:
        """What the batch needs."""

    @property
    def floats(self) -> int:
        """The values of the rows of all servers together, gaps between widths included."""

    def space(self, server: int) -> list[Array]:
        """Where the rows of a server go, in the order of its answer."""

    def activations(self) -> Array:
        """The activations, float32 [events, width], once all rows are here."""

    def gradients(self, flat: Array) -> list[list[Array]]:
        """For each server the summed gradients of its rows, in pieces; ``flat``: those of the activations."""


class RowBuffers:
    """Makes the buffers of batches.

    Where each table's rows are whole, rows are used where they are received, and gradients are sent from where they are summed: no byte of
    them is copied. Rows in slices of columns, and rows with copies, are gathered.

    Attributes:
        copied_bytes: of rows and gradients that were copied between messages and batches.
    """

    def __init__(
        self, parts: TableParts, of_features: FeatureLayout, layout: TableLayout, width: int, team: Team
    ) -> None:
        self.parts, self.of_features, self.layout, self.width = parts, of_features, layout, width
        self.copied_bytes = 0
        self.memory = OutputPool(spare=0.25, kept=_KEPT * (1 + parts.cores))
        self.placed = PlacedRows(of_features, layout, width, team)
        self.gathered_rows = GatheredRows(of_features, layout, width, team)
        self._are_whole = not parts.has_replicas and not any(part.is_sliced for part in parts.parts)

    def of_batch(self, requests: Requests) -> BatchRows:
        """The buffers of a batch."""
        return _WholeRows.of(requests, self) if self._are_whole else self.gathered(requests)

    def gathered(self, requests: Requests) -> GatheredBatch:
        """The buffers of a batch whose rows are gathered."""
        dims = self.parts.layout.dims
        floats = (requests.reads.counts * dims).sum(axis=1).tolist()
        return GatheredBatch(requests, self, [self.memory.take(count) for count in floats])


@dataclass(frozen=True, slots=True, eq=False)
class _WholeRows:
    """Rows that are used where they are received."""

    requests: Requests
    buffers: RowBuffers
    places: Places
    placed: Bags
    weights: Array

    @classmethod
    def of(cls, requests: Requests, buffers: RowBuffers) -> _WholeRows:
        parts = buffers.parts.layout
        places = places_of(requests.reads.counts, parts.dims)
        placed = place_bags(requests, places, buffers.of_features.table, parts.table)
        return cls(requests, buffers, places, placed, buffers.memory.take(places.floats))

    @property
    def floats(self) -> int:
        return self.places.floats

    def space(self, server: int) -> list[Array]:
        return self.places.views(server, self.weights)

    def activations(self) -> Array:
        events = self.requests.batch.rows
        out = np.empty(events * self.buffers.width, np.float32)
        self.buffers.placed.combine(self.placed, events, self.places.positions, self.weights, out)
        return out.reshape(events, self.buffers.width)

    def gradients(self, flat: Array) -> list[list[Array]]:
        sums = self.buffers.memory.take(self.places.floats)
        self.buffers.placed.sum_gradients(self.placed, self.requests.layout.vocabulary, flat, sums)
        return [self.places.views(server, sums) for server in range(self.buffers.parts.cores)]


@dataclass(frozen=True, slots=True, eq=False)
class GatheredBatch:
    """Rows that are gathered from messages: columns of a row come from several servers, or gradients go to several."""

    requests: Requests
    buffers: RowBuffers
    answers: list[Array]

    @property
    def floats(self) -> int:
        """See :class:`BatchRows`."""
        return sum(len(one) for one in self.answers)

    def space(self, server: int) -> list[Array]:
        """See :class:`BatchRows`."""
        return [self.answers[server]]

    def activations(self) -> Array:
        """See :class:`BatchRows`."""
        return self.buffers.gathered_rows.combine(self.requests, self.weights())

    def weights(self) -> Array:
        """The distinct rows, table after table, once all are here."""
        requests, reads = self.requests, self.requests.reads
        weights = self.buffers.memory.take(int((requests.layout.vocabulary * requests.layout.dims).sum()))
        for server, answer in enumerate(self.answers):
            own = reads.places[reads.of_owner(server)]
            put_rows(own, reads.counts[server], requests.part_values, answer, weights)
            self.buffers.copied_bytes += answer.nbytes
        return weights

    def gradients(self, flat: Array) -> list[list[Array]]:
        """See :class:`BatchRows`."""
        layout = self.requests.layout
        sums = self.buffers.memory.take(int((layout.vocabulary * layout.dims).sum()))
        self.buffers.gathered_rows.sum_gradients(self.requests, flat, sums)
        return [[piece] for piece in self.pieces(sums)]

    def pieces(self, sums: Array) -> list[Array]:
        """For each server the gradients of its rows; ``sums``: of the distinct rows, table after table."""
        requests, updates, pieces = self.requests, self.requests.updates, []
        for server, counts in enumerate(updates.counts):
            floats = self.buffers.memory.take(int((counts * requests.part_values.dims).sum()))
            take_rows(updates.places[updates.of_owner(server)], counts, requests.part_values, sums, floats)
            self.buffers.copied_bytes += floats.nbytes
            pieces.append(floats)
        return pieces
