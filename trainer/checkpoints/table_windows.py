"""Read a table of a checkpoint in windows of ascending rows, with the memory of a window, however large the table is.

Every byte is hashed while it is read. Its digest is compared at the end of its file, so what is made of a window may only be used after
the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from trainer.checkpoints.merge_tables import check_rows, newest_of_layers
from trainer.checkpoints.npy_bytes import read_header
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.stored_commit import StoredFile, StoredShard, StoredSlice
from trainer.errors import TornCheckpoint
from transforms.arrays import Array

#: About the bytes of a row whose number alone is wanted.
_ROW_BYTES = 64
#: More than the header of an npy file has.
_HEADER_BYTES = 1 << 10


_NO_ROWS = np.zeros(0, np.int64)
#: Which of some rows are wanted, as a mask.
Wanted: TypeAlias = Callable[[Array], Array]


class ArrayReader:
    """A C-ordered array of a checkpoint, read from its first row to its last."""

    def __init__(self, files: RunFiles, stored: StoredFile, chunk_bytes: int) -> None:
        self._stored, self.place = stored, files.place(stored.path)
        self._sha256 = stored.purpose()
        self._chunks = files.chunks(stored.path, stored.file.size_bytes, max(chunk_bytes, _HEADER_BYTES))
        self._chunk = memoryview(b"")
        first = b""
        while len(first) < min(_HEADER_BYTES, stored.file.size_bytes) and self._next_chunk():
            first += self._chunk
        header = read_header(first, stored.file.size_bytes, self.place)
        if (header.is_fortran and len(header.shape) > 1) or not header.shape:
            raise TornCheckpoint(
                "an array of a table must be in the order of its rows", where=self.place, value=header.shape
            )
        self.dtype, self.shape = header.dtype, header.shape
        self._chunk = memoryview(first)[header.start :]
        self.left = header.shape[0]

    def _next_chunk(self) -> bool:
        chunk = next(self._chunks, b"")
        self._sha256.update(chunk)
        self._chunk = memoryview(chunk)
        return bool(chunk)

    def read_into(self, out: Array) -> None:
        """Fill a C-ordered array of whole rows with the next ones; there must be as many."""
        self.left -= len(out)
        if not out.size:
            return
        bytes_out, at = memoryview(out.data).cast("B"), 0
        while at < len(bytes_out):
            if not len(self._chunk) and not self._next_chunk():
                raise TornCheckpoint(
                    "a file must have the size that the manifest records, got a shorter one", where=self.place
                )
            piece = self._chunk[: len(bytes_out) - at]
            bytes_out[at : at + len(piece)] = piece
            self._chunk, at = self._chunk[len(piece) :], at + len(piece)

    def finish(self) -> None:
        """Raise :class:`TornCheckpoint` unless all bytes were read, and were those that the manifest records."""
        while self._next_chunk():
            pass
        if self.left or self._sha256.hexdigest() != self._stored.file.sha256:
            raise TornCheckpoint("a file must have the bytes that the manifest records, got others", where=self.place,
                                 value=self._sha256.hexdigest(), allowed=self._stored.file.sha256)  # fmt: skip


class RowReader:
    """The rows of a shard, ascending, with those that were read but not taken yet.

    Args:
        files: of the run.
        rows: the file of the rows.
        check: raises :class:`TornCheckpoint` for rows that the file, at a place, must not have.
        rows_at_once: so many are pending at most.
        chunk_bytes: so many are read at once.
    """

    def __init__(
        self,
        files: RunFiles,
        rows: StoredFile,
        check: Callable[[Array, str], None],
        rows_at_once: int,
        chunk_bytes: int,
    ) -> None:
        self._array = ArrayReader(files, rows, chunk_bytes)
        self._check, self._rows_at_once = check, rows_at_once
        self.pending = np.zeros(0, np.int64)
        self._last = -1
        check_rows(np.zeros((0,) * len(self._array.shape), self._array.dtype), self._array.place)

    @property
    def count(self) -> int:
        """The rows of the shard."""
        return self._array.shape[0]

    def fill(self) -> None:
        """Read rows until as many as a window needs are pending, or none is left."""
        wanted = min(self._rows_at_once - len(self.pending), self._array.left)
        if wanted <= 0:
            return
        own = np.empty(wanted, np.int64)
        self._array.read_into(own)
        if own[0] <= self._last or (own[1:] <= own[:-1]).any():
            raise TornCheckpoint("the rows of a part must ascend", where=self._array.place)
        self._check(own, self._array.place)
        self._last = int(own[-1])
        self.pending = np.concatenate([self.pending, own]) if len(self.pending) else own

    @property
    def end(self) -> int | None:
        """The last pending row, up to which all rows are known; None if all rows of the shard are."""
        return int(self.pending[-1]) if self._array.left else None

    def take(self, end: int | None) -> Array:
        """The pending rows up to ``end``."""
        stop = len(self.pending) if end is None else int(np.searchsorted(self.pending, end, side="right"))
        taken, self.pending = self.pending[:stop], self.pending[stop:]
        return taken

    def finish(self) -> None:
        """See :meth:`ArrayReader.finish`."""
        self._array.finish()


def shard_reader(
    files: RunFiles, stored: StoredSlice, shard: StoredShard, rows_at_once: int, chunk_bytes: int
) -> RowReader:
    """The rows of a shard of a slice."""
    return RowReader(files, shard.rows, partial(stored.check, shard), rows_at_once, chunk_bytes)


def removed_reader(files: RunFiles, removed: StoredFile, rows_at_once: int, chunk_bytes: int) -> RowReader:
    """A list of removed rows."""
    return RowReader(files, removed, lambda rows, where: None, rows_at_once, chunk_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class SliceWindow:
    """Values of one slice of columns.

    Attributes:
        order: where the values of each row of the window are in ``weights`` and ``slots``; None: at its own place. Values of earlier layers
            have no row.
        weights, slots: shard after shard; slots of no columns where they are not read.
        counts: the values of each shard.
    """

    order: Array | None
    weights: Array
    slots: Array
    counts: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Consecutive changed rows of a table, ascending, with the values of each slice of its columns."""

    rows: Array
    slices: tuple[SliceWindow, ...]


class _SliceReader:
    """The shards of one slice, read side by side."""

    def __init__(
        self,
        files: RunFiles,
        stored: StoredSlice,
        rows_at_once: int,
        chunk_bytes: int,
        where: str,
        with_slots: bool,
        dimensions: int,
    ) -> None:
        self._where, self._stored = where, stored
        self.rows = [shard_reader(files, stored, shard, rows_at_once, chunk_bytes) for shard in stored.shards]
        self._removed = [removed_reader(files, one, rows_at_once, chunk_bytes) for one in stored.removed]
        self._weights = [ArrayReader(files, shard.weights, chunk_bytes) for shard in stored.shards]
        self._slots = [ArrayReader(files, shard.slots, chunk_bytes) for shard in stored.shards if with_slots]
        for values in (self._weights, *((self._slots,) if with_slots else ())):
            for rows, one in zip(self.rows, values, strict=True):
                if len(one.shape) != dimensions or one.shape[0] != rows.count:
                    raise TornCheckpoint("a table must have values for each of its rows, got others", where=one.place,
                                         value=str(one.shape), allowed=f"({rows.count}, dim)")  # fmt: skip
                if (one.dtype, one.shape[1:]) != (values[0].dtype, values[0].shape[1:]):
                    raise TornCheckpoint("the values of a table must have one type and width, got several", where=one.place,
                                         value=f"{one.dtype}, {one.shape[1:]}",
                                         allowed=f"{values[0].dtype}, {values[0].shape[1:]}")  # fmt: skip

    @property
    def row_files(self) -> list[RowReader]:
        """The rows of all shards, and the removed ones."""
        return [*self.rows, *self._removed]

    def take(self, end: int | None, wanted: Wanted | None) -> tuple[Array, SliceWindow]:
        """The wanted rows up to ``end``, ascending, and their values."""
        taken = [one.take(end) for one in self.rows]
        rows, order = _merged(taken, self._stored, [one.take(end) for one in self._removed], self._where)
        if wanted is not None and not (mine := wanted(rows)).all():
            rows, order = rows[mine], np.flatnonzero(mine) if order is None else order[mine]
        counts = [len(one) for one in taken]
        return rows, SliceWindow(order, _values(self._weights, counts), _values(self._slots, counts), counts)

    def finish(self) -> None:
        """See :meth:`ArrayReader.finish`."""
        for rows in self.row_files:
            rows.finish()
        for values in (*self._weights, *self._slots):
            values.finish()


def _merged(
    taken: Sequence[Array], stored: StoredSlice, removed: Sequence[Array], where: str
) -> tuple[Array, Array | None]:
    """The rows of the shards of a slice, ascending, and their order; None if they are in it."""
    if stored.has_layers:
        return newest_of_layers(taken, stored.bases, np.sort(np.concatenate([_NO_ROWS, *removed])), where)
    rows = np.concatenate(taken)
    if sum(1 for one in taken if len(one)) < 2:
        return rows, None
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    if (rows[1:] == rows[:-1]).any():
        raise TornCheckpoint("every row of a table must be in the part of one host", where=where)
    return rows, order


def _values(readers: Sequence[ArrayReader], counts: Sequence[int]) -> Array:
    """The next values of each shard, shard after shard; of no columns without readers."""
    if not readers:
        return np.zeros((sum(counts), 0), np.float32)
    found = np.empty((sum(counts), *readers[0].shape[1:]), readers[0].dtype)
    at = 0
    for one, count in zip(readers, counts, strict=True):
        one.read_into(found[at : at + count])
        at += count
    return found


def read_windows(
    files: RunFiles,
    slices: Sequence[StoredSlice],
    window_bytes: int,
    row_bytes: int,
    where: str,
    *,
    with_slots: bool = True,
    dimensions: int = 2,
    wanted: Wanted | None = None,
) -> Iterator[Window]:
    """All changed rows of a table, window after window. Raises :class:`TornCheckpoint`, at the end for other bytes than were written.

    Args:
        window_bytes: about so many are in memory at once, beside chunks of files of as many bytes in all.
        row_bytes: of a row with its values.
        where: names the table in errors.
        with_slots: whether slots are read and verified too.
        dimensions: of the arrays of values; 1: they have a number for each row.
        wanted: leaves out other rows, of which the shards of some slices may have more than those of others.
    """
    shards = sum(len(one.shards) for one in slices)
    most = max(len(one.shards) for one in slices)
    rows_at_once, chunk_bytes = max(window_bytes // row_bytes // most, 1), chunk_of(window_bytes, 3 * shards)
    readers = [_SliceReader(files, one, rows_at_once, chunk_bytes, where, with_slots, dimensions) for one in slices]
    for end in _ends([rows for reader in readers for rows in reader.row_files]):
        taken = [reader.take(end, wanted) for reader in readers]
        _check_same([rows for rows, _ in taken], where)
        yield Window(taken[0][0], tuple(window for _, window in taken))
    for reader in readers:
        reader.finish()


def check_table_rows(files: RunFiles, slices: Sequence[StoredSlice], window_bytes: int, where: str) -> None:
    """Raise :class:`TornCheckpoint` unless each row of a table is in one of its shards, and all slices have the same rows.

    Row numbers alone are read. ``window_bytes``: about half as many are in memory at once; ``where``: names the table in errors.
    """
    shards = sum(len(one.shards) for one in slices)
    rows_at_once, chunk_bytes = max(window_bytes // _ROW_BYTES // shards, 1), chunk_of(window_bytes, shards)
    readers = [[shard_reader(files, one, shard, rows_at_once, chunk_bytes) for shard in one.shards] for one in slices]
    removed = [[removed_reader(files, list_, rows_at_once, chunk_bytes) for list_ in one.removed] for one in slices]
    every = [rows for own in (*readers, *removed) for rows in own]
    for end in _ends(every):
        _check_same(
            [
                _merged([rows.take(end) for rows in own], one, [rows.take(end) for rows in gone], where)[0]
                for one, own, gone in zip(slices, readers, removed, strict=True)
            ],
            where,
        )
    for rows in every:
        rows.finish()


def _ends(of_shards: Sequence[RowReader]) -> Iterator[int | None]:
    """The last row of each window, once all rows up to it are pending; None: all pending rows are of the window."""
    while True:
        for rows in of_shards:
            rows.fill()
        if not any(len(rows.pending) for rows in of_shards):
            return
        yield min((one for rows in of_shards if (one := rows.end) is not None), default=None)


def _check_same(of_slices: Sequence[Array], where: str) -> None:
    if any(not np.array_equal(of_slices[0], rows) for rows in of_slices[1:]):
        raise TornCheckpoint("all slices of a table must hold the same rows, got different ones", where=where)


def read_rows(files: RunFiles, stored: StoredSlice, window_bytes: int) -> Iterator[Array]:
    """The changed rows of a table by one of its slices, not in order, some at a time. Raises :class:`TornCheckpoint`."""
    if stored.has_layers:
        for window in read_windows(files, [stored], window_bytes, _ROW_BYTES, "rows of layers", with_slots=False):
            yield window.rows
        return
    at_once = max(window_bytes // 8, 1)
    for shard in stored.shards:
        reader = shard_reader(files, stored, shard, at_once, chunk_of(window_bytes, 1))
        while True:
            reader.fill()
            if not len(reader.pending):
                break
            yield reader.take(None)
        reader.finish()


def chunk_of(window_bytes: int, streams: int) -> int:
    """The bytes that each of some files is read by at once."""
    return min(max(window_bytes // streams, 1 << 16), 8 << 20)
