"""Compaction: rewrite sparse or small memo files into one file with the live columns.

Columns are read and verified, the new file is published under a unique name, and one transaction moves the
memos that are still where they were read. Empty files become unreferenced; ``headrace gc`` deletes them when
no job reads them. A killed process leaves an unreferenced file. Compaction blocks no other process, and two
compactions at once are safe: the second one skips memos that were moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from sqlalchemy import Connection, bindparam, func, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.errors import MemoDamaged
from warehouse.files.column_files import MemoFile, NewFile
from warehouse.files.memo_file import memo_path_of, read_memo_file, write_memo_file
from warehouse.files.own_files import kind_of
from warehouse.maintenance.compaction import CompactionPolicy, FileShare, Rewrite, choose_rewrites
from warehouse.maintenance.progress import Progress, quiet
from warehouse.memos.coverage import add_coverage, count_live_bytes, enter_files, members_of, remove_coverage
from warehouse.memos.memos import mark_damaged
from warehouse.scheduling.task_states import MemoState
from warehouse.storage.layout import COMPACTION
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Compacted:
    """The effect of a compaction.

    Attributes:
        dry_run: It was only planned.
        old_files: Files that were rewritten.
        new_files: Files that were written.
        read_bytes: Bytes that were read.
        written_bytes: Bytes that were written.
        freed_bytes: Bytes that are free after ``gc`` deletes the old files.
        memos: Memos that were moved.
        left: Memos that were evicted or moved by another process meanwhile.
        damaged: Damaged memos, as "path, component: error"; they are computed again if a live model reads them.
    """

    dry_run: bool
    old_files: int
    new_files: int
    read_bytes: int
    written_bytes: int
    freed_bytes: int
    memos: int = 0
    left: int = 0
    damaged: tuple[str, ...] = ()


def find_shares(connection: Connection) -> list[FileShare]:
    """The memo files with ready memos and with a name made by Headrace."""
    of, covered = schema.memo_files.c, schema.coverage.c
    sets: defaultdict[int, set[int]] = defaultdict(set)
    for file, column_set in connection.execute(select(covered.file, covered.column_set)):
        sets[file].add(column_set)
    members = members_of(connection, {number for numbers in sets.values() for number in numbers})
    group = select(covered.file, func.min(covered.content).label("content")).group_by(covered.file).subquery()
    query = select(of.id, of.path, group.c.content, of.rows, of.size_bytes, of.live_bytes)
    query = query.join(group, group.c.file == of.id).where(of.condemned_at.is_(None))
    return [
        FileShare(*row, components=frozenset().union(*(members[number] for number in sets[row.id])))
        for row in connection.execute(query)
        if kind_of(row.path) == "memos"
    ]


def compact_memos(
    warehouse: Warehouse,
    policy: CompactionPolicy | None = None,
    *,
    dry_run: bool = True,
    progress: Progress = quiet,
) -> Compacted:
    """Rewrite the files that ``policy`` selects, or only plan that.

    Raises :class:`~transforms.errors.StorageError` if a file cannot be written; earlier rewrites stay.
    """
    with warehouse.catalog.read() as connection:
        rewrites = choose_rewrites(find_shares(connection), policy or CompactionPolicy())
    if dry_run:
        return _planned(rewrites)
    outcomes = []
    for done, rewrite in enumerate(rewrites):
        progress(done, len(rewrites), rewrite.files[0].path)
        outcomes.append(_carry_out(warehouse, rewrite))
        progress(done + 1, len(rewrites), "")
    return Compacted(
        dry_run=False,
        old_files=sum(one.emptied for one in outcomes),
        new_files=sum(one.written_bytes > 0 for one in outcomes),
        read_bytes=sum(rewrite.live_bytes for rewrite in rewrites),
        written_bytes=sum(one.written_bytes for one in outcomes),
        freed_bytes=sum(one.emptied_bytes - one.written_bytes for one in outcomes),
        memos=sum(one.moved for one in outcomes),
        left=sum(one.left for one in outcomes),
        damaged=tuple(text for one in outcomes for text in one.damaged),
    )


def _planned(rewrites: Sequence[Rewrite]) -> Compacted:
    live = sum(rewrite.live_bytes for rewrite in rewrites)
    freed = sum(rewrite.dead_bytes for rewrite in rewrites)
    return Compacted(True, sum(len(rewrite.files) for rewrite in rewrites), len(rewrites), live, live, freed)


@dataclass(frozen=True, slots=True)
class _Outcome:
    moved: int
    left: int
    emptied: int
    emptied_bytes: int
    written_bytes: int
    damaged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Live:
    """A ready memo of a file that is rewritten."""

    key: str
    fingerprint: str
    file: int


def _carry_out(warehouse: Warehouse, rewrite: Rewrite) -> _Outcome:
    with warehouse.catalog.read() as connection:
        live = _ready_in(connection, [file.file for file in rewrite.files])
        of = schema.memo_files.c
        stored = select(of.path, of.checksum).where(of.id.in_([file.file for file in rewrite.files]))
        checksums = {row.path: row.checksum for row in connection.execute(stored)}
    columns: dict[str, pa.Array] = {}
    readable: list[_Live] = []
    damaged: list[str] = []
    for file in rewrite.files:
        mine = {one.fingerprint: one for one in live if one.file == file.file and one.fingerprint not in columns}
        read, bad = _read_each(warehouse, file, sorted(mine), checksums.get(file.path, ""))
        columns.update(read)
        readable += [mine[fingerprint] for fingerprint in read]
        for fingerprint, error in bad.items():
            if mark_damaged(warehouse, mine[fingerprint].key, file.path, error.what):
                damaged.append(f"{file.path}, component {fingerprint[:12]}: {error.what}")
    if not readable:
        return _Outcome(0, 0, 0, 0, 0, tuple(damaged))
    written = write_memo_file(warehouse.storage, _new_path(rewrite, readable), dict(sorted(columns.items())))
    moved, gone = _swap(warehouse, readable, written, rewrite.files[0].rows)
    if not moved:
        warehouse.storage.delete(written.path)
    emptied = sum(file.size_bytes for file in rewrite.files if file.file in gone)
    written_bytes = written.size_bytes if moved else 0
    return _Outcome(moved, len(readable) - moved, len(gone), emptied, written_bytes, tuple(damaged))


def _ready_in(connection: Connection, files: Collection[int]) -> list[_Live]:
    of = schema.memos.c
    query = select(of.memo_key, of.fingerprint, of.file).where(of.file.in_(sorted(files)), of.state == MemoState.READY)
    return [_Live(*row) for row in connection.execute(query.order_by(of.fingerprint))]


def _read_each(
    warehouse: Warehouse, file: FileShare, names: Iterable[str], checksum: str
) -> tuple[dict[str, pa.Array], dict[str, MemoDamaged]]:
    """Read column by column, so that only damaged ones are lost."""
    read: dict[str, pa.Array] = {}
    bad: dict[str, MemoDamaged] = {}
    for name in names:
        try:
            array = read_memo_file(warehouse.storage, file.path, [name], checksum, rows=file.rows)[name]
            if len(array) != file.rows:
                raise MemoDamaged(
                    "a memo must have the rows of its file", where=file.path, value=len(array), allowed=str(file.rows)
                )
            read[name] = array
        except MemoDamaged as error:
            bad[name] = error
    return read, bad


def _new_path(rewrite: Rewrite, live: Sequence[_Live]) -> str:
    """A path beside the first old file, with a lease name that no task has."""
    folder, _, name = rewrite.files[0].path.rpartition("/")
    return memo_path_of(f"{folder}/{name.split('-')[0]}-{COMPACTION}{uuid4().hex}-", [one.key for one in live])


def _swap(warehouse: Warehouse, live: Sequence[_Live], written: MemoFile, rows: int) -> tuple[int, frozenset[int]]:
    """Move the memos that are still where they were read; returns their number and the emptied files.

    If writing took very long, ``gc`` may have deleted the new file as unreferenced: then no memo is moved.
    """

    def swap(connection: Connection) -> tuple[int, frozenset[int]]:
        # Read after the wait for other writers: jobs that pinned the old files meanwhile must not be younger than it.
        now = warehouse.clock()
        still = _still_there(connection, live)
        if not still or not warehouse.storage.exists(written.path):
            return 0, frozenset()
        entered = NewFile(written.path, written.checksum, rows, written.size_bytes)
        new = enter_files(connection, [entered], now)[written.path]
        contents = _contents_of(connection, still)
        of = schema.memos
        connection.execute(
            update(of).where(of.c.memo_key == bindparam("key")).values(file=new, size_bytes=bindparam("share")),
            [{"key": one.key, "share": written.columns[one.fingerprint].size_bytes} for one in still],
        )
        add_coverage(connection, {(new, content): held for content, held in contents.items()})
        gone: defaultdict[int, set[str]] = defaultdict(set)
        for one in still:
            gone[one.file].add(one.fingerprint)
        emptied = remove_coverage(connection, gone, now)
        count_live_bytes(connection, [new], now)
        return len(still), frozenset(emptied)

    return warehouse.catalog.run(swap)


def _still_there(connection: Connection, live: Sequence[_Live]) -> list[_Live]:
    of = schema.memos.c
    found: set[_Live] = set()
    for chunk in chunks([one.key for one in live]):
        query = select(of.memo_key, of.fingerprint, of.file).where(of.memo_key.in_(chunk), of.state == MemoState.READY)
        found.update(_Live(*row) for row in connection.execute(query))
    return [one for one in live if one in found]


def _contents_of(connection: Connection, moved: Sequence[_Live]) -> Mapping[str, set[str]]:
    """The contents under which the moved memos are found now, for the new file."""
    of = schema.coverage.c
    files = {one.file for one in moved}
    places = connection.execute(select(of.file, of.content, of.column_set).where(of.file.in_(sorted(files)))).all()
    members = members_of(connection, {place.column_set for place in places})
    contents: defaultdict[str, set[str]] = defaultdict(set)
    for place in places:
        mine = {one.fingerprint for one in moved if one.file == place.file}
        held = members[place.column_set] & mine
        if held:
            contents[place.content] |= held
    return contents
