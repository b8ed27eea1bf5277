"""The embedding engine whose tables are on parameter servers.

A batch takes one fetch and one update message for each server, whatever the number of tables. Ids are deduplicated and bags are combined
here; servers have rows only. For one engine alone the bits are those of the ``cpu`` engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from trainer.options.combinations import Setup
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan
from trainer.planning.row_groups import renumbered
from trainer.tables.batches import IdBatch
from trainer.tables.engine import NO_SNAPSHOT_SECTIONS, ChangedRows, SnapshotSections, TableSections, TableState
from trainer.tables.kernels.layout import LearningRates, feature_layout
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.partitioned.engine import PartitionedSnapshot
from trainer.tables.routes.partitioned.gathered_rows import lookups_of
from trainer.tables.routes.partitioned.requests import RequestMaker, RowsByOwner, asked_layout
from trainer.tables.routes.partitioned.sharded_tables import ShardSnapshot
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.hashed_snapshot import HashedTableSnapshot
from trainer.tables.routes.servers.noted_rows import NotedRows
from trainer.tables.routes.servers.pruned_servers import PrunedServers, pruned_sections
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.routes.servers.row_buffers import BatchRows, RowBuffers
from trainer.tables.routes.servers.row_messages import RowNumbers
from trainer.tables.routes.servers.row_values import ServedRowValues
from trainer.tables.routes.servers.server_link import Connect, ConnectWorker
from trainer.tables.routes.servers.stacked_plan import width_order, with_stacks
from trainer.tables.routes.servers.table_documents import held_tables
from trainer.tables.snapshot_states import state_of
from trainer.tables.spec import FeatureSpec
from trainer.tables.state_checks import empty_state
from trainer.tables.stores.hashed.limits import TableLimits, divided_limits
from trainer.tables.stores.hashed.saved_history import SECTIONS, LoadedHistory, SavedHistory, newest_rows
from trainer.tables.stores.pruned.history import SECTIONS as PRUNED_SECTIONS
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.table_checks import supported_tables
from trainer.tables.wire.settings import WireSettings
from transforms.arrays import Array

_T = TypeVar("_T")

NO_HASHED: Mapping[int, HashedTableSnapshot] = MappingProxyType({})
#: The memory of servers for what changes while a state is copied.
_MOST_ASIDE_BYTES = 64 << 20
#: The largest number of a row that is sent in 32 bits.
_MOST_SHORT = np.iinfo(np.int32).max
#: Messages of at most so many bytes are sent and received server after server, in the thread of the caller: to hand them to other threads costs more.
_MOST_IN_TURN_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class ServedBatch:
    """The rows of a batch, and the numbers of rows that each server was sent; ``has_rows``: whether they were asked for."""

    rows: BatchRows
    numbers: list[RowNumbers | None]
    has_rows: bool = False


class PsEngine(BagTables[ServedBatch]):
    """Lookups and updates over the tables of ``features``, whose rows are on servers.

    Args:
        features: the features, in the order of batches.
        seed: what initial weights are drawn from.
        servers: connect to them; they are opened for these tables: rows that they have of the same tables stay.
        plan: the placement of the tables, a core for each server; :func:`~trainer.tables.routes.servers.stacked_plan.stacked_plan`.
        staleness: updates that a fetch may miss of other engines on the same servers; None: any number.
        held: batches between a lookup and its update.
        threads: threads of the loops; 0 for one a processor.
        wire: how rows and values are encoded in fetches and updates; None: as they are.
        overlaps: whether several lookups may be on their way at once, which hides the delay of a network. One that is on its way when a server is
            killed is sent again, and then sees the updates that were sent after it. Else a lookup has ended before anything else is sent.
        hashed: by name the limits of tables of unbounded vocabularies, whose ids are spread over the servers and whose capacities are divided.
        pruning: of other tables only the most important rows of each server have places there, by these options; None: all rows have memory.

    Raises :class:`ConfigError` for what the ``cpu`` engine refuses, for a plan of other tables or servers, and for pruned tables of which a
    server would have no place; :class:`~trainer.errors.ServerLost`.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, servers: Sequence[Connect], plan: PartitionPlan | None = None,
        staleness: int | None = 0, held: int = 2, threads: int = 0, wire: WireSettings | None = None, overlaps: bool = False,
        hashed: Mapping[str, TableLimits] | None = None, pruning: PruningOptions | None = None,
    ) -> None:  # fmt: skip
        team = Team(threads or available_threads())
        super().__init__(features, supported_tables(features), team, held=held)
        self._limits = divided_limits(hashed or {}, self.tables, len(servers), is_planned=plan is not None)
        self._order = width_order(self.tables)
        self._stacked = tuple(self.tables[t] for t in self._order)
        self._parts = TableParts(self._stacked, len(servers), with_stacks(plan, self._stacked, len(servers)))
        of_features = feature_layout(self.features, self._stacked)
        layout = asked_layout(of_features, self._stacked, seed, self._limits)
        self._staleness, self._overlaps, wire = staleness, overlaps, wire or WireSettings()
        self._requests = RequestMaker(self.features, of_features, layout, parts=self._parts, core=0, team=team,
                                      ascending=wire.ids == "unique")  # fmt: skip
        self._buffers = RowBuffers(self._parts, of_features, layout, self.width, team)
        self._of_features = of_features
        self._senders = ThreadPoolExecutor(len(servers), "servers") if len(servers) > 1 else None
        shards = [[part.shard(server) for part in self._parts.parts] for server in range(len(servers))]
        self._short = max(table.vocabulary_size for own in shards for table, _ in own) <= _MOST_SHORT
        self._pruned: PrunedServers | None = None
        if pruning is not None:
            groups = renumbered(groups_of(self.tables, pruning, self._limits), self._order)
            self._pruned = PrunedServers(self._parts, groups, pruning, seed=seed, team=team)
        prunings = [None] * len(servers) if self._pruned is None else self._pruned.held
        helds = [held_tables(own, seed, self._limits, one) for own, one in zip(shards, prunings, strict=True)]
        self._servers = self._of_each(lambda server: RemoteTables(servers[server], helds[server], wire), len(servers))
        self._noted: NotedRows | None = None
        self._rates, self._position_of = LearningRates(self.tables), np.argsort(self._order)
        self._table_of_part = np.asarray(self._order)[self._parts.layout.table]

    def note_updates(self, noted: NotedRows | None) -> None:
        """Mark the rows of each update from now on in ``noted``; None: of none."""
        self._noted = noted

    def note(self, batch: IdBatch) -> None:
        """Mark the rows of an update that a worker makes, where updates are noted; see :meth:`note_updates`."""
        if self._noted is not None:
            self._noted.add(self._requests.make(batch).updates)

    @property
    def direct(self) -> PsEngine:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`: itself."""
        return self

    def connect(self, servers: Sequence[Connect], workers: Sequence[ConnectWorker] = (), *, keeps_rows: bool) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`; there are no workers."""
        assert not workers
        self._of_each(lambda server: self._servers[server].reconnect(servers[server], keeps_rows=keeps_rows))
        self.forget_batches()

    def open(self) -> None:
        """Take over what another engine has loaded into the servers."""
        self._of_each(lambda server: self._servers[server].open())
        self.forget_batches()

    def take_loaded(self) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`."""
        self.restart()

    @property
    def setup(self) -> Setup:
        """Where its tables are placed, and which of their rows have memory."""
        return Setup(servers=True, hashed=bool(self._limits), pruned=self._pruned is not None)

    @property
    def copied_bytes(self) -> int:
        """Bytes of rows and gradients that were copied between messages and batches."""
        return self._buffers.copied_bytes

    @property
    def wire_bytes(self) -> int:
        """Bytes that were sent and received for rows, over all connections so far; those of snapshots go over others."""
        return sum(one.wire_bytes for one in self._servers)

    @property
    def parts(self) -> TableParts:
        """The tables in the order of messages, and their rows on servers."""
        return self._parts

    @property
    def servers(self) -> tuple[RemoteTables, ...]:
        """The tables of each server."""
        return tuple(self._servers)

    def row_values(self) -> ServedRowValues:
        """Reads and writes the weights and slots of rows, if this engine is the only client of its servers."""
        return ServedRowValues(self.tables, self._order, self._parts, self._servers, self._of_each)

    def prepare(self, batch: IdBatch) -> ServedBatch:
        """See :class:`BagTables`."""
        return ServedBatch(self._rows_of(batch), [None] * len(self._servers))

    def begin(self, kept: ServedBatch, floor: int | None = None) -> Callable[[], Array]:
        """See :class:`BagTables`. Lookups that overlap end in the order in which they were begun; after :meth:`finish` they need no server.

        ``floor``: the update that all clients must have made before; None: by ``staleness``, counted from the last update of this engine.
        """
        if kept.has_rows:  # those of an earlier lookup may be on their way
            kept.rows = self._rows_of(kept.rows.requests.batch)
        rows, kept.has_rows = kept.rows, True
        in_turn = self._goes_in_turn(kept)

        def ask(server: int) -> int:
            remote = self._servers[server]
            own = -1 if self._staleness is None else remote.updates - self._staleness
            return remote.begin_fetch(self._reads(kept, server), rows.space(server), own if floor is None else floor)

        fetches = self._of_each(ask, in_turn=in_turn)

        def wait() -> None:
            if in_turn or all(one.is_ended(fetch) for one, fetch in zip(self._servers, fetches, strict=True)):
                for remote, fetch in zip(self._servers, fetches, strict=True):
                    remote.end_fetch(fetch)
            else:
                self._of_each(lambda server: self._servers[server].end_fetch(fetches[server]))

        def end() -> Array:
            if self._overlaps:
                wait()
            return rows.activations()

        if not self._overlaps:
            wait()
        return end

    def distinct_rows(self, kept: ServedBatch) -> Array:
        """The distinct rows of each table in a batch, int64."""
        found: Array = kept.rows.requests.layout.vocabulary[self._position_of]
        return found

    def update(self, kept: ServedBatch, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`. It does not wait for the servers: what they refuse is raised by the next call."""
        self.send(kept, gradients, self._rates())
        return [(kept.rows.requests.batch.offsets, self.distinct_rows(kept))]

    def send(self, kept: ServedBatch, gradients: Array, rates: Array, number: int | None = None) -> None:
        """Send the update of a batch, as :meth:`update` does.

        Args:
            kept: what the batch needs.
            gradients: of its activations, flat, which were checked.
            rates: the learning rate of each table, float32.
            number: of the update, which a server that has made it takes for a repetition; None: the next one.
        """
        pieces, of_parts = kept.rows.gradients(gradients), rates[self._table_of_part]
        requests = kept.rows.requests
        if self._noted is not None:
            self._noted.add(requests.updates)
        lookups = None if self._pruned is None else lookups_of(requests, self._of_features, self._parts)

        def update(server: int) -> None:
            remote = self._servers[server]
            is_same = requests.updates is requests.reads
            numbers = self._reads(kept, server) if is_same else self._numbers(requests.updates, server)
            own = None if lookups is None else lookups[requests.updates.of_owner(server)]
            remote.update(numbers, of_parts, pieces[server], number, own)

        self._of_each(update, in_turn=self._goes_in_turn(kept))

    def _goes_in_turn(self, kept: ServedBatch) -> bool:
        """Whether the messages of a batch are so short that no other thread is called for them."""
        return 4 * kept.rows.floats <= _MOST_IN_TURN_BYTES * len(self._servers)

    def _rows_of(self, batch: IdBatch) -> BatchRows:
        """The rows that servers are asked for, and those that they update."""
        return self._buffers.of_batch(self._requests.make(batch))

    def _reads(self, kept: ServedBatch, server: int) -> RowNumbers:
        """The numbers of the rows that a server is asked for, worked out once."""
        found = kept.numbers[server]
        if found is None:
            found = kept.numbers[server] = self._numbers(kept.rows.requests.reads, server)
        return found

    def _numbers(self, rows: RowsByOwner, server: int) -> RowNumbers:
        own = rows.rows[rows.of_owner(server)]
        return self._servers[server].numbers_of(own, rows.counts[server], short=self._short)

    def _of_each(self, work: Callable[[int], _T], servers: int = 0, *, in_turn: bool = False) -> list[_T]:
        """Do the work of each server at once; ``in_turn``: one after the other, in this thread."""
        numbers = range(servers or len(self._servers))
        return list(map(work, numbers) if in_turn or self._senders is None else self._senders.map(work, numbers))

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        rows, t = self.checked_rows(table, rows), self._order.index(self.position(table))
        out = np.empty((len(rows), self._stacked[t].dim), np.float32)
        for p in self._parts.of_table(t):
            part = self._parts.parts[p]
            for server, remote in enumerate(self._servers):
                mine, own = part.own_rows(server, rows)
                counts = np.zeros(len(self._parts.parts), np.int64)
                counts[p] = len(own)
                values = np.empty(len(own) * part.slice_.columns, np.float32)
                remote.begin_fetch(RowNumbers(own, counts), [values], -1, exact=True)
                remote.finish()
                out[mine, part.columns] = values.reshape(len(own), part.slice_.columns)
        return out

    @property
    def limits(self) -> Mapping[str, TableLimits]:
        """The limits of the hashed tables on each server, by name."""
        return self._limits

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: that of any other engine. With hashed or pruned tables, not while a snapshot is read."""
        if self._limits or self._pruned is not None:
            snapshot = self.begin_snapshot(most_bytes=_MOST_ASIDE_BYTES)
            try:
                return {one.name: state_of(snapshot, t, one) for t, one in enumerate(self.tables)}
            finally:
                self.end_snapshot()
        self.finish()
        whole = self._whole([_RemoteRows(one.read_state, one) for one in self._servers])
        return {one.name: state_of(whole, t, one) for t, one in enumerate(self.tables)}

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        if self.tables[t].name in self._limits:
            return SECTIONS
        return () if self._pruned is None else PRUNED_SECTIONS

    def no_rows(self, t: int) -> TableState:
        """The state of a table without rows, with the sections by rows that it has on servers, as a host that saves none of them writes it."""
        none = empty_state(self.tables[t])
        by_rows = {}
        for part in self._servers[0].saved_parts:
            if part.table == self._order.index(t) and part.section:
                weights, slots = (np.zeros((0, dim), np.float32) for dim in (part.dim, part.slot_dim))
                by_rows[part.section] = TableState(none.rows, weights, slots)
        return replace(none, sections=TableSections(by_rows))

    def candidates_of(self, table: str) -> int:
        """The candidates of a hashed table on each server."""
        spec = next(one for one in self.tables if one.name == table)
        return self._limits[table].table(spec).candidate_places

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`.

        The rows of a hashed table without sections count as used at one step. Rows for which a server has no place are evicted, those of the
        oldest last use first, and counted; of those of pruned tables the most important ones stay.
        """
        known = {name: SavedHistory.read(name, state[name], self.server_count) for name in self._limits}
        loads = None if self._pruned is None else self._pruned.loads(state)

        def load(server: int) -> None:
            own = (
                self._loaded(server, p, state[part.table.name], known.get(part.table.name))
                for p, part in enumerate(self._parts.parts)
                if loads is None or part.table.name in known
            )
            self._servers[server].load(own if loads is None else chain(own, loads(server)))

        self._of_each(load)

    @property
    def whole_tables(self) -> tuple[tuple[str, ...], ...]:
        """The names of hashed and pruned tables, which a move copies as wholes: those that share places together."""
        hashed = tuple((one.name,) for one in self.tables if one.name in self._limits)
        return hashed if self._pruned is None else (*hashed, *self._pruned.names)

    @property
    def server_count(self) -> int:
        """The number of servers."""
        return len(self._servers)

    def _loaded(
        self, server: int, p: int, state: TableState, history: SavedHistory | None
    ) -> tuple[int, TableState, LoadedHistory | None]:
        """What a server loads of a part."""
        part = self._parts.parts[p]
        own = part.own_state(server, state)
        if history is None:
            return p, own, None
        name = part.table.name
        mine, _ = part.own_rows(server, state.rows)
        own, ages, evicted = newest_rows(own, history.ages[mine], self._limits[name].capacity)
        return p, own, history.part(server, self.server_count, ages, self.candidates_of(name), evicted)

    def begin_snapshot(self, *, most_bytes: int) -> ServersSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.tables.routes.cpu_engine.CpuEngine.begin_snapshot>`; servers keep what changes."""
        self.finish()
        share = most_bytes // len(self._servers)
        try:
            counts = self._of_each(lambda server: self._servers[server].begin_snapshot(share))
        except BaseException:
            self.end_snapshot()  # of the servers that have begun theirs
            raise
        return self._whole(
            [_RemoteRows(one.read_snapshot, one, counts[server]) for server, one in enumerate(self._servers)],
            {
                part.t: HashedTableSnapshot(part, p, self._servers, [of_server[p] for of_server in counts],
                                            candidates=self.candidates_of(part.table.name))
                for p, part in enumerate(self._parts.parts)
                if part.table.name in self._limits
            },
        )  # fmt: skip

    def _whole(
        self, remotes: Sequence[_RemoteRows], hashed: Mapping[int, HashedTableSnapshot] = NO_HASHED
    ) -> ServersSnapshot:
        parts = self._parts.parts
        shards = tuple(ShardSnapshot(one, parts, server) for server, one in enumerate(remotes))
        return ServersSnapshot(PartitionedSnapshot(self._parts, shards), self._order, hashed)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one; any thread may call it."""
        for remote in self._servers:  # in this thread: those of the servers may wait until it is closed
            remote.end_snapshot()

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""
        self._of_each(lambda server: self._servers[server].finish())

    def close(self) -> None:
        """End the connections."""
        for remote in self._servers:
            remote.close()
        if self._senders is not None:
            self._senders.shutdown()


class _RemoteRows:
    """The changed rows of one server, now or at the moment of its snapshot."""

    def __init__(
        self, read: Callable[[int, int, int], ChangedRows], remote: RemoteTables, counts: tuple[int, ...] = ()
    ) -> None:
        self._remote, self._of_parts, self._is_snapshot = remote, counts, bool(counts)
        self._read = read
        #: Parts that are not read yet. A snapshot with hashed or pruned tables is ended by its reader.
        self._left = set(range(len(remote.saved_parts)))

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table of the snapshot."""
        return self._of_parts[: len(self._remote.is_hashed)]

    def table(self, t: int) -> Iterator[ChangedRows]:
        """All changed rows of a part."""
        yield self.capture(t, 0, self._remote.rows_of(t))

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a part from ``first`` to ``stop``; a snapshot ends with the last row of all parts."""
        found = self._read(t, first, stop)
        if first == stop or stop == self._remote.rows_of(t):
            self._left.discard(t)
            if not self._left:
                self.close()
        return found

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`."""
        return pruned_sections(self._remote, t, self._of_parts) if self._is_snapshot else NO_SNAPSHOT_SECTIONS

    def skip(self, t: int) -> None:
        """Leave out a part that is not read. A server without any rows keeps its snapshot: it writes a shard, too."""
        if self._is_snapshot and not self._remote.is_hashed[t]:
            self._read(t, 0, 0)
            self._left.discard(t)

    def close(self) -> None:
        """End the snapshot."""
        if self._is_snapshot:
            self._remote.end_snapshot()


class ServersSnapshot:
    """The changed rows of all servers at one moment, by the engine's tables."""

    def __init__(
        self, stacked: PartitionedSnapshot, order: Sequence[int], hashed: Mapping[int, HashedTableSnapshot] = NO_HASHED
    ) -> None:
        self._stacked, self._hashed = stacked, hashed
        self._position = {t: position for position, t in enumerate(order)}

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""
        counts = self._stacked.counts
        return tuple(counts[self._position[t]] for t in range(len(counts)))

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range. A snapshot with a hashed one lasts until :meth:`PsEngine.end_snapshot`."""
        found = self._hashed.get(self._position[t])
        return self._stacked.table(self._position[t]) if found is None else found.rows()

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table that is not hashed from ``first`` to ``stop``."""
        found = self._stacked.capture(self._position[t], first, stop)
        return ChangedRows(found.rows, found.weights, found.slots)

    def skip(self, t: int) -> None:
        """Leave out a table that is not read: the servers keep its rows until the snapshot ends."""

    def close(self) -> None:
        """End the snapshot."""
        self._stacked.close()

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`."""
        found = self._hashed.get(self._position[t])
        return self._stacked.sections(self._position[t]) if found is None else found.sections()
