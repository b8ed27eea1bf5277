"""The tables of a link: written window by window, and read as streams of served weights and of removed ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trainer.serving.deltas.chain import Link
from trainer.serving.deltas.link_manifest import LinkTable, dense_file, table_file
from trainer.serving.deltas.raw_files import RawReader, RawWriter, read_array, read_pieces
from trainer.serving.deltas.row_values import arrays_of, decode, encode
from trainer.serving.deltas.sorted_rows import Rows, RowStream
from transforms.arrays import Array

#: Rows that are encoded at once: several arrays of them are in memory, and in the cache.
_ENCODED_ROWS = 1 << 12


class TableWriter:
    """The files of a table of a link."""

    def __init__(self, folder: Path, position: int, columns: int, encoding: str, where: str) -> None:
        self._columns, self._encoding, self._where = columns, encoding, where
        self._rows = self._removed = 0
        self._largest_error = 0.0
        suffixes = ("ids", *arrays_of(encoding, columns), "removed")
        self._files = {suffix: RawWriter(folder / table_file(position, suffix)) for suffix in suffixes}

    def append(self, changed: Rows, removed: Array) -> None:
        """Write the changed rows of a window and its removed ids."""
        for first in range(0, len(changed), _ENCODED_ROWS):
            weights = changed.values[0][first : first + _ENCODED_ROWS]
            stored, error = encode(weights, self._encoding, self._where)
            self._largest_error = max(self._largest_error, error)
            for suffix, array in stored.items():
                self._files[suffix].append(array)
        self._files["ids"].append(changed.ids)
        self._files["removed"].append(removed)
        self._rows, self._removed = self._rows + len(changed), self._removed + len(removed)

    def finish(self, kind: str, table: str, rows_after: int) -> LinkTable:
        """Close the files."""
        digests = {suffix: file.finish() for suffix, file in self._files.items()}
        return LinkTable(
            kind,
            table,
            self._columns,
            self._encoding,
            self._rows,
            self._removed,
            rows_after,
            self._largest_error,
            digests,
        )

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def set_stream(link: Link, position: int, window_bytes: int) -> RowStream:
    """The ids and served weights, float32 [rows, columns], that a link sets in its table at a position.

    Reading raises :class:`~trainer.errors.TornCheckpoint`, at the end for other bytes than were written.
    """
    table = link.manifest.tables[position]
    suffixes = ("ids", *arrays_of(table.encoding, table.columns))
    readers = [_reader(link, position, suffix, window_bytes) for suffix in suffixes]
    pieces = read_pieces(readers, max(window_bytes // (8 + 4 * table.columns), 1))
    return RowStream(_decoded(pieces, suffixes[1:], table.encoding), no_rows(table.columns))


def removed_stream(link: Link, position: int, window_bytes: int) -> RowStream:
    """The ids that a link removes from its table at a position."""
    pieces = read_pieces([_reader(link, position, "removed", window_bytes)], max(window_bytes // 8, 1))
    return RowStream((Rows(ids) for (ids,) in pieces), Rows(np.zeros(0, np.int64)))


def no_rows(columns: int) -> Rows:
    """No row of a table with so many weights per row."""
    return Rows(np.zeros(0, np.int64), (np.zeros((0, columns), np.float32),))


def read_dense(link: Link) -> dict[str, Array]:
    """The verified dense arrays of a link by name. Raises :class:`~trainer.errors.TornCheckpoint`."""
    return {
        one.name: read_array(link.files, f"{link.folder}/{dense_file(k)}", np.dtype(one.dtype), one.shape, one.sha256)
        for k, one in enumerate(link.manifest.dense)
    }


def _reader(link: Link, position: int, suffix: str, window_bytes: int) -> RawReader:
    table = link.manifest.tables[position]
    dtype, shape = table.arrays()[suffix]
    path = f"{link.folder}/{table_file(position, suffix)}"
    return RawReader(link.files, path, dtype, shape, table.files[suffix], window_bytes=window_bytes)


def _decoded(pieces: Iterator[tuple[Array, ...]], names: tuple[str, ...], encoding: str) -> Iterator[Rows]:
    for ids, *stored in pieces:
        yield Rows(ids, (decode(dict(zip(names, stored, strict=True)), encoding),))
