"""The cold tier on parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from trainer.planning.plan import PartitionPlan
from trainer.tables.batch_checks import check_batch
from trainer.tables.engine import RowValues, TableState
from trainer.tables.kernels.layout import learning_rates
from trainer.tables.routes.partitioned.requests import RequestMaker
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.row_buffers import GatheredBatch
from trainer.tables.routes.servers.server_link import Connect
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.stores.dense.dense_store import join_by_table, one_event
from trainer.tables.wire.settings import WireSettings
from transforms.arrays import Array


class ServerTier(PsEngine):
    """See :class:`~trainer.tables.stores.tiered.cold_tier.ColdTier`: an engine on servers of which it is the only client.

    A batch takes one fetch and one update message for each server, and one that writes and one that reads values where rows move. A server
    makes what it is sent in order and once, also when it is killed meanwhile.

    Args:
        tables: the tables.
        seed: what initial weights are drawn from.
        servers: connect to them; see :class:`~trainer.tables.routes.servers.engine.PsEngine`.
        plan: the placement of the tables, a core for each server; None: as the servers' own plan says.
        threads: threads of the loops; 0 for one a processor.
        wire: how rows and values of fetches and updates are encoded; values of rows that move are sent as they are.

    Raises :class:`~trainer.errors.ConfigError` and :class:`~trainer.errors.ServerLost` as that engine does.
    """

    def __init__(
        self, tables: Sequence[TableSpec], *, seed: int, servers: Sequence[Connect], plan: PartitionPlan | None = None,
        threads: int = 0, wire: WireSettings | None = None,
    ) -> None:  # fmt: skip
        features, wire = [FeatureSpec(one.name, one) for one in tables], wire or WireSettings()
        super().__init__(features, seed=seed, servers=servers, plan=plan, threads=threads, wire=wire)
        self._values = self.row_values()
        self._weight_dims = self._values.weight_dims
        buffers = self._buffers
        self._rows = RequestMaker(self.features, buffers.of_features, buffers.layout, parts=self._parts, core=0, deduplicates=False,
                                  team=self.team, ascending=wire.ids == "unique")  # fmt: skip
        #: Whether messages have the tables in their own order.
        self._is_in_order = self._order == sorted(self._order)

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """See :class:`~trainer.tables.stores.tiered.cold_tier.ColdTier`. Raises :class:`~trainer.errors.BadBatch` for a row outside its table."""
        found = self._buffers_of(rows, counts)
        reads = found.requests.reads

        def fetch(server: int) -> None:
            remote = self._servers[server]
            remote.begin_fetch(self._numbers(reads, server), found.space(server), remote.updates)
            remote.finish()

        self._of_each(fetch)
        return self._from_stacked(found.weights(), counts * self._weight_dims)

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None
    ) -> None:
        """See :class:`~trainer.tables.stores.tiered.cold_tier.ColdTier`. What servers refuse is raised by the next call."""
        rows, counts, flat = join_by_table(asked, gradients, self._weight_dims)
        found = self._buffers_of(rows, counts)
        pieces, updates = found.pieces(self._to_stacked(flat, counts * self._weight_dims)), found.requests.updates
        rates = learning_rates(self.tables) if rates is None else rates
        of_parts = rates[self._order][self._parts.layout.table]

        def update(server: int) -> None:
            self._servers[server].update(self._numbers(updates, server), of_parts, [pieces[server]])

        self._of_each(update)

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """See :class:`~trainer.tables.stores.tiered.cold_tier.ColdTier`."""
        return self._values.read(self._by_table(rows, counts))

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: Literal[True]) -> None:
        """See :class:`~trainer.tables.stores.tiered.cold_tier.ColdTier`. What servers refuse is raised by the next call."""
        self._values.write(self._by_table(rows, counts), values)

    def table_state(self, t: int) -> TableState:
        """See :class:`~trainer.tables.stores.tiered.cold_tier.ColdTier`."""
        return self.state()[self.tables[t].name]

    def _buffers_of(self, rows: Array, counts: Array) -> GatheredBatch:
        """The buffers of rows as they are given: a server adds up the gradients of one that is there twice."""
        batch = one_event(rows, counts)
        check_batch(batch, self.features)
        return self._buffers.gathered(self._rows.make(batch))

    def _by_table(self, rows: Array, counts: Array) -> list[Array]:
        """The rows of each table. Raises :class:`~trainer.errors.BadBatch` for one outside it."""
        check_batch(one_event(rows, counts), self.features)
        return np.split(rows, np.cumsum(counts)[:-1])

    def _from_stacked(self, values: Array, sizes: Array) -> Array:
        """The values of the tables, of which each has so many, that come in the order of messages."""
        if self._is_in_order:
            return values
        found = np.split(values, np.cumsum(sizes[self._order])[:-1])
        return np.concatenate([found[k] for k in np.argsort(self._order)])

    def _to_stacked(self, values: Array, sizes: Array) -> Array:
        """The inverse of :meth:`_from_stacked`."""
        if self._is_in_order:
            return values
        found = np.split(values, np.cumsum(sizes)[:-1])
        return np.concatenate([found[t] for t in self._order])
