"""How often the events of a log look up each row of a model's tables, counted without training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainer.model.inputs import InputLayout
from trainer.run.progress.identity import in_time_order
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import DecodedFragment, has_label, read_columns, with_labels
from trainer.run.reading.stream import ReadFragment
from trainer.tables.batches import used_ids
from trainer.tables.spec import tables_of
from transforms.arrays import Array
from warehouse.solution.solution import ReadSolution

_BATCH_ROWS = 65_536
#: Ids are collected up to this number, then counted.
_PENDING_IDS = 1 << 22


class RowCounts:
    """Counts ids of any range, in memory for the distinct ones and some that are not counted yet."""

    def __init__(self, most_pending: int = _PENDING_IDS) -> None:
        self._ids, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pending: list[Array] = []
        self._waiting, self._most_pending = 0, most_pending

    def add(self, ids: Array) -> None:
        """Count ids, int64 or int32, each as often as it is there."""
        self._pending.append(ids.astype(np.int64))
        self._waiting += len(ids)
        if self._waiting >= max(self._most_pending, len(self._ids)):
            self._count()

    def counts(self) -> tuple[Array, Array]:
        """The distinct ids, ascending, and the number of each; both int64."""
        self._count()
        return self._ids, self._counts

    def _count(self) -> None:
        if not self._waiting:
            return
        found, numbers = np.unique(np.concatenate(self._pending), return_counts=True)
        ids, places = np.unique(np.concatenate([self._ids, found]), return_inverse=True)
        counts = np.zeros(len(ids), np.int64)
        np.add.at(counts, places, np.concatenate([self._counts, numbers]))
        self._ids, self._counts, self._pending, self._waiting = ids, counts, [], 0


@dataclass(frozen=True, slots=True, eq=False)
class LookupCounts:
    """The lookups of a log.

    Attributes:
        events: those that have a label.
        by_table: by the name of each table, the lookups of each row that has any, int64, in the order of the rows.
    """

    events: int
    by_table: dict[str, Array]


def count_lookups(
    solution: ReadSolution,
    read: ReadFragment,
    layout: InputLayout,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> LookupCounts:
    """Count the lookups of one pass over ``solution``.

    As in training, events whose label is null do not count, and of a sequence only the ids that the model takes.
    ``progress(done events, all events)`` is called every batch.

    Raises :class:`BadFeature` naming the fragment, the input and the row.
    """
    counts = {table.name: RowCounts() for table in tables_of(layout.features)}
    done = 0
    for batch in make_batches(_labelled(solution, read, layout), layout, batch_rows=_BATCH_ROWS):
        for feature, offsets in zip(layout.features, batch.ids.offsets, strict=True):
            ends = offsets[: batch.rows + 1]
            own = batch.ids.ids[int(ends[0]) : int(ends[-1])]
            counts[feature.table.name].add(own[used_ids(ends, feature.max_sequence_length)])
        done += batch.rows
        if progress:
            progress(done, solution.rows)
    return LookupCounts(done, {name: one.counts()[1] for name, one in counts.items()})


def _labelled(solution: ReadSolution, read: ReadFragment, layout: InputLayout) -> Iterator[DecodedFragment]:
    """The events with a label, whatever the model learns of it, one fragment in memory at a time."""
    for part in in_time_order(solution):
        for fragment in part.fragments:
            stored = read_columns(read(fragment), layout, fragment.path)
            present = None if stored.present is None else has_label(stored.present)
            yield with_labels(replace(stored, labels=np.zeros(stored.rows), present=present))
