"""The changed rows of a hashed table on all servers, now or at one moment: the rows of each by ascending ids, merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trainer.embedding.cpu.snapshot import RANGE_BYTES, rows_of_range
from trainer.embedding.engine import ChangedRows
from trainer.embedding.partitioned.table_parts import TablePart
from trainer.embedding.ps.remote_tables import RemoteTables

Array = np.ndarray[Any, np.dtype[Any]]
#: Rows with the numbers of the whole table, and their ages.
AgedRows = tuple[ChangedRows, Array]


class HashedTableSnapshot:
    """One hashed table of a snapshot of servers.

    Args:
        part: the table, whose ids are spread over all servers.
        p: its position among the parts.
        servers: their tables.
        counts: the changed rows of the table on each server.
        range_bytes: the most bytes of weights and slots that are read of a server at once.
    """

    def __init__(
        self, part: TablePart, p: int, servers: Sequence[RemoteTables], counts: Sequence[int], range_bytes: int = RANGE_BYTES
    ) -> None:  # fmt: skip
        self._part, self._p, self._servers, self._counts = part, p, servers, counts
        width = int(servers[0].dims[p] + servers[0].slot_dims[p])
        self._step = rows_of_range(width, range_bytes)

    @property
    def count(self) -> int:
        """The changed rows on all servers."""
        return sum(self._counts)

    def rows(self) -> Iterator[AgedRows]:
        """All rows and ages, ids ascending, some at a time."""
        return _merge([self._of_server(server) for server in range(len(self._servers))])

    def _of_server(self, server: int) -> Iterator[AgedRows]:
        """The rows of one server, with their numbers in the whole table."""
        for first in range(0, self._counts[server], self._step):
            stop = min(first + self._step, self._counts[server])
            found, ages = self._servers[server].read_aged(self._p, first, stop)
            yield ChangedRows(self._part.whole_rows(server, found.rows), found.weights, found.slots), ages

    def steps(self) -> list[int]:
        """The steps of the table on each server."""
        return [next(one.read_history(self._p, 0)).step for one in self._servers]

    def candidates(self, of_each: int) -> Iterator[Array]:
        """The candidates of all servers, which have so many each, server after server, some at a time."""
        for one in self._servers if of_each else ():
            for found in one.read_history(self._p, of_each):
                yield found.candidates


def _merge(streams: Sequence[Iterator[AgedRows]]) -> Iterator[AgedRows]:
    """The rows of all streams, of which each ascends, ascending."""
    pending = [next(stream, None) for stream in streams]
    while any(pending):
        end = min(int(found[0].rows[-1]) for found in pending if found is not None)
        taken = []
        for server, found in enumerate(pending):
            if found is None:
                continue
            first, rest = _split(found, int(np.searchsorted(found[0].rows, end, side="right")))
            taken.append(first)
            pending[server] = rest if len(rest[1]) else next(streams[server], None)
        yield _merged(taken)


def _split(found: AgedRows, at: int) -> tuple[AgedRows, AgedRows]:
    rows, ages = found
    return (
        (ChangedRows(rows.rows[:at], rows.weights[:at], rows.slots[:at]), ages[:at]),
        (ChangedRows(rows.rows[at:], rows.weights[at:], rows.slots[at:]), ages[at:]),
    )


def _merged(found: Sequence[AgedRows]) -> AgedRows:
    if len(found) == 1:
        return found[0]
    rows = np.concatenate([one.rows for one, _ in found])
    order = np.argsort(rows)
    weights, slots = (np.concatenate([getattr(one, name) for one, _ in found])[order] for name in ("weights", "slots"))
    return ChangedRows(rows[order], weights, slots), np.concatenate([ages for _, ages in found])[order]


def live_rows(part: TablePart, p: int, servers: Sequence[RemoteTables]) -> Iterator[ChangedRows]:
    """The changed rows of a hashed table as they are now, ids ascending, some at a time."""
    width = int(servers[0].dims[p] + servers[0].slot_dims[p])
    step = rows_of_range(width, RANGE_BYTES)

    def of_server(server: int, one: RemoteTables) -> Iterator[AgedRows]:
        first, size = 0, one.rows_of(p)
        while first < size:
            stop = min(first + step, size)
            found = one.read_ranks(p, first, stop)
            if len(found.rows):
                whole = part.whole_rows(server, found.rows)
                yield ChangedRows(whole, found.weights, found.slots), np.zeros(len(whole), np.int64)
            if len(found.rows) < stop - first:
                return
            first = stop

    return (rows for rows, _ in _merge([of_server(server, one) for server, one in enumerate(servers)]))
