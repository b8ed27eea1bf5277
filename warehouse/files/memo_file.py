"""Memo files: one file holds the columns of several memos of one fragment.

The format is memo format 3 (``docs/memo-format.md``, :mod:`warehouse.files.memo_format`). The same columns always give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import IO, Any

import pyarrow as pa

from transforms.errors import InputError
from warehouse.errors import MemoDamaged
from warehouse.files.column_files import ColumnBytes, MemoFile, size_shares
from warehouse.files.damaged_files import damaged_if_unreadable
from warehouse.storage.layout import MEMOS, SUFFIX
from warehouse.storage.storage import Storage

#: Rather than to ask twice, so many bytes between two columns are read as well: from a disk, from a bucket.
_LOCAL_GAP_BYTES = 32 << 10
_REMOTE_GAP_BYTES = 1 << 20
_WRITTEN_BYTES = 1 << 20


def memo_path(table: str, partition: str, fragment_id: str, memo_keys: Iterable[str], lease: str) -> str:
    """Where the memos of one fragment that are written together under a lease go, relative to the home.

    No other lease writes to this path, ever: a file that nobody names can be deleted without asking who may write it.
    """
    return memo_path_of(f"{MEMOS}/{table}/{partition}/{fragment_id[:16]}-{lease}-", memo_keys)


def memo_path_of(path: str, memo_keys: Iterable[str]) -> str:
    """The path beside ``path`` for fewer of its memos: what is in a file is a function of its name."""
    keys = hashlib.sha256("\n".join(sorted(memo_keys)).encode("ascii")).hexdigest()
    return f"{path.rpartition('-')[0]}-{keys[:16]}.{SUFFIX}"


def lease_of(path: str) -> str:
    """The lease under which a memo file was written, from its path; empty for a path of another making.

    An unfinished write, whose name is the file's between a point and more dashes, has the lease of its file.
    """
    parts = path.rpartition("/")[2].split("-")
    return parts[1] if len(parts) >= 3 else ""


def write_memo_file(storage: Storage, path: str, columns: Mapping[str, pa.Array]) -> MemoFile:
    """Publish the columns, in the order given, as one file; all have the same rows.

    Raises :class:`InputError` for no columns or unequal rows, :class:`~transforms.errors.DataError` for a column that no transform makes, and
    :class:`~transforms.errors.StorageError` when the disk refuses; nothing is left behind then.
    """
    from warehouse.files.memo_format.directory import directory_digest
    from warehouse.files.memo_format.writing import encode_columns

    if len({len(array) for array in columns.values()}) != 1:
        raise InputError("the columns of a memo file have the same rows", where=path,
                         value={name: len(array) for name, array in columns.items()})  # fmt: skip
    directory, parts = encode_columns(columns)
    size_bytes = storage.write_atomic(path, lambda file: _write(file, parts))
    sharers = [0] * len(directory.segments)
    for column in directory.columns.values():
        for place in column.segments:
            sharers[place] += 1
    sizes = [sum(directory.segments[place].stored_bytes // sharers[place] for place in column.segments) + 1
             for column in directory.columns.values()]  # fmt: skip
    return MemoFile(path, size_bytes, directory_digest(directory.to_bytes()), {
        name: ColumnBytes(directory.checksum_of(name), directory.rows, share)
        for name, share in zip(directory.columns, size_shares(size_bytes, sizes), strict=True)
    })  # fmt: skip


def _write(file: IO[bytes], parts: Iterable[Any]) -> None:
    """The pieces, several at once: each by itself would be a call of the system, and all together a copy of the file."""
    held: list[Any] = []
    held_bytes = 0
    for part in parts:
        held.append(part)
        held_bytes += len(part)
        if held_bytes >= _WRITTEN_BYTES:
            file.write(b"".join(held))
            held, held_bytes = [], 0
    file.write(b"".join(held))


def read_memo_file(
    storage: Storage, path: str, names: Iterable[str], checksum: str, *, rows: int | None = None
) -> dict[str, pa.Array]:
    """The named columns of the file with this ``checksum``, in their original types; only their bytes are read.

    ``rows``: of the fragment; a file of other rows is damaged, and is not decoded. Raises :class:`MemoDamaged` when the file is
    missing, is not whole, is not the one that was committed, or lacks a column.
    """
    from warehouse.files.memo_format.directory import Directory, directory_digest
    from warehouse.files.memo_format.reading import read_directory, read_first, read_memo_columns

    wanted = list(names)
    gap_bytes = _LOCAL_GAP_BYTES if storage.is_local else _REMOTE_GAP_BYTES
    unreadable = damaged_if_unreadable(MemoDamaged, "a memo file cannot be read", path, "it is computed again")
    with unreadable, storage.open_input(path) as source:
        stored = read_directory(source, read_first(source))
        directory = Directory.from_bytes(stored)
        for name in wanted:
            if name not in directory.columns:
                raise MemoDamaged("a memo file lacks a column", where=path, value=name)
        found = directory_digest(stored)
        if found != checksum:
            raise MemoDamaged(
                "a memo file is not the one that was committed", where=path, value=found, allowed=checksum
            )
        return read_memo_columns(source, directory, wanted, gap_bytes, rows)
