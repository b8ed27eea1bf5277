"""Which rows of pruned tables have places, how important all rows are, and when places change hands.

A row has a place among the rows that its group of tables shares, or is read as zeros. All rows that are looked up become more important, those without a
place, too, by the norm of their gradient. Now and then a round gives the places to the most important rows.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainer.errors import BadBatch, ConfigError, DamagedMemory
from trainer.options.pruning import PruningOptions
from trainer.planning.pruning_rounds import kept_rows
from trainer.planning.row_groups import RowGroup, SharingTable, row_groups
from trainer.tables.engine import TableState, in_memory
from trainer.tables.kernels.layout import FeatureLayout, TableOrigin
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.kernels.table_bytes import does_not_fit, machine_bytes
from trainer.tables.kernels.threads import Team
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.spec import TableSpec
from trainer.tables.stores.dense.placed_snapshot import PlacedSnapshot
from trainer.tables.stores.pruned.addresses import Addresses
from trainer.tables.stores.pruned.candidates import Candidates
from trainer.tables.stores.pruned.counts import PruningCounts
from trainer.tables.stores.pruned.group_rows import GroupRows
from trainer.tables.stores.pruned.history import LEFT, SECTIONS, PrunedHistory, read_histories
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.job_round import GroupRound, select_rows_of_job
from trainer.tables.stores.pruned.lent_memory import LentMemory
from trainer.tables.stores.pruned.memory import PrunedMemory
from trainer.tables.stores.pruned.round import TableRound, TableRows, select_rows
from trainer.tables.stores.pruned.row_importance import RowImportance
from trainer.tables.stores.pruned.row_starts import RowStarts
from trainer.tables.stores.pruned.saved_rows import most_important
from trainer.tables.stores.step_changes import NO_MORE_CHANGES, StepChanges, TableChanges
from transforms.arrays import Array

_STEP, _ROUNDS = range(2)
#: Memory is released in pieces of at least so many bytes.
_LEAST_LENT_BYTES = 1 << 20


def groups_of(
    tables: Sequence[TableSpec], options: PruningOptions, hashed: Collection[str] = ()
) -> tuple[RowGroup, ...]:
    """The groups of the tables that are not ``hashed``, by their positions among all.

    Raises :class:`ConfigError` for groups and budgets that do not fit, and for hashed tables alone.
    """
    own = [t for t, one in enumerate(tables) if one.name not in hashed]
    if not own:
        raise ConfigError("a run with pruning must have a table that is not hashed", where="pruning, hashed of --config",
                          value=", ".join(one.name for one in tables)[:200], next_step="leave pruning out of --config")  # fmt: skip
    sharing = [SharingTable(tables[t].name, tables[t].vocabulary_size, tables[t].dim, tables[t].optimizer) for t in own]
    found = row_groups(sharing, options.budget, options.groups)
    return tuple(RowGroup(tuple(own[k] for k in one.tables), one.rows) for one in found)


class PrunedRows:
    """The rows of ``tables``, of which the most important ones have values.

    Args:
        tables: the tables.
        of_features: of the features of batches.
        options: how rows are chosen.
        seed: what initial weights and samples are drawn from.
        team: the threads.
        groups: of the tables that share rows; None: those by the options.
        origins: of each table, the part of a whole table that it is; None for whole tables.
        memory: has the rows; None: memory of this process.
        undo_log: of the same memory: an update that a killed process has begun is undone.
        job: the places that the hosts of a job share; None: the places of ``groups`` are for these rows alone.

    Attributes:
        job: as given.
        tables, options, seed, team, groups: as given.
        addresses: the places of rows.
        places: their values.
        importance: of all rows.
        candidates: those that the next round looks at.
        counts: what pruning has done in this process.
        step_changes: see :class:`~trainer.tables.stores.row_store.HeldStore`.

    Raises :class:`ConfigError` for tables with quantized rows, and for groups and budgets that do not fit; :class:`DamagedMemory` for a memory
    with other bytes than were written.
    """

    def __init__(
        self, tables: Sequence[TableSpec], of_features: FeatureLayout, options: PruningOptions, *, seed: int, team: Team,
        groups: Sequence[RowGroup] | None = None, origins: Sequence[TableOrigin] | None = None,
        memory: TableMemory | None = None, undo_log: UndoLog | None = None, job: JobPlaces | None = None,
    ) -> None:  # fmt: skip
        self.job = job
        self.tables, self.options, self.seed, self.team = tuple(tables), options, seed, team
        for table in self.tables:
            if table.quantization is not None:
                raise ConfigError("a pruned table must not be quantized", where=f"table {table.name}", value="a quantization",
                                  allowed="none")  # fmt: skip
        self.groups = tuple(groups or groups_of(self.tables, options))
        self._group_sizes = [sum(self.tables[t].vocabulary_size for t in group.tables) for group in self.groups]
        self.memory = PrunedMemory(LentMemory() if job is not None else memory, undo_log)
        try:
            self.addresses = Addresses([one.vocabulary_size for one in self.tables], self.groups, self.memory)
            self.places = GroupRows(self.tables, of_features, self.groups, self.addresses, seed, self.memory)
            row_base = self.places.layout.row_base
            self.importance = RowImportance(
                self.addresses, row_base, self.places.places, options, seed, team, self.memory
            )
            left = self.memory if options.reset == "restored" else None
            self.starts = RowStarts(self.tables, of_features, seed, origins, left)
            self._numbers = self.memory.array("pruning_numbers", 2, np.int64)
            self.candidates = Candidates(self.addresses, len(self.groups))
        except MemoryError as error:
            raise does_not_fit(self.tables, machine_bytes()) from error
        self.counts, self.step_changes = PruningCounts(), NO_MORE_CHANGES
        self.memory.attach(self.places.values, self._check)

    def _check(self) -> None:
        """Raise :class:`DamagedMemory` for places and numbers that this class has not written."""
        self.candidates.forget()  # a round may have been undone
        numbers = self.importance.gain, self.step, self.rounds
        if not (1.0 <= numbers[0] < float("inf") and min(numbers[1:]) >= 0 and self.addresses.are_whole()):
            raise DamagedMemory("the places of pruned tables in shared memory must be those that were written", value=numbers,
                                next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip

    @property
    def step(self) -> int:
        """The updates since all rows had importance 0."""
        return int(self._numbers.values[_STEP])

    @property
    def rounds(self) -> int:
        """The rounds of pruning since then."""
        return int(self._numbers.values[_ROUNDS])

    def _set_number(self, number: int, value: int) -> None:
        self._numbers.keep_all()
        self._numbers.values[number] = value

    def clear(self) -> None:
        """Take the places of all rows, and set their importance to 0."""
        self.places.allocate(is_fresh=True)
        self.addresses.clear()
        self.starts.clear()
        self.importance.clear()
        self._numbers.values[:] = 0
        self.memory.attach(self.places.values, self._check)
        self.counts = PruningCounts()
        self.candidates.forget()
        if self.job is not None:
            self.job.forget()

    def place_new(self, t: int, ids: Array, most: int | None = None) -> None:
        """Give free places, with their initial values, to the first distinct ``ids`` of a table that have none, as far as there are some.

        ``most``: the places that they may take; None: all.
        """
        rows, places = self.addresses.place_new(t, ids, most)
        if len(rows):
            self.places.write(t, places, self.starts.initial(t, rows))
            self.importance.carry(t, rows, places)

    def end_step(self) -> None:
        """An update has been made. Then a round may begin."""
        options, self.step_changes = self.options, NO_MORE_CHANGES
        self._set_number(_STEP, self.step + 1)
        if self.step % options.decay_steps == 0 and self.importance.decay():
            self.candidates.forget()
            self.step_changes = StepChanges(is_all=True)
        if options.round_steps:
            if self.step % options.round_steps == 0:
                self.prune()
        elif self.step % options.check_steps == 0 and self._should_prune():
            self.prune()

    def _should_prune(self) -> bool:
        """Whether enough rows of a group have crossed its cut-off, by a sample."""
        began = time.perf_counter()
        draw = np.random.default_rng([self.seed, self.step])
        if self.job is None:
            found = any(
                self.importance.crossing(group, draw) > self.options.crossing_share for group in self._full_groups()
            )
        else:
            full = self.job.full_groups()
            shares = self.importance.crossings_of_job(self.job, full, draw) if full else []
            found = any(share > self.options.crossing_share for share in shares)
        self.counts.check_secs += time.perf_counter() - began
        return found

    def _full_groups(self) -> list[RowGroup]:
        """The groups without free places for further rows: in others a row gets one when it is looked up."""
        free = self.addresses.free_rows.tolist()
        return [group for g, group in enumerate(self.groups) if not free[g] and group.rows < self._group_sizes[g]]

    def prune(self) -> None:
        """Give the places of all full groups to their most important rows, but those that the option ``spare_share`` leaves free."""
        began = time.perf_counter()
        if self.job is None:
            self._prune_own()
        elif full := self.job.full_groups():
            self._prune_job(
                self.job, full, [kept_rows(self.job.tables.groups[g], self.options.spare_share) for g in full]
            )
        self._set_number(_ROUNDS, self.rounds + 1)
        self.counts.round_secs += time.perf_counter() - began

    def _prune_own(self) -> None:
        """Give the places of full groups to the most important rows here."""
        for group in self._full_groups():
            kept, g = kept_rows(group, self.options.spare_share), int(self.addresses.group_of[group.tables[0]])
            rows, changes = self._select_own(g, group, kept)
            self._move(group, _by_table(group.tables, rows, changes))
            self._end_round(g, int(self.addresses.rows[g] - self.addresses.free_rows[g]), kept)

    def _select_own(self, g: int, group: RowGroup, kept: int) -> tuple[list[TableRows], list[TableRound]]:
        """The rows that a round of a full group may move, and its changes of each piece of them."""
        if self._compares_importance:
            is_all = not self.candidates.suffice(g, kept)
            return self.importance.select_of_full(group.tables, group.rows, kept, self.candidates, is_all=is_all)
        rows = self._rows_of(g, group.tables, None)
        return rows, select_rows(rows, [self.importance.scale(one.importance) for one in rows], kept, self.team)

    @property
    def _compares_importance(self) -> bool:
        """Whether rounds compare importance as it is, neither scaled nor drawn."""
        return self.options.metric != "random" and not self.options.normalised

    def _rows_of(self, g: int, tables: Sequence[int], kept: int | None) -> list[TableRows]:
        """By what a round compares rows of tables of a group, and their addresses: as many rows as decide it; ``kept``: by it, None: all."""
        if kept is not None and self.candidates.suffice(g, kept):
            return [piece for t in tables for piece in self.importance.candidates(t, self.candidates)]
        self.importance.gather(tables)
        return [TableRows(t, self.importance.chosen(t, self.step), self.addresses.of_table(t)) for t in tables]

    def _end_round(self, g: int, kept: int | None, most: int) -> None:
        """A round of a group has kept so many rows of at most ``most``; None: not of all rows."""
        self.candidates.end_round(g, kept if kept == most and self._compares_importance else None)

    def _prune_job(self, job: JobPlaces, groups: Sequence[int], kept: Sequence[int], *, is_load: bool = False) -> None:
        """Give the places of groups of a job to the most important rows of all hosts; ``kept``: how many rows have one afterwards."""
        own = [job.tables.tables_of(g) for g in groups]
        rows = [self._rows_of(int(self.addresses.group_of[tables[0]]), tables, None if is_load else most) if tables else []
                for tables, most in zip(own, kept, strict=True)]  # fmt: skip
        found = select_rows_of_job(job, groups, rows, kept, self.team, normalised=self.options.normalised, is_load=is_load)  # fmt: skip
        for one, tables, listed, most in zip(found, own, rows, kept, strict=True):
            job.free[one.group] = job.tables.groups[one.group].rows - one.kept
            if tables:
                self._move(RowGroup(tables, job.tables.groups[one.group].rows), _by_table(tables, listed, one.changes))
                self._lend(job, one, int(self.addresses.group_of[tables[0]]))
                self._end_round(int(self.addresses.group_of[tables[0]]), None if is_load else one.kept, most)

    def _lend(self, job: JobPlaces, done: GroupRound, g: int) -> None:
        """Release the memory of places that rows of other hosts have now.

        A host keeps memory for twice its share of the free places, by its rows, since as many further rows are likely to come. While a snapshot is read,
        which may need it, none is released.
        """
        addresses, places = self.addresses, self.places
        used, touched = int(addresses.rows[g] - addresses.free_rows[g]), int(addresses.touched[g])
        likely = 2 * int(job.free[done.group]) * used // max(done.kept, 1)
        if places.is_read or (touched - used - likely) * places.row_bytes(g) < _LEAST_LENT_BYTES:
            return
        for t, rows, before, after in addresses.pack(g):
            places.write(t, after, places.read(t, rows, before))
            self.importance.leave(t, rows, before)
            self.importance.carry(t, rows, after)
        places.release_memory(g, used, touched)

    def count_job(self) -> None:
        """Count the free places of the job before the first lookup of rows that were loaded, with all hosts at once.

        Of more rows than a group has places, the most important ones of all hosts stay.
        """
        job = self.job
        if job is None or job.is_known:
            return
        job.count(np.array([int(np.count_nonzero(self.addresses.of_table(t) >= 0)) for t in range(len(self.tables))]))
        over = np.flatnonzero(job.free < 0).tolist()
        if not over:
            return
        self._prune_job(job, over, [job.tables.groups[g].rows for g in over], is_load=True)

    def _move(self, group: RowGroup, changes: Sequence[TableRound]) -> None:
        """Take the places of leaving rows, and give those of coming ones their values."""
        addresses, starts = self.addresses, self.starts
        left = sum(len(one.leaving) for one in changes)
        for t, change in zip(group.tables, changes, strict=True):
            places = addresses.of_table(t)[change.leaving].astype(np.int64)
            self.importance.leave(t, change.leaving, places)
            if self.starts.keeps and len(change.leaving):
                starts.keep(t, self.places.read(t, change.leaving, places))
            addresses.release(t, change.leaving)
        for t, change in zip(group.tables, changes, strict=True):
            places = addresses.place(t, change.coming)
            if (values := starts.after_round(t, change.coming, self.options.reset)) is not None:
                self.places.write(t, places, values)
            elif left < len(places):  # places of other hosts, which have no values here
                self.places.write(t, places[left:], starts.initial(t, change.coming[left:]))
            left = max(left - len(places), 0)
            self.importance.carry(t, change.coming, places)
            self.counts.moved_rows += len(places)
        moved = {t: TableChanges(np.concatenate([one.leaving, one.coming]), one.leaving)
                 for t, one in zip(group.tables, changes, strict=True) if len(one.leaving) or len(one.coming)}  # fmt: skip
        self.step_changes = self.step_changes.joined(moved)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]; zeros of a row without a place. For inspection and tests."""
        t = [one.name for one in self.tables].index(table)
        places = self.addresses.of_table(t)[np.asarray(rows, np.int64)].astype(np.int64)
        places[places < 0] = int(self.addresses.zero_row[t])
        return self.places.read(t, places, places).weights

    def state(self) -> dict[str, TableState]:
        """A copy of all rows with a place, and the importance of all rows, by table name."""
        return {table.name: self.table_state(t) for t, table in enumerate(self.tables)}

    def table_state(self, t: int) -> TableState:
        """As :meth:`state`, of the table at this position."""
        self.importance.gather([t])
        return replace(self.places.read(t, *self.addresses.placed(t)), sections=self._history(t).sections())

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return SECTIONS

    def histories(self) -> dict[str, PrunedHistory]:
        """The importance of all rows now, by table name."""
        self.importance.gather()
        return {table.name: self._history(t) for t, table in enumerate(self.tables)}

    def _history(self, t: int) -> PrunedHistory:
        own = self.importance.of_table(t)
        rows = np.flatnonzero(own)
        left = self.starts.kept(t) if self.starts.keeps else None
        return PrunedHistory(rows, own[rows], self.importance.gain, self.step, self.rounds, left)

    def load(self, state: Mapping[str, TableState]) -> None:
        """Replace all rows by those of a checked state; in tables without sections all rows have importance 0.

        Of a state with more rows than a group has places, the most important ones stay.
        """
        histories = read_histories(self.tables, state)
        self.clear()
        for t, history in histories.items():
            self.load_importance(t, history)
        found: dict[int, tuple[Array, TableState]] = {}
        for group in self.groups:
            own = [state[self.tables[t].name] for t in group.tables]
            importance = [self.importance.of_table(t) for t in group.tables]
            chosen = most_important(
                group, own, importance, self.options, seed=self.seed, step=self.step, team=self.team
            )
            for t, kept in zip(group.tables, chosen, strict=True):
                found[t] = self.addresses.place(t, kept.rows), kept
        self.places.load([found[t] for t in range(len(self.tables))])
        self.end_load()

    def load_importance(self, t: int, history: PrunedHistory) -> None:
        """Take the importance of a table's rows, after :meth:`clear`."""
        self.load_numbers(history.gain, history.step, history.rounds)
        for name, rows in history.sections().by_rows.items():
            self.load_section(t, name, rows)

    def load_section(self, t: int, name: str, rows: TableState) -> None:
        """Take rows of a section of a table's state. Raises :class:`BadBatch` for a row of no importance."""
        if name == LEFT:
            self.starts.keep(t, rows)
            return
        importance = rows.weights[:, 0]
        if not (importance > 0).all():
            raise BadBatch(
                "the importance of a row must be above 0", where=f"table {self.tables[t].name}", value=importance.min()
            )
        self.importance.of_table(t)[rows.rows] = importance

    def load_numbers(self, gain: float, step: int, rounds: int) -> None:
        """Take the numbers of all tables."""
        self.importance.gain = gain
        self._set_number(_STEP, step)
        # Parts of a model that had engines of their own had rounds of their own.
        self._set_number(_ROUNDS, max(self.rounds, rounds))

    def end_load(self) -> None:
        """All rows, and the importance of all, are loaded."""
        for t in range(len(self.tables)):
            self.importance.carry(t, *self.addresses.placed(t))

    def begin_snapshot(self, *, most_bytes: int) -> PlacedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.tables.routes.cpu_engine.CpuEngine.begin_snapshot>`."""
        return self.places.begin_snapshot(most_bytes, [in_memory(one.sections()) for one in self.histories().values()])

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self.places.end_snapshot()


def _by_table(tables: Sequence[int], rows: Sequence[TableRows], changes: Sequence[TableRound]) -> list[TableRound]:
    """The changes of each table, from those of its rows in pieces."""
    return [TableRound.joined([change for one, change in zip(rows, changes, strict=True) if one.table == t]) for t in tables]  # fmt: skip
