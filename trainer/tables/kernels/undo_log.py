"""An undo log of tables in shared memory: an update that a killed process leaves half done is undone.

A *transaction* is any number of changes of tables, and of the :attr:`UndoLog.words` of the caller, such as the sequence number of an
update. Before a change, what it overwrites is appended to the log. The transaction ends with one store of eight bytes. A process
that is killed before that store, at any instruction, leaves an open log: the next process to attach writes everything back, the last
change first, so that the memory is bit for bit that of the transaction's beginning. Attaching costs what the transaction
changed, whatever the size of the tables. An error inside a transaction undoes it at once.

Several stores in one memory share a log (:meth:`UndoLog.beside_store`), so that one transaction changes all of them.

The log survives the end of the process, not that of the machine: nothing is flushed. Calls come from one thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from trainer.errors import ConfigError, DamagedMemory
from trainer.tables.kernels import undo_kernels as kernels
from trainer.tables.kernels.layout import Bags, TableLayout, TableValues
from trainer.tables.kernels.memory import TableMemory
from transforms.arrays import Array

#: The words of the header: the state, which of two logs is in use, the sizes of both, the numbers used of that one, and whose it is.
_STATE, _WHICH, _SIZES, _USED, _IDENTITY, _HEADER = 0, 1, 2, kernels.USED, 5, 8
#: The states: no whole tables, as in new memory; whole tables; a transaction.
_EMPTY, _CLOSED, _OPEN = range(3)
#: The least and most numbers of a log, 4 bytes each.
_LEAST, _MOST = 1 << 12, 1 << 40
#: The position of the first array beside the weights, slots and states of rows.
BESIDE = 3
#: The positions of each store that shares a log.
_OF_STORE = 32


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


def _do_nothing() -> None:
    """Of a store that has nothing to do when its tables are whole."""


@dataclass(slots=True, eq=False)
class _OfStore:
    """What one store has in a log; it does not refer to the log, so that the memory of both ends at once.

    Attributes:
        first: the position of its first array.
        arrays: its tables and what is beside them, as numbers of 1 or 4 bytes; none before they are attached.
        settle: see :class:`UndoLog`.
    """

    first: int
    arrays: list[Array] = field(default_factory=list)
    settle: Callable[[], None] = _do_nothing


@dataclass(slots=True, eq=False)
class _Shared:
    """What all stores of a log have in common.

    Attributes:
        memory: has the log.
        header: see the positions above.
        words: of the caller.
        before: the words at the beginning of the transaction.
        stores: what each store has, in the order of their positions.
        log: the one of two logs that is in use.
        floats: this log as float32.
        keeps_rows: whether rows are kept before they change.
        found: what the memory had when all tables were attached.
        is_filling: whether all tables are being replaced.
    """

    memory: TableMemory
    header: Array
    words: Array
    before: Array
    stores: list[_OfStore]
    keeps_rows: bool = True
    log: Array = field(default_factory=lambda: np.zeros(0, np.uint32))
    floats: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    found: Found = Found.EMPTY
    is_filling: bool = False

    def array(self, name: str, size: int, dtype: type, *, is_fresh: bool) -> Array:
        """A flat array of the memory."""
        return _array(self.memory, name, size, dtype, is_fresh=is_fresh)

    def use(self, which: int, size: int, *, is_fresh: bool, begins: Array | None = None) -> None:
        """Take one of the two logs, which begins with these numbers; the header names it when it has them."""
        self.log = self.array(f"undo_{which}", size, np.uint32, is_fresh=is_fresh)
        if begins is not None:
            self.log[: len(begins)] = begins
        self.floats = self.log.view(np.float32)
        self.header[_SIZES + which] = size
        self.header[_WHICH] = which
        if begins is not None:
            self.array(f"undo_{1 - which}", 1, np.uint32, is_fresh=True)  # the memory of the other log is free


class UndoLog:
    """What the open transaction has overwritten in arrays of the same memory, as one store sees it.

    Args:
        memory: has the log.
        words: how many numbers the caller has.
        identity: says which tables the memory has; those of another identity are not used.
        keeps_rows: whether rows are kept before they change; False for dense tables in memory of a process, which are lost with it anyway. An
            error while rows change then leaves tables that must be loaded again; one before changes nothing, as ever.

    Attributes:
        words: int64, the caller's numbers: changed inside a transaction, and undone with it.
        beside: arrays of the store, of 1, 4 or 8 bytes an item, that are undone with its tables; set before the tables are attached.
    """

    def __init__(self, memory: TableMemory, words: int = 0, identity: str = "", *, keeps_rows: bool = True) -> None:
        header = _array(memory, "undo_header", _HEADER + 2 * words, np.int64, is_fresh=False)
        self.words, before = (header[_HEADER + k * words : _HEADER + (k + 1) * words] for k in range(2))
        self._shared = _Shared(memory, header, self.words, before, [], keeps_rows)
        self._begin_store()
        digest = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:7], "little")
        if int(header[_IDENTITY]) != digest:
            header[:] = 0
            header[_IDENTITY] = digest
        state, which, used = (int(header[k]) for k in (_STATE, _WHICH, _USED))
        if state not in (_EMPTY, _CLOSED, _OPEN) or which not in (0, 1):
            raise _damaged("header", (state, which))
        size = int(header[_SIZES + which])
        if not 0 <= used <= size <= _MOST:
            raise _damaged("header", (used, size))
        self._shared.use(which, size or _LEAST, is_fresh=not size)

    def _begin_store(self) -> None:
        stores = self._shared.stores
        self._own = _OfStore(_OF_STORE * len(stores))
        stores.append(self._own)
        self.beside: Sequence[Array] = ()
        self._item_numbers: list[int] = []

    @property
    def settle(self) -> Callable[[], None]:
        """Is called when all tables are whole: after they were attached, and after an undo."""
        return self._own.settle

    @settle.setter
    def settle(self, settle: Callable[[], None]) -> None:
        self._own.settle = settle

    def beside_store(self) -> UndoLog:
        """The log of a further store in the same memory, with the same transactions; before any tables are attached."""
        found = UndoLog.__new__(UndoLog)
        found.words, found._shared = self.words, self._shared
        found._begin_store()
        return found

    @property
    def log(self) -> Array:
        """The numbers that are kept, uint32."""
        return self._shared.log

    @property
    def found(self) -> Found:
        """What the memory had when all tables were attached."""
        return self._shared.found

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction."""
        return bool(self._shared.header.item(_STATE) == _OPEN)

    @property
    def is_filling(self) -> bool:
        """Whether all tables are being replaced."""
        return self._shared.is_filling

    @property
    def is_empty(self) -> bool:
        """Whether the memory has no whole tables: those that are attached must be fresh."""
        return bool(self._shared.header.item(_STATE) == _EMPTY)

    @property
    def has_begun(self) -> bool:
        """Whether the open transaction has kept anything."""
        return bool(self._shared.header.item(_USED))

    @property
    def nbytes(self) -> int:
        """The bytes of the log's memory."""
        return int(self._shared.header.nbytes + self.log.nbytes)

    def attach(self, values: TableValues) -> None:
        """Take these tables, and :attr:`beside`, from now on; with those of the last store, undo the transaction that was open when its process ended.

        Raises :class:`DamagedMemory` for a log that this class has not written;
        nothing is changed then.
        """
        arrays = [*values, *self.beside]
        assert len(arrays) <= _OF_STORE
        self._own.arrays = [one if one.itemsize == 1 else one.view(np.uint32) for one in arrays]
        self._item_numbers = [max(one.itemsize // 4, 1) for one in arrays]
        shared = self._shared
        if shared.is_filling or not all(one.arrays for one in shared.stores):
            return
        shared.found = Found.EMPTY if self.is_empty else Found.UNDONE if self.is_open else Found.WHOLE
        if self.is_open:
            self.undo()
            return
        shared.header[_STATE] = _CLOSED
        self._settle()

    def _settle(self) -> None:
        for one in self._shared.stores:
            one.settle()

    def _every_array(self) -> list[Array]:
        """The arrays of all stores by their positions."""
        stores = self._shared.stores
        found = [np.zeros(0, np.uint32)] * (_OF_STORE * len(stores))
        for one in stores:
            found[one.first : one.first + len(one.arrays)] = one.arrays
        return found

    def transaction(self) -> AbstractContextManager[Array]:
        """All changes inside happen, or none of them; gives the :attr:`words`. A transaction inside another is a part of it.

        Raises :class:`ConfigError` for tables whose load has failed.
        """
        return _Transaction(self)

    def begin(self) -> bool:
        """Begin a transaction; False inside another one. Raises as :meth:`transaction`."""
        state = self._shared.header.item(_STATE)
        if state == _OPEN:
            return False
        if state == _EMPTY:
            raise ConfigError("tables must be loaded before they change", next_step="load a state again")
        self._shared.before[:] = self.words
        self._shared.header[_USED] = 0
        self._shared.header[_STATE] = _OPEN
        return True

    def end(self, *, has_failed: bool) -> None:
        """End the transaction: with what it has changed, or, if it has failed, without it."""
        if not has_failed:
            self._shared.header[_STATE] = _CLOSED
        elif self.has_begun and not self._shared.keeps_rows:
            self.words[:] = self._shared.before
            self._shared.header[_STATE] = _EMPTY
        else:
            self.undo()

    @contextmanager
    def filling(self) -> Iterator[None]:
        """While all tables are replaced, which is not undone: a process that is killed meanwhile leaves :attr:`Found.EMPTY`.

        Raises :class:`ConfigError` inside a transaction.
        """
        if self.is_open:
            raise ConfigError("tables must be loaded outside a transaction")
        if self._shared.is_filling:
            yield
            return
        self._shared.header[_STATE] = _EMPTY
        self._shared.is_filling = True
        try:
            yield
        finally:
            self._shared.is_filling = False
        self._shared.header[_STATE] = _CLOSED
        self._shared.found = Found.WHOLE

    def keep_rows(self, bags: Bags, table_of: Array, tables: TableLayout, values: TableValues) -> None:
        """Append the weights, slots and states of the rows of a checked batch, whose features have the tables ``table_of``."""
        if not self._shared.keeps_rows:
            self._begin_changes()
            return
        counts = bags.offsets[:, -1] - bags.offsets[:, 0]
        widths = kernels.numbers_of_rows(tables.dims, tables.slot_dims)[table_of]
        at = self.reserve(int((counts * widths).sum()) + 3 * kernels.HEAD * len(counts))
        self.append_to(
            kernels.keep_rows(bags, table_of, tables, values, self.log, self._shared.floats, at, self._own.first)
        )

    def space_for(self, numbers: Callable[[], int]) -> kernels.KeptRows:
        """The log with space for so many more numbers, for a compiled call that keeps rows itself and changes them."""
        if not self._shared.keeps_rows:
            self._begin_changes()
            return kernels.KEPT_NOWHERE
        self.reserve(numbers())
        return kernels.KeptRows(self.log, self._shared.floats, self._shared.header, self._own.first)

    def _begin_changes(self) -> None:
        """Note that the open transaction changes rows which are not kept."""
        self._shared.header[_USED] = 1

    def keep(self, array: int, starts: Array, size: int = 1) -> None:
        """Append ``size`` items of an array of :attr:`beside`, which begin at :data:`BESIDE`, from each of ``starts`` on."""
        numbers = self._item_numbers[array]
        at = self.reserve(kernels.HEAD + len(starts) * (kernels.ITEM_HEAD + numbers * size))
        source = self._own.arrays[array]
        number = self._own.first + array
        self.append_to(kernels.keep_items(number, starts * numbers, size * numbers, source, self.log, at))

    def reserve(self, numbers: int) -> int:
        """Make space for so many numbers; returns where they begin in ``log``."""
        used: int = self._shared.header.item(_USED)
        if used + numbers > len(self.log):
            which = 1 - int(self._shared.header[_WHICH])
            self._shared.use(which, (used + numbers) * 5 // 4, is_fresh=True, begins=self.log[:used])
        return used

    def append_to(self, end: int) -> None:
        """Make what was written to ``log`` up to ``end`` a part of it."""
        self._shared.header[_USED] = end

    def undo(self) -> None:
        """Write back what the open transaction has overwritten, and end it. Raises :class:`DamagedMemory`; nothing is changed then."""
        used, arrays = int(self._shared.header[_USED]), self._every_array()
        lengths = np.array([len(one) for one in arrays], np.int64)
        blocks, at = [], 0
        while at < used:
            blocks.append(at)
            at = int(kernels.next_block(self.log, at, used, lengths))
            if at < 0:
                raise _damaged("block", blocks[-1])
        for at in reversed(blocks):
            kernels.restore_block(self.log, at, arrays[int(self.log[at])])
        self.words[:] = self._shared.before
        self._shared.header[_STATE] = _CLOSED
        self._settle()


class _Transaction(AbstractContextManager[Array]):
    """The block of a transaction. A generator would take as long as the update of a few rows."""

    __slots__ = ("_is_outer", "_log")

    def __init__(self, log: UndoLog) -> None:
        self._log, self._is_outer = log, False

    def __enter__(self) -> Array:
        self._is_outer = self._log.begin()
        return self._log.words

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._is_outer:
            self._log.end(has_failed=kind is not None)


def _array(memory: TableMemory, name: str, size: int, dtype: type, *, is_fresh: bool) -> Array:
    return memory.array(name, np.zeros(1, np.int64), np.array([size], np.int64), dtype, is_fresh=is_fresh)


def _damaged(part: str, value: object) -> DamagedMemory:
    return DamagedMemory("the undo log of tables in shared memory must be one that this release wrote", where=part, value=value,
                         next_step="remove the folder of the memory, and restore the tables from a commit")  # fmt: skip
