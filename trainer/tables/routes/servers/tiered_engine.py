"""The engine whose tables are on parameter servers and whose hot rows are in the memory of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.options.combinations import Setup
from trainer.planning.plan import PartitionPlan
from trainer.tables.engine import TableState
from trainer.tables.hot_figures import HotFigures
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.server_link import Connect, ConnectWorker
from trainer.tables.routes.servers.server_tier import ServerTier
from trainer.tables.spec import FeatureSpec
from trainer.tables.stores.tiered.tiered_store import TieredStore
from trainer.tables.table_checks import supported_tables
from trainer.tables.wire.settings import WireSettings
from transforms.arrays import Array

_VALUE_BYTES = 4
#: The bytes of a row's number in a fetch or an update, if it is sent as it is and a server has fewer than 2^31 rows of a table.
_NUMBER_BYTES = 4
#: That of a row whose weights and slots are read or written.
_MOVED_NUMBER_BYTES = 8


class TieredEngine(ShardedTables):
    """As :class:`~trainer.tables.routes.servers.engine.PsEngine`, with the same bits: rows that are hot do not travel.

    It must be the only client of its servers. A batch takes one fetch and one update message for each server, and one more of each where rows
    become hot, or stop being it. Which rows are hot takes 8 bytes of memory for each row of a table with hot rows, beside the hot rows.

    Args:
        features: the features, in the order of batches.
        hot_rows: how many of each table, by its name; none of others.
        seed: what initial weights are drawn from.
        servers: connect to them; rows that they have of the same tables stay.
        plan: the placement of the tables, a core for each server; None: rows are spread over them.
        threads: threads of the loops; 0 for one a processor.
        held: batches between a lookup and its update, for which it keeps what both need.
        wire: how the numbers of rows are encoded; values must be sent as they are.

    Raises :class:`~trainer.errors.ConfigError` and :class:`~trainer.errors.ServerLost` as that engine does, and the first for the name of no table.
    """

    store: TieredStore
    setup = Setup(servers=True, hot=True)

    def __init__(
        self, features: Sequence[FeatureSpec], hot_rows: Mapping[str, int], *, seed: int, servers: Sequence[Connect],
        plan: PartitionPlan | None = None, threads: int = 0, held: int = 2, wire: WireSettings | None = None,
    ) -> None:  # fmt: skip
        tables = supported_tables(features)
        self._cold = ServerTier(tables, seed=seed, servers=servers, plan=plan, threads=threads, wire=wire)
        store = TieredStore(tables, seed=seed, hot_rows=hot_rows, threads=threads, cold=self._cold, answers=held)
        super().__init__(features, seed=seed, exchange=OneHost(), threads=threads, held=held, store=store)
        self._bytes_before = self._cold.wire_bytes

    @property
    def hot_figures(self) -> HotFigures:
        """What hot rows have done since the engine was made."""
        counts = self.store.counts
        return HotFigures(
            rows=sum(self.store.frames),
            memory_bytes=self.store.frame_bytes,
            lookups=counts.hits + counts.misses,
            hits=counts.hits,
            rows_in=counts.rows_in,
            rows_out=counts.rows_out,
            moved_bytes=counts.moved_bytes + _MOVED_NUMBER_BYTES * (counts.rows_in + counts.rows_out),
            wire_bytes=self._cold.wire_bytes - self._bytes_before,
            spared_bytes=_VALUE_BYTES * counts.spared_values + _NUMBER_BYTES * counts.spared_rows,
        )

    @property
    def direct(self) -> PsEngine:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`: hot rows may be old there."""
        return self._cold

    def connect(self, servers: Sequence[Connect], workers: Sequence[ConnectWorker] = (), *, keeps_rows: bool) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`; hot rows stay, unless all rows are loaded afterwards."""
        assert not workers
        self._cold.connect(servers, keeps_rows=keeps_rows)
        self.forget_batches()

    def open(self) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`. The rows are those that this engine has loaded: it is the only one."""
        self._cold.open()
        self.forget_batches()

    def take_loaded(self) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`: hot rows are read again."""
        self.store.read_hot()
        self.restart()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        return self.store.weights_of(table, self.checked_rows(table, rows))

    def state(self) -> dict[str, TableState]:
        """See :meth:`PsEngine.state <trainer.tables.routes.servers.engine.PsEngine.state>`; hot rows are written back first."""
        self.store.write_back()
        return self._cold.state()

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`~trainer.tables.routes.bag_tables.BagTables`."""
        before = self._cold.wire_bytes
        super().load(state)
        self._bytes_before += self._cold.wire_bytes - before

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""
        self._cold.finish()

    def close(self) -> None:
        """End the connections."""
        self._cold.close()
