"""Tables of several kinds as one store: each table is in the store of its kind, and no store has to do with the others.

A batch's rows are divided among the stores, and one transaction of the undo log that they share changes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.batch_checks import check_batch
from trainer.tables.engine import ChangedRows, RowValues, TableState
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.state_checks import check_states
from trainer.tables.stores.dense.dense_store import one_event
from trainer.tables.stores.joined.joined_snapshot import JoinedKeptSnapshot, JoinedSnapshot, PartPlaces
from trainer.tables.stores.row_store import HeldStore, PlaceSharing
from trainer.tables.stores.step_changes import StepChanges
from transforms.arrays import Array

_ONE = np.ones(1, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedPart:
    """A store, and what of all tables it has.

    Attributes:
        store: the store.
        tables: the positions of its tables among all, ascending.
        beside: the saved parts that it has beside its tables.
    """

    store: HeldStore
    tables: tuple[int, ...]
    beside: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class JoinedSharing:
    """See :class:`~trainer.tables.stores.row_store.PlaceSharing`.

    Attributes:
        own: of the store that shares places.
        of_store: its rows among those of all tables.
    """

    own: PlaceSharing
    of_store: Callable[[tuple[Array, Array]], tuple[Array, Array]]

    def wanted_places(self, asked: Sequence[tuple[Array, Array]]) -> Array:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        return self.own.wanted_places([self.of_store(one) for one in asked])

    def exchange_wanted(self, wanted: Array) -> list[Array]:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        return self.own.exchange_wanted(wanted)

    def grant_places(self, wanted: Sequence[Array]) -> None:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        self.own.grant_places(wanted)

    def forget_places(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        self.own.forget_places()


class JoinedStore:
    """See :class:`~trainer.tables.stores.row_store.HeldStore`: the rows of all ``tables``, each in one of the stores of ``parts``.

    Args:
        tables: all tables.
        parts: the stores; each table is in one of them.
        memory: of the stores.
        undo_log: of this memory, which the stores share; None: a change that is cut off is not undone.
        answers: arrays of :meth:`read_rows` that are in use at once.

    Attributes:
        features: a feature for each table.
    """

    def __init__(
        self, tables: Sequence[TableSpec], parts: Sequence[JoinedPart], *, memory: TableMemory, undo_log: UndoLog | None = None, answers: int = 1
    ) -> None:  # fmt: skip
        self.tables, self.undo_log = tuple(tables), undo_log
        self.features = tuple(FeatureSpec(one.name, one) for one in self.tables)
        self._parts, self._memory = tuple(parts), memory
        self._places = PartPlaces([one.tables for one in parts], [one.beside for one in parts])
        self._dims = np.array([one.dim for one in self.tables], np.int64)
        self._answers = OutputPool(spare=0.25, kept=answers)

    @property
    def needs_lookups(self) -> bool:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        return any(one.store.needs_lookups for one in self._parts)

    @property
    def sharing(self) -> PlaceSharing | None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`: that of its pruned tables."""
        return next((JoinedSharing(one.store.sharing, partial(self._of_part, k)) for k, one in enumerate(self._parts)
                     if one.store.sharing is not None), None)  # fmt: skip

    def _of_part(self, k: int, asked: tuple[Array, Array]) -> tuple[Array, Array]:
        """The rows of one of the stores, and their numbers."""
        rows, counts = asked
        return self._divided(rows, counts)[k], counts[list(self._parts[k].tables)]

    @property
    def step_changes(self) -> StepChanges:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        found = [(one.tables, one.store.step_changes) for one in self._parts]
        tables = {own[t]: changes for own, of_store in found for t, changes in of_store.tables.items()}
        return StepChanges(tables, any(of_store.is_all for _, of_store in found))

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done, by name."""
        return {name: counts for one in self._parts for name, counts in one.store.hashed_counts.items()}

    def freeze(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        for one in self._parts:
            one.store.freeze()

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        floats = counts * self._dims
        ends = _ends(floats)
        out = self._answers.take(int(floats.sum()))
        for one, own in zip(self._parts, self._divided(rows, counts), strict=True):
            found, at = one.store.read_rows(own, counts[list(one.tables)]), 0
            for t in one.tables:
                size = int(floats[t])
                out[ends[t] : ends[t + 1]] = found[at : at + size]
                at += size
        return out

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """See :class:`~trainer.tables.stores.row_store.RowStore`: an update of each store, also of one without rows of the batch."""
        for rows, counts in asked:
            check_batch(one_event(rows, counts), self.features)
        of_rows = [self._divided(rows, counts) for rows, counts in asked]
        of_gradients = [self._divided(flat, counts * self._dims) for flat, (_, counts) in zip(gradients, asked, strict=True)]  # fmt: skip
        of_lookups = [self._divided(own, counts) for own, (_, counts) in zip(lookups, asked, strict=False)]
        distinct = np.zeros(len(self.tables), np.int64)
        with self._transaction():
            for k, one in enumerate(self._parts):
                tables = list(one.tables)
                distinct[tables] = one.store.update_rows(
                    [(rows[k], counts[tables]) for rows, (_, counts) in zip(of_rows, asked, strict=True)],
                    [flat[k] for flat in of_gradients],
                    None if rates is None else rates[tables],
                    [own[k] for own in of_lookups] if one.store.needs_lookups else (),
                )
        return distinct

    def _transaction(self) -> AbstractContextManager[object]:
        return nullcontext() if self.undo_log is None else self.undo_log.transaction()

    def _divided(self, values: Array, counts: Array) -> list[Array]:
        """The values of each store, of which each table has ``counts``."""
        ends = _ends(counts)
        return [np.concatenate([values[ends[t] : ends[t + 1]] for t in one.tables]) for one in self._parts]

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]; for inspection and tests."""
        store, _ = self._of(self._position(table))
        return store.weights_of(table, rows)

    def _position(self, table: str) -> int:
        return [one.name for one in self.tables].index(table)

    def _of(self, part: int) -> tuple[HeldStore, int]:
        """The store that has a saved part, and its number there."""
        k, number = self._places.of(part)
        return self._parts[k].store, number

    def table_state(self, t: int) -> TableState:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        store, own = self._of(t)
        return store.table_state(own)

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        store, own = self._of(t)
        return store.section_names(own)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        check_states(self.tables, state)
        with nullcontext() if self.undo_log is None else self.undo_log.filling():
            for one in self._parts:
                names = [self.tables[t].name for t in one.tables]
                one.store.load_state({name: state[name] for name in names})

    def begin_snapshot(self, *, most_bytes: int) -> JoinedSnapshot:
        """See :class:`~trainer.tables.stores.row_store.RowStore`; each store has an equal share of ``most_bytes``."""
        share = most_bytes // len(self._parts)
        return JoinedSnapshot(self._places, [one.store.begin_snapshot(most_bytes=share) for one in self._parts])

    def end_snapshot(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        for one in self._parts:
            one.store.end_snapshot()

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`. Raises :class:`BadBatch`."""
        raise _only_loaded(counts)

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: bool) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`. Raises :class:`BadBatch`."""
        raise _only_loaded(counts)

    def changed_rows(self, t: int, first: int, stop: int) -> ChangedRows:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        store, own = self._of(t)
        return store.changed_rows(own, first, stop)

    def changed_among(self, t: int, rows: Array) -> ChangedRows:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        store, own = self._of(t)
        return store.changed_among(own, rows)

    def clear(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        for one in self._parts:
            one.store.clear()

    def load_history(self, t: int, history: KeptHistory, first: int = 0) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        store, own = self._of(t)
        store.load_history(own, history, first)

    def load_rows(self, t: int, found: ChangedRows, ages: Array | None = None) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`; ``t`` is the number of a saved part."""
        store, own = self._of(t)
        store.load_rows(own, found, ages)

    def end_load(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        for one in self._parts:
            one.store.end_load()

    def begin_kept_snapshot(self, *, most_bytes: int, patience_secs: float | None) -> JoinedKeptSnapshot:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`; each store has an equal share of ``most_bytes``."""
        is_whole = self._is_whole(is_fresh=True)
        share = most_bytes // len(self._parts)
        found = [one.store.begin_kept_snapshot(most_bytes=share, patience_secs=patience_secs) for one in self._parts]
        is_whole[0] = 1
        return JoinedKeptSnapshot(self._places, found)

    def resume_snapshot(self, *, patience_secs: float) -> JoinedKeptSnapshot | None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`; None also for one that not all stores have."""
        found = [one.store.resume_snapshot(patience_secs=patience_secs) for one in self._parts]
        open_ones = [one for one in found if one is not None]
        if len(open_ones) == len(found) and self._is_whole(is_fresh=False)[0] == 1:
            return JoinedKeptSnapshot(self._places, open_ones)
        for one in open_ones:
            one.close()  # its process was killed before all stores had begun theirs, or while it ended them
        return None

    def _is_whole(self, *, is_fresh: bool) -> Array:
        """Whether all stores have begun their snapshots, in the memory."""
        return self._memory.array("snapshot_is_whole", _ONE - 1, _ONE, np.int64, is_fresh=is_fresh)


def _ends(counts: Array) -> Array:
    """Where the values of each table begin, of which it has ``counts``, and where those of the last one end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _only_loaded(counts: Array) -> BadBatch:
    return BadBatch("rows of hashed and pruned tables must be loaded with what is known of them", value=counts.tolist()[:8])  # fmt: skip
