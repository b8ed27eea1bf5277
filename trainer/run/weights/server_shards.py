"""The rows of tables on parameter servers as shards of a checkpoint, which the servers write and read themselves: no row passes through this process."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.checkpoints.shards.published_bases import published_bases
from trainer.checkpoints.shards.reach import find_reach
from trainer.checkpoints.shards.shard_orders import (
    LoadOrder,
    LoadProgress,
    Reach,
    ReachOrder,
    SavedTable,
    ShardProgress,
    WriteOrder,
    read_order,
    to_document,
)
from trainer.errors import CheckpointNotWritten, NonFiniteLoss, TornCheckpoint
from trainer.tables.routes.partitioned.table_parts import TablePart
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.stores.pruned.saved_parts import SavedPart
from trainer.wire.flight.error_documents import RemoteError
from transforms.errors import DataError, HeadraceError
from warehouse.storage.locations import is_gcs

_ORDER_BYTES = 16
_FIRST_PAUSE_SECS, _MOST_PAUSE_SECS = 0.05, 1.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerShards:
    """The shards of the servers of an engine.

    Attributes:
        engine: reads and loads rows at the servers.
        place_of: from a table's name in the engine to the part of the model that has it, and its name there.
        on_refusal: called with the reason if the rows must pass through this process.
    """

    engine: PsEngine
    place_of: Callable[[str], tuple[str, str]]
    on_refusal: Callable[[str], None]

    def write(self, run_dir: str | Path, attempt: int, step: int) -> WrittenShards:
        """Let all servers write their shards of the snapshot that has begun into the folder of an attempt.

        A server leaves out rows that were not changed since its full shard in the newest published checkpoint, if it knows them.

        Returns none if they cannot, and calls ``on_refusal``; the snapshot can be read then. Raises what writing raises, and
        :class:`CheckpointNotWritten` if this process cannot write to the run directory either.
        """
        run = _location(run_dir)
        if not self._reaches(run):
            return WrittenShards()
        bases = published_bases(open_run(run_dir))
        is_same = len(bases) == len(self.engine.servers)
        over, errors = threading.Event(), list[BaseException]()

        def write(server: int) -> ShardProgress | None:
            try:
                order = self._order(run, attempt, step, server, bases[server] if is_same else "")
                return _write(self.engine.servers[server], order, over)
            except BaseException as error:
                errors.append(error)
                over.set()  # the others need not be waited for
                return None

        written = _of_each(len(self.engine.servers), write)
        if errors:
            raise errors[0]
        found = [one for one in written if one is not None]
        names = (ShardName.parse(one.shard, f"the answer of server s{server}") for server, one in enumerate(found))
        used = (ShardName.parse(one.base, "the answer of a server") for one in found if one.base)
        return WrittenShards(tuple(names), tuple(used))

    def load(self, run_dir: str | Path, step: int, shards: Sequence[ShardName]) -> bool:
        """Let all servers replace their rows by those of the shards of a checkpoint after ``step`` steps, whatever the number of its servers.

        Returns False if they cannot, and calls ``on_refusal``. Raises :class:`TornCheckpoint` for a damaged shard; the rows are without
        meaning then, until others are loaded.
        """
        run = _location(run_dir)
        if not self._reaches(run):
            return False
        names, count = tuple(map(str, shards)), len(self.engine.servers)
        order = LoadOrder(secrets.token_hex(_ORDER_BYTES), run, 0, count, step, (), names)

        def load(server: int) -> LoadProgress:
            tables = self._tables(server, lambda part: part.row_count(server))
            return _load(self.engine.servers[server], replace(order, server=server, tables=tables))

        self._check_loaded(_of_each(count, load))
        return True

    def _check_loaded(self, found: Sequence[LoadProgress]) -> None:
        """Raise :class:`TornCheckpoint` unless each stored row was loaded by the server that owns it; hashed and pruned tables may have fewer places."""
        first, is_pruned = self.engine.servers[0], self.engine.setup.pruned
        for p, saved in enumerate(first.saved_parts):
            part = self.engine.parts.parts[saved.table]
            loaded, stored = sum(one.rows[p] for one in found), sum(one.stored[p] for one in found)
            has_fewer_places = not saved.section and (is_pruned or first.is_hashed[p])
            if loaded != stored and not (part.is_replicated or has_fewer_places):
                raise TornCheckpoint("every stored row must be loaded by one server", where=f"table {part.table.name}",
                                     value=f"{loaded} rows", allowed=f"{stored}")  # fmt: skip

    def _reaches(self, run: str) -> bool:
        """Whether the servers write and read shards of a run."""
        is_cut = any(part.is_sliced for part in self.engine.parts.parts)
        reason = find_reach(run, len(self.engine.servers), self._ask_reach, is_cut)
        if reason:
            self.on_refusal(reason)
        return not reason

    def _tables(self, server: int, rows_of: Callable[[TablePart], int]) -> tuple[SavedTable, ...]:
        """The tables of a server, in the order of its saved parts."""

        def table(saved: SavedPart) -> SavedTable:
            part = self.engine.parts.parts[saved.table]
            kind, name = self.place_of(part.table.name)
            columns = part.table.dim if part.is_sliced else 0
            return SavedTable(f"{kind}-{saved.section}" if saved.section else kind, name, rows_of(part), columns)

        return tuple(map(table, self.engine.servers[server].saved_parts))

    def _ask_reach(self, orders: Sequence[ReachOrder]) -> list[Reach]:
        def ask(server: int) -> Reach:
            try:
                found = self.engine.servers[server].ask_saving(Kind.REACH_RUN, to_document(orders[server]))
            except RemoteError as error:  # such as one of an earlier release, which has no shards
                return Reach(False, error.what)
            return read_order(Reach, found)

        return _of_each(len(orders), ask)

    def _order(self, run: str, attempt: int, step: int, server: int, base: str = "") -> WriteOrder:
        tables = self._tables(server, lambda part: part.row_count(server) if part.is_saved_by(server) else 0)
        return WriteOrder(
            secrets.token_hex(_ORDER_BYTES), run, attempt, server, len(self.engine.servers), step, tables, base
        )


def _location(run_dir: str | Path) -> str:
    """The run directory as orders to servers name it."""
    return run_dir if isinstance(run_dir, str) and is_gcs(run_dir) else str(Path(run_dir).absolute())


def _of_each(servers: int, work: Callable[[int], _T]) -> list[_T]:
    """Do the work of each server at once, in threads of its own: those of the engine train meanwhile."""
    with ThreadPoolExecutor(servers, "shards") as pool:
        return list(pool.map(work, range(servers)))


def _write(server: RemoteTables, order: WriteOrder, over: threading.Event) -> ShardProgress | None:
    """Let a server write its shard; None if ``over`` was set before its end."""
    pause_secs = _FIRST_PAUSE_SECS
    while not over.is_set():
        try:
            found = read_order(ShardProgress, server.ask_saving(Kind.WRITE_SHARD, to_document(order)))
        except RemoteError as error:
            raise _own_error(error) from None
        if found.shard:
            return _checked(found, order)
        over.wait(pause_secs)
        pause_secs = min(2 * pause_secs, _MOST_PAUSE_SECS)
    return None


def _load(server: RemoteTables, order: LoadOrder) -> LoadProgress:
    """Let a server load its rows."""
    try:
        server.begin_load()
        while True:
            found = read_order(LoadProgress, server.ask_loading(Kind.LOAD_SHARDS, to_document(order)))
            if found.is_done:
                break
        if len(found.rows) != len(order.tables) or len(found.stored) != len(order.tables):
            raise DataError("a server must say what it has loaded of each table", value=(len(found.rows), len(found.stored)))  # fmt: skip
        server.end_load()
    except RemoteError as error:
        raise _own_error(error) from None
    return found


def _checked(found: ShardProgress, order: WriteOrder) -> ShardProgress:
    name = ShardName.parse(found.shard, f"the answer of server s{order.server}")
    if (name.attempt, name.server) != (order.attempt, order.server) or found.base not in ("", order.base):
        raise TornCheckpoint("a server must write the shard that it is asked for", where=f"server s{order.server}",
                             value=f"{name.folder}, base {found.base[:40]}")  # fmt: skip
    return found


def _own_error(error: RemoteError) -> HeadraceError:
    """The error of a server, as one of this process."""
    for kind in (NonFiniteLoss, CheckpointNotWritten, TornCheckpoint):
        if kind.__name__ in error.kinds:
            return kind(
                error.what, where=error.where, value=error.value, allowed=error.allowed, next_step=error.next_step
            )
    return error
