"""The index of hashed tables in one memory: ids found, places given and taken, under an undo log."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from trainer.errors import ConfigError, DamagedMemory
from trainer.options.hashed import MOST_STEPS
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.kernels.undo_kernels import HEAD, begin_block
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.stores.hashed import changes
from trainer.tables.stores.hashed import index_layout as columns
from trainer.tables.stores.hashed.candidates import LOG_NUMBERS
from trainer.tables.stores.hashed.decisions import Decisions, decide, empty_decisions
from trainer.tables.stores.hashed.find import find_places, sort_distinct
from trainer.tables.stores.hashed.index_layout import RECORD, WORDS, index_layout, index_values
from trainer.tables.stores.hashed.listed_changes import list_changes
from trainer.tables.stores.hashed.options import HashedTable
from trainer.tables.stores.hashed.use_list import rebuild
from trainer.tables.stores.step_changes import TableChanges
from transforms.arrays import Array


class PlaceIndex:
    """Which place has which id, for some tables.

    Args:
        tables: the tables.
        seed: what ids are hashed with, beside the names of the tables.
        memory: has the index.
        undo_log: of the same memory.
        is_fresh: the index begins without ids, whatever the memory has.
        prefix: of the names with which ids are hashed.
    """

    def __init__(
        self, tables: Sequence[HashedTable], *, seed: int, memory: TableMemory, undo_log: UndoLog, is_fresh: bool, prefix: str = ""
    ) -> None:  # fmt: skip
        self._tables, self._memory, self._log = tuple(tables), memory, undo_log
        self.layout = index_layout(
            tables, np.array([_key(seed, prefix + table.spec.name) for table in tables], np.uint64)
        )
        self.allocate(is_fresh=is_fresh)

    def allocate(self, *, is_fresh: bool) -> None:
        """Take the memory's index, or one without ids."""
        self.values = index_values(self.layout, self._memory, is_fresh=is_fresh)
        self.words = self.values.words.reshape(len(self._tables), WORDS)
        self._log.beside = self.values[:4]

    @property
    def nbytes(self) -> int:
        """The bytes of the index."""
        return sum(int(one.nbytes) for one in self.values)

    def settle(self) -> None:
        """After the undo log was attached: rebuild the index if a change of it is not undone, or its words cannot be right.

        Raises :class:`DamagedMemory` if its records cannot be right either.
        """
        if self.values.marks[columns.NEEDS_REBUILD] or not self._are_words_in_range():
            self.rebuild()

    def rebuild(self) -> None:
        """Rebuild the index from the ids and last uses of places. Raises :class:`DamagedMemory`."""
        np.maximum(self.words, 0, out=self.words)
        for t in range(len(self._tables)):
            if not rebuild(t, self.layout, self.values):
                raise self._damaged()
        self.values.marks[columns.NEEDS_REBUILD] = 0

    def _are_words_in_range(self) -> bool:
        words, places = self.words, self.layout.places[:, None]
        of_places = words[:, [columns.FIRST, columns.LAST, columns.FREE, columns.FRESH, columns.STORED]]
        return bool((words >= 0).all() and (of_places <= places).all())

    def find(self, ids: Array, starts: Array) -> Array:
        """The place of each checked id, -1 for none; of table t are ``ids[starts[t]:starts[t + 1]]``. Raises :class:`DamagedMemory`."""
        places = np.empty(len(ids), np.int64)
        if not find_places(ids, starts, self.layout, self.values, places):
            raise self._damaged()
        return places

    def place(self, ids: Array, starts: Array) -> tuple[Decisions, Array, Array]:
        """Begin a step, in which these checked ids are used; inside a transaction.

        Returns what it has changed, the place of each id, -1 for none, and the ids of the rows that it has removed. Raises
        :class:`DamagedMemory`, and :class:`ConfigError` after 2**32 steps.
        """
        if int(self.words[:, columns.STEP].max()) >= MOST_STEPS:
            raise ConfigError("hashed tables must be saved and restored after so many steps", value=MOST_STEPS)
        if not self._log.has_begun:
            self.values.marks[columns.NEEDS_REBUILD] = 0
        decided, numbers = self._distinct(ids, starts)
        log, kept = self._log, len(decided.ids) * LOG_NUMBERS
        log.keep(changes.LOGGED_WORDS, np.zeros(1, np.int64), self.words.size)
        at = log.reserve(HEAD + kept)
        begin_block(log.log, at, changes.LOGGED_CANDIDATES, 2, len(decided.ids))
        log.append_to(at + HEAD + kept)
        if not decide(decided, self.layout, self.values, log.log, at):
            raise self._damaged()
        removed = self._removed_ids(decided)
        self._change(decided)
        return decided, decided.places[numbers], removed

    def _removed_ids(self, decided: Decisions) -> Array:
        """The ids of the places that rows will lose, in their order."""
        ends = decided.removed_starts
        if not ends[-1]:
            return np.zeros(0, np.int64)
        own = [self.ids_of(t, decided.removed[ends[t] : ends[t + 1]]) for t in range(len(self._tables))]
        return np.concatenate(own)

    def _distinct(self, ids: Array, starts: Array) -> tuple[Decisions, Array]:
        decided, numbers = empty_decisions(len(ids), len(self._tables)), np.empty(len(ids), np.int64)
        sorted_ids, order, ids_2, order_2 = np.empty((4, len(ids)), np.int64)
        sort_distinct(ids, starts, sorted_ids, order, ids_2, order_2, decided.ids, decided.starts, numbers)
        found = int(decided.starts[-1])
        return decided._replace(
            ids=decided.ids[:found], places=decided.places[:found], is_new=decided.is_new[:found]
        ), numbers

    def changes(self, decided: Decisions, removed: Array) -> list[TableChanges]:
        """What :meth:`place` has changed of each table, from what it returned."""
        places, lines = np.empty((2, len(decided.ids)), np.int64)
        ends = np.zeros((2, len(self._tables) + 1), np.int64)
        list_changes(decided, self.layout, places, ends[0, 1:], lines, ends[1, 1:])
        bounds = zip(*ends.tolist(), decided.removed_starts.tolist(), strict=True)
        return [
            TableChanges(places[first[0] : stop[0]], removed[first[2] : stop[2]], lines[first[1] : stop[1]])
            for first, stop in pairwise(bounds)
        ]

    def _change(self, decided: Decisions) -> None:
        log, room = self._log, changes.entries_kept(int(decided.counts[:, 0].sum() + decided.removed_starts[-1]))
        at = log.reserve(changes.log_numbers(decided))
        log.append_to(changes.keep_index(decided, self.layout, self.values, log.log, at, room))
        if not changes.change_index(decided, self.layout, self.values, log.log, at, room):
            raise self._damaged()

    def records(self, t: int) -> Array:
        """The records of a table, uint32 [places, RECORD]."""
        first, places = int(self.layout.first_place[t]), int(self.layout.places[t])
        records: Array = self.values.records[first * RECORD : (first + places) * RECORD].reshape(places, RECORD)
        return records

    def ids_of(self, t: int, places: Array) -> Array:
        """The ids that places of a table have, int64."""
        records = self.records(t)
        low, high = (records[places, column].astype(np.int64) for column in (columns.ID_LOW, columns.ID_HIGH))
        ids: Array = low | (high << 32)
        return ids

    def counts(self) -> list[HashedCounts]:
        """The counts of each table."""
        names = (columns.ADMITTED, columns.EVICTED, columns.EXPIRED, columns.UNADMITTED, columns.UNPLACED)
        return [
            HashedCounts(int(own[columns.STORED]), table.places, *(int(own[name]) for name in names))
            for table, own in zip(self._tables, self.words, strict=True)
        ]

    def _damaged(self) -> DamagedMemory:
        return DamagedMemory("the index of hashed tables in shared memory must be one that this release wrote",
                             where=", ".join(table.spec.name for table in self._tables),
                             next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip


def _key(seed: int, table: str) -> int:
    digest = hashlib.sha256(b"headrace hashed index/1\0%d\0%s" % (seed, table.encode())).digest()
    return int.from_bytes(digest[:8], "little")
