"""The embedding engine whose tables keep their most important rows only, within a budget (AdaEmbed, Lai et al., OSDI 2023).

A row has a place among the rows that its group of tables shares, or is read as zeros. All rows that are looked up become more important, those without a
place, too, by lookups times the norm of their gradient. Now and then a round gives the places to the most important rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu import lookup as lookup_kernels
from trainer.embedding.cpu.engine import one_event, refuse_unsupported
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.gradients import CHANGED
from trainer.embedding.cpu.importance import Importance
from trainer.embedding.cpu.initial_rows import assign_rows
from trainer.embedding.cpu.layout import Bags, feature_layout, learning_rates, table_layout, table_values
from trainer.embedding.cpu.lookup import shares_of
from trainer.embedding.cpu.memory import PrivateMemory
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.snapshot import EngineSnapshot
from trainer.embedding.cpu.threads import Team, available_threads, split_events
from trainer.embedding.cpu.updates import RowUpdates
from trainer.embedding.engine import TableState
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.pruned import addresses as kernels
from trainer.embedding.pruned.addresses import Addresses
from trainer.embedding.pruned.counts import PruningCounts
from trainer.embedding.pruned.history import PrunedHistory
from trainer.embedding.pruned.round import TableRound, TableRows, percentile_of, select_rows, team_map
from trainer.embedding.pruned.selection import gather_importance
from trainer.embedding.spec import FeatureSpec, tables_of
from trainer.embedding.state_checks import check_states
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.pruning_rounds import crossing_share, sample_rows
from trainer.planning.row_groups import RowGroup, SharingTable, row_groups
from trainer.pruning_options import PruningOptions

Array = np.ndarray[Any, np.dtype[Any]]

#: What an update may count for before the importance of all rows is divided by it.
_MOST_GAIN = float(1 << 40)
#: The rows of a table from which its percentile is estimated.
_PERCENTILE_ROWS = 2048
_GATHERED_ROWS = 1 << 18
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
        self._lay_out()
        self._updates = RowUpdates(self._of_features, self._layout, self._team)
        self._notes = RowUpdates(self._of_features, self._virtual, self._team)
        self._outputs = OutputPool(kept=held + 1)
        self._costs = self._layout.dims[self._of_features.table] + 16
        self._begin()

    def _lay_out(self) -> None:
        """Where the rows of groups are, and of tables: as rows of their group, and as all rows that their ids may have."""
        specs = [replace(self.tables[one.tables[0]], name=f"group {g}", vocabulary_size=one.rows + 1, initializer=None)
                 for g, one in enumerate(self.groups)]  # fmt: skip
        of_groups = self._addresses.group_of
        self._of_groups = feature_layout([FeatureSpec(one.name, one) for one in specs], specs)
        self._group_layout = table_layout(self._of_groups, specs, self._seed)
        whole, group = table_layout(self._of_features, self.tables, self._seed), self._group_layout
        rows = group.vocabulary[of_groups]
        self._layout = whole._replace(vocabulary=rows, trained=rows - 1, row_base=group.row_base[of_groups],
                                      weight_base=group.weight_base[of_groups], slot_base=group.slot_base[of_groups])  # fmt: skip
        of_features, addresses = self._of_features.table, self._addresses
        self._lookups = kernels.Lookups(
            addresses.first_row[of_features], addresses.zero_row[of_features].astype(np.int64), addresses.address
        )
        self._virtual = whole._replace(row_base=self._addresses.first_row[:-1])

    def _begin(self) -> None:
        self._addresses.clear()
        self._values = table_values(self._group_layout, PrivateMemory(), is_fresh=True)
        self._values.row_state[self._group_layout.row_base + self._addresses.rows] = (
            CHANGED  # rows of zeros have values
        )
        self._of_places = np.zeros(len(self._values.row_state), np.float32)
        self._of_rows = np.zeros(int(self._addresses.first_row[-1]), np.float32)
        self._restored: dict[int, dict[str, Array]] = {}
        self._gain, self.step, self._version = 1.0, 0, 0
        self.counts = PruningCounts()
        self._placed: deque[_Placed] = deque(maxlen=self._held)
        self._counter = BatchCounter(self.features, self._of_features.table)
        self._snapshot: EngineSnapshot | None = None

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""
        return self._width

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        starts = self._of_features.column.tolist()
        return {one.name: slice(start, start + one.width) for one, start in zip(self.features, starts, strict=True)}

    @property
    def nbytes(self) -> int:
        """The bytes of rows and slots, and of addresses and importance."""
        return sum(int(one.nbytes) for one in self._values) + self.overhead_bytes

    @property
    def overhead_bytes(self) -> int:
        """The bytes of addresses and importance."""
        return self._addresses.nbytes + int(self._of_places.nbytes + self._of_rows.nbytes)

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
        placed, metric = self._places_of(batch), self.options.metric
        factors = np.array([self._gain, "frequency" in metric, "gradient" in metric], np.float32)
        rates = learning_rates(self.tables)
        with self._changing(placed.bags, self._addresses.group_of[self._of_features.table]):
            distinct = self._updates.apply(
                placed.bags, flat, self._width, rates, self._values, Importance(self._of_places, factors)
            )
        if placed.missing.any():
            pruned = Bags(self._missing_ids(batch, placed), batch.offsets, placed.bags.shares)
            distinct = distinct + self._notes.note(pruned, flat, self._width, Importance(self._of_rows, factors))
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
        lookup_kernels.combine_bags(
            *events, _TILE_EVENTS, bags, self._of_features, self._layout, self._values, out, self._width, False
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
        counts = np.zeros(len(self.tables), np.int64)
        counts[t] = len(rows)
        with self._changing_places(t, places):
            assign_rows(places, rows, counts, self._layout, self._values)
            self._values.row_state[int(self._layout.row_base[t]) + places] = CHANGED
        self._carry_importance(t, rows, places)

    def _carry_importance(self, t: int, rows: Array, places: Array) -> None:
        self._of_places[int(self._layout.row_base[t]) + places] = self._of_rows[
            int(self._addresses.first_row[t]) + rows
        ]

    def _missing_ids(self, batch: IdBatch, placed: _Placed) -> Array:
        """The ids of a batch that have no place; for others a number that no row has."""
        found = np.empty(len(batch.ids), np.int64)
        for f in range(len(self.features)):
            t = int(self._of_features.table[f])
            kernels.keep_missing(int(batch.offsets[f, 0]), int(batch.offsets[f, -1]), batch.ids, placed.bags.ids,
                                 int(self._addresses.zero_row[t]), self.tables[t].vocabulary_size, found)  # fmt: skip
        return found

    @contextmanager
    def _changing(self, bags: Bags, table_of: Array) -> Iterator[None]:
        """While rows change: a snapshot keeps what it has not read. ``table_of``: the group of each feature."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.is_done:
            self._snapshot = None
            yield
            return
        with snapshot.changing():
            snapshot.put_aside(bags, table_of)
            yield

    def _changing_places(self, t: int, places: Array) -> AbstractContextManager[None]:
        counts = np.zeros(len(self.groups), np.int64)
        counts[self._addresses.group_of[t]] = len(places)
        one = one_event(places, counts)
        return self._changing(Bags(one.ids, one.offsets, _NO_SHARES), np.arange(len(self.groups)))

    def _end_step(self) -> None:
        options = self.options
        self.step += 1
        if self.step % options.decay_steps == 0:
            self._gain /= options.decay
            if self._gain > _MOST_GAIN:
                for values in (self._of_places, self._of_rows):
                    values *= np.float32(1 / self._gain)
                self._gain = 1.0
        if options.round_steps:
            if self.step % options.round_steps == 0:
                self.prune()
        elif self.step % options.check_steps == 0 and self._should_prune():
            self.prune()

    def _should_prune(self) -> bool:
        """Whether enough rows of a group have crossed its cut-off, by a sample."""
        began = time.perf_counter()
        draw = np.random.default_rng([self._seed, self.step])
        found = any(self._crossing(group, draw) > self.options.crossing_share for group in self.groups)
        self.counts.check_secs += time.perf_counter() - began
        return found

    def _crossing(self, group: RowGroup, draw: np.random.Generator) -> float:
        sizes = np.array([self.tables[t].vocabulary_size for t in group.tables], np.int64)
        total = int(sizes.sum())
        if group.rows >= total:
            return 0.0
        sampled = np.sort(draw.integers(0, total, sample_rows(self.options.deviation)))
        ends = np.cumsum(sizes)
        importance, is_kept = np.empty(len(sampled), np.float32), np.empty(len(sampled), bool)
        for k, t in enumerate(group.tables):
            own = slice(*np.searchsorted(sampled, [ends[k] - sizes[k], ends[k]]).tolist())
            scale = self._sampled_scale(t, draw)
            importance[own], is_kept[own] = self._importance_of(t, sampled[own] - (ends[k] - sizes[k]))
            importance[own] *= scale
        return crossing_share(importance, is_kept, group.rows / total)

    def _sampled_scale(self, t: int, draw: np.random.Generator) -> float:
        """What the importance of a table is multiplied by, from a sample of its rows."""
        if not self.options.normalised:
            return 1.0
        rows = self.tables[t].vocabulary_size
        chosen = np.arange(rows) if rows <= _PERCENTILE_ROWS else draw.integers(0, rows, _PERCENTILE_ROWS)
        values, _ = self._importance_of(t, chosen)
        values = values[values > 0]
        return 1.0 / float(np.quantile(values, 0.95)) if len(values) else 0.0

    def _importance_of(self, t: int, rows: Array) -> tuple[Array, Array]:
        """The importance of rows of a table, and whether they have places."""
        places = self._addresses.of_table(t)[rows]
        is_kept = places >= 0
        of_rows = self._of_rows[int(self._addresses.first_row[t]) + rows]
        of_rows[is_kept] = self._of_places[int(self._layout.row_base[t]) + places[is_kept]]
        return of_rows, is_kept

    def importance_of_rows(self, t: int) -> Array:
        """A copy of the importance of all rows of a table."""
        return self._importance_of(t, np.arange(self.tables[t].vocabulary_size))[0]

    def set_importance(self, t: int, importance: Array) -> None:
        """Replace the importance of all rows of a table, float32."""
        self._of_rows[int(self._addresses.first_row[t]) : int(self._addresses.first_row[t + 1])] = importance
        self._carry_importance(t, *self._addresses.placed(t))

    def prune(self) -> None:
        """Give the places of all groups to their most important rows."""
        began = time.perf_counter()
        self._gather()
        for group in self.groups:
            tables = [TableRows(self._chosen_importance(t), self._addresses.of_table(t)) for t in group.tables]
            scales = [self._scale(one.importance) for one in tables]
            self._move(group, select_rows(tables, scales, group.rows, self._team))
        self._version += 1
        self.counts.rounds += 1
        self.counts.round_secs += time.perf_counter() - began

    def _gather(self) -> None:
        """Write the importance of placed rows beside that of the others."""
        addresses, works = self._addresses, []
        for t in range(len(self.tables)):
            base = int(self._layout.row_base[t])
            for first in range(int(addresses.first_row[t]), int(addresses.first_row[t + 1]), _GATHERED_ROWS):
                stop = min(first + _GATHERED_ROWS, int(addresses.first_row[t + 1]))
                works.append(
                    partial(gather_importance, first, stop, addresses.address, base, self._of_places, self._of_rows)
                )
        team_map(self._team, works)

    def _chosen_importance(self, t: int) -> Array:
        own = self._of_rows[int(self._addresses.first_row[t]) : int(self._addresses.first_row[t + 1])]
        if self.options.metric != "random":
            return own
        drawn = np.random.default_rng([self._seed, self.step, t]).random(len(own), np.float32)
        return np.where(own > 0, drawn + np.float32(1e-6), np.float32(0.0)).astype(np.float32)

    def _scale(self, importance: Array) -> float:
        if not self.options.normalised:
            return 1.0
        high = percentile_of(importance, self._team)
        return 1.0 / high if high else 0.0

    def _move(self, group: RowGroup, changes: Sequence[TableRound]) -> None:
        """Take the places of leaving rows, and give those of coming ones their values."""
        addresses = self._addresses
        for t, change in zip(group.tables, changes, strict=True):
            if self.options.reset == "restored":
                self._keep_values(t, change.leaving)
            addresses.release(t, change.leaving)
        for t, change in zip(group.tables, changes, strict=True):
            places = addresses.place(t, change.coming)
            self._reset(t, change.coming, places)
            self._carry_importance(t, change.coming, places)
            self.counts.moved_rows += len(places)

    def _reset(self, t: int, rows: Array, places: Array) -> None:
        """Give rows that come their values by the rule for them."""
        if not len(rows) or self.options.reset == "none":
            return
        self._assign(t, rows, places)
        with self._changing_places(t, places):
            if self.options.reset == "zero":
                self._values.weights[self._indices(t, places, slots=False)] = 0.0
            elif self.options.reset == "restored":
                self._restore_values(t, rows, places)

    def _indices(self, t: int, places: Array, *, slots: bool) -> Array:
        of = self._layout
        base, dim = (of.slot_base, of.slot_dims) if slots else (of.weight_base, of.dims)
        found: Array = (int(base[t]) + places * int(dim[t]))[:, None] + np.arange(int(dim[t]))
        return found

    def _keep_values(self, t: int, rows: Array) -> None:
        """Keep the values of rows that leave, for ``reset="restored"``."""
        places = self._addresses.of_table(t)[rows].astype(np.int64)
        size, of = self.tables[t].vocabulary_size, self._layout
        if t not in self._restored:
            self._restored[t] = {"weights": np.zeros((size, int(of.dims[t])), np.float32),
                                 "slots": np.zeros((size, int(of.slot_dims[t])), np.float32), "known": np.zeros(size, bool)}  # fmt: skip
        kept = self._restored[t]
        kept["weights"][rows] = self._values.weights[self._indices(t, places, slots=False)]
        kept["slots"][rows] = self._values.slots[self._indices(t, places, slots=True)]
        kept["known"][rows] = True

    def _restore_values(self, t: int, rows: Array, places: Array) -> None:
        if (kept := self._restored.get(t)) is None:
            return
        known = kept["known"][rows]
        self._values.weights[self._indices(t, places[known], slots=False)] = kept["weights"][rows[known]]
        self._values.slots[self._indices(t, places[known], slots=True)] = kept["slots"][rows[known]]

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature since this engine was made or loaded, by name."""
        return self._counter.by_feature()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]; zeros of a row without a place. For inspection and tests."""
        t = [one.name for one in self.tables].index(table)
        places = self._addresses.of_table(t)[np.asarray(rows, np.int64)].astype(np.int64)
        places[places < 0] = int(self._addresses.zero_row[t])
        found: Array = self._values.weights[self._indices(t, places, slots=False)]
        return found

    def state(self) -> dict[str, TableState]:
        """A copy of all rows with a place, by table name."""
        found = {}
        for t, table in enumerate(self.tables):
            rows, places = self._addresses.placed(t)
            weights, slots = (self._read(t, places, slots=slots) for slots in (False, True))
            found[table.name] = TableState(rows, weights, slots)
        return found

    def _read(self, t: int, places: Array, *, slots: bool) -> Array:
        values = self._values.slots if slots else self._values.weights
        found: Array = values[self._indices(t, places, slots=slots)]
        return found

    def histories(self) -> dict[str, PrunedHistory]:
        """The importance of all rows now, by table name."""
        self._gather()
        found = {}
        for t, table in enumerate(self.tables):
            own = self._of_rows[int(self._addresses.first_row[t]) : int(self._addresses.first_row[t + 1])]
            rows = np.flatnonzero(own)
            found[table.name] = PrunedHistory(rows, own[rows].copy(), self._gain, self.step, self.counts.rounds)
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
            self._gain, self.step, self.counts.rounds = known[0].gain, known[0].step, known[0].rounds
        for t, table in enumerate(self.tables):
            if (history := histories.get(table.name)) is not None:
                self._of_rows[int(self._addresses.first_row[t]) + history.rows] = history.importance
        for group in self.groups:
            self._load_group(group, [state[self.tables[t].name] for t in group.tables])

    def _load_group(self, group: RowGroup, states: Sequence[TableState]) -> None:
        importance = [
            self._of_rows[int(self._addresses.first_row[t]) + one.rows]
            for t, one in zip(group.tables, states, strict=True)
        ]
        every = np.concatenate(importance)
        kept = np.ones(len(every), bool)
        if len(every) > group.rows:
            scales = [self._scale(self._chosen_importance(t)) for t in group.tables]
            ranked = np.argsort(
                -np.concatenate([one * scale for one, scale in zip(importance, scales, strict=True)]), kind="stable"
            )
            kept[ranked[group.rows :]] = False
        ends = np.cumsum([len(one) for one in importance])
        for t, one, own in zip(group.tables, states, np.split(kept, ends[:-1]), strict=True):
            rows = one.rows[own]
            places = self._addresses.place(t, rows)
            self._values.weights[self._indices(t, places, slots=False)] = one.weights[own]
            self._values.slots[self._indices(t, places, slots=True)] = one.slots[own]
            self._values.row_state[int(self._layout.row_base[t]) + places] = CHANGED
            self._carry_importance(t, rows, places)

    def begin_snapshot(self, *, most_bytes: int) -> PlacedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.cpu.engine.CpuEngine.begin_snapshot>`."""
        self._snapshot = EngineSnapshot(
            np.arange(len(self.groups)), self._group_layout, self._values, most_bytes=most_bytes
        )
        found = [self._addresses.placed(t) for t in range(len(self.tables))]
        return PlacedSnapshot(self._snapshot, found, self._addresses.group_of.tolist())

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
