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

#: The gap between two columns that is read to save a request: on a disk, in a bucket.
_LOCAL_GAP_BYTES = 32 << 10
_REMOTE_GAP_BYTES = 1 << 20
#: The longest read that is not cut in a bucket, where each part is a request.
_REMOTE_BATCH_BYTES = 64 << 20
_LARGE_BYTES = 64 << 10


def memo_path(table: str, partition: str, fragment_id: str, memo_keys: Iterable[str], lease: str) -> str:
    """The path, relative to the home, of memos of one fragment that are written together under a lease.

    No other lease ever writes to this path, so an unreferenced file can be deleted without a check for writers.
    """
    return memo_path_of(f"{MEMOS}/{table}/{partition}/{fragment_id[:16]}-{lease}-", memo_keys)


def memo_path_of(path: str, memo_keys: Iterable[str]) -> str:
    """``path`` with the name of other memos: a file's name determines its memos."""
    keys = hashlib.sha256("\n".join(sorted(memo_keys)).encode("ascii")).hexdigest()
    return f"{path.rpartition('-')[0]}-{keys[:16]}.{SUFFIX}"


def lease_of(path: str) -> str:
    """The lease in the path of a memo file or of its unfinished write; empty for other paths."""
    parts = path.rpartition("/")[2].split("-")
    return parts[1] if len(parts) >= 3 else ""


def write_memo_file(storage: Storage, path: str, columns: Mapping[str, pa.Array]) -> MemoFile:
    """Write the columns, in order and of equal length, as one file.

    Raises :class:`InputError` for no columns or unequal lengths, :class:`~transforms.errors.DataError` for a type that no
    component has, and :class:`~transforms.errors.StorageError`; no partial file is left.
    """
    from warehouse.files.memo_format.directory import directory_digest
    from warehouse.files.memo_format.writing import STORED_DIRECTORY, encode_columns

    if len({len(array) for array in columns.values()}) != 1:
        raise InputError("the columns of a memo file must have equal lengths", where=path,
                         value={name: len(array) for name, array in columns.items()})  # fmt: skip
    directory, parts = encode_columns(columns)
    size_bytes = storage.write_atomic(path, lambda file: _write(file, parts))
    sharers = [0] * len(directory.segments)
    for column in directory.columns.values():
        for place in column.segments:
            sharers[place] += 1
    sizes = [
        sum(directory.segments[place].stored_bytes // sharers[place] for place in column.segments) + 1
        for column in directory.columns.values()
    ]
    return MemoFile(path, size_bytes, directory_digest(parts[STORED_DIRECTORY]), {
        name: ColumnBytes(directory.checksum_of(name), directory.rows, share)
        for name, share in zip(directory.columns, size_shares(size_bytes, sizes), strict=True)
    })  # fmt: skip


def _write(file: IO[bytes], parts: Iterable[Any]) -> None:
    """Write small parts together, for fewer system calls, and large ones without a copy."""
    held: list[Any] = []
    for part in parts:
        if len(part) < _LARGE_BYTES:
            held.append(part)
            continue
        file.write(b"".join(held))
        file.write(part)
        held = []
    file.write(b"".join(held))


def read_memo_file(
    storage: Storage, path: str, names: Iterable[str], checksum: str, *, rows: int | None = None
) -> dict[str, pa.Array]:
    """Columns of the file with this ``checksum``, in their original types; only their bytes are read.

    ``rows``: the rows of the fragment, which the file must have. Raises :class:`MemoDamaged` if the file is missing, truncated,
    not the committed one, or lacks a column.
    """
    from warehouse.files.memo_format.directory import Directory, directory_digest
    from warehouse.files.memo_format.reading import LOCAL_BATCH_BYTES, read_directory, read_first, read_memo_columns

    wanted = list(names)
    gap_bytes = _LOCAL_GAP_BYTES if storage.is_local else _REMOTE_GAP_BYTES
    unreadable = damaged_if_unreadable(MemoDamaged, "the memo file cannot be read", path, "it is computed again")
    with unreadable, storage.open_input(path) as source:
        stored = read_directory(source, read_first(source))
        directory = Directory.from_bytes(stored)
        for name in wanted:
            if name not in directory.columns:
                raise MemoDamaged("the memo file has no such column", where=path, value=name)
        found = directory_digest(stored)
        if found != checksum:
            raise MemoDamaged(
                "the memo file is not the one that was committed", where=path, value=found, allowed=checksum
            )
        batch_bytes = LOCAL_BATCH_BYTES if storage.is_local else _REMOTE_BATCH_BYTES
        return read_memo_columns(source, directory, wanted, gap_bytes, rows, batch_bytes=batch_bytes)
