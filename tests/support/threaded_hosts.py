"""Tables that are spread over hosts, each a thread, behind the interface of one engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np

from tests.support.processes import PATIENCE_SECS
from tests.trainer.thread_exchange import ThreadExchange
from trainer.embedding import FeatureSpec, IdBatch, TableState
from trainer.embedding.engine import ChangedRows
from trainer.embedding.feature_counts import FeatureCounts
from trainer.embedding.sharded_tables import ShardedTables


class ThreadedHosts:
    """An :class:`~trainer.embedding.engine.EmbeddingEngine` over :class:`ShardedTables` of ``hosts``; each has some events of a batch."""

    def __init__(self, features: Sequence[FeatureSpec], *, seed: int, hosts: int, threads: ThreadPoolExecutor) -> None:
        self._threads, self._hosts, self._barrier = threads, hosts, Barrier(hosts)
        boxes: list[list[Any]] = [[None] * hosts for _ in range(hosts)]
        self._each = [
            ShardedTables(features, seed=seed, exchange=ThreadExchange(rank, hosts, boxes, self._barrier))
            for rank in range(hosts)
        ]
        self.features, self.tables, self.width = (self._each[0].features, self._each[0].tables, self._each[0].width)

    def lookup(self, batch: IdBatch) -> np.ndarray:
        parts = parts_of(batch, self._hosts)
        return np.concatenate(self._on_hosts(lambda rank: self._each[rank].lookup(parts[rank])))

    def apply_gradients(self, batch: IdBatch, gradients: np.ndarray) -> None:
        parts = parts_of(batch, self._hosts)
        cuts = np.cumsum([part.rows for part in parts])[:-1]
        own = (
            np.split(gradients, cuts)
            if sum(part.rows for part in parts) == len(gradients)
            else [gradients] * len(parts)
        )
        self._on_hosts(lambda rank: self._each[rank].apply_gradients(parts[rank], own[rank]))

    def state(self) -> dict[str, TableState]:
        states = [one.state() for one in self._each]
        return {table.name: _joined([state[table.name] for state in states]) for table in self.tables}

    def load_state(self, state: Mapping[str, TableState]) -> None:
        self._on_hosts(lambda rank: self._each[rank].load_state(state))

    def statistics(self) -> dict[str, FeatureCounts]:
        found = [one.statistics() for one in self._each]
        return {
            name: FeatureCounts(
                found[0][name].batches,
                sum(one[name].ids for one in found),
                max(one[name].longest_bag for one in found),
                sum(one[name].distinct_rows for one in found),
            )
            for name in found[0]
        }

    def begin_snapshot(self, *, most_bytes: int) -> _HostsSnapshot:
        return _HostsSnapshot([one.begin_snapshot(most_bytes=most_bytes) for one in self._each])

    def end_snapshot(self) -> None:
        for one in self._each:
            one.end_snapshot()

    def _on_hosts(self, work: Callable[[int], Any]) -> list[Any]:
        """The result of each host; the error of one ends the others' wait for it."""

        def run(rank: int) -> Any:
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        running = [self._threads.submit(run, rank) for rank in range(self._hosts)]
        errors = [error for one in running if (error := one.exception(PATIENCE_SECS)) is not None]
        self._barrier.reset()
        for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error
        return [one.result() for one in running]


class _HostsSnapshot:
    def __init__(self, each: list[Any]) -> None:
        self._each = each
        self.counts = tuple(map(sum, zip(*(one.counts for one in each), strict=True)))

    def table(self, t: int) -> Iterator[ChangedRows]:
        parts = [part for one in self._each for part in one.table(t)]
        if parts:
            joined = _joined([TableState(part.rows, part.weights, part.slots) for part in parts])
            yield ChangedRows(joined.rows, joined.weights, joined.slots)


def _joined(states: Sequence[TableState]) -> TableState:
    rows = np.concatenate([one.rows for one in states])
    order = np.argsort(rows)
    return TableState(
        rows[order],
        np.concatenate([one.weights for one in states])[order],
        np.concatenate([one.slots for one in states])[order],
    )


def parts_of(batch: IdBatch, hosts: int) -> list[IdBatch]:
    """The events of each host; a batch that cannot be divided is given to all of them as it is."""
    ends = batch.offsets.ravel()
    fits = ends[0] == 0 and ends[-1] == len(batch.ids) and (np.diff(ends) >= 0).all()
    if hosts == 1 or not fits or (batch.weights is not None and len(batch.weights) != len(batch.ids)):
        return [batch] * hosts
    cuts = [batch.rows * k // hosts for k in range(hosts + 1)]
    return [_events_of(batch, first, last) for first, last in itertools.pairwise(cuts)]


def _events_of(batch: IdBatch, first: int, last: int) -> IdBatch:
    ends = batch.offsets[:, first : last + 1]
    lengths = np.diff(ends, axis=1)
    spans = [slice(int(own[0]), int(own[-1])) for own in ends]
    totals = np.cumsum(lengths).reshape(lengths.shape)
    starts = np.concatenate([[0], totals[:-1, -1]]) if lengths.size else np.zeros(len(ends), np.int64)
    return replace(
        batch,
        ids=np.concatenate([batch.ids[span] for span in spans]),
        offsets=np.concatenate([starts[:, None], starts[:, None] + np.cumsum(lengths, axis=1)], axis=1).astype(
            np.int64
        ),
        weights=None if batch.weights is None else np.concatenate([batch.weights[span] for span in spans]),
    )
