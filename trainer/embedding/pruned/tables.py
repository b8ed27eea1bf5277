"""What engines of pruned tables share: which rows have places, how important rows are, and when places change hands.

A row has a place among the rows that its group of tables shares, or is read as zeros. All rows that are looked up become more important, those without a
place, too, by lookups times the norm of their gradient. Now and then a round gives the places to the most important rows.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from trainer.embedding.bag_tables import BagTables
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.layout import Bags, TableOrigin, feature_layout, table_layout
from trainer.embedding.cpu.lookup import shares_of
from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.threads import Team, available_threads, split_events
from trainer.embedding.cpu.updates import RowUpdates
from trainer.embedding.engine import TableState, in_memory
from trainer.embedding.pruned import addresses as kernels
from trainer.embedding.pruned.addresses import Addresses
from trainer.embedding.pruned.counts import PruningCounts
from trainer.embedding.pruned.history import SECTIONS, PrunedHistory
from trainer.embedding.pruned.places import PlaceValues
from trainer.embedding.pruned.round import TableRound, TableRows, select_rows
from trainer.embedding.pruned.row_importance import RowImportance
from trainer.embedding.pruned.row_starts import RowStarts
from trainer.embedding.spec import FeatureSpec, TableSpec
from trainer.embedding.table_checks import supported_tables
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.pruning_rounds import kept_rows
from trainer.planning.row_groups import RowGroup, SharingTable, row_groups
from trainer.pruning_options import PruningOptions
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)


def groups_of(tables: Sequence[TableSpec], options: PruningOptions) -> tuple[RowGroup, ...]:
    """The groups of tables. Raises :class:`ConfigError` for groups and budgets that do not fit."""
    sharing = [SharingTable(one.name, one.vocabulary_size, one.dim, one.optimizer) for one in tables]
    return row_groups(sharing, options.budget, options.groups)


@dataclass(slots=True, eq=False)
class PlacedBatch:
    """A checked batch with the places of its ids.

    Attributes:
        batch: the batch.
        bags: with places in place of ids.
        missing: how many ids of each feature have no place.
        version: of the addresses by which the places were found; -1 before they were.
    """

    batch: IdBatch
    bags: Bags
    missing: Array
    version: int = -1


Placed = TypeVar("Placed", bound=PlacedBatch)


class Combine(Protocol):
    """What a lookup does with the places of some events' ids, which several threads find at once."""

    def find(self, batch: IdBatch, features: Array, events: tuple[int, int], bags: Bags, missing: Array) -> None:
        """Write the places of ids of ``features`` to ``bags``, count those without one in ``missing``, and combine the events."""

    def combine(self, events: tuple[int, int], bags: Bags) -> None:
        """Combine events whose places are found."""


class PrunedTables(BagTables[Placed]):
    """The tables of ``features``, of whose rows the most important ones have values. Arguments are those of its engines.

    ``groups``: of the tables; None: those by the options. ``origins``: of each table, the part of a whole table that it is; None for whole tables.

    Attributes:
        rows: the values of places.
        importance: of all rows.
        counts: what pruning has done.
        step: updates since all rows were of no importance.
    """

    rows: PlaceValues
    importance: RowImportance

    def __init__(
        self, features: Sequence[FeatureSpec], options: PruningOptions, *, seed: int, threads: int, held: int,
        groups: Sequence[RowGroup] | None = None, origins: Sequence[TableOrigin] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(features, supported_tables(features), Team(threads or available_threads()), held=held)
        for table in self.tables:
            if table.quantization is not None:
                raise ConfigError("a pruned table must have rows that are not quantized", where=f"table {table.name}", value="a quantization",
                                  allowed="none")  # fmt: skip
        self.options, self.seed = options, seed
        self.groups = tuple(groups or groups_of(self.tables, options))
        self._group_sizes = [sum(self.tables[t].vocabulary_size for t in group.tables) for group in self.groups]
        self.addresses = Addresses([one.vocabulary_size for one in self.tables], self.groups)
        self.of_features = feature_layout(self.features, self.tables)
        self._is_frozen = False
        whole, of_tables = table_layout(self.of_features, self.tables, seed), self.of_features.table
        self._starts = RowStarts(self.tables, self.of_features, seed, origins)
        by_row = whole._replace(row_base=self.addresses.first_row[:-1])
        self._notes = RowUpdates(self.of_features, by_row, self.team)
        self.lookups = kernels.Lookups(
            self.addresses.first_row[of_tables],
            self.addresses.zero_row[of_tables].astype(np.int64),
            self.of_features.sequence,
            self.addresses.address,
        )
        self._costs = whole.dims[of_tables] + 16

    @abstractmethod
    def no_importance(self) -> RowImportance:
        """The importance of rows of which none has any."""

    def forget(self) -> None:
        """Give no row a place, and all of them no importance."""
        self.rows.clear()
        self.addresses.clear()
        self._starts.clear()
        self.importance = self.no_importance()
        self.step, self._version = 0, 0
        self.counts = PruningCounts()
        self.restart()

    @property
    def nbytes(self) -> int:
        """The bytes of this process for values, and for addresses and importance."""
        return self.rows.nbytes + self.overhead_bytes

    @property
    def overhead_bytes(self) -> int:
        """The bytes of addresses and importance."""
        return self.addresses.nbytes + self.importance.nbytes

    def place_rows(self, t: int, rows: Array) -> None:
        """Give rows of a table that have none free places, with their initial values. There must be enough."""
        self._assign(t, rows, self.addresses.place(t, rows))
        self._version += 1

    def freeze(self) -> None:
        """Give no row a place any more: lookups of predictions change nothing."""
        self._is_frozen = True

    def count_lookup(self, placed: PlacedBatch) -> None:
        """Count the ids of a batch that is looked up."""
        missing = int(placed.missing.sum())
        self.counts.misses += missing
        self.counts.hits += len(placed.batch.ids) - missing

    def unplaced(self, batch: IdBatch) -> tuple[IdBatch, Bags, Array]:
        """The first members of a :class:`PlacedBatch` whose places are not found yet."""
        places, shares = np.empty(len(batch.ids), np.int32), _NO_SHARES
        if batch.weights is not None:
            shares = shares_of(batch.weights, batch.offsets, self.of_features.combiner)
        return batch, Bags(places, batch.offsets, shares), np.zeros(len(self.features), np.int64)

    def note(self, ids: Array, placed: PlacedBatch, flat: Array) -> Array:
        """Add to the importance of the rows ``ids`` of a batch by its gradients; returns how many distinct ones each table has."""
        bags = Bags(ids, placed.batch.offsets, placed.bags.shares)
        return self._notes.note(bags, flat, self.width, self.importance.noted())

    def place(self, kept: PlacedBatch, combine: Combine | None = None) -> None:
        """Find the places of a batch's ids: once for a lookup and its update, unless rows have moved between them.

        A row that has none takes a free place, if there is one, with its initial values. ``combine``: what is done with all events.
        """
        if kept.version == self._version:
            self._combine(kept.bags, combine)
            return
        if kept.version >= 0:  # what was asked for by its earlier places may still be read
            _, kept.bags, kept.missing = self.unplaced(kept.batch)
        batch, bags, missing = kept.batch, kept.bags, kept.missing
        self._find(batch, np.arange(len(self.features)), bags, missing, combine)
        if missing.any() and not self._is_frozen and self.addresses.free_rows.any():
            for f in np.flatnonzero(missing).tolist():
                self._place_new_rows(batch, f)
                self._find(batch, np.array([f]), bags, missing)  # a feature of the same table may have placed its rows
            self._combine(bags, combine)
        kept.version = self._version

    def _find(
        self, batch: IdBatch, features: Array, bags: Bags, missing: Array, combine: Combine | None = None
    ) -> None:
        """Find the places of some features' ids."""
        parts = split_events(batch.offsets, self._costs, self.team.threads)
        counts = np.zeros((len(parts), len(missing)), np.int64)

        def find(k: int) -> None:
            if combine is not None:
                combine.find(batch, features, parts[k], bags, counts[k])
            else:
                kernels.find_places(features, *parts[k], batch.ids, batch.offsets, self.lookups, bags.ids, counts[k])

        self.team.run([partial(find, k) for k in range(len(parts))])
        missing[features] = counts.sum(axis=0)[features]

    def _combine(self, bags: Bags, combine: Combine | None) -> None:
        if combine is not None:
            parts = split_events(bags.offsets, self._costs, self.team.threads)
            self.team.run([partial(combine.combine, part, bags) for part in parts])

    def _place_new_rows(self, batch: IdBatch, f: int) -> None:
        """Give free places to the rows of a feature's ids that have none."""
        t, addresses = int(self.of_features.table[f]), self.addresses
        most = int(addresses.free_rows[addresses.group_of[t]])
        ids = _used_ids(batch, f, int(self.of_features.sequence[f]))
        if not most or not len(ids):
            return
        rows = np.empty(min(most, len(ids)), np.int64)
        count = kernels.rows_without(ids, int(addresses.first_row[t]), addresses.address, len(rows), rows)
        self._assign(t, rows[:count], addresses.place(t, rows[:count]))

    def _assign(self, t: int, rows: Array, places: Array) -> None:
        """Give rows of a table their initial values at these places; their importance comes along."""
        self.rows.write(t, places, self._starts.initial(t, rows))
        self.importance.carry(t, rows, places)

    def missing_ids(self, placed: PlacedBatch) -> Array:
        """The ids of a batch that have no place; for others a number that no row has."""
        batch, found = placed.batch, np.empty(len(placed.batch.ids), np.int64)
        for f in range(len(self.features)):
            t = int(self.of_features.table[f])
            kernels.keep_missing(int(batch.offsets[f, 0]), int(batch.offsets[f, -1]), batch.ids, placed.bags.ids,
                                 int(self.addresses.zero_row[t]), self.tables[t].vocabulary_size, found)  # fmt: skip
        return found

    def end_step(self) -> None:
        """An update has been made. Then a round may begin."""
        options = self.options
        self.step += 1
        if self.step % options.decay_steps == 0:
            self.importance.decay()
        if options.round_steps:
            if self.step % options.round_steps == 0:
                self.prune()
        elif self.step % options.check_steps == 0 and self._should_prune():
            self.prune()

    def _should_prune(self) -> bool:
        """Whether enough rows of a group have crossed its cut-off, by a sample."""
        began = time.perf_counter()
        draw = np.random.default_rng([self.seed, self.step])
        found = any(
            self.importance.crossing(group, draw) > self.options.crossing_share for group in self._full_groups()
        )
        self.counts.check_secs += time.perf_counter() - began
        return found

    def _full_groups(self) -> list[RowGroup]:
        """The groups without free places for further rows: in others a row gets one when it is looked up."""
        free = self.addresses.free_rows.tolist()
        return [group for g, group in enumerate(self.groups) if not free[g] and group.rows < self._group_sizes[g]]

    def importance_of_rows(self, t: int) -> Array:
        """A copy of the importance of all rows of a table."""
        return self.importance.of(t, np.arange(self.tables[t].vocabulary_size))[0]

    def set_importance(self, t: int, importance: Array) -> None:
        """Replace the importance of all rows of a table, float32."""
        self.importance.of_table(t)[:] = importance
        self.importance.carry(t, *self.addresses.placed(t))

    def prune(self) -> None:
        """Give the places of all full groups to their most important rows, but those that the option ``spare_share`` leaves free."""
        began = time.perf_counter()
        self.importance.gather()
        for group in self._full_groups():
            tables = [TableRows(self.importance.chosen(t, self.step), self.addresses.of_table(t)) for t in group.tables]
            scales = [self.importance.scale(one.importance) for one in tables]
            self._move(group, select_rows(tables, scales, kept_rows(group, self.options.spare_share), self.team))
        self._version += 1
        self.counts.rounds += 1
        self.counts.round_secs += time.perf_counter() - began

    def _move(self, group: RowGroup, changes: Sequence[TableRound]) -> None:
        """Take the places of leaving rows, and give those of coming ones their values."""
        addresses, starts = self.addresses, self._starts
        for t, change in zip(group.tables, changes, strict=True):
            if self.options.reset == "restored" and len(change.leaving):
                places = addresses.of_table(t)[change.leaving].astype(np.int64)
                starts.keep(t, self.rows.read(t, change.leaving, places))
            addresses.release(t, change.leaving)
        for t, change in zip(group.tables, changes, strict=True):
            places = addresses.place(t, change.coming)
            if (values := starts.after_round(t, change.coming, self.options.reset)) is not None:
                self.rows.write(t, places, values)
            self.importance.carry(t, change.coming, places)
            self.counts.moved_rows += len(places)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]; zeros of a row without a place. For inspection and tests."""
        t = [one.name for one in self.tables].index(table)
        places = self.addresses.of_table(t)[np.asarray(rows, np.int64)].astype(np.int64)
        places[places < 0] = int(self.addresses.zero_row[t])
        return self.rows.read(t, places, places).weights

    def state(self) -> dict[str, TableState]:
        """A copy of all rows with a place, and the importance of all rows, by table name."""
        return {table.name: self.table_state(t) for t, table in enumerate(self.tables)}

    def table_state(self, t: int) -> TableState:
        """As :meth:`state`, of the table at this position."""
        self.importance.gather([t])
        return replace(self.rows.read(t, *self.addresses.placed(t)), sections=self._history(t).sections())

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.embedding.engine.SavedTables.section_names>`."""
        return SECTIONS

    def histories(self) -> dict[str, PrunedHistory]:
        """The importance of all rows now, by table name."""
        self.importance.gather()
        return {table.name: self._history(t) for t, table in enumerate(self.tables)}

    def _history(self, t: int) -> PrunedHistory:
        own = self.importance.of_table(t)
        rows = np.flatnonzero(own)
        left = self._starts.kept(t) if self.options.reset == "restored" else None
        return PrunedHistory(rows, own[rows], self.importance.gain, self.step, self.counts.rounds, left)

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`; in tables without sections all rows are of no importance.

        Of a state with more rows than a group has places, the most important ones stay.
        """
        histories = self._saved_histories(state)
        self.forget()
        self._load(state, histories)

    def _saved_histories(self, state: Mapping[str, TableState]) -> dict[str, PrunedHistory]:
        """The importance of the rows of saved tables, by name, where there is any. Raises :class:`TornCheckpoint`."""
        histories = {}
        for table in self.tables:
            if (one := PrunedHistory.read(table.name, state[table.name].sections)) is not None:
                one.check(table)
                histories[table.name] = one
        known = {(one.gain, one.step) for one in histories.values()}
        if len(known) > 1:
            raise TornCheckpoint("the importance of all pruned tables must be of one moment", value=sorted(known)[:4])
        return histories

    def _load(self, state: Mapping[str, TableState], histories: Mapping[str, PrunedHistory]) -> None:
        for one in histories.values():
            self.importance.gain, self.step = one.gain, one.step
            # Parts of a model that had engines of their own had rounds of their own.
            self.counts.rounds = max(self.counts.rounds, one.rounds)
        for t, table in enumerate(self.tables):
            if (history := histories.get(table.name)) is not None:
                self.importance.of_table(t)[history.rows] = history.importance
                if history.left is not None and self.options.reset == "restored":
                    self._starts.keep(t, history.left)
        found: dict[int, tuple[Array, TableState]] = {}
        for group in self.groups:
            kept = self._kept_states(group, [state[self.tables[t].name] for t in group.tables])
            for t, own in zip(group.tables, kept, strict=True):
                found[t] = self.addresses.place(t, own.rows), own
        self.rows.load([found[t] for t in range(len(self.tables))])
        for t, (places, own) in found.items():
            self.importance.carry(t, own.rows, places)

    def _kept_states(self, group: RowGroup, states: Sequence[TableState]) -> list[TableState]:
        """Of the states of a group's tables, as many rows as it has places: the most important ones."""
        importance = [self.importance.of_table(t)[one.rows] for t, one in zip(group.tables, states, strict=True)]
        every = np.concatenate(importance)
        if len(every) <= group.rows:
            return list(states)
        kept = np.ones(len(every), bool)
        scales = [self.importance.scale(self.importance.chosen(t, self.step)) for t in group.tables]
        ranked = np.argsort(
            -np.concatenate([one * scale for one, scale in zip(importance, scales, strict=True)]), kind="stable"
        )
        kept[ranked[group.rows :]] = False
        ends = np.cumsum([len(one) for one in importance])
        return [
            TableState(one.rows[own], one.weights[own], one.slots[own])
            for one, own in zip(states, np.split(kept, ends[:-1]), strict=True)
        ]

    def begin_snapshot(self, *, most_bytes: int) -> PlacedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.cpu_engine.CpuEngine.begin_snapshot>`."""
        return self.rows.begin_snapshot(most_bytes, [in_memory(one.sections()) for one in self.histories().values()])

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self.rows.end_snapshot()


def _used_ids(batch: IdBatch, f: int, sequence: int) -> Array:
    """The ids of a feature, without those after the end of a sequence."""
    offsets = batch.offsets[f]
    ids: Array = batch.ids[int(offsets[0]) : int(offsets[-1])]
    if not sequence:
        return ids
    positions = np.arange(len(ids)) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets))
    used: Array = ids[positions < sequence]
    return used
