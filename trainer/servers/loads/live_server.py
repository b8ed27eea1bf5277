"""The rows of another server, read over a connection: as they are now, or at the moment of its snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainer.servers.loads.owned_rows import OwnedRows
from trainer.servers.loads.whole_tables import SourceRows
from trainer.tables.engine import ChangedRows
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Kind, read_document
from trainer.tables.routes.servers.history_pieces import checked, read_history
from trainer.tables.routes.servers.row_messages import RowSpread
from trainer.tables.routes.servers.server_link import Answer, Request, ServerLink
from trainer.tables.routes.servers.table_documents import read_held_tables
from trainer.tables.stores.dense.snapshot import RANGE_BYTES, rows_of_range
from trainer.tables.stores.hashed.saved_history import CANDIDATES, STEPS
from trainer.tables.stores.pruned.history import NUMBER_WORDS, NUMBERS, numbers_array, read_numbers
from trainer.wire.frames import Bytes
from transforms.arrays import Array
from transforms.errors import DataError

#: The members of the document of what a server holds: its tables, and of its snapshot the size of each saved part, empty without one.
HELD_MEMBERS = frozenset({"held", "sizes"})
_MOST_SIZE = 1 << 62


class LiveServer:
    """Reads what another server has. One thread uses it at a time.

    Raises :class:`DataError` for answers that the server cannot have, and what its errors are.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        try:
            self._read_held()
        except BaseException:
            link.close()
            raise

    def _read_held(self) -> None:
        document = read_document(self._ask(Kind.READ_HELD, [], Kind.DOCUMENT).body, HELD_MEMBERS)
        self.held = read_held_tables(document["held"])
        self._has_history = [self.held.pruning is not None or one.limits is not None for one in self.held.tables]
        sizes = document["sizes"]
        if not isinstance(sizes, list) or not all(type(one) is int and 0 <= one <= _MOST_SIZE for one in sizes):
            raise DataError("the sizes of a snapshot must be whole numbers", value=str(sizes)[:80])
        if len(sizes) not in (0, len(self.held.saved_parts)):
            raise DataError("a snapshot must have a size for each saved part", value=len(sizes),
                            allowed=str(len(self.held.saved_parts)))  # fmt: skip
        self._sizes = sizes

    def origin_rows(self, p: int) -> OwnedRows:
        """The rows of a table that the server has in a part."""
        one = self.held.tables[p]
        return OwnedRows.of(one.origin, one.table.vocabulary_size)

    def read_now(self, p: int, spread: RowSpread) -> ChangedRows:
        """Those of some rows of a part that are changed, by their numbers in the table."""
        return self._in_table(p, self._read(Kind.READ_SPREAD, messages.write_spread(p, spread), p))

    def read_rows(self, p: int, rows: Array) -> ChangedRows:
        """Those of ``rows`` of a part, int64 and ascending, that are changed, by their numbers in the table."""
        return self._in_table(p, self._read(Kind.READ_ROWS, messages.write_rows(p, rows), p))

    def read_snapshot(self, p: int, stride: int, remainder: int) -> Iterator[tuple[ChangedRows, Array | None]]:
        """The changed rows of a saved part at the moment of the snapshot, by its own numbers, and their ages if it is hashed, some at a time.

        Of those that leave ``remainder`` when they are divided by ``stride``.
        """
        if not self._sizes:
            raise DataError("a server must have a snapshot before it is read")
        part = self.held.saved_parts[p]
        is_hashed = p < len(self.held.tables) and self.held.tables[p].limits is not None
        step = rows_of_range(part.dim + part.slot_dim, RANGE_BYTES)
        for first in range(0, self._sizes[p], step):
            asked = RowSpread(first, min(first + step, self._sizes[p]), stride, remainder)
            answer = self._ask(Kind.READ_SPREAD_SNAPSHOT, messages.write_spread(p, asked), Kind.PART)
            if is_hashed:
                yield messages.read_aged_part(answer.body, part.dim, part.slot_dim)
            else:
                yield messages.read_part(answer.body, part.dim, part.slot_dim), None

    def section(self, p: int, section: str) -> Array:
        """An array that a hashed or pruned table had beside its rows at the moment of the snapshot."""
        if section == NUMBERS:
            return numbers_array(*read_numbers(next(self._history(p, NUMBER_WORDS))))
        if section == STEPS:
            return np.array([next(self._history(p, 0)).step], np.int64)
        assert section == CANDIDATES
        limits, table = self.held.tables[p].limits, self.held.tables[p].table
        assert limits is not None
        pieces = self._history(p, limits.table(table).candidate_places)
        return np.concatenate([one.candidates for one in pieces])

    def _history(self, p: int, candidates: int) -> Iterator[KeptHistory]:
        return read_history(self._send, p, candidates, self._has_history)

    def _read(self, kind: Kind, body: list[Bytes], p: int) -> ChangedRows:
        part = self.held.saved_parts[p]
        return messages.read_part(self._ask(kind, body, Kind.PART).body, part.dim, part.slot_dim)

    def _in_table(self, p: int, found: ChangedRows) -> ChangedRows:
        """The rows by their numbers in the table."""
        own = self.origin_rows(p)
        if len(found.rows) and int(found.rows[-1]) >= own.count:
            raise DataError("the server must return the requested rows", value=int(found.rows[-1]))
        return ChangedRows(own.whole(found.rows), found.weights, found.slots)

    def _ask(self, kind: Kind, body: list[Bytes], expected: Kind) -> Answer:
        return self._send(Request(kind, body), expected)

    def _send(self, request: Request, expected: Kind) -> Answer:
        self._link.send(request)
        return checked(self._link.receive(), expected)

    def close(self) -> None:
        """End the connection."""
        self._link.close()


@dataclass(frozen=True, slots=True)
class LivePart:
    """A saved part of a hashed or pruned table of another server; see :class:`~trainer.servers.loads.whole_tables.Source`."""

    server: LiveServer
    p: int

    @property
    def rows(self) -> OwnedRows:
        """The rows of its table that the server has."""
        return self.server.origin_rows(self.server.held.saved_parts[self.p].table)

    def owned(self, own: OwnedRows) -> SourceRows:
        """See :class:`~trainer.servers.loads.whole_tables.Source`."""
        part, rows, spread = self.server.held.saved_parts[self.p], self.rows, own.remainder(self.rows)
        none = ChangedRows(
            np.zeros(0, np.int64), np.zeros((0, part.dim), np.float32), np.zeros((0, part.slot_dim), np.float32)
        )
        found: list[tuple[ChangedRows, Array | None]] = [(none, np.zeros(0, np.int64))]
        if spread is not None:
            found += self.server.read_snapshot(self.p, *spread)
        numbers, weights, slots = (
            np.concatenate([getattr(one, name) for one, _ in found]) for name in ("rows", "weights", "slots")
        )
        mine, numbers = own.own(rows.whole(numbers))
        is_hashed = all(ages is not None for _, ages in found)
        ages = np.concatenate([ages for _, ages in found if ages is not None])[mine] if is_hashed else None
        read_bytes = int(mine.nbytes * 8 + weights.nbytes + slots.nbytes)
        return SourceRows(numbers, weights[mine], slots[mine], ages, read_bytes)

    def section(self, section: str) -> Array:
        """See :class:`~trainer.servers.loads.whole_tables.Source`."""
        return self.server.section(self.p, section)
