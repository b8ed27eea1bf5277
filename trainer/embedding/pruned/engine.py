"""The embedding engine whose tables keep their most important rows only, within a budget (AdaEmbed, Lai et al., OSDI 2023).

A row has a place among the rows that its group of tables shares, or is read as zeros. All rows that are looked up become more important, those without a
place, too, by lookups times the norm of their gradient. Now and then a round gives the places to the most important rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu import lookup as lookup_kernels
from trainer.embedding.cpu.engine import STREAMED_BYTES, refuse_unsupported
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.layout import Bags, feature_columns, feature_layout, learning_rates, table_layout
from trainer.embedding.cpu.lookup import shares_of
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.threads import Team, available_threads, split_events
from trainer.embedding.cpu.updates import RowUpdates
from trainer.embedding.cpu.vectors import LANES
from trainer.embedding.engine import TableState
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.pruned import addresses as kernels
from trainer.embedding.pruned.addresses import Addresses
from trainer.embedding.pruned.counts import PruningCounts
from trainer.embedding.pruned.group_rows import GroupRows
from trainer.embedding.pruned.history import PrunedHistory
from trainer.embedding.pruned.round import TableRound, TableRows, select_rows
from trainer.embedding.pruned.row_importance import RowImportance
from trainer.embedding.spec import FeatureSpec, tables_of
from trainer.embedding.state_checks import check_states
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.row_groups import RowGroup, SharingTable, row_groups
from trainer.pruning_options import PruningOptions

Array = np.ndarray[Any, np.dtype[Any]]

#: The events that are combined feature after feature.
_TILE_EVENTS = 4096
_NO_SHARES = np.zeros(0, np.float32)


@dataclass(slots=True, eq=False)
class _Placed:
    """A checked batch with the places of its ids; ``missing``: how many ids of each feature have none; ``version``: of the addresses."""

    batch: IdBatch
    bags: Bags
    missing: Array
    version: int


class PrunedEngine:
    """Lookups and updates over the tables of ``features``, of whose rows the most important ones have values.

    While all rows of the looked-up ids have places, activations, updates and states have the bits of
    :class:`~trainer.embedding.cpu.engine.CpuEngine`. Equal calls in the same order give equal bits, whatever the number of threads.

    Args:
        features: the features, in the order of batches.
        options: the budget, and how rows are chosen.
        seed: what initial weights and samples are drawn from.
        threads: threads of the loops; 0 for one a processor.
        held: batches between a lookup and its update, for which it keeps what both need.

    Raises :class:`ConfigError` for what the cpu engine refuses, for tables with quantized rows, and for groups and budgets that do not fit.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], options: PruningOptions, *, seed: int, threads: int = 0, held: int = 2
    ) -> None:
        self.features, self.tables = tuple(features), tables_of(features)
        if not self.features:
            raise ConfigError("an embedding engine must have at least one feature")
        for table in self.tables:
            refuse_unsupported(table)
            if table.quantization is not None:
                raise ConfigError("a pruned table must have rows that are not quantized", where=f"table {table.name}", value="a quantization",
                                  allowed="none")  # fmt: skip
        self.options, self._seed, self._held = options, seed, held
        sharing = [SharingTable(one.name, one.vocabulary_size, one.dim, one.optimizer) for one in self.tables]
        self.groups = row_groups(sharing, options.budget, options.groups)
        self._addresses = Addresses([one.vocabulary_size for one in self.tables], self.groups)
        self._of_features = feature_layout(self.features, self.tables)
        self._width = sum(feature.width for feature in self.features)
        self._team = Team(threads or available_threads())
        self._is_frozen = False
        self._rows = GroupRows(self.tables, self._of_features, self.groups, self._addresses, seed)
        self._layout = self._rows.layout
        whole, of_tables = table_layout(self._of_features, self.tables, seed), self._of_features.table
        self._updates = RowUpdates(self._of_features, self._layout, self._team)
        self._notes = RowUpdates(self._of_features, whole._replace(row_base=self._addresses.first_row[:-1]), self._team)
        self._lookups = kernels.Lookups(
            self._addresses.first_row[of_tables],
            self._addresses.zero_row[of_tables].astype(np.int64),
            self._addresses.address,
        )
        self._outputs = OutputPool(kept=held + 1)
        self._may_stream = not (self._layout.dims[of_tables] % LANES).any()
        self._costs = self._layout.dims[of_tables] + 16
        self._begin()

    def _begin(self) -> None:
        self._addresses.clear()
        self._rows.clear()
        places = len(self._rows.values.row_state)
        self._importance = RowImportance(
            self._addresses, self._layout.row_base, places, self.options, self._seed, self._team
        )
        self.step, self._version = 0, 0
        self.counts = PruningCounts()
        self._placed: deque[_Placed] = deque(maxlen=self._held)
        self._counter = BatchCounter(self.features, self._of_features.table)

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""
        return self._width

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        return feature_columns(self.features, self._of_features)

    @property
    def nbytes(self) -> int:
        """The bytes of rows and slots, and of addresses and importance."""
        return self._rows.nbytes + self.overhead_bytes

    @property
    def overhead_bytes(self) -> int:
        """The bytes of addresses and importance."""
        return self._addresses.nbytes + self._importance.nbytes

    def place_rows(self, t: int, rows: Array) -> None:
        """Give rows of a table that have none free places, with their initial values. There must be enough."""
        self._assign(t, rows, self._addresses.place(t, rows))
        self._version += 1

    def freeze(self) -> None:
        """Give no row a place any more: lookups of predictions change nothing."""
        self._is_frozen = True

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros, and an id without a place counts as a row of zeros.

        A row that is looked up first takes a free place, if there is one, with its initial values. Raises
        :class:`~trainer.errors.BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """
        out = self._outputs.take(batch.rows * self._width)
        placed = self._places_of(batch, out)
        missing = int(placed.missing.sum())
        self.counts.misses += missing
        self.counts.hits += len(batch.ids) - missing
        return out.reshape(batch.rows, self._width)

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch`` with a place; all its rows become more important. Then a round may begin.

        ``gradients``: of the loss by the activations of the same batch, float32 [batch.rows, width]. Raises
        :class:`~trainer.errors.BadBatch`, or :class:`~trainer.errors.NonFiniteLoss` for NaN and infinity; nothing is changed then.
        """
        if not any(one.batch is batch for one in self._placed):
            check_batch(batch, self.features)
        check_gradients(batch, gradients, self._width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        check_finite(flat, self.features, self._team)
        placed, rates = self._places_of(batch), learning_rates(self.tables)
        with self._rows.changing(placed.bags, self._rows.group_of):
            distinct = self._updates.apply(
                placed.bags, flat, self._width, rates, self._rows.values, self._importance.noted(by_place=True)
            )
        if placed.missing.any():
            pruned = Bags(self._missing_ids(batch, placed), batch.offsets, placed.bags.shares)
            distinct = distinct + self._notes.note(pruned, flat, self._width, self._importance.noted(by_place=False))
        self._counter.add(batch.offsets, distinct)
        self._end_step()

    def _places_of(self, batch: IdBatch, out: Array | None = None) -> _Placed:
        """The places of a batch's ids: worked out once for a lookup and its update, between which rows may move.

        ``out``: for the activations; each thread combines the bags whose places it has just found.
        """
        for one in self._placed:
            if one.batch is batch and one.version == self._version:
                if out is not None:
                    self._combine(one.bags, out)
                return one
        check_batch(batch, self.features)
        places, shares = np.empty(len(batch.ids), np.int32), _NO_SHARES
        if batch.weights is not None:
            shares = shares_of(batch.weights, batch.offsets, self._of_features.combiner)
        bags, missing = Bags(places, batch.offsets, shares), np.zeros(len(self.features), np.int64)
        self._find(batch, np.arange(len(self.features)), bags, missing, out)
        if missing.any() and not self._is_frozen and self._addresses.free_rows.any():
            for f in np.flatnonzero(missing).tolist():
                self._place_new_rows(batch, f)
                self._find(batch, np.array([f]), bags, missing)  # a feature of the same table may have placed its rows
            if out is not None:
                self._combine(bags, out)
        found = _Placed(batch, bags, missing, self._version)
        self._placed.append(found)
        return found

    def _find(self, batch: IdBatch, features: Array, bags: Bags, missing: Array, out: Array | None = None) -> None:
        """Find the places of some features' ids, and the activations of all events in ``out``, if it is given."""
        parts = split_events(batch.offsets, self._costs, self._team.threads)
        counts = np.zeros((len(parts), len(missing)), np.int64)

        def find(k: int) -> None:
            kernels.find_places(features, *parts[k], batch.ids, batch.offsets, self._lookups, bags.ids, counts[k])
            if out is not None:
                self._combine_some(parts[k], bags, out)

        self._team.run([partial(find, k) for k in range(len(parts))])
        missing[features] = counts.sum(axis=0)[features]

    def _combine(self, bags: Bags, out: Array) -> None:
        parts = split_events(bags.offsets, self._costs, self._team.threads)
        self._team.run([partial(self._combine_some, part, bags, out) for part in parts])

    def _combine_some(self, events: tuple[int, int], bags: Bags, out: Array) -> None:
        """The activations of some events."""
        streams = self._may_stream and out.nbytes >= STREAMED_BYTES
        lookup_kernels.combine_bags(
            *events, _TILE_EVENTS, bags, self._of_features, self._layout, self._rows.values, out, self._width, streams
        )

    def _place_new_rows(self, batch: IdBatch, f: int) -> None:
        """Give free places to the rows of a feature's ids that have none."""
        t, addresses = int(self._of_features.table[f]), self._addresses
        most = int(addresses.free_rows[addresses.group_of[t]])
        first, stop = int(batch.offsets[f, 0]), int(batch.offsets[f, -1])
        if not most or first == stop:
            return
        rows = np.empty(min(most, stop - first), np.int64)
        count = kernels.rows_without(
            first, stop, batch.ids, int(addresses.first_row[t]), addresses.address, len(rows), rows
        )
        self._assign(t, rows[:count], addresses.place(t, rows[:count]))

    def _assign(self, t: int, rows: Array, places: Array) -> None:
        """Give rows of a table their initial values at these places; their importance comes along."""
        self._rows.begin_rows(t, rows, places)
        self._importance.carry(t, rows, places)

    def _missing_ids(self, batch: IdBatch, placed: _Placed) -> Array:
        """The ids of a batch that have no place; for others a number that no row has."""
        found = np.empty(len(batch.ids), np.int64)
        for f in range(len(self.features)):
            t = int(self._of_features.table[f])
            kernels.keep_missing(int(batch.offsets[f, 0]), int(batch.offsets[f, -1]), batch.ids, placed.bags.ids,
                                 int(self._addresses.zero_row[t]), self.tables[t].vocabulary_size, found)  # fmt: skip
        return found

    def _end_step(self) -> None:
        options = self.options
        self.step += 1
        if self.step % options.decay_steps == 0:
            self._importance.decay()
        if options.round_steps:
            if self.step % options.round_steps == 0:
                self.prune()
        elif self.step % options.check_steps == 0 and self._should_prune():
            self.prune()

    def _should_prune(self) -> bool:
        """Whether enough rows of a group have crossed its cut-off, by a sample."""
        began = time.perf_counter()
        draw = np.random.default_rng([self._seed, self.step])
        found = any(self._importance.crossing(group, draw) > self.options.crossing_share for group in self.groups)
        self.counts.check_secs += time.perf_counter() - began
        return found

    def importance_of_rows(self, t: int) -> Array:
        """A copy of the importance of all rows of a table."""
        return self._importance.of(t, np.arange(self.tables[t].vocabulary_size))[0]

    def set_importance(self, t: int, importance: Array) -> None:
        """Replace the importance of all rows of a table, float32."""
        self._importance.of_table(t)[:] = importance
        self._importance.carry(t, *self._addresses.placed(t))

    def prune(self) -> None:
        """Give the places of all groups to their most important rows."""
        began = time.perf_counter()
        self._importance.gather()
        for group in self.groups:
            tables = [
                TableRows(self._importance.chosen(t, self.step), self._addresses.of_table(t)) for t in group.tables
            ]
            scales = [self._importance.scale(one.importance) for one in tables]
            self._move(group, select_rows(tables, scales, group.rows, self._team))
        self._version += 1
        self.counts.rounds += 1
        self.counts.round_secs += time.perf_counter() - began

    def _move(self, group: RowGroup, changes: Sequence[TableRound]) -> None:
        """Take the places of leaving rows, and give those of coming ones their values."""
        addresses = self._addresses
        for t, change in zip(group.tables, changes, strict=True):
            if self.options.reset == "restored":
                self._rows.keep(t, change.leaving)
            addresses.release(t, change.leaving)
        for t, change in zip(group.tables, changes, strict=True):
            places = addresses.place(t, change.coming)
            self._rows.reset(t, change.coming, places, self.options.reset)
            self._importance.carry(t, change.coming, places)
            self.counts.moved_rows += len(places)

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature since this engine was made or loaded, by name."""
        return self._counter.by_feature()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]; zeros of a row without a place. For inspection and tests."""
        t = [one.name for one in self.tables].index(table)
        places = self._addresses.of_table(t)[np.asarray(rows, np.int64)].astype(np.int64)
        places[places < 0] = int(self._addresses.zero_row[t])
        return self._rows.read(t, places, places).weights

    def state(self) -> dict[str, TableState]:
        """A copy of all rows with a place, by table name."""
        return {table.name: self._rows.read(t, *self._addresses.placed(t)) for t, table in enumerate(self.tables)}

    def histories(self) -> dict[str, PrunedHistory]:
        """The importance of all rows now, by table name."""
        self._importance.gather()
        found = {}
        for t, table in enumerate(self.tables):
            own = self._importance.of_table(t)
            rows = np.flatnonzero(own)
            found[table.name] = PrunedHistory(rows, own[rows], self._importance.gain, self.step, self.counts.rounds)
        return found

    def load_state(self, state: Mapping[str, TableState], histories: Mapping[str, PrunedHistory] | None = None) -> None:
        """Restore a :meth:`state` of any engine, and its :meth:`histories`; without them all rows are of no importance.

        Of a state with more rows than a group has places, the most important ones stay. Raises
        :class:`~trainer.errors.TornCheckpoint` if it does not fit.
        """
        check_states(self.tables, state)
        histories = histories or {}
        for table in self.tables:
            if table.name in histories:
                histories[table.name].check(table.name, table.vocabulary_size)
        known = [histories[one.name] for one in self.tables if one.name in histories]
        if len({(one.gain, one.step, one.rounds) for one in known}) > 1:
            raise TornCheckpoint(
                "the importance of all pruned tables must be of one moment", value=[one.step for one in known][:4]
            )
        self._begin()
        if known:
            self._importance.gain, self.step, self.counts.rounds = known[0].gain, known[0].step, known[0].rounds
        for t, table in enumerate(self.tables):
            if (history := histories.get(table.name)) is not None:
                self._importance.of_table(t)[history.rows] = history.importance
        for group in self.groups:
            self._load_group(group, [state[self.tables[t].name] for t in group.tables])

    def _load_group(self, group: RowGroup, states: Sequence[TableState]) -> None:
        importance = [self._importance.of_table(t)[one.rows] for t, one in zip(group.tables, states, strict=True)]
        every = np.concatenate(importance)
        kept = np.ones(len(every), bool)
        if len(every) > group.rows:
            scales = [self._importance.scale(self._importance.chosen(t, self.step)) for t in group.tables]
            ranked = np.argsort(
                -np.concatenate([one * scale for one, scale in zip(importance, scales, strict=True)]), kind="stable"
            )
            kept[ranked[group.rows :]] = False
        ends = np.cumsum([len(one) for one in importance])
        for t, one, own in zip(group.tables, states, np.split(kept, ends[:-1]), strict=True):
            rows = one.rows[own]
            places = self._addresses.place(t, rows)
            self._rows.load(t, places, TableState(rows, one.weights[own], one.slots[own]))
            self._importance.carry(t, rows, places)

    def begin_snapshot(self, *, most_bytes: int) -> PlacedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.cpu.engine.CpuEngine.begin_snapshot>`."""
        return self._rows.begin_snapshot(most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self._rows.end_snapshot()
