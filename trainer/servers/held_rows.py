"""The rows of a server: an engine in memory that outlives the process, with numbers that change together with its rows."""

from __future__ import annotations

import errno
import gc
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.errors import DamagedMemory, ServerLost
from trainer.servers.changed_since import ChangedSince
from trainer.servers.client_updates import MOST_CLIENTS
from trainer.servers.made_updates import MadeUpdates
from trainer.servers.table_space import check_room
from trainer.tables.batch_checks import check_batch
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.memory import PrivateMemory, SharedMemory, no_room
from trainer.tables.kernels.undo_log import Found, UndoLog
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.servers.frames import draw_generation
from trainer.tables.routes.servers.row_messages import RowGradients, RowNumbers
from trainer.tables.routes.servers.table_documents import HeldTables, read_held_tables
from trainer.tables.spec import TableSpec
from trainer.tables.stores.dense.dense_store import one_event
from trainer.tables.stores.open_store import RowKinds, open_store
from trainer.tables.stores.pruned.saved_parts import SavedPart
from trainer.tables.stores.row_store import HeldStore
from transforms.arrays import Array
from transforms.errors import DataError, HeadraceError

_TABLES_FILE = "tables.json"
#: Is there while rows of a snapshot have been left to a shard.
_LEFT_FILE = "left_rows"
#: Answers that are in use at once.
_ANSWERS = 4
#: Numbers beside the rows: their generation, the newest attempt, the clients, and the last update of each.
_GENERATION, _ATTEMPT, _CLIENTS, _APPLIED = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class OpenedParts:
    """Numbers of the opened parts.

    Attributes:
        dims: the columns of each part, int64.
        slot_dims: the slot values of a row of each part, int64.
        sizes: the rows of each part, int64; of a hashed one, the limit of its ids.
        most_dim: the most columns of a part.
        needs_lookups: whether updates say how often rows were looked up.
    """

    dims: Array
    slot_dims: Array
    sizes: Array
    most_dim: int
    needs_lookups: bool

    @classmethod
    def of(cls, tables: Sequence[TableSpec], store: HeldStore) -> OpenedParts:
        """Those of a store."""
        numbers = [(one.dim, slot_width(one.optimizer, one.dim), one.vocabulary_size) for one in tables]
        dims, slot_dims, sizes = np.array(numbers, np.int64).reshape(-1, 3).T.copy()
        return cls(dims, slot_dims, sizes, max((one.dim for one in tables), default=0), store.needs_lookups)


class HeldRows:
    """The rows of the tables that a client has opened; none before.

    Args:
        folder: of the memory, which the rows of the last process are taken from; None: memory of this process.
        threads: threads of the loops.

    Raises :class:`DamagedMemory` for a folder with other bytes than were written, and :class:`~trainer.errors.MemoryFull` for one without
    space for them.
    """

    def __init__(self, folder: Path | None, *, threads: int = 1) -> None:
        self._folder, self._threads = folder, threads
        self._held: HeldTables | None = None
        self._digests: MadeUpdates | None = None
        self._engine: HeldStore | None = None
        self._parts: OpenedParts | None = None
        self._loading: ExitStack | None = None
        if folder is not None and (folder / _TABLES_FILE).exists():
            before = _sizes_in(folder)
            self._attach(_read_tables(folder / _TABLES_FILE))
            are_whole = _sizes_in(folder) == before
            if not are_whole:
                self._clear()
            elif self._log.found is Found.EMPTY or self.generation == 0:
                self._begin_generation()

    @property
    def is_open(self) -> bool:
        """Whether there are tables."""
        return self._engine is not None

    @property
    def digest(self) -> str:
        """The digest of the tables; empty without."""
        return "" if self._held is None else self._held.digest

    @property
    def held(self) -> HeldTables:
        """The tables. Raises :class:`ServerLost` without any."""
        if self._held is None:
            raise _unopened()
        return self._held

    @property
    def has_left_rows(self) -> bool:
        """Whether rows of the snapshot are not kept any more, whose values are in the files of a shard alone; see :meth:`leave_rows`."""
        return self._folder is not None and (self._folder / _LEFT_FILE).exists()

    def leave_rows(self, *, is_begun: bool) -> None:
        """Note for the next process whether rows of the snapshot are kept no longer."""
        if self._folder is None:
            return
        if is_begun:
            (self._folder / _LEFT_FILE).touch()
        else:
            (self._folder / _LEFT_FILE).unlink(missing_ok=True)

    @property
    def generation(self) -> int:
        """Changes when rows are loaded or lost; 0 without tables."""
        return 0 if self._engine is None else int(self._log.words[_GENERATION])

    @property
    def attempt(self) -> int:
        """The newest attempt that has opened the tables."""
        return 0 if self._engine is None else int(self._log.words[_ATTEMPT])

    @property
    def engine(self) -> HeldStore:
        """The rows. Raises :class:`ServerLost` without tables."""
        if self._engine is None:
            raise _unopened()
        return self._engine

    @property
    def dims(self) -> Array:
        """The columns of each part."""
        return self.opened.dims

    @property
    def slot_dims(self) -> Array:
        """The slot values of a row of each part."""
        return self.opened.slot_dims

    @property
    def sizes(self) -> Array:
        """The rows of each part; of a hashed one, the limit of its ids."""
        return self.opened.sizes

    @property
    def saved_parts(self) -> tuple[SavedPart, ...]:
        """What is saved and loaded: all parts, then what pruned ones have beside their rows."""
        return () if self._held is None else self._held.saved_parts

    @property
    def has_history(self) -> tuple[bool, ...]:
        """Which parts have a history: hashed and pruned ones."""
        is_pruned = self._held is not None and self._held.pruning is not None  # all that are not hashed then
        return tuple(is_pruned or one for one in self.is_hashed)

    @property
    def most_rows(self) -> int:
        """The rows that all parts may have."""
        return 0 if self._held is None else self._held.most_rows

    @property
    def is_hashed(self) -> tuple[bool, ...]:
        """Which parts are hashed tables."""
        return () if self._held is None else tuple(one.limits is not None for one in self._held.tables)

    @property
    def counts(self) -> dict[str, HashedCounts]:
        """What each hashed part has done, by name."""
        return {} if self._engine is None else dict(self._engine.hashed_counts)

    @property
    def opened(self) -> OpenedParts:
        """Numbers of the parts. Raises :class:`ServerLost` without tables."""
        if self._parts is None:
            raise _unopened()
        return self._parts

    @property
    def _log(self) -> UndoLog:
        log = self.engine.undo_log
        assert log is not None
        return log

    @property
    def _made(self) -> MadeUpdates:
        assert self._digests is not None
        return self._digests

    def applied(self, clients: int) -> list[int]:
        """The number of the last update of each client; 0 for none."""
        if self._engine is None:
            return [0] * clients
        found: list[int] = self._log.words[_APPLIED : _APPLIED + clients].tolist()
        return found

    def open(self, held: HeldTables, attempt: int) -> None:
        """Hold these tables: their rows stay if they are held already, else, and during a load, all rows have their initial values.

        Raises :class:`ConfigError` for tables that do not fit, and :class:`~trainer.errors.MemoryFull` for a folder without space for them;
        there are no tables then.
        """
        if self._loading is not None:
            self._clear()
            self._stop_load()
        if self.digest != held.digest:
            self._drop()
            if self._folder is not None:
                check_room(self._folder, held)
            try:
                self._attach(held)
                self._begin_generation()
                if self._folder is not None:
                    _write_tables(self._folder / _TABLES_FILE, held)
            except HeadraceError:
                self._drop()  # the files of which there is space do not stay
                raise
        with self._log.transaction() as words:
            words[_ATTEMPT] = max(int(words[_ATTEMPT]), attempt)

    def _drop(self) -> None:
        """Hold no tables; the folder is empty."""
        self._engine = self._held = self._digests = self._parts = None
        if self._folder is None:
            return
        gc.collect()  # an engine and its log refer to each other, and mapped files take space until both are gone
        (self._folder / _TABLES_FILE).unlink(missing_ok=True)  # first: without it the other files belong to no tables
        for path in self._folder.iterdir():
            path.unlink()

    def _attach(self, held: HeldTables) -> None:
        memory = PrivateMemory() if self._folder is None else SharedMemory(self._folder)
        tables = [one.table for one in held.tables]
        pruning = held.pruning
        keeps_rows = self._folder is not None or pruning is not None or bool(held.limits)
        log = UndoLog(memory, _APPLIED + MOST_CLIENTS, held.digest, keeps_rows=keeps_rows)
        kinds = RowKinds(held.limits) if pruning is None else RowKinds(held.limits, pruning.options, pruning.groups)
        self._engine = open_store(
            tables,
            kinds,
            seed=held.seed,
            threads=self._threads,
            origins=[one.origin for one in held.tables],
            answers=_ANSWERS,
            memory=memory,
            undo_log=log,
        )
        self._held, self._parts = held, OpenedParts.of(tables, self._engine)
        self._digests = MadeUpdates(memory)
        lines = {
            t: one.limits.table(one.table).candidate_lines
            for t, one in enumerate(held.tables)
            if one.limits is not None
        }
        self.changed = ChangedSince([one.most_rows for one in held.tables], lines)

    def _begin_generation(self, generation: int | None = None) -> None:
        """Begin another generation of rows, to which no update has been made; None draws its number."""
        changing = nullcontext(self._log.words) if self._log.is_filling else self._log.transaction()
        self.changed.forget()
        with changing as words:
            words[_GENERATION] = draw_generation() if generation is None else generation
            words[_APPLIED:] = 0

    def _clear(self) -> None:
        """Give all rows their initial values, as another generation."""
        with self._log.filling():
            self.engine.clear()
            self._begin_generation()

    def fetch(self, numbers: RowNumbers) -> Array:
        """The weights of rows, float32, one after the other. Raises :class:`BadBatch` for a row outside its part, and as :meth:`check`."""
        self.check()
        return self.engine.read_rows(numbers.rows, numbers.counts)

    def check(self, numbers: RowNumbers | None = None) -> None:
        """Raise :class:`ServerLost` during a load and after a failed update of rows without a folder, and :class:`BadBatch` for a row outside its part."""
        if self._loading is not None:
            raise ServerLost("rows cannot be used before their load has ended")
        if self._log.is_empty:
            raise ServerLost("rows whose update has failed must be loaded again")
        if numbers is not None:
            check_batch(one_event(numbers.rows, numbers.counts), self.engine.features)

    def has_made(self, client: int, number: int, digest: int) -> bool:
        """Whether the update ``number`` of a client is one that was made with this :func:`~trainer.servers.made_updates.update_digest`."""
        return self._engine is not None and self._made.has(
            client, number, digest, int(self._log.words[_APPLIED + client])
        )

    def update(self, updates: Sequence[tuple[int, RowGradients, int]], number: int) -> None:
        """Apply the updates of some clients, by their places, as one; the numbers of these clients change together with the rows.

        The third member of each is its digest.

        Raises :class:`BadBatch` and as :meth:`check`; nothing is changed then.
        """
        self.check()
        engine, changed = self.engine, self.changed
        asked = [(one.numbers.rows, one.numbers.counts) for _, one, _ in updates]
        values, lookups = [one.values for _, one, _ in updates], [one.lookups for _, one, _ in updates]
        with self._log.transaction() as words:
            engine.update_rows(asked, values, updates[0][1].rates, lookups if engine.needs_lookups else ())
            for rows, counts in asked:
                changed.note(rows, counts)
            changed.note_more(engine.step_changes)
            for client, _, digest in updates:
                self._made.note(client, number, digest)
                words[_APPLIED + client] = number

    def read_values(self, numbers: RowNumbers) -> RowValues:
        """The weights and slots of rows. Raises as :meth:`fetch`, and :class:`BadBatch` for those of hashed tables."""
        self.check()
        return self.engine.read_values(numbers.rows, numbers.counts)

    def write_values(self, client: int, number: int, digest: int, numbers: RowNumbers, values: RowValues) -> None:
        """Replace the values of rows, which count as changed, together with the number of the client.

        Raises as :meth:`update` and :meth:`read_values`; nothing is changed then.
        """
        self.check()
        with self._log.transaction() as words:
            self.engine.write_values(numbers.rows, numbers.counts, values, are_changed=True)
            self.changed.note(numbers.rows, numbers.counts)
            self._made.note(client, number, digest)
            words[_APPLIED + client] = number

    def begin_load(self) -> None:
        """Begin to replace all rows: they have their initial values first."""
        if self._loading is None:
            self._loading = ExitStack()
            self._loading.enter_context(self._log.filling())
        self.engine.clear()

    def load(self, part: int, found: ChangedRows, ages: Array | None = None) -> None:
        """Replace rows of one of :attr:`saved_parts`; inside a load. ``ages``: those of the rows of a hashed one, ids ascending over all calls.

        Raises :class:`ServerLost` without a load, and :class:`BadBatch` for rows that the part cannot have.
        """
        if self._loading is None:
            raise ServerLost("a load must be begun first")
        self.engine.load_rows(part, found, ages)

    def load_history(self, part: int, history: KeptHistory, first: int) -> None:
        """Take what a hashed or pruned part has beside its rows, before these; see :meth:`load`."""
        if self._loading is None:
            raise ServerLost("a load must be begun first")
        self.engine.load_history(part, history, first)

    def end_load(self, generation: int | None = None) -> None:
        """End the load; the rows have this generation, or a new one. Raises :class:`ServerLost` without a load."""
        if self._loading is None:
            raise ServerLost("a load must be begun first")
        self.engine.end_load()
        self._begin_generation(generation)
        self._stop_load()

    def _stop_load(self) -> None:
        assert self._loading is not None
        self._loading.close()
        self._loading = None


def _unopened() -> ServerLost:
    return ServerLost("the tables of a server must be opened first")


def _sizes_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def _write_tables(path: Path, held: HeldTables) -> None:
    new, content = path.with_suffix(".new"), json.dumps(held.to_document())
    try:
        new.write_text(content)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        new.unlink(missing_ok=True)
        raise no_room(path.parent, path.name, len(content)) from None
    os.replace(new, path)


def _read_tables(path: Path) -> HeldTables:
    try:
        return read_held_tables(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError, DataError) as error:
        raise DamagedMemory("the tables in a server's memory must be those that were written", where=str(path), value=str(error)[:200],
                            next_step="remove the folder of the memory, and restore the tables from a commit") from None  # fmt: skip
