"""Embedding tables whose rows are spread over cores: row r is on core r modulo their number. A core is a thread, or a host of a job.

In a step each core asks the owners for the rows of its batch, combines them by itself, and returns their summed gradients. So sums of
rows never cross the network, and activations have the same bits on any number of cores. An owner adds the gradients of a row in the
order of ranks and updates the row once: for a number of cores the same batches give the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.engine import CpuEngine
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.gradients import sum_positions
from trainer.embedding.cpu.layout import TableValues, feature_layout, table_layout
from trainer.embedding.cpu.lookup import combine_bags
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.snapshot import EngineSnapshot
from trainer.embedding.cpu.threads import Team, available_threads, split_evenly, split_events
from trainer.embedding.engine import ChangedRows, TableState
from trainer.embedding.exchange import Exchange
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.partitioned.request_kernels import put_rows, take_rows
from trainer.embedding.partitioned.requests import RequestMaker, Requests
from trainer.embedding.partitioned.static_buffers import StaticBuffers
from trainer.embedding.spec import FeatureSpec, TableSpec, tables_of
from trainer.embedding.state_checks import check_states
from trainer.errors import ConfigError
from transforms.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]

_NO_SLOTS = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Fetched:
    """The rows of a batch.

    Attributes:
        requests: what this core asked for.
        received: what each core asked this one for: rows of its tables, and their numbers by table.
        values: the weights that it got, without slots.
    """

    requests: Requests
    received: list[tuple[Array, Array]]
    values: TableValues


class ShardedTables:
    """One core's part of the tables of ``features``. All cores of ``exchange`` make the same calls in the same order.

    Lookups and updates of a batch are those of :class:`~trainer.embedding.cpu.engine.CpuEngine`, but gradients are summed over cores.

    Args:
        threads: of this core; 0 for one a processor.
        buffers: of fixed size for its requests; None: messages are as long as they need to be.
        dense_ids: by feature, the ids of a bag that are deduplicated; all of them if it is absent.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, exchange: Exchange, threads: int = 0,
        buffers: StaticBuffers | None = None, dense_ids: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.features, self.tables = tuple(features), tables_of(features)
        if not self.features:
            raise ConfigError("an embedding engine must have at least one feature")
        self._exchange, self._hosts, self._buffers = exchange, exchange.hosts, buffers
        self._of_features = feature_layout(self.features, self.tables)
        self._layout = table_layout(self._of_features, self.tables, seed)
        self._costs = self._layout.dims[self._of_features.table]
        self._width = sum(feature.width for feature in self.features)
        self._team = Team(threads or available_threads())
        self._requests = RequestMaker(
            self.features, self._of_features, self._layout, owners=exchange.hosts, dense_ids=dense_ids, team=self._team
        )
        own = [FeatureSpec(table.name, self._own_part(table)) for table in self.tables]
        self._own = CpuEngine(own, seed=seed, threads=threads, row_stride=exchange.hosts, row_first=exchange.rank,
                              answers=2 * exchange.hosts)  # fmt: skip
        self._memory = OutputPool(spare=0.25, kept=2 * (exchange.hosts + 2))
        self._fetched: deque[_Fetched] = deque(maxlen=2)  # between a lookup and its update there may be another lookup
        self._counter = BatchCounter(self.features, self._of_features.table)

    def _own_part(self, table: TableSpec) -> TableSpec:
        own = -(-(table.vocabulary_size - self._exchange.rank) // self._hosts)
        return replace(table, vocabulary_size=max(own, 1))

    @property
    def width(self) -> int:
        """Columns of the activations."""
        return self._width

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros. Raises :class:`BadBatch` before anything is exchanged."""
        check_batch(batch, self.features)
        return self.fetch(self.requests(batch))

    def requests(self, batch: IdBatch) -> Requests:
        """What this core needs for a batch, whose ids must have been checked; asks for nothing yet."""
        return self._requests.make(batch)

    def fetch(self, requests: Requests) -> Array:
        """The activations of the batch of ``requests``, as :meth:`lookup`."""
        fetched = self._fetch(requests)
        self._fetched.append(fetched)
        batch, bags, layout = requests.batch, requests.bags, requests.layout
        out = np.empty(batch.rows * self._width, np.float32)
        parts = split_events(batch.offsets, self._costs, self._team.threads)
        tile = max(batch.rows, 1)
        self._team.run([
            partial(combine_bags, *part, tile, bags, self._of_features, layout, fetched.values, out, self._width, False)
            for part in parts
        ])  # fmt: skip
        return out.reshape(batch.rows, self._width)

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """Update the rows of all cores' batches.

        ``gradients``: float32 [batch.rows, width], of the loss over all cores' events. Raises :class:`BadBatch`, and
        :class:`~trainer.errors.NonFiniteLoss` for NaN and infinity, before anything is exchanged.
        """
        check_batch(batch, self.features)
        check_gradients(batch, gradients, self._width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        check_finite(flat, self.features, self._team)
        fetched = self._fetched_of(batch)
        self.update(batch, flat)
        self._counter.add(batch.offsets, fetched.requests.layout.vocabulary)

    def update(self, batch: IdBatch, gradients: Array) -> Array:
        """As :meth:`apply_gradients` by flat gradients that were checked; returns the distinct rows of each table on this core."""
        fetched = self._fetched_of(batch)
        requests, dims = fetched.requests, self._layout.dims
        sums = self._summed(fetched, gradients)
        parts = []
        for owner in range(self._hosts):
            counts = requests.counts[owner]
            floats = self._memory.take(int((counts * dims).sum()))
            take_rows(requests.places[requests.of_owner(owner)], counts, requests.layout, sums, floats)
            parts.append([floats])
        received = [arrays[0] for arrays in self._exchange.all_to_all(parts)]
        return self._own.update_rows(fetched.received, received)

    def has_fetched(self, batch: IdBatch) -> bool:
        """Whether the rows of a batch are here, from one of the last two lookups."""
        return any(one.requests.batch is batch for one in self._fetched)

    def _fetched_of(self, batch: IdBatch) -> _Fetched:
        for one in self._fetched:
            if one.requests.batch is batch:
                return one
        self._fetched.append(self._fetch(self.requests(batch)))
        return self._fetched[-1]

    def _fetch(self, requests: Requests) -> _Fetched:
        """Ask the owners for the rows of a batch."""
        received = self._ask(requests)
        answers = self._exchange.all_to_all([[self._own.read_rows(rows, counts)] for rows, counts in received])
        layout = requests.layout
        weights = self._memory.take(int((layout.vocabulary * layout.dims).sum()))
        for owner, (answer,) in enumerate(answers):
            counts = requests.counts[owner]
            _check_answer(owner, answer, int((counts * layout.dims).sum()))
            put_rows(requests.places[requests.of_owner(owner)], counts, layout, answer, weights)
        values = TableValues(weights, _NO_SLOTS, np.ones(int(layout.vocabulary.sum()), np.uint8))
        return _Fetched(requests, received, values)

    def _ask(self, requests: Requests) -> list[tuple[Array, Array]]:
        """Send the requests, and return those of all cores to this one."""
        if self._buffers is not None:
            sent = self._buffers.pack(self._exchange.rank, requests)
            return [self._buffers.unpack(message) for message in self._exchange.all_to_all(sent)]
        asked = self._exchange.all_to_all(
            [[requests.rows[requests.of_owner(owner)], requests.counts[owner]] for owner in range(self._hosts)]
        )
        return [(np.asarray(rows, np.int64), np.asarray(counts, np.int64)) for rows, counts in asked]

    def _summed(self, fetched: _Fetched, gradients: Array) -> Array:
        """The gradient of each slot, by those of the activations, flat, summed over the batch: flat, as its weights."""
        sums = self._memory.take(len(fetched.values.weights))
        sums[:] = 0.0
        bags, layout = fetched.requests.bags, fetched.requests.layout
        used = np.flatnonzero(layout.vocabulary)
        chosen = [used[part] for part in split_evenly(layout.vocabulary[used], self._team.threads)]
        self._team.run(
            [
                partial(sum_positions, one, bags, self._of_features, layout, gradients, self._width, sums)
                for one in chosen
            ]
        )
        return sums

    def state(self) -> dict[str, TableState]:
        """A copy of the changed rows of this core, by table name, with their numbers in the whole table."""
        return {name: replace(one, rows=self._global(one.rows)) for name, one in self._own.state().items()}

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore the rows of this core from the :meth:`state` of all. Raises :class:`~trainer.errors.TornCheckpoint`."""
        check_states(self.tables, state)
        own = {}
        for name, one in state.items():
            mine = one.rows % self._hosts == self._exchange.rank
            own[name] = TableState(one.rows[mine] // self._hosts, one.weights[mine], one.slots[mine])
        self._own.load_state(own)
        self._fetched.clear()
        self._counter = BatchCounter(self.features, self._of_features.table)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights of some rows of this core, by their numbers in the whole table; for inspection and tests."""
        return self._own.weights_of(table, rows // self._hosts)

    def _global(self, rows: Array) -> Array:
        found: Array = rows * self._hosts + self._exchange.rank
        return found

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature over the batches of this core."""
        return self._counter.by_feature()

    def begin_snapshot(self, *, most_bytes: int) -> ShardSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.cpu.engine.CpuEngine.begin_snapshot>`; the rows of this core."""
        return ShardSnapshot(self._own.begin_snapshot(most_bytes=most_bytes), self._hosts, self._exchange.rank)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self._own.end_snapshot()


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """The snapshot of one core's rows, with their numbers in the whole tables."""

    own: EngineSnapshot
    hosts: int
    rank: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table on this core."""
        return self.own.counts

    def ranges(self, t: int) -> Iterator[ChangedRows]:
        """See :meth:`EngineSnapshot.ranges <trainer.embedding.cpu.snapshot.EngineSnapshot.ranges>`."""
        for part in self.own.ranges(t):
            yield ChangedRows(part.rows * self.hosts + self.rank, part.weights, part.slots)

    def table(self, t: int) -> Iterator[ChangedRows]:
        """See :meth:`EngineSnapshot.table <trainer.embedding.cpu.snapshot.EngineSnapshot.table>`."""
        return (part for part in self.ranges(t) if len(part.rows))

    def close(self) -> None:
        """End the snapshot."""
        self.own.close()


def _check_answer(owner: int, answer: Array, floats: int) -> None:
    if answer.dtype != np.float32 or answer.shape != (floats,):
        raise DataError("an answer must hold the rows that were asked for", where=f"core {owner}",
                        value=f"{answer.dtype} {answer.shape}", allowed=f"float32 ({floats},)")  # fmt: skip
