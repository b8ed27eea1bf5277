"""The changed rows of a hashed table on all servers, now or at one moment: the rows of each by ascending ids, merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainer.tables.engine import ChangedRows, PartedSection, SnapshotSections
from trainer.tables.routes.partitioned.table_parts import TablePart
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.stores.dense.snapshot import RANGE_BYTES, rows_of_range
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, STEPS
from transforms.arrays import Array


class HashedTableSnapshot:
    """One hashed table of a snapshot of servers.

    Args:
        part: the table, whose ids are spread over all servers.
        p: its position among the parts.
        servers: their tables.
        counts: the changed rows of the table on each server.
        candidates: that the table has on each server.
    """

    def __init__(
        self, part: TablePart, p: int, servers: Sequence[RemoteTables], counts: Sequence[int], *,
        candidates: int,
    ) -> None:  # fmt: skip
        self._candidates_of_each = candidates
        self._part, self._p, self._servers, self._counts = part, p, servers, counts
        width = int(servers[0].dims[p] + servers[0].slot_dims[p])
        self._step = rows_of_range(width, RANGE_BYTES)

    @property
    def count(self) -> int:
        """The changed rows on all servers."""
        return sum(self._counts)

    def rows(self) -> Iterator[ChangedRows]:
        """All rows, ids ascending, some at a time; their ages are beside them."""
        return _merge([self._of_server(server) for server in range(len(self._servers))])

    def _of_server(self, server: int) -> Iterator[ChangedRows]:
        """The rows of one server, with their numbers in the whole table."""
        for first in range(0, self._counts[server], self._step):
            stop = min(first + self._step, self._counts[server])
            found = self._servers[server].read_aged(self._p, first, stop)
            yield replace(found, rows=self._part.whole_rows(server, found.rows))

    def sections(self) -> SnapshotSections:
        """The history of the table beside its rows: the steps of servers, and their candidates."""
        servers, candidates = len(self._servers), self._candidates_of_each
        arrays = {
            STEPS: PartedSection("int64", (servers,), self._steps()),
            CANDIDATES: PartedSection("uint64", (servers * candidates,), self._candidates()),
        }
        return SnapshotSections(beside=(AGES,), arrays=arrays)

    def _steps(self) -> Iterator[Array]:
        yield np.array([next(one.read_history(self._p, 0)).step for one in self._servers], np.int64)

    def _candidates(self) -> Iterator[Array]:
        """The candidates of all servers, server after server, some at a time."""
        for one in self._servers if self._candidates_of_each else ():
            for found in one.read_history(self._p, self._candidates_of_each):
                yield found.candidates


def _merge(streams: Sequence[Iterator[ChangedRows]]) -> Iterator[ChangedRows]:
    """The rows of all streams, of which each ascends, ascending."""
    pending = [next(stream, None) for stream in streams]
    while any(one is not None for one in pending):
        end = min(int(found.rows[-1]) for found in pending if found is not None)
        taken = []
        for server, found in enumerate(pending):
            if found is None:
                continue
            first, rest = _split(found, int(np.searchsorted(found.rows, end, side="right")))
            taken.append(first)
            pending[server] = rest if len(rest.rows) else next(streams[server], None)
        yield _merged(taken)


def _split(found: ChangedRows, at: int) -> tuple[ChangedRows, ChangedRows]:
    return _chosen(found, slice(None, at)), _chosen(found, slice(at, None))


def _merged(found: Sequence[ChangedRows]) -> ChangedRows:
    if len(found) == 1:
        return found[0]
    rows, weights, slots = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("rows", "weights", "slots")
    )
    beside = tuple(np.concatenate(of_each) for of_each in zip(*(one.beside for one in found), strict=True))
    return _chosen(ChangedRows(rows, weights, slots, beside), np.argsort(rows))


def _chosen(found: ChangedRows, rows: slice | Array) -> ChangedRows:
    return ChangedRows(
        found.rows[rows], found.weights[rows], found.slots[rows], tuple(one[rows] for one in found.beside)
    )
