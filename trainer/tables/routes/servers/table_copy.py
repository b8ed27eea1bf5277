"""Copies the rows of one engine on servers to the servers of another one, while the first one trains.

What is read is as of the moment of each read. Rows that are updated meanwhile are noted, and copied again. Hashed and pruned tables are copied as
wholes while nothing is updated: each update changes the ages or the importance of rows, and may take the places of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from trainer.errors import ConfigError
from trainer.tables.engine import ChangedRows, TableState
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.partitioned.table_parts import TablePart
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.noted_rows import NotedRows
from trainer.tables.snapshot_states import state_of
from trainer.tables.stores.dense.snapshot import RANGE_BYTES
from transforms.arrays import Array

#: The memory of servers for rows that change while they are copied; none does.
_ASIDE_BYTES = 1 << 20


class TableCopy:
    """The copy of all rows of ``source`` to ``target``, whose tables are the same ones on other servers.

    One thread copies at a time. ``on_rows`` is called with the number of rows after each window; it raises to end the copy.
    Raises :class:`ConfigError` for other tables.
    """

    def __init__(self, source: PsEngine, target: PsEngine, on_rows: Callable[[int], None] = lambda rows: None) -> None:
        if source.parts.tables != target.parts.tables:
            raise ConfigError("tables must be copied to the same tables on other servers")
        self._source, self._target, self._on_rows = source, target, on_rows
        self._workers = ThreadPoolExecutor(len(source.servers) + len(target.servers), "copy")
        self._loading: list[Future[None]] = []

    def begin(self) -> None:
        """Give all rows of the target their initial values."""
        self._of_each(lambda server: self._target.servers[server].begin_load())

    def copy_all(self) -> None:
        """Copy all rows that training has changed."""
        for t in range(len(self._source.parts.tables)):
            if not self._is_whole(t):
                for found in self._windows(t):
                    self._load(t, found)
        self._end_load()

    def copy_whole(self) -> None:
        """Copy hashed and pruned tables with all that servers have beside their rows; those that share places at once, the others one by one.

        Nothing may be updated meanwhile.
        """
        source, position = self._source, {one.name: t for t, one in enumerate(self._source.tables)}
        if not source.whole_tables:
            return
        snapshot = source.begin_snapshot(most_bytes=_ASIDE_BYTES)
        try:
            for names in source.whole_tables:
                states = {name: state_of(snapshot, position[name], source.tables[position[name]]) for name in names}
                self._target.load_whole(states)
                self._on_rows(sum(len(one.rows) for one in states.values()))
        finally:
            source.end_snapshot()

    def _is_whole(self, t: int) -> bool:
        name = self._source.parts.tables[t].name
        return any(name in names for names in self._source.whole_tables)

    def copy_noted(self, noted: NotedRows) -> None:
        """Copy the noted rows."""
        for t, table in enumerate(self._source.parts.tables):
            if self._is_whole(t):
                continue
            row_bytes = 4 * (table.dim + slot_width(table.optimizer, table.dim)) + 8
            for rows in noted.windows(t, max(RANGE_BYTES // row_bytes, 1) * len(self._source.servers)):
                self._load(t, self._read(t, partial(self._rows_on, rows)))
        self._end_load()

    def end(self) -> None:
        """The target has all rows; it may be used from now on."""
        self._of_each(lambda server: self._target.servers[server].end_load())

    def close(self) -> None:
        """End the threads of the copy."""
        self._workers.shutdown()

    def _of_each(self, work: Callable[[int], None]) -> None:
        """Do the work of each server of the target at once."""
        list(self._workers.map(work, range(len(self._target.servers))))

    def _windows(self, t: int) -> Iterator[ChangedRows]:
        table, parts = self._source.parts.tables[t], self._source.parts
        floats = table.dim + slot_width(table.optimizer, table.dim)
        step = min(parts.parts[p].window_rows(floats, RANGE_BYTES) for p in parts.of_table(t))
        for first in range(0, table.vocabulary_size, step):
            stop = min(first + step, table.vocabulary_size)
            yield self._read(t, partial(self._range_on, first, stop))

    def _range_on(self, first: int, stop: int, part: TablePart, p: int, server: int) -> ChangedRows | None:
        own_first, own_stop = part.own_range(server, first, stop)
        return None if own_first == own_stop else self._source.servers[server].read_state(p, own_first, own_stop)

    def _rows_on(self, rows: Array, part: TablePart, p: int, server: int) -> ChangedRows | None:
        _, own = part.own_rows(server, rows)
        return self._source.servers[server].read_rows(p, own) if len(own) else None

    def _read(self, t: int, read: Callable[[TablePart, int, int], ChangedRows | None]) -> ChangedRows:
        """Rows of a table from all servers, with all their columns."""
        parts = self._source.parts

        def read_part(of: tuple[int, int]) -> ChangedRows | None:
            (p, server), part = of, parts.parts[of[0]]
            found = read(part, p, server)
            return None if found is None else replace(found, rows=part.whole_rows(server, found.rows))

        asked = [
            (p, server) for p in parts.of_table(t) for server in range(parts.cores) if parts.parts[p].gives(server)
        ]
        found = list(zip(asked, self._workers.map(read_part, asked), strict=True))
        by_part = [[one for (of_part, _), one in found if of_part == p and one is not None] for p in parts.of_table(t)]
        return _joined(self._source, t, by_part)

    def _load(self, t: int, found: ChangedRows) -> None:
        """Load rows into the target while the next ones are read."""
        parts, target = self._target.parts, self._target
        whole = TableState(found.rows, found.weights, found.slots)

        def load(server: int) -> None:
            for p in parts.of_table(t):
                target.servers[server].load_rows(p, parts.parts[p].own_state(server, whole))

        self._end_load()
        if len(found.rows):
            self._loading = [self._workers.submit(load, server) for server in range(len(target.servers))]
        self._on_rows(len(found.rows))

    def _end_load(self) -> None:
        """Wait for the rows that are being loaded. Raises what that has raised."""
        loading, self._loading = self._loading, []
        for one in loading:
            one.result()


def _joined(source: PsEngine, t: int, by_part: Sequence[Sequence[ChangedRows]]) -> ChangedRows:
    """Whole rows. One that is changed in some slices of its columns and not yet in others is left out: its update has been noted."""
    if len(by_part) > 1:
        rows = reduce(
            np.intersect1d, [np.concatenate([np.zeros(0, np.int64), *(one.rows for one in part)]) for part in by_part]
        )
        by_part = [[_among(one, rows) for one in part] for part in by_part]
    if not all(by_part):
        table = source.parts.tables[t]
        return ChangedRows(np.zeros(0, np.int64), np.zeros((0, table.dim), np.float32),
                           np.zeros((0, slot_width(table.optimizer, table.dim)), np.float32))  # fmt: skip
    joined = source.parts.join(t, by_part)
    return ChangedRows(joined.rows, joined.weights, joined.slots)


def _among(found: ChangedRows, rows: Array) -> ChangedRows:
    kept = np.isin(found.rows, rows, assume_unique=True)
    return ChangedRows(found.rows[kept], found.weights[kept], found.slots[kept])
