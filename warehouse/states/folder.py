"""Links of states in a local folder: a link appears by one rename, after all of its files are synced."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import Busy, HeadraceError, NotFound, StorageError
from warehouse.errors import StatesDamaged
from warehouse.files.arrow_bounds import check_arrow_file
from warehouse.states.link import (
    AGAIN,
    FULL,
    MANIFEST,
    MOST_MANIFEST_BYTES,
    FileDigest,
    LinkTable,
    StatesLink,
    link_hash,
    removed_file,
    rows_file,
)
from warehouse.storage.durable_files import make_folders, sync_folder, sync_path, write_new_file

_FOLDER = re.compile(r"([0-9]{6})-(full|delta)")
_UNFINISHED = ".unfinished-"
_INDEX = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class States:
    """What a chain of links says.

    Attributes:
        link: the newest link.
        hash: its hash.
        links: how many links were read: a full one, and the deltas after it.
        rows: of each table the rows after the link, in the columns of :attr:`~transforms.online.joined_table.JoinedTable.schema`.
    """

    link: StatesLink
    hash: str
    links: int
    rows: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a link changes in a table: its version, the rows that are added, and the positions of those that are gone."""

    version: int
    added: pa.Table
    removed: Array


def link_names(folder: Path) -> list[str]:
    """The links of a folder that are needed, by number: the newest full one, and the deltas after it."""
    try:
        found = sorted(name for name in os.listdir(folder) if _FOLDER.fullmatch(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError("states cannot be read", where=str(folder), value=error.strerror) from error
    full = [k for k, name in enumerate(found) if name.endswith(FULL)]
    return found[full[-1] :] if full else found


def read_states(folder: Path) -> States:
    """The rows after the newest link. Every byte is verified.

    Raises :class:`~transforms.errors.NotFound` for a folder without a link, :class:`StatesDamaged` and
    :class:`~transforms.errors.DataError` for damage.
    """
    names = link_names(folder)
    if not names:
        raise NotFound("a folder of states must have a full link", where=str(folder), next_step="headrace export states MODEL --out FOLDER writes one")  # fmt: skip
    before: StatesLink | None = None
    digest = ""
    rows: dict[str, pa.Table] = {}
    for name in names:
        link, next_digest = _read_link(folder / name)
        _check_follows(link, before, digest, str(folder / name))
        rows = {one.name: _after(folder / name, k, link, rows.get(one.name)) for k, one in enumerate(link.tables)}
        before, digest = link, next_digest
    assert before is not None
    return States(before, digest, len(names), rows)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """A folder, which is made if it is not there, that no other process writes to. Raises :class:`Busy`, :class:`StorageError`."""
    try:
        make_folders(folder)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError("a folder of states must be one that can be written", where=str(folder), value=error.strerror) from error  # fmt: skip
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("a folder of states must have one writer", where=str(folder), value="another process exports to it",
                       next_step="wait until it ends") from None  # fmt: skip
        for path in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def write_link(folder: Path, link: StatesLink, changes: Mapping[str, TableChange]) -> StatesLink:
    """Write a link to a locked folder; the tables of ``link`` are made from ``changes``. Raises :class:`StorageError`."""
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    try:
        tables = tuple(_written(unfinished, k, one, changes[one.name]) for k, one in enumerate(link.tables))
        found = StatesLink(link.number, link.kind, link.previous, link.model, link.model_version, link.since_micros, link.definitions, tables)  # fmt: skip
        write_new_file(unfinished / MANIFEST, lambda file: file.write(found.to_bytes()))
        os.chmod(unfinished, 0o755)
        sync_folder(unfinished)
        os.rename(unfinished, folder / found.name)
        sync_path(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StorageError("states must be written to a folder with space", where=str(folder), value=error.strerror) from error  # fmt: skip
    return found


def _written(folder: Path, position: int, table: LinkTable, change: TableChange) -> LinkTable:
    options = pa.ipc.IpcWriteOptions(compression="zstd")

    def write_rows(file: object) -> None:
        with pa.ipc.new_file(file, change.added.schema, options=options) as writer:
            writer.write_table(change.added, max_chunksize=1 << 20)

    write_new_file(folder / rows_file(position), write_rows)
    write_new_file(folder / removed_file(position), lambda file: file.write(change.removed.astype(_INDEX).tobytes()))
    digests = [_digest(folder / name) for name in (rows_file(position), removed_file(position))]
    return LinkTable(table.name, change.version, table.time_column, change.added.num_rows, len(change.removed),
                     table.rows_after, *digests)  # fmt: skip


def _digest(path: Path) -> FileDigest:
    with path.open("rb") as file:
        return FileDigest(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _read_link(place: Path) -> tuple[StatesLink, str]:
    where = str(place / MANIFEST)
    try:
        with (place / MANIFEST).open("rb") as file:
            data = file.read(MOST_MANIFEST_BYTES + 1)
    except OSError as error:
        raise StatesDamaged("a link must have a manifest that can be read", where=where, value=error.strerror, next_step=AGAIN) from error  # fmt: skip
    link = StatesLink.from_bytes(data, where)
    if link.name != place.name:
        raise StatesDamaged("a link must be in the folder of its number and kind", where=where, value=link.name, next_step=AGAIN)  # fmt: skip
    return link, link_hash(data)


def _check_follows(link: StatesLink, before: StatesLink | None, digest: str, where: str) -> None:
    if before is None:
        if link.kind != FULL:
            raise StatesDamaged("the first link must be a full one", where=where, value=link.kind, next_step=AGAIN)
    elif (link.number, link.previous) != (before.number + 1, digest):
        raise StatesDamaged("a link must follow the one before it", where=where, value=f"link {link.number} after link {before.number}", next_step=AGAIN)  # fmt: skip
    elif link.definitions != before.definitions or [(one.name, one.time_column) for one in link.tables] != [(one.name, one.time_column) for one in before.tables]:  # fmt: skip
        raise StatesDamaged("a delta must have the joined columns of the link before it", where=where, next_step=AGAIN)


def _after(place: Path, position: int, link: StatesLink, before: pa.Table | None) -> pa.Table:
    table = link.tables[position]
    (joined,) = (one for one in link.joined_tables() if one.name == table.name)
    added = _read_rows(place / rows_file(position), table, joined.schema)
    kept = joined.schema.empty_table() if before is None or link.kind == FULL else before
    path = place / removed_file(position)
    data = _verified(path, table.removed_file)
    if len(data) != table.removed * _INDEX.itemsize:
        raise StatesDamaged("tombstones must be as many as their manifest states", where=str(path), value=len(data), next_step=AGAIN)  # fmt: skip
    removed = np.frombuffer(data, _INDEX)
    if len(removed) and (removed[0] < 0 or removed[-1] >= kept.num_rows or np.any(removed[1:] <= removed[:-1])):
        raise StatesDamaged("tombstones must be ascending positions of rows", where=str(path), allowed=f"0 to {kept.num_rows - 1}", next_step=AGAIN)  # fmt: skip
    stays = np.ones(kept.num_rows, bool)
    stays[removed] = False
    after = pa.concat_tables([kept.filter(pa.array(stays)), added]).combine_chunks()
    if after.num_rows != table.rows_after:
        raise StatesDamaged("a table must have as many rows as its link states", where=str(place), value=after.num_rows, allowed=str(table.rows_after), next_step=AGAIN)  # fmt: skip
    return after


def _verified(path: Path, stated: FileDigest) -> bytes:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(stated.size_bytes + 1) if size == stated.size_bytes else None
    except OSError as error:
        raise StatesDamaged(
            "a link must have its files", where=str(path), value=error.strerror, next_step=AGAIN
        ) from error
    if data is None or len(data) != stated.size_bytes or hashlib.sha256(data).hexdigest() != stated.sha256:
        raise StatesDamaged("a file must have the bytes of its manifest", where=str(path), next_step=AGAIN)
    return data


def _read_rows(path: Path, table: LinkTable, schema: pa.Schema) -> pa.Table:
    source = pa.py_buffer(_verified(path, table.rows_file))
    try:
        check_arrow_file(pa.BufferReader(source), table.added)
        found = pa.ipc.open_file(source).read_all()
        found.validate(full=True)
    except HeadraceError as error:
        raise StatesDamaged(error.what, where=str(path), value=error.value, next_step=AGAIN) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StatesDamaged("rows of states must be an Arrow file", where=str(path), value=str(error)[:200], next_step=AGAIN) from None  # fmt: skip
    if not found.schema.equals(schema):
        raise StatesDamaged("rows of states must have the columns of their definitions", where=str(path), value=str(found.schema)[:200],
                            allowed=str(schema)[:400], next_step=AGAIN)  # fmt: skip
    return found
