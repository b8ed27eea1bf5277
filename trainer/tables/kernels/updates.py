"""The updates of a batch: entries of all tables, divided into buckets, summed and applied by threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from trainer.tables.kernels import gradients as kernels
from trainer.tables.kernels.importance import NO_IMPORTANCE, Importance
from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout, TableValues, packed_layout
from trainer.tables.kernels.memory import LINE_FLOATS, aligned
from trainer.tables.kernels.threads import Team, split_evenly
from trainer.tables.kernels.undo_kernels import KeptRows
from trainer.tables.kernels.whole_messages import update_message
from transforms.arrays import Array

#: The most bytes of a bucket's summed gradients, about a core's second-level cache. Rows occur more than once.
_BUCKET_BYTES = 1 << 20
_MOST_BUCKETS = 1 << 16
#: The length of a sequence that is never cut.
_NO_END = 1 << 62
_NO_LOOKUPS = np.zeros(0, np.int32)


class RowUpdates:
    """Updates of rows, and the memory that they take, which is kept for the next batch."""

    def __init__(self, features: FeatureLayout, tables: TableLayout, team: Team) -> None:
        self._features, self._tables, self._team = features, tables, team
        self._packed = packed_layout(tables)
        self._entries = kernels.Entries(*_empty_entries(0), _NO_LOOKUPS, np.zeros((0, 2), np.int64))
        self._scratches = [
            kernels.Scratch(
                np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int32)
            )
            for _ in range(team.threads)
        ]

    def apply(
        self, bags: Bags, gradients: Array, width: int, rates: Array, values: TableValues, importance: Importance = NO_IMPORTANCE
    ) -> Array:  # fmt: skip
        """Update each distinct row of a batch by its gradients, flat with ``width`` columns an event.

        ``importance``: where that of the rows is added up. Returns the distinct rows of each table, int64.
        """
        return self._apply(self._features, bags, gradients, width, rates, values, importance)

    def apply_rows(
        self, bags: Bags, gradients: Array, rates: Array, values: TableValues, importance: Importance = NO_IMPORTANCE,
        lookups: Array = _NO_LOOKUPS,
    ) -> Array:  # fmt: skip
        """As :meth:`apply` for one event with one feature a table, and the gradient of each id, one after the other.

        ``lookups``: int32, how many lookups each id stands for; empty: one each.
        """
        return self._apply(self._in_order(bags), bags, gradients, 0, rates, values, importance, lookups)

    def takes_message(self, floats: int, most_floats: int) -> bool:
        """Whether :meth:`apply_message` may update rows with so many values, and at most so many of one table: those of one thread and one bucket."""
        return self._team.threads_for(floats) == 1 and 4 * most_floats <= _BUCKET_BYTES

    def apply_message(
        self, rows: Array, counts: Array, most_rows: int, most_floats: int, gradients: Array, rates: Array, values: TableValues, kept: KeptRows
    ) -> Array:  # fmt: skip
        """As :meth:`apply_rows` in one compiled call, for (checked) ``rows`` of which each table has ``counts``.

        Rows that were never read get their initial values before. ``most_rows`` and ``most_floats``: of one table.
        """
        if not most_rows:
            return np.zeros(len(counts), np.int64)
        self._reserve(0, most_rows, most_floats, counts_lookups=False)
        distinct = np.empty(len(counts), np.int64)
        scratch = self._scratches[0]
        update_message(
            rows, counts, gradients, rates, *self._packed, *values, kept.log, kept.floats, kept.header, kept.first_array, *scratch[:3],
            distinct,
        )  # fmt: skip
        return distinct

    def note(self, bags: Bags, gradients: Array, width: int, importance: Importance) -> Array:
        """Add to the importance of the rows of a batch, as :meth:`apply` does, and change no row."""
        return self._note(self._features, bags, gradients, width, importance, _NO_LOOKUPS)

    def note_rows(self, bags: Bags, gradients: Array, importance: Importance, lookups: Array) -> Array:
        """As :meth:`note`, with the arguments of :meth:`apply_rows`."""
        return self._note(self._in_order(bags), bags, gradients, 0, importance, lookups)

    def _in_order(self, bags: Bags) -> FeatureLayout:
        """The features of one event, with the gradient of each id one after the other."""
        floats = (bags.offsets[:, 1] - bags.offsets[:, 0]) * self._tables.dims
        return self._features._replace(column=np.cumsum(floats) - floats, sequence=np.full(len(floats), _NO_END))

    def _note(
        self, features: FeatureLayout, bags: Bags, gradients: Array, width: int, importance: Importance, lookups: Array
    ) -> Array:  # fmt: skip
        def note(buckets: Array, scratch: kernels.Scratch, distinct: Array) -> None:
            kernels.note_buckets(buckets, self._entries, gradients, self._tables, scratch, distinct, importance)

        return self._run(features, bags, lookups, width, note, counts_lookups=importance.counts_lookups)

    def _apply(
        self, features: FeatureLayout, bags: Bags, gradients: Array, width: int, rates: Array, values: TableValues, importance: Importance,
        lookups: Array = _NO_LOOKUPS,
    ) -> Array:  # fmt: skip
        def update(buckets: Array, scratch: kernels.Scratch, distinct: Array) -> None:
            kernels.update_buckets(
                buckets, self._entries, gradients, self._tables, rates, values, scratch, distinct, importance
            )

        return self._run(features, bags, lookups, width, update, counts_lookups=importance.counts_lookups)

    def _run(
        self, features: FeatureLayout, bags: Bags, lookups: Array, width: int, work: Callable[[Array, kernels.Scratch, Array], None], *,
        counts_lookups: bool,
    ) -> Array:  # fmt: skip
        """List the entries of a batch, and do the work of each bucket of them. Returns the distinct rows of each table."""
        sizes = np.bincount(features.table, bags.offsets[:, -1] - bags.offsets[:, 0], len(self._tables.dims))
        counts = sizes.astype(np.int64)
        masks = self._begin(counts, is_counted=len(lookups) > 0)
        used, entries, tables = np.flatnonzero(counts), self._entries, self._tables
        threads = self._team.threads_for(int(counts @ tables.dims))
        lists = [used[part] for part in split_evenly(counts[used], threads)]
        self._team.run(
            [
                partial(kernels.list_entries, one, bags, lookups, features, tables, width, masks, entries)
                for one in lists
            ]
        )
        own = masks[used] + 1
        buckets = np.stack([np.repeat(used, own), _ranges(own)], axis=1)
        starts = entries.starts
        sizes = starts[buckets[:, 0], buckets[:, 1] + 1] - starts[buckets[:, 0], buckets[:, 1]]
        distinct = np.zeros((threads, len(counts)), np.int64)
        parts = split_evenly(sizes * (tables.dims[buckets[:, 0]] + 32) + 1, threads)
        for k, part in enumerate(parts):
            floats = sizes[part] * tables.dims[buckets[part, 0]]
            self._reserve(k, int(sizes[part].max()), int(floats.max()), counts_lookups=counts_lookups)
        self._team.run([partial(work, buckets[part], self._scratches[k], distinct[k]) for k, part in enumerate(parts)])
        found: Array = distinct.sum(axis=0)
        return found

    def _begin(self, counts: Array, *, is_counted: bool) -> Array:
        """Make space for entries of these numbers by table; returns the number of buckets of each table - 1.

        ``is_counted``: their lookups, too.
        """
        wanted = np.maximum(counts * self._tables.dims * 4 // _BUCKET_BYTES, 1)
        masks: Array = np.minimum(2 ** np.ceil(np.log2(wanted)).astype(np.int64), _MOST_BUCKETS) - 1
        total = int(counts.sum())
        rows, sources, shares, lookups, _ = self._entries
        if len(rows) < total:
            size = total + total // 4
            rows, sources, shares = _empty_entries(size)
        if is_counted != (len(lookups) > 0) or (is_counted and len(lookups) < total):
            lookups = np.empty(len(rows) if is_counted else 0, np.int32)
        starts = np.zeros((len(counts), int(masks.max()) + 2), np.int64)
        starts[:, 0] = np.cumsum(counts) - counts
        self._entries = kernels.Entries(rows, sources, shares, lookups, starts)
        return masks

    def _reserve(self, thread: int, rows: int, floats: int, *, counts_lookups: bool) -> None:
        held = self._scratches[thread]
        if len(held.rows) < rows or len(held.sums) < floats or counts_lookups != (len(held.lookups) > 0):
            rows, floats = max(2 * rows, len(held.rows)), max(2 * floats, len(held.sums))
            places = 1 << max(int(2 * rows).bit_length(), 4)
            self._scratches[thread] = kernels.Scratch(
                np.empty(places, np.int32),
                np.empty(rows, np.int64),
                aligned(np.empty(floats + LINE_FLOATS, np.float32), floats),
                np.empty(rows if counts_lookups else 0, np.int32),
            )


def _empty_entries(size: int) -> tuple[Array, Array, Array]:
    """Rows, sources and shares."""
    return np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float32)


def _ranges(sizes: Array) -> Array:
    """0 to each size, one range after the other."""
    ends = np.cumsum(sizes)
    ranges: Array = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)
    return ranges
