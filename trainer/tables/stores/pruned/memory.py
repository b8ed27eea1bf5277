"""The memory of pruned tables beside the values of their rows, which may outlive the process: a change that is cut off is undone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from trainer.tables.kernels.memory import PrivateMemory, TableMemory
from trainer.tables.kernels.undo_log import BESIDE, UndoLog
from trainer.tables.stores.hashed.dense_memory import DenseMemory
from trainer.tables.stores.pruned.lent_memory import LentMemory
from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class UndoneArray:
    """An array that is undone with the rows.

    Attributes:
        values: its items.
        keep: before items change; takes where they begin, int64, and how many there are from each on.
    """

    values: Array
    keep: Callable[[Array, int], None]

    def keep_all(self) -> None:
        """Keep all items before they change."""
        self.keep(np.zeros(1, np.int64), len(self.values))


class PrunedMemory:
    """Arrays of pruned tables, in ``memory`` with its ``undo_log``; without one a change that is cut off is not undone.

    Attributes:
        tables: the memory.
        is_fresh: whether it has no whole tables: arrays are zeros.
    """

    def __init__(self, memory: TableMemory | None = None, undo_log: UndoLog | None = None) -> None:
        self.tables, self.undo_log = memory or PrivateMemory(), undo_log
        self.is_fresh = undo_log is None or undo_log.is_empty
        self._arrays: list[Array] = []

    def array(self, name: str, size: int, dtype: type) -> UndoneArray:
        """A flat array, all of which is used; before :meth:`attach`."""
        none = np.zeros(1, np.int64)
        values = DenseMemory(self.tables).array(name, none, none + size, dtype, is_fresh=self.is_fresh)
        number = BESIDE + len(self._arrays)
        self._arrays.append(values)

        def keep(starts: Array, count: int) -> None:
            if self.undo_log is not None and self.undo_log.is_open and count and len(starts):
                self.undo_log.keep(number, starts, count)

        return UndoneArray(values, keep)

    def attach(self, values: TableValues, settle: Callable[[], None]) -> None:
        """Undo these values, and all arrays, with the log from now on; what a killed process has begun is undone first.

        ``settle``: is called when all are whole, also after each later undo.
        """
        if self.undo_log is not None:
            self.undo_log.beside, self.undo_log.settle = self._arrays, settle
            self.undo_log.attach(values)

    def transaction(self) -> AbstractContextManager[object]:
        """All changes inside happen, or none of them. While all tables are replaced, nothing is undone."""
        return nullcontext() if self.undo_log is None or self.undo_log.is_filling else self.undo_log.transaction()

    def release_memory(self, name: str, first_byte: int, stop_byte: int) -> None:
        """Release a range of an array to the system, where the memory can."""
        if isinstance(self.tables, LentMemory):
            self.tables.release_memory(name, first_byte, stop_byte)

    @property
    def is_undone(self) -> bool:
        """Whether changes must be kept first."""
        return self.undo_log is not None and self.undo_log.is_open

    def keep_rows(self, bags: Bags, table_of: Array, layout: TableLayout, values: TableValues) -> None:
        """Keep the values of rows before they change; see :meth:`UndoLog.keep_rows <trainer.tables.kernels.undo_log.UndoLog.keep_rows>`."""
        if self.undo_log is not None and self.undo_log.is_open:
            self.undo_log.keep_rows(bags, table_of, layout, values)
