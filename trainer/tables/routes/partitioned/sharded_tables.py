"""Embedding tables on many cores, spread as a partition plan says. A core is a thread, or a host of a job.

In a step each core asks the owners for the rows of its batch, combines them by itself, and returns their summed gradients. So sums of
rows never cross the network, and activations have the same bits by any plan. An owner adds the gradients of a row in the order of
ranks and updates the row once: for a plan the same batches give the same bits. The gradients of a replicated table go to all its
copies, which stay equal because each adds the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.batches import IdBatch
from trainer.tables.engine import NO_SECTIONS, ChangedRows, SnapshotSections, TableSections, TableState
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.kernels.layout import feature_layout
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.core_store import store_of
from trainer.tables.routes.partitioned.gathered_rows import GatheredRows, lookups_of
from trainer.tables.routes.partitioned.request_kernels import put_rows, take_rows
from trainer.tables.routes.partitioned.requests import RequestMaker, Requests, asked_layout
from trainer.tables.routes.partitioned.static_buffers import StaticBuffers
from trainer.tables.routes.partitioned.table_parts import TablePart, TableParts
from trainer.tables.spec import FeatureSpec
from trainer.tables.state_checks import empty_state
from trainer.tables.stores.hashed.limits import TableLimits, divided_limits
from trainer.tables.stores.hashed.saved_history import SECTIONS, SavedHistory
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.row_store import RowStore, StoreSnapshot
from trainer.tables.table_checks import supported_tables
from trainer.tables.wire.encoded_values import (
    FLAG_OF,
    check_encoded,
    decode_pieces,
    encode_pieces,
    encoded_bytes,
    floats_of_pieces,
    split_pieces,
)
from transforms.arrays import Array


@dataclass(slots=True, eq=False)
class Asked:
    """What one core needs of a batch.

    Attributes:
        requests: what this core asks for.
        received: what each core has asked this one for: rows of its parts, and their numbers by part; None before it was.
    """

    requests: Requests
    received: list[tuple[Array, Array]] | None = None


class ShardedTables(BagTables[Asked]):
    """One core's part of the tables of ``features``. All cores of ``exchange`` make the same calls in the same order.

    Lookups and updates of a batch are those of :class:`~trainer.tables.routes.cpu_engine.CpuEngine`, but gradients are summed over cores.

    Args:
        parts: the parts of the tables by a plan for the cores of ``exchange``; None: rows are spread cyclically.
        threads: of this core; 0 for one a processor.
        buffers: of fixed size for its requests; None: messages are as long as they need to be.
        held: batches between a lookup and its update, for which it keeps what both need.
        pruning: the most important rows of this core of tables that are not hashed have places, by these options; None: all rows have values.
        groups: of these tables, with the places of this core; None: those by the options.
        job: the places that this core shares with others, beside ``groups``; None: they are its own.
        hashed: by name the limits of tables of unbounded vocabularies, whose capacities are divided over the cores.
        hash_prefix: of the names of tables, by which ids are hashed; one that they have elsewhere gives the same places.
        store: has the rows of this core; None: one by ``pruning`` and ``hashed``.
        values: how rows and gradients are encoded between cores, see :class:`~trainer.tables.wire.settings.WireSettings`.

    Attributes:
        store: as given, or made.

    Raises :class:`ConfigError` for tables that do not fit, and for pruned and hashed ones by a plan.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, exchange: Exchange, parts: TableParts | None = None,
        threads: int = 0, buffers: StaticBuffers | None = None, held: int = 2,
        pruning: PruningOptions | None = None, hashed: Mapping[str, TableLimits] | None = None, hash_prefix: str = "",
        groups: Sequence[RowGroup] | None = None, job: JobPlaces | None = None, store: RowStore | None = None, values: str = "float32",
    ) -> None:  # fmt: skip
        tables, team = supported_tables(features), Team(threads or available_threads())
        super().__init__(features, tables, team, held=held)
        self._exchange, self._buffers, self._flag = exchange, buffers, FLAG_OF[values]
        self._parts = parts or TableParts(self.tables, exchange.hosts, None)
        self._of_features = feature_layout(self.features, self.tables)
        self._layout = asked_layout(self._of_features, self.tables, seed, hashed or {})
        self._gathered = GatheredRows(self._of_features, self._layout, self.width, team)
        self._gives = np.array([part.gives(exchange.rank) for part in self._parts.parts])
        self._requests = RequestMaker(
            self.features,
            self._of_features,
            self._layout,
            parts=self._parts,
            core=exchange.rank,
            team=team,
        )
        limits = divided_limits(hashed or {}, self.tables, exchange.hosts, is_planned=parts is not None)
        self.store: RowStore = store or store_of(
            self._parts,
            exchange,
            seed=seed,
            threads=threads,
            pruning=pruning,
            hashed=limits,
            hash_prefix=hash_prefix,
            groups=groups,
            job=job,
        )
        self._sharing = self.store.sharing
        self._memory = OutputPool(spare=0.25, kept=(6 if self._flag else 2) * (exchange.hosts + 1) + held)

    @property
    def rank(self) -> int:
        """The place of this core among all."""
        return self._exchange.rank

    def begin_attempt(self) -> None:
        """An attempt to train begins on all cores, some of which may have loaded their rows again."""
        if self._sharing is not None:
            self._sharing.forget_places()

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done on this core, by name."""
        return self.store.hashed_counts

    def freeze(self) -> None:
        """See :class:`BagTables`."""
        self.store.freeze()

    def prepare(self, batch: IdBatch) -> Asked:
        """See :class:`BagTables`."""
        return Asked(self._requests.make(batch))

    def begin(self, kept: Asked) -> Callable[[], Array]:
        """See :class:`BagTables`; all cores have read their rows when it returns."""
        weights = self._fetch(kept)
        return lambda: self._gathered.combine(kept.requests, weights)

    def update(self, kept: Asked, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`; ``gradients``: of the loss over all cores' events."""
        distinct = kept.requests.layout.vocabulary
        self.update_rows(kept, gradients)
        return [(kept.requests.batch.offsets, distinct)]

    def update_rows(self, kept: Asked, gradients: Array) -> Array:
        """As :meth:`update`; returns the distinct rows of each table on this core, of all cores' events.

        Column slices and replicas of a table are counted once.
        """
        if kept.received is None:
            self._fetch(kept)
        assert kept.received is not None
        asked, layout, sharing = kept.received, kept.requests.layout, self._sharing
        sums = self._memory.take(int((layout.vocabulary * layout.dims).sum()))
        self._gathered.sum_gradients(kept.requests, gradients, sums)
        messages = self._gradient_messages(kept.requests, sums)
        if sharing is not None:
            wanted = sharing.wanted_places(asked)
            messages = [[*one, wanted] for one in messages]
        received = self._exchange.all_to_all(messages)
        if self._parts.has_replicas:
            asked = [(np.asarray(rows, np.int64), np.asarray(counts, np.int64)) for _, rows, counts in received]
        floats = [self._received(core, arrays[:1], asked[core][1]) for core, arrays in enumerate(received)]
        lookups = [arrays[1] for arrays in received] if self.store.needs_lookups else []
        if sharing is not None:
            sharing.grant_places([arrays[-1] for arrays in received])
        return self._distinct_by_table(self.store.update_rows(asked, floats, lookups=lookups))

    def _gradient_messages(self, requests: Requests, sums: Array) -> list[list[Array]]:
        """To each owner the gradients of its rows.

        With replicated tables also the rows, which are more than it was asked for; with pruned ones also how often each was looked up.
        """
        updates, parts = requests.updates, requests.part_values
        lookups = lookups_of(requests, self._of_features, self._parts) if self.store.needs_lookups else None
        messages = []
        for owner in range(self._exchange.hosts):
            counts, of_owner = updates.counts[owner], updates.of_owner(owner)
            floats = self._memory.take(int((counts * parts.dims).sum()))
            take_rows(updates.places[of_owner], counts, parts, sums, floats)
            message = [self._sent(floats, counts)]
            if self._parts.has_replicas:
                message += [updates.rows[of_owner], counts]
            elif lookups is not None:
                message.append(lookups[of_owner])
            messages.append(message)
        return messages

    def _distinct_by_table(self, distinct: Array) -> Array:
        found: Array = (distinct * self._gives)[self._parts.first_part[:-1]]
        return found

    def _fetch(self, kept: Asked) -> Array:
        """Ask the owners for the rows of a batch; returns them in the order of the slots."""
        requests = kept.requests
        kept.received = self._ask(requests)
        sent = [[self._sent(self.store.read_rows(rows, counts), counts)] for rows, counts in kept.received]
        answers = self._exchange.all_to_all(sent)
        layout, reads, parts = requests.layout, requests.reads, requests.part_values
        weights = self._memory.take(int((layout.vocabulary * layout.dims).sum()))
        for owner, (answer,) in enumerate(answers):
            counts = reads.counts[owner]
            put_rows(
                reads.places[reads.of_owner(owner)], counts, parts, self._received(owner, [answer], counts), weights
            )
        return weights

    def _sent(self, values: Array, counts: Array) -> Array:
        """The values of rows, of which each part has ``counts``, as another core gets them. Raises :class:`~trainer.errors.BadBatch` for infinity."""
        if not self._flag:
            return values
        floats = floats_of_pieces(counts, self._parts.layout.dims)
        buffer = self._memory.take_bytes(encoded_bytes(floats, self._flag))
        encode_pieces(split_pieces([values], floats), buffer, self._flag)
        return buffer

    def _received(self, core: int, message: Sequence[Array], counts: Array) -> Array:
        """The inverse of :meth:`_sent`, of what another core sent. Raises :class:`~transforms.errors.DataError`, and :class:`~trainer.errors.BadBatch` for bytes that no encoder writes."""
        floats = floats_of_pieces(counts, self._parts.layout.dims)
        check_encoded(message, floats, self._flag, f"core {core}")
        if not self._flag:
            return message[0]
        found = self._memory.take(sum(floats))
        decode_pieces(message[0], split_pieces([found], floats), self._flag)
        return found

    def _ask(self, requests: Requests) -> list[tuple[Array, Array]]:
        """Send the requests, and return those of all cores to this one."""
        if self._buffers is not None:
            sent = self._buffers.pack(self._exchange.rank, requests)
            return [self._buffers.unpack(message) for message in self._exchange.all_to_all(sent)]
        reads = requests.reads
        asked = self._exchange.all_to_all(
            [[reads.rows[reads.of_owner(owner)], reads.counts[owner]] for owner in range(self._exchange.hosts)]
        )
        return [(np.asarray(rows, np.int64), np.asarray(counts, np.int64)) for rows, counts in asked]

    def state(self) -> dict[str, TableState]:
        """A copy of the changed rows of this core, by table name, with their numbers in the whole table.

        Of a replicated table one core gives the rows. Raises :class:`ConfigError` for a plan with slices of columns.
        """
        self._parts.check_whole_rows()
        return {part.table.name: self.part_state(p) for p, part in enumerate(self._parts.parts)}

    def part_state(self, p: int) -> TableState:
        """As :meth:`state`, the columns of one part."""
        part, core = self._parts.parts[p], self._exchange.rank
        own = self.store.table_state(p)
        if not self._gives[p]:
            sections = own.sections if part.is_saved_by(core) else NO_SECTIONS
            return TableState(own.rows[:0], own.weights[:0], own.slots[:0], sections)
        number = partial(part.whole_rows, core)
        return replace(own, rows=number(own.rows), sections=own.sections.renumbered(number))

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`; the rows of this core, from the :meth:`state` of all."""
        core = self._exchange.rank
        own = {}
        for part in self._parts.parts:
            saved = state[part.table.name]
            sections = _own_sections(part, core, self._exchange.hosts, saved)
            own[part.name] = replace(part.own_state(core, saved), sections=sections)
        self.store.load_state(own)

    @property
    def parts(self) -> TableParts:
        """The parts of the tables on all cores."""
        return self._parts

    @property
    def held_parts(self) -> tuple[int, ...]:
        """The positions of the parts with rows or copies on this core."""
        return tuple(p for p, part in enumerate(self._parts.parts) if self._exchange.rank in part.slice_.cores)

    @property
    def saved_parts(self) -> tuple[int, ...]:
        """Those of :attr:`held_parts` that this core saves."""
        return tuple(p for p in self.held_parts if self._parts.parts[p].is_saved_by(self._exchange.rank))

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`; ``t``: of a part."""
        return self.store.section_names(t)

    def load_parts(self, states: Mapping[int, TableState]) -> None:
        """Restore the parts of this core, by position, from states with the numbers of rows in the whole tables.

        A part without a state gets its initial values. Raises :class:`~trainer.errors.TornCheckpoint` for a state that does not fit.
        """
        own, core = {}, self._exchange.rank
        for p, part in enumerate(self._parts.parts):
            shard, _ = part.shard(core)
            number = partial(_own_rows, part, core)
            state = states.get(p) or empty_state(shard)
            own[part.name] = replace(state, rows=number(state.rows), sections=state.sections.renumbered(number))
        self.store.load_state(own)
        self.restart()

    def part_weights_of(self, p: int, rows: Array) -> tuple[Array, Array]:
        """Which ``rows`` of a part are on this core, as a mask, and their weights; for inspection and tests."""
        part = self._parts.parts[p]
        mine, own = part.own_rows(self._exchange.rank, rows)
        return mine, self.store.weights_of(part.name, own)

    def begin_snapshot(self, *, most_bytes: int) -> ShardSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.tables.routes.cpu_engine.CpuEngine.begin_snapshot>`; the rows of :meth:`state`."""
        self._parts.check_whole_rows()
        return self.begin_part_snapshot(most_bytes=most_bytes)

    def begin_part_snapshot(self, *, most_bytes: int) -> ShardSnapshot:
        """As :meth:`begin_snapshot`, part by part, for a plan that may have slices of columns."""
        return ShardSnapshot(self.store.begin_snapshot(most_bytes=most_bytes), self._parts.parts, self._exchange.rank)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self.store.end_snapshot()


class ShardSnapshot:
    """The snapshot of one core's parts of tables, with the numbers of rows in the whole tables."""

    def __init__(self, own: StoreSnapshot, parts: Sequence[TablePart], core: int) -> None:
        self._own, self._parts, self._core = own, parts, core
        self._gives = [part.gives(core) for part in parts]
        for p, gives in enumerate(self._gives):
            if not gives:
                own.skip(p)

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each part on this core, which gives them."""
        return tuple(count if gives else 0 for count, gives in zip(self._own.counts, self._gives, strict=True))

    def table(self, t: int) -> Iterator[ChangedRows]:
        """See :meth:`EngineSnapshot.table <trainer.tables.stores.dense.snapshot.EngineSnapshot.table>`."""
        if not self._gives[t]:
            return
        for part in self._own.table(t):
            yield replace(part, rows=self._parts[t].whole_rows(self._core, part.rows))

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`."""
        found, part = self._own.sections(t), self._parts[t]
        return replace(
            found, by_rows={name: part.whole_section(self._core, one) for name, one in found.by_rows.items()}
        )

    def capture(self, p: int, first_row: int, stop_row: int) -> ChangedRows | None:
        """The changed rows of a part between two rows of the whole table, or None if this core gives none of them."""
        if not self._gives[p]:
            return None
        part = self._parts[p]
        first, stop = part.own_range(self._core, first_row, stop_row)
        if first == stop:
            return None
        found = self._own.capture(p, first, stop)
        return replace(found, rows=part.whole_rows(self._core, found.rows))

    def close(self) -> None:
        """End the snapshot."""
        self._own.close()


def _own_sections(part: TablePart, core: int, cores: int, whole: TableState) -> TableSections:
    """What ``core`` has of the sections of a table, with its numbers of rows."""
    found = whole.sections
    arrays = found.arrays
    if arrays.keys() >= {*SECTIONS}:
        mine, _ = part.own_rows(core, whole.rows)
        arrays = SavedHistory.read(part.table.name, whole, cores).own_arrays(mine, core, cores)
    return TableSections({name: part.own_state(core, one) for name, one in found.by_rows.items()}, arrays)


def _own_rows(part: TablePart, core: int, rows: Array) -> Array:
    """The numbers on ``core`` of rows of a part, all of which must be there."""
    mine, own = part.own_rows(core, rows)
    if not mine.all():
        raise TornCheckpoint("a saved shard must hold rows of its core, got others", where=f"table {part.table.name}",
                             value=rows[~mine][:4].tolist())  # fmt: skip
    return own
