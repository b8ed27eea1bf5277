"""A log, its model and the events on both sides of a split in time, for trainers of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.support.quality_logs import QualityLog
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.progress.identity import in_time_order
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import decode
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution, register_table, submit_model
from warehouse.solution.solution import ReadSolution

Array = np.ndarray[Any, np.dtype[Any]]

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Events as arrays.

    Attributes:
        names: the embedded inputs.
        buckets: the exclusive bound of the ids of each.
        ids: the ids of each, one event after the other.
        starts: where the ids of each event begin, int64 [events + 1], of each.
        dense: the numbers, float64 [events, columns].
        labels: float32 [events].
    """

    names: tuple[str, ...]
    buckets: tuple[int, ...]
    ids: tuple[Array, ...]
    starts: tuple[Array, ...]
    dense: Array
    labels: Array

    @property
    def rows(self) -> int:
        """The number of events."""
        return len(self.labels)

    def take(self, first: int, stop: int) -> Events:
        """The events of a range."""
        starts = [one[first : stop + 1] for one in self.starts]
        return Events(
            self.names,
            self.buckets,
            tuple(ids[at[0] : at[-1]] for ids, at in zip(self.ids, starts, strict=True)),
            tuple(at - at[0] for at in starts),
            self.dense[first:stop],
            self.labels[first:stop],
        )

    def one_hot(self) -> Any:
        """A column for every id of every embedded input, as a sparse matrix."""
        blocks = []
        for ids, starts, buckets in zip(self.ids, self.starts, self.buckets, strict=True):
            block = sp.csr_matrix((np.ones(len(ids)), ids, starts), shape=(self.rows, buckets))
            block.sum_duplicates()
            blocks.append(block)
        return sp.hstack(blocks).tocsr()


@dataclass(frozen=True, slots=True, eq=False)
class QualityScene:
    """A submitted model of a log: read solutions before and after the split, and their events."""

    older: ReadSolution
    newer: ReadSolution
    read: Callable[[ReadSolution], Any]
    trained: Events
    tested: Events


@contextmanager
def quality_scene(log: QualityLog, folder: Path) -> Iterator[QualityScene]:
    """Write and register a log; the last share of its partitions, in time order, is the test set."""
    log.write(folder / "log")
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"))) as warehouse:
        register_table(warehouse, log.table, str(folder / "log"), time_column="time")
        model = log.model()
        submit_model(warehouse, model, table=log.table)
        starts = [part.start for part in in_time_order(read_solution(warehouse, model.name))]
        end = starts[min(len(starts) - 1, max(1, round(len(starts) * (1 - log.test_share))))]
        older, newer = read_solution(warehouse, model.name, end=end), read_solution(warehouse, model.name, start=end)

        def read(solution: ReadSolution) -> Any:
            return lambda fragment: read_fragment(warehouse.storage, solution, fragment)

        layout = lay_out([TypedInput(item.name, item.type) for item in older.inputs], TrainConfig("run"))
        events = [_events(solution, layout, read(solution)) for solution in (older, newer)]
        yield QualityScene(older, newer, read, *events)


def _events(solution: ReadSolution, layout: InputLayout, read: Any) -> Events:
    fragments = [one for part in in_time_order(solution) for one in part.fragments]
    parts = [decode(read(fragment), layout, fragment.path) for fragment in fragments]
    ids: list[list[Array]] = [[] for _ in layout.embedded]
    lengths: list[list[Array]] = [[np.zeros(1, np.int64)] for _ in layout.embedded]
    dense, labels = [], []
    for batch in make_batches(parts, layout, batch_rows=_BATCH_ROWS):
        for f, offsets in enumerate(batch.ids.offsets):
            ids[f].append(np.array(batch.ids.ids[offsets[0] : offsets[batch.rows]]))
            lengths[f].append(np.diff(offsets[: batch.rows + 1]))
        dense.append(np.array(batch.dense[: batch.rows], np.float64))
        labels.append(np.array(batch.labels[: batch.rows]))
    return Events(
        tuple(item.name for item in layout.embedded),
        layout.bounds,
        tuple(map(_joined, ids)),
        tuple(np.cumsum(_joined(one)) for one in lengths),
        np.concatenate(dense),
        np.concatenate(labels),
    )


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
