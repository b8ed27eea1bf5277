"""Lets the servers of one engine take the rows of the servers of another one, while that one trains. No row passes through this process.

What a server reads is as of the moment of each read. Rows that are updated meanwhile are noted, and read again. Hashed and pruned tables are copied
as wholes while nothing is updated: each update changes the ages or the importance of rows, and may take the places of any of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from trainer.errors import ConfigError
from trainer.servers.loads.copy_orders import CopyOrder, CopyProgress, CopySources
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.partitioned.table_parts import TablePart
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.noted_rows import NotedRows
from trainer.tables.stores.dense.snapshot import RANGE_BYTES
from transforms.arrays import Array

#: The memory of servers for rows that change while they are copied; none does.
_ASIDE_BYTES = 1 << 20


class TableCopy:
    """The copy of all rows of ``source`` to ``target``, whose tables are the same ones on other servers.

    One thread copies at a time. ``sources``: the servers of ``source``, as those of ``target`` connect to them. ``on_rows`` is called with a number of
    rows whenever a server has taken some; it raises to end the copy. Raises :class:`ConfigError` for other tables.
    """

    def __init__(
        self,
        source: PsEngine,
        target: PsEngine,
        sources: CopySources,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> None:
        if source.parts.tables != target.parts.tables:
            raise ConfigError("tables must be copied to the same tables on other servers")
        self._source, self._target, self._sources = source, target, sources
        self._on_rows, self._counting, self._is_over = on_rows, threading.Lock(), threading.Event()
        self._workers = ThreadPoolExecutor(len(target.servers), "copy")

    def begin(self) -> None:
        """Give all rows of the target their initial values."""
        self._of_each(lambda server: self._target.servers[server].begin_load())

    def copy_all(self) -> None:
        """Copy all rows that training has changed."""
        self._take(is_whole=False)

    def copy_whole(self) -> None:
        """Copy hashed and pruned tables with all that servers have beside their rows. Nothing may be updated meanwhile."""
        if not self._source.whole_tables:
            return
        self._source.begin_snapshot(most_bytes=_ASIDE_BYTES)
        try:
            self._take(is_whole=True)
        finally:
            self._source.end_snapshot()

    def copy_noted(self, noted: NotedRows) -> None:
        """Copy the noted rows."""
        whole = {name for names in self._source.whole_tables for name in names}
        for t, table in enumerate(self._source.parts.tables):
            if table.name in whole:
                continue
            row_bytes = 4 * (table.dim + slot_width(table.optimizer, table.dim)) + 8
            for rows in noted.windows(t, max(RANGE_BYTES // row_bytes, 1) * len(self._target.servers)):

                def take(server: int, t: int = t, rows: Array = rows) -> None:
                    for p in self._target.parts.of_table(t):
                        part = self._target.parts.parts[p]
                        _, own = part.own_rows(server, rows)
                        if len(own):
                            taken = self._target.servers[server].copy_rows(p, own)
                            self._count(taken if _counts(part, server) else 0)

                self._of_each(take)

    def end(self) -> None:
        """The target has all rows; it may be used from now on."""
        self._of_each(lambda server: self._target.servers[server].end_load())

    def close(self) -> None:
        """End the threads of the copy."""
        self._workers.shutdown()

    def _take(self, *, is_whole: bool) -> None:
        """Let all servers of the target take what they own."""
        source, target = self._source.parts, self._target.parts
        gives = tuple(
            tuple(p for p, part in enumerate(source.parts) if part.gives(server)) for server in range(source.cores)
        )
        order = CopyOrder(self._sources, gives, (), 0, target.cores, is_whole)

        def take(server: int) -> None:
            owned = tuple(part.row_count(server) for part in target.parts)
            asked: dict[str, Any] | None = replace(order, rows=owned, server=server).to_document()
            before = 0
            while not self._is_over.is_set():
                found = CopyProgress.read(self._target.servers[server].ask_loading(Kind.COPY_TABLES, asked))
                asked = None  # it goes on
                rows = sum(
                    count for part, count in zip(target.parts, found.rows, strict=False) if _counts(part, server)
                )
                self._count(rows - before)
                if found.is_done:
                    return
                before = rows

        self._of_each(take)

    def _count(self, rows: int) -> None:
        with self._counting:
            self._on_rows(rows)

    def _of_each(self, work: Callable[[int], None]) -> None:
        """Do the work of each server of the target at once. One that fails ends those of the others."""

        def do(server: int) -> None:
            try:
                work(server)
            except BaseException:
                self._is_over.set()
                raise

        list(self._workers.map(do, range(len(self._target.servers))))


def _counts(part: TablePart, server: int) -> bool:
    """Whether rows of a part on a server are counted: each row of a table once, whatever its slices and copies."""
    return part.slice_.first_column == 0 and (not part.is_replicated or server == part.slice_.cores[0])
