"""What every embedding engine does, as an interface, and the values that it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.feature_counts import FeatureCounts
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.spec import FeatureSpec, TableSpec
from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class TableSections:
    """What a table's saved state has beside its rows, by name: only what holds the rows understands it.

    Attributes:
        by_rows: further rows with values of their own, such as the importance of each; hosts share them as they share the table's rows.
        arrays: others, such as the ages of the rows.
    """

    by_rows: Mapping[str, TableState] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_rows or self.arrays)

    def renumbered(self, number: Callable[[Array], Array]) -> TableSections:
        """The same sections of rows with other numbers, which ``number`` gives, ascending as they are."""
        by_rows = {name: replace(one, rows=number(one.rows)) for name, one in self.by_rows.items()}
        return TableSections(by_rows, self.arrays)


NO_SECTIONS = TableSections()


@dataclass(frozen=True, slots=True)
class TableState:
    """The rows of one table that training has changed: ``rows`` (int64, ascending), and float32 [rows, :] arrays.

    ``slots`` holds the values of all slots of the optimizer, one slot after the other; it has no columns for one without slots.
    """

    rows: Array
    weights: Array
    slots: Array
    sections: TableSections = NO_SECTIONS


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Some changed rows of one table: ``rows`` (int64, ascending), and float32 [rows, dim] arrays; ``slots`` may have no columns.

    ``beside``: a number for each row in each of the :attr:`SnapshotSections.beside` of the table.
    """

    rows: Array
    weights: Array
    slots: Array
    beside: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PartedSection:
    """An array of :attr:`TableSections.arrays`: its type, its whole shape, and its parts in order, which are read once.

    ``is_own``: each host that has some of the rows has another one; otherwise it is alike on all of them, and one saves it.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: Iterable[Array]
    is_own: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RowSection:
    """Rows of :attr:`TableSections.by_rows`, which are read by ranges, each once, ascending.

    Attributes:
        count: how many there are.
        dim: the weights of each.
        slot_dim: the slot values of each.
        rows: each number of a row is below it.
        step: the rows of a range.
        read: the rows from one number to another.
    """

    count: int
    dim: int
    slot_dim: int
    rows: int
    step: int
    read: Callable[[int, int], TableState]

    def parts(self) -> Iterator[TableState]:
        """All rows, range by range."""
        for first in range(0, self.rows, self.step):
            found = self.read(first, min(first + self.step, self.rows))
            if len(found.rows):
                yield found

    def none(self) -> TableState:
        """No row of it."""
        return TableState(
            np.zeros(0, np.int64), np.zeros((0, self.dim), np.float32), np.zeros((0, self.slot_dim), np.float32)
        )

    @classmethod
    def of(cls, section: TableState) -> RowSection:
        """A section that is in memory: one range."""

        def read(first: int, stop: int) -> TableState:
            own = slice(*section.rows.searchsorted([first, stop]).tolist())
            return TableState(section.rows[own], section.weights[own], section.slots[own])

        count, rows = len(section.rows), int(section.rows[-1]) + 1 if len(section.rows) else 0
        return cls(count, section.weights.shape[1], section.slots.shape[1], rows, max(rows, 1), read)


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotSections:
    """The :class:`TableSections` of a table of a snapshot.

    Attributes:
        by_rows: those by rows.
        beside: the names of its int64 arrays that come with the rows, one number for each.
        arrays: the others.
    """

    by_rows: Mapping[str, RowSection] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    arrays: Mapping[str, PartedSection] = field(default_factory=dict)


NO_SNAPSHOT_SECTIONS = SnapshotSections()
#: Of an engine without hashed tables.
NO_HASHED_COUNTS: Mapping[str, HashedCounts] = MappingProxyType({})


def in_memory(sections: TableSections) -> SnapshotSections:
    """Sections that are in memory, as those of a snapshot."""
    arrays = {name: PartedSection(str(one.dtype), one.shape, (one,)) for name, one in sections.arrays.items()}
    return SnapshotSections({name: RowSection.of(one) for name, one in sections.by_rows.items()}, arrays=arrays)


@dataclass(frozen=True, slots=True)
class RowValues:
    """The values of rows of several tables, one row after the other: flat float32 ``weights``, and ``slots`` of the optimizers."""

    weights: Array
    slots: Array

    @property
    def nbytes(self) -> int:
        """The bytes of both."""
        return int(self.weights.nbytes + self.slots.nbytes)


class TablesSnapshot(Protocol):
    """The changed rows of all tables of an engine at one moment."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table, in the engine's order."""

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, some at a time; tables must be taken in order, each to its end."""

    def sections(self, t: int) -> SnapshotSections:
        """What the state of a table has beside its rows; taken before :meth:`table`, and read after it."""


class SavedTables(Protocol):
    """Tables of embeddings as checkpoints see them."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables, in the order of their first use."""

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: equal states have equal bytes. Not while a snapshot is read."""

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore a :meth:`state` of any engine. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit.

        A table whose state has no sections gets rows of which nothing else is known, such as their ages.
        """

    def section_names(self, t: int) -> tuple[str, ...]:
        """The sections without which the saved state of a table is not whole."""

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature over the trained batches since the engine was made or loaded, by name."""

    def begin_snapshot(self, *, most_bytes: int) -> TablesSnapshot:
        """The changed rows of this moment, to be read in another thread while training goes on; one snapshot at a time.

        ``most_bytes``: memory for rows that are changed before they are read. The snapshot must be read to its end, or ended.
        """

    def end_snapshot(self) -> None:
        """End the snapshot, if there is one: training that waits for it goes on."""


class EmbeddingEngine(SavedTables, Protocol):
    """Tables of embeddings: looked up, trained, saved and restored. Calls come from one thread, but for the reading of a snapshot.

    All engines give the same activations and the same tables, up to the order of sums.
    """

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """The features, in the order of a batch."""

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`~trainer.errors.BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """

    @property
    def may_predict(self) -> bool:
        """Whether a lookup may come at any time, and changes nothing that training depends on."""

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done in this process, by name; none of those on servers."""

    def freeze(self) -> None:
        """Train no more: lookups change nothing from now on."""

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``, with the sum of its gradients.

        ``gradients``: of the loss by the activations of the same batch, float32 [batch.rows, width]. Raises
        :class:`~trainer.errors.BadBatch` for others, and :class:`~trainer.errors.NonFiniteLoss` for NaN or infinity; nothing is
        changed then.
        """
