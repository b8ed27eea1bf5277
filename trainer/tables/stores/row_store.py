"""What holds rows of tables, wherever batches that need them are combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from trainer.tables.engine import ChangedRows, RowValues, SnapshotSections, TableState
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.stores.step_changes import StepChanges
from transforms.arrays import Array


class StoreSnapshot(Protocol):
    """The changed rows of a store at one moment, as it numbers them; see :class:`~trainer.tables.engine.TablesSnapshot`."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range."""

    def sections(self, t: int) -> SnapshotSections:
        """What a table has beside its rows."""

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table from ``first`` to ``stop``."""

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""

    def close(self) -> None:
        """End the snapshot."""


class PlaceSharing(Protocol):
    """Of a store whose places the hosts of a job share: before each update they say how many rows of it want one, and each grants the same ones.

    In a step all hosts call :meth:`wanted_places` and, once the numbers of all are here, :meth:`grant_places`; then they update their rows.
    """

    def wanted_places(self, asked: Sequence[tuple[Array, Array]]) -> Array:
        """How many rows of an update have no place and may get one, int64, by table of the job; ``asked``: as of the update."""

    def exchange_wanted(self, wanted: Array) -> list[Array]:
        """The :meth:`wanted_places` of all hosts, by rank, which call it at once. A message to all of them may say it instead."""

    def grant_places(self, wanted: Sequence[Array]) -> None:
        """Take the :meth:`wanted_places` of all hosts, by rank, before the update."""

    def forget_places(self) -> None:
        """Count places again before the next lookup or update. All hosts call it between the same two, as when an attempt begins."""


class RowStore(Protocol):
    """Rows of tables, or of parts of tables, as their owner numbers them. Which of them have memory is the store's own.

    Rows are int64, table after table, of which each table has ``counts``; values are float32, one row after the other. Calls come from one
    thread, but for the reading of a snapshot.
    """

    @property
    def needs_lookups(self) -> bool:
        """Whether an update must say how often each of its rows was looked up."""

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done, by name."""

    @property
    def sharing(self) -> PlaceSharing | None:
        """How the hosts of a job share places; None where rows of other hosts do not matter."""

    def freeze(self) -> None:
        """Train no more: a row without memory is read as a model that serves reads it."""

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The weights of the rows. Raises :class:`~trainer.errors.BadBatch` for a row outside its table."""

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """One optimizer update for each distinct row, with the sum of its gradients in the order of the parts.

        Returns the distinct rows of each table, int64.

        Args:
            asked: of each part, rows and their numbers by table.
            gradients: of each part, float32 as :meth:`read_rows` returns them.
            rates: float32, the learning rate of each table; None: those of their optimizers.
            lookups: of each part, int32, how often each of its rows was looked up; none unless :attr:`needs_lookups`.

        Raises :class:`~trainer.errors.BadBatch`; nothing is changed then.
        """

    def table_state(self, t: int) -> TableState:
        """A copy of the changed rows of a table, and of what it has beside them."""

    def section_names(self, t: int) -> tuple[str, ...]:
        """The sections without which the saved state of a table is not whole."""

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Replace all rows by those of the :meth:`table_state` of each table, by name. Raises :class:`~trainer.errors.TornCheckpoint`."""

    def begin_snapshot(self, *, most_bytes: int) -> StoreSnapshot:
        """The changed rows of this moment, to be read in another thread while training goes on; one snapshot at a time."""

    def end_snapshot(self) -> None:
        """End the snapshot, if there is one."""

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""


class KeptSnapshot(Protocol):
    """The changed rows of a :class:`HeldStore` at one moment, in the memory of its tables.

    A table is read by ranges of its rows; a hashed one by ranges of the ranks of its rows by id.
    """

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table; of pruned ones those of each of their saved parts."""

    @property
    def sizes(self) -> Array:
        """The rows of each table, int64; of a hashed one its ranks."""

    @property
    def is_done(self) -> bool:
        """Whether it was closed."""

    def read(self, t: int, first: int, stop: int, chosen: Array | None = None) -> ChangedRows:
        """The changed rows of a range; they may be read again until :meth:`leave` is called.

        ``chosen``: a mask over :meth:`noted`, of the rows that are read; None: all.
        """

    def noted(self, t: int, first: int, stop: int) -> Array | None:
        """By what changes of the rows of a range are noted: the places of a hashed table, the rows of a pruned one; None: by any row of the range."""

    def absent(self, t: int, rows: Array) -> Array:
        """Those of some ascending rows or ids that are no rows of a hashed or pruned table."""

    def ages(self, t: int, first: int, stop: int) -> Array | None:
        """The ages of the rows of a range of a hashed table; None for another table."""

    def history(self, t: int) -> KeptHistory:
        """What a hashed table had beside its rows."""

    def leave(self, t: int, stop: int) -> None:
        """Keep the rows of a table below ``stop`` no longer."""

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""


class HeldStore(RowStore, Protocol):
    """A store in the memory of a server, which may outlive the process.

    A load replaces all rows: :meth:`clear`, for each table :meth:`load_history` and :meth:`load_rows`, then :meth:`end_load`.
    """

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables."""

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """A feature for each table."""

    @property
    def undo_log(self) -> UndoLog | None:
        """Undoes what a killed process has begun."""

    @property
    def step_changes(self) -> StepChanges:
        """What the last update has changed beside the rows that it names."""

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """As :meth:`read_rows`, with the optimizers' slots, in new arrays. Raises as :meth:`write_values`."""

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: bool) -> None:
        """Replace the values of distinct rows. Raises :class:`~trainer.errors.BadBatch`, also for rows by id; nothing is changed then."""

    def changed_rows(self, t: int, first: int, stop: int) -> ChangedRows:
        """A copy of the changed rows of a table from ``first`` to ``stop``."""

    def changed_among(self, t: int, rows: Array) -> ChangedRows:
        """A copy of those of ``rows``, int64 and ascending, of a table that are changed. Raises :class:`~trainer.errors.BadBatch` for rows by id."""

    def clear(self) -> None:
        """Give all rows their initial values."""

    def load_history(self, t: int, history: KeptHistory, first: int = 0) -> None:
        """Take what a hashed table has beside its rows, before these; its candidates from ``first`` on. Raises :class:`~trainer.errors.BadBatch`."""

    def load_rows(self, t: int, found: ChangedRows, ages: Array | None = None) -> None:
        """Take rows of a table after :meth:`clear`, as changed ones.

        ``ages``: of the rows of a hashed table, whose ids ascend over all calls. Raises :class:`~trainer.errors.BadBatch` for rows that the
        table cannot have.
        """

    def end_load(self) -> None:
        """All rows are loaded."""

    def begin_kept_snapshot(self, *, most_bytes: int, patience_secs: float | None) -> KeptSnapshot:
        """As :meth:`begin_snapshot`, in the memory of the tables: :meth:`resume_snapshot` goes on with it in another process.

        ``patience_secs``: a snapshot for which training has waited for so long is closed; None: it waits.
        """

    def resume_snapshot(self, *, patience_secs: float) -> KeptSnapshot | None:
        """The snapshot that an earlier process has begun, or None. Raises :class:`~trainer.errors.DamagedMemory`."""
