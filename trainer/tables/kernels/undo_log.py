"""An undo log of tables in shared memory: an update that a killed process leaves half done is undone.

A *transaction* is any number of changes of tables, and of the :attr:`UndoLog.words` of the caller, such as the sequence number of an
update. Before a change, what it overwrites is appended to the log. The transaction ends with one store of eight bytes. A process
that is killed before that store, at any instruction, leaves an open log: the next process to attach writes everything back, the last
change first, so that the memory is bit for bit that of the transaction's beginning. Attaching costs what the transaction
changed, whatever the size of the tables. An error inside a transaction undoes it at once.

The log survives the end of the process, not that of the machine: nothing is flushed. Calls come from one thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

import numpy as np

from trainer.errors import ConfigError, DamagedMemory
from trainer.tables.kernels import undo_kernels as kernels
from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from trainer.tables.kernels.memory import TableMemory
from transforms.arrays import Array

#: The words of the header: the state, which of two logs is in use, the sizes of both, the numbers used of that one, and whose it is.
_STATE, _WHICH, _SIZES, _USED, _IDENTITY, _HEADER = 0, 1, 2, 4, 5, 8
#: The states: no whole tables, as in new memory; whole tables; a transaction.
_EMPTY, _CLOSED, _OPEN = range(3)
#: The least and most numbers of a log, 4 bytes each.
_LEAST, _MOST = 1 << 12, 1 << 40
#: The position of the first array beside the weights, slots and states of rows.
BESIDE = 3


class Found(Enum):
    """What a memory has that is attached.

    Attributes:
        WHOLE: the tables that the last transaction left.
        UNDONE: those of the beginning of a transaction that was cut off.
        EMPTY: none, or other tables, or tables whose load was cut off; they begin with initial values.
    """

    WHOLE = "whole"
    UNDONE = "undone"
    EMPTY = "empty"


class UndoLog:
    """What the open transaction has overwritten in arrays of the same memory.

    Args:
        memory: has the log.
        words: how many numbers the caller has.
        identity: says which tables the memory has; those of another identity are not used.

    Attributes:
        words: int64, the caller's numbers: changed inside a transaction, and undone with it.
        beside: arrays of the caller, of 1, 4 or 8 bytes an item, that are undone with the tables; set before the tables are attached.
        found: what the memory had when tables were attached.
        after_undo: is called when a transaction was undone.
    """

    def __init__(self, memory: TableMemory, words: int = 0, identity: str = "") -> None:
        self._memory = memory
        self._header = self._array("undo_header", _HEADER + 2 * words, np.int64, is_fresh=False)
        self.words, self._before = (self._header[_HEADER + k * words : _HEADER + (k + 1) * words] for k in range(2))
        self.beside: Sequence[Array] = ()
        self.found = Found.EMPTY
        self.after_undo: Callable[[], None] = _do_nothing
        self._arrays: list[Array] = []
        self._lengths, self._item_numbers = np.zeros(0, np.int64), [1]
        self._is_filling = False
        digest = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:7], "little")
        if int(self._header[_IDENTITY]) != digest:
            self._header[:] = 0
            self._header[_IDENTITY] = digest
        state, which, used = (int(self._header[k]) for k in (_STATE, _WHICH, _USED))
        if state not in (_EMPTY, _CLOSED, _OPEN) or which not in (0, 1):
            raise _damaged("header", (state, which))
        size = int(self._header[_SIZES + which])
        if not 0 <= used <= size <= _MOST:
            raise _damaged("header", (used, size))
        self._use(which, size or _LEAST, is_fresh=not size)

    def _array(self, name: str, size: int, dtype: type, *, is_fresh: bool) -> Array:
        return self._memory.array(name, np.zeros(1, np.int64), np.array([size], np.int64), dtype, is_fresh=is_fresh)

    def _use(self, which: int, size: int, *, is_fresh: bool, begins: Array | None = None) -> None:
        """Take one of the two logs, which begins with these numbers; the header names it when it has them."""
        self.log = self._array(f"undo_{which}", size, np.uint32, is_fresh=is_fresh)
        if begins is not None:
            self.log[: len(begins)] = begins
        self._floats = self.log.view(np.float32)
        self._header[_SIZES + which] = size
        self._header[_WHICH] = which
        if begins is not None:
            self._array(f"undo_{1 - which}", 1, np.uint32, is_fresh=True)  # the memory of the other log is free

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction."""
        return bool(self._header[_STATE] == _OPEN)

    @property
    def is_filling(self) -> bool:
        """Whether all tables are being replaced."""
        return self._is_filling

    @property
    def is_empty(self) -> bool:
        """Whether the memory has no whole tables: those that are attached must be fresh."""
        return bool(self._header[_STATE] == _EMPTY)

    @property
    def has_begun(self) -> bool:
        """Whether the open transaction has kept anything."""
        return bool(self._header[_USED])

    @property
    def nbytes(self) -> int:
        """The bytes of the log's memory."""
        return int(self._header.nbytes + self.log.nbytes)

    def attach(self, values: TableValues) -> None:
        """Take these tables, and :attr:`beside`, from now on; undo the transaction that was open when its process ended.

        Raises :class:`DamagedMemory` for a log that this class has not written;
        nothing is changed then.
        """
        arrays = [*values, *self.beside]
        self._arrays = [one if one.itemsize == 1 else one.view(np.uint32) for one in arrays]
        self._lengths = np.array([len(one) for one in self._arrays], np.int64)
        self._item_numbers = [max(one.itemsize // 4, 1) for one in arrays]
        if self._is_filling:
            return
        self.found = Found.EMPTY if self.is_empty else Found.UNDONE if self.is_open else Found.WHOLE
        if self.is_open:
            self.undo()
        self._header[_STATE] = _CLOSED

    @contextmanager
    def transaction(self) -> Iterator[Array]:
        """All changes inside happen, or none of them; gives the :attr:`words`. A transaction inside another is a part of it.

        Raises :class:`ConfigError` for tables whose load has failed.
        """
        if self.is_open:
            yield self.words
            return
        if self.is_empty:
            raise ConfigError("tables must be loaded before they change", next_step="load a state again")
        self._before[:] = self.words
        self._header[_USED] = 0
        self._header[_STATE] = _OPEN
        try:
            yield self.words
        except BaseException:
            self.undo()
            raise
        self._header[_STATE] = _CLOSED

    @contextmanager
    def filling(self) -> Iterator[None]:
        """While all tables are replaced, which is not undone: a process that is killed meanwhile leaves :attr:`Found.EMPTY`.

        Raises :class:`ConfigError` inside a transaction.
        """
        if self.is_open:
            raise ConfigError("tables must be loaded outside a transaction")
        if self._is_filling:
            yield
            return
        self._header[_STATE] = _EMPTY
        self._is_filling = True
        try:
            yield
        finally:
            self._is_filling = False
        self._header[_STATE] = _CLOSED
        self.found = Found.WHOLE

    def keep_rows(self, bags: Bags, table_of: Array, tables: TableLayout, values: TableValues) -> None:
        """Append the weights, slots and states of the rows of a checked batch, whose features have the tables ``table_of``."""
        counts = bags.offsets[:, -1] - bags.offsets[:, 0]
        widths = tables.dims[table_of] + tables.slot_dims[table_of] + 3 * kernels.ITEM_HEAD + 1
        at = self.reserve(int((counts * widths).sum()) + 3 * kernels.HEAD * len(counts))
        self.append_to(kernels.keep_rows(bags, table_of, tables, values, self.log, self._floats, at))

    def keep(self, array: int, starts: Array, size: int = 1) -> None:
        """Append ``size`` items of an array of :attr:`beside`, which begin at :data:`BESIDE`, from each of ``starts`` on."""
        numbers = self._item_numbers[array]
        at = self.reserve(kernels.HEAD + len(starts) * (kernels.ITEM_HEAD + numbers * size))
        source = self._arrays[array]
        self.append_to(kernels.keep_items(array, starts * numbers, size * numbers, source, self.log, at))

    def reserve(self, numbers: int) -> int:
        """Make space for so many numbers; returns where they begin in ``log``."""
        used = int(self._header[_USED])
        if used + numbers > len(self.log):
            which = 1 - int(self._header[_WHICH])
            self._use(which, (used + numbers) * 5 // 4, is_fresh=True, begins=self.log[:used])
        return used

    def append_to(self, end: int) -> None:
        """Make what was written to ``log`` up to ``end`` a part of it."""
        self._header[_USED] = end

    def undo(self) -> None:
        """Write back what the open transaction has overwritten, and end it. Raises :class:`DamagedMemory`; nothing is changed then."""
        used = int(self._header[_USED])
        blocks, at = [], 0
        while at < used:
            blocks.append(at)
            at = int(kernels.next_block(self.log, at, used, self._lengths))
            if at < 0:
                raise _damaged("block", blocks[-1])
        for at in reversed(blocks):
            kernels.restore_block(self.log, at, self._arrays[int(self.log[at])])
        self.words[:] = self._before
        self._header[_STATE] = _CLOSED
        self.after_undo()


def _do_nothing() -> None:
    """Of a caller that has nothing to do after an undo."""


def _damaged(part: str, value: object) -> DamagedMemory:
    return DamagedMemory("the undo log of tables in shared memory must be one that this release wrote", where=part, value=value,
                         next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip
