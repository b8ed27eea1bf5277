"""How the tables of a tower stand in messages between peers: as bags, or as the distinct rows of a worker's batch.

*As bags*: the ids of each bag go to the tower, and its combined bag comes back. *As rows*: each distinct row that the bags need is named once, its
values come back, and the worker of the events combines them. Rows are *folded* into the places of the table's bags, one in each, or as many as a
sequence feature has: so a tower looks up a batch like any other, and places without a row are empty bags. Messages have no empty places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.routes.towers.sent_forms import TableUse
from trainer.tables.spec import FeatureSpec, tables_of
from transforms.arrays import Array

#: In place of the number of rows: a table that is sent as bags.
AS_BAGS = -1


class TowerLayout:
    """The features of one tower, in the order of their activations.

    ``rows`` of its methods: int64, for each table the distinct rows by which it is sent, or :data:`AS_BAGS`.

    Attributes:
        features, tables: the features, and their tables in the order of their first use.
        table_of: the position of each feature's table.
        width: columns of the activations.
        bounds: of the ids of each feature.
        have_sequences: whether a feature of each table is a sequence, whose rows are not added.
    """

    def __init__(self, features: Sequence[FeatureSpec]) -> None:
        self.features, self.tables = tuple(features), tables_of(features)
        names = [one.name for one in self.tables]
        self.table_of = np.array([names.index(one.table.name) for one in self.features], np.int64)
        self.bounds = tuple(one.table.vocabulary_size for one in self.features)
        self._room = [max(one.max_sequence_length, 1) for one in self.features]
        self.have_sequences = np.bincount(self.table_of, [one.max_sequence_length for one in self.features]) > 0
        self._dims = [one.dim for one in self.tables]
        self._ends = list(accumulate((one.width for one in self.features), initial=0))
        self._features_of = [np.flatnonzero(self.table_of == t).tolist() for t in range(len(self.tables))]
        self.width = self._ends[-1]

    def all_bags(self) -> Array:
        """The ``rows`` of a batch whose tables are all sent as bags."""
        return np.full(len(self.tables), AS_BAGS, np.int64)

    def are_bags(self, rows: Array) -> Array:
        """Whether each feature is sent as bags."""
        found: Array = rows[self.table_of] == AS_BAGS
        return found

    def use_of(self, batch: IdBatch, distinct: Array) -> TableUse:
        """What a batch of these features needs of each table; ``distinct``: its distinct rows of each."""
        table, size = self.table_of, len(self.tables)
        ids = np.bincount(table, batch.offsets[:, -1] - batch.offsets[:, 0], size).astype(np.int64)
        values = np.bincount(table, np.diff(self._ends), size).astype(np.int64)
        bags = np.bincount(table, minlength=size).astype(np.int64)
        return TableUse(ids, distinct, bags * batch.rows, values * batch.rows, np.array(self._dims, np.int64))

    def places(self, events: int) -> Array:
        """The places of each table for rows, int64."""
        return np.bincount(self.table_of, self._room, len(self.tables)).astype(np.int64) * events

    def folded_lengths(self, rows: Array, events: int) -> Array:
        """The ids of each bag that rows are folded into, int64 [features, events]; 0 for features that are sent as bags.

        A table must have places for its rows.
        """
        lengths = np.zeros((len(self.features), events), np.int64)
        for _, f, first, stop in self._folds(rows, events):
            full, rest = divmod(stop - first, self._room[f])
            lengths[f, :full] = self._room[f]
            if rest:
                lengths[f, full] = rest
        return lengths

    def folded_ids(self, rows: Array, events: int, of_tables: Sequence[Array]) -> list[Array]:
        """The ids of each feature's folded bags; none of features that are sent as bags. ``of_tables``: the distinct rows of each table."""
        found = [one[:0] for one in (of_tables[t] for t in self.table_of)]
        for t, f, first, stop in self._folds(rows, events):
            found[f] = of_tables[t][first:stop]
        return found

    def columns_of(self, f: int) -> slice:
        """The columns of a feature in the activations."""
        return slice(self._ends[f], self._ends[f + 1])

    def bag_features(self, rows: Array) -> list[int]:
        """The features that are sent as bags."""
        found: list[int] = np.flatnonzero(self.are_bags(rows)).tolist()
        return found

    def bag_width(self, rows: Array) -> int:
        """The columns of the activations of features that are sent as bags."""
        return sum(self._ends[f + 1] - self._ends[f] for f in self.bag_features(rows))

    def row_floats(self, rows: Array) -> Array:
        """The values of the rows of each table in a message."""
        found: Array = np.maximum(rows, 0) * np.array(self._dims, np.int64)
        return found

    def floats(self, rows: Array, events: int) -> int:
        """The values of the outputs of so many events in a message."""
        return events * self.bag_width(rows) + int(self.row_floats(rows).sum())

    def pack(self, activations: Array, rows: Array) -> Array:
        """What a message has of activations, float32 [events, width]: the bags, event after event, then the rows, table after table."""
        if (rows == AS_BAGS).all():
            return activations.reshape(-1)
        bags = [activations[:, self.columns_of(f)] for f in self.bag_features(rows)]
        pieces = [np.concatenate(bags, axis=1).reshape(-1)] if bags else []
        for t, f, first, stop in self._folds(rows, len(activations)):
            full, rest = self._rows_of_events(t, f, stop - first)
            own = activations[:, self.columns_of(f)]
            pieces.append(own[:full].reshape(-1))
            if rest:
                pieces.append(own[full, :rest])
        return np.concatenate(pieces)

    def unpack(self, message: Array, rows: Array, events: int) -> Array:
        """The inverse of :meth:`pack`; places without rows have zeros."""
        if (rows == AS_BAGS).all():
            return message.reshape(events, self.width)
        found, at = np.zeros((events, self.width), np.float32), 0
        bag_width = self.bag_width(rows)
        bags = message[: events * bag_width].reshape(events, bag_width)
        for f in self.bag_features(rows):
            columns = self.columns_of(f)
            width = columns.stop - columns.start
            found[:, columns] = bags[:, at : at + width]
            at += width
        at *= events
        for t, f, first, stop in self._folds(rows, events):
            full, rest = self._rows_of_events(t, f, stop - first)
            columns = self.columns_of(f)
            end = at + full * (columns.stop - columns.start)
            found[:full, columns] = message[at:end].reshape(full, columns.stop - columns.start)
            if rest:
                found[full, columns.start : columns.start + rest] = message[end : end + rest]
            at = end + rest
        return found

    def _rows_of_events(self, t: int, f: int, rows: int) -> tuple[int, int]:
        """The events whose places of a feature are full of rows, and the values of those in the next event."""
        full, rest = divmod(rows, self._room[f])
        return full, rest * self._dims[t]

    def _folds(self, rows: Array, events: int) -> Iterator[tuple[int, int, int, int]]:
        """Of each table that is sent as rows, and each of its features: both positions, and which rows the feature's bags have."""
        for t in np.flatnonzero(rows != AS_BAGS).tolist():
            first, last = 0, int(rows[t])
            for f in self._features_of[t]:
                stop = min(first + events * self._room[f], last)
                yield t, f, first, stop
                first = stop
