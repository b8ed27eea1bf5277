"""Merge streams of rows with ascending ids, window by window, in the memory of a piece of each stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from trainer.errors import TornCheckpoint
from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a table.

    Attributes:
        ids: int64, ascending.
        values: arrays with a row for each id.
    """

    ids: Array
    values: tuple[Array, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> Rows:
        """The rows at these positions, as views."""
        return Rows(self.ids[start:stop], tuple(one[start:stop] for one in self.values))

    def chosen(self, mask: Array) -> Rows:
        """The rows for which a boolean array is true."""
        return Rows(self.ids[mask], tuple(one[mask] for one in self.values))


@dataclass(frozen=True, slots=True, eq=False)
class RowStream:
    """The rows of a table in pieces with ascending ids; ``empty``: a piece without rows, which has the types and widths of the values."""

    pieces: Iterator[Rows]
    empty: Rows


def read_ahead(stream: RowStream) -> RowStream:
    """A stream that another thread reads one piece ahead: reading and hashing overlap the work on the piece before."""
    return RowStream(_ahead(stream.pieces), stream.empty)


def _ahead(pieces: Iterator[Rows]) -> Iterator[Rows]:
    with ThreadPoolExecutor(1) as reading:
        piece = reading.submit(next, pieces, None)
        while (found := piece.result()) is not None:
            piece = reading.submit(next, pieces, None)
            yield found


class _Pending:
    """A stream, and the rows of its last piece that no window has taken."""

    def __init__(self, stream: RowStream, where: str) -> None:
        self._pieces, self._where = stream.pieces, where
        self._last: int | None = None
        self.rows = stream.empty

    def fill(self) -> None:
        """Read the next pieces if no row is pending."""
        while not len(self.rows) and (found := next(self._pieces, None)) is not None:
            self._check(found.ids)
            self.rows = found

    def _check(self, ids: Array) -> None:
        if not len(ids):
            return
        if (self._last is not None and ids[0] <= self._last) or (ids[1:] <= ids[:-1]).any():
            raise TornCheckpoint("the ids of a table must ascend", where=self._where)
        self._last = int(ids[-1])

    def take(self, end: int) -> Rows:
        """The pending rows with ids up to ``end``."""
        stop = int(np.searchsorted(self.rows.ids, end, side="right"))
        taken, self.rows = self.rows.part(0, stop), self.rows.part(stop, len(self.rows))
        return taken


def merge_windows(streams: Sequence[RowStream], where: str) -> Iterator[tuple[Rows, ...]]:
    """Windows of ascending ranges of ids, with all rows of each stream in the range.

    All streams are read to their ends, so that readers verify their files; what is made of the windows may only be used after the last
    one. Raises :class:`TornCheckpoint` for ids that do not ascend.
    """
    opened = [_Pending(one, where) for one in streams]
    while True:
        for one in opened:
            one.fill()
        ends = [int(one.rows.ids[-1]) for one in opened if len(one.rows)]
        if not ends:
            return
        end = min(ends)
        yield tuple(one.take(end) for one in opened)


def positions_in(ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Where each wanted id would be among ascending ids, and whether it is there."""
    at = np.searchsorted(ids, wanted)
    found = np.zeros(len(wanted), bool)
    inside = at < len(ids)
    found[inside] = ids[at[inside]] == wanted[inside]
    return at, found


def overlaid(base: Rows, changed: Rows, removed: Array) -> Rows:
    """Rows after others were set and some ids removed; ``base`` may be changed."""
    at, is_known = positions_in(base.ids, changed.ids)
    for values, new in zip(base.values, changed.values, strict=True):
        values[at[is_known]] = new[is_known]
    if len(removed):
        _, is_removed = positions_in(removed, base.ids)
        base = base.chosen(~is_removed)
    if is_known.all():
        return base
    added = changed.chosen(~is_known)
    order = np.argsort(np.concatenate([base.ids, added.ids]), kind="stable")
    pairs = zip((base.ids, *base.values), (added.ids, *added.values), strict=True)
    joined = [np.concatenate(pair)[order] for pair in pairs]
    return Rows(joined[0], tuple(joined[1:]))
