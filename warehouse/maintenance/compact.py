"""Rewrite memo files of which little is live, or that are many and small, into one that holds the live columns only.

Columns are read and verified, the new file is published under a name never used before, and one transaction moves the
memos that are still where they were read. Files of which nothing is left are condemned; ``headrace gc`` deletes them once
no job reads them. A process killed anywhere leaves a file that nothing names. Nothing waits for a compaction, and two
of them at once do no harm: whoever is second finds its memos moved, and leaves them.
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
    """What a compaction did, or with ``dry_run`` would do.

    ``old_files`` were rewritten as ``new_files``; ``freed_bytes`` are given back when ``gc`` deletes the old ones.
    ``memos`` were moved; ``left`` were evicted or moved by somebody else meanwhile. ``damaged`` memos did not verify and
    are computed again where somebody needs them: "path, component: what was wrong".
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
    """Every memo file that holds ready memos and has a name of Headrace's making: the new file is written beside it."""
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
    """Rewrite what ``policy`` chooses, or only say what that is.

    Raises :class:`~transforms.errors.StorageError` when a file cannot be written; rewrites that were done stay done.
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
    moved, condemned = _swap(warehouse, readable, written, rewrite.files[0].rows)
    if not moved:
        warehouse.storage.delete(written.path)
    emptied = sum(file.size_bytes for file in rewrite.files if file.file in condemned)
    written_bytes = written.size_bytes if moved else 0
    return _Outcome(moved, len(readable) - moved, len(condemned), emptied, written_bytes, tuple(damaged))


def _ready_in(connection: Connection, files: Collection[int]) -> list[_Live]:
    of = schema.memos.c
    query = select(of.memo_key, of.fingerprint, of.file).where(of.file.in_(sorted(files)), of.state == MemoState.READY)
    return [_Live(*row) for row in connection.execute(query.order_by(of.fingerprint))]


def _read_each(
    warehouse: Warehouse, file: FileShare, names: Iterable[str], checksum: str
) -> tuple[dict[str, pa.Array], dict[str, MemoDamaged]]:
    """Column by column, so that only the damaged ones are given up."""
    read: dict[str, pa.Array] = {}
    bad: dict[str, MemoDamaged] = {}
    for name in names:
        try:
            array = read_memo_file(warehouse.storage, file.path, [name], checksum, rows=file.rows)[name]
            if len(array) != file.rows:
                raise MemoDamaged("a memo has other rows than its file", where=file.path, value=len(array),
                                  allowed=str(file.rows))  # fmt: skip
            read[name] = array
        except MemoDamaged as error:
            bad[name] = error
    return read, bad


def _new_path(rewrite: Rewrite, live: Sequence[_Live]) -> str:
    """Beside the first of the old files. Its lease is a name that no task will ever carry."""
    folder, _, name = rewrite.files[0].path.rpartition("/")
    return memo_path_of(f"{folder}/{name.split('-')[0]}-{COMPACTION}{uuid4().hex}-", [one.key for one in live])


def _swap(warehouse: Warehouse, live: Sequence[_Live], written: MemoFile, rows: int) -> tuple[int, frozenset[int]]:
    """Move the memos that are still where they were read; how many those are, and the files that were emptied.

    ``gc`` may have taken the new file for a leftover, if writing took very long: then nothing is moved.
    """
    now = warehouse.clock()

    def swap(connection: Connection) -> tuple[int, frozenset[int]]:
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
        )  # fmt: skip
        add_coverage(connection, {(new, content): held for content, held in contents.items()})
        gone: defaultdict[int, set[str]] = defaultdict(set)
        for one in still:
            gone[one.file].add(one.fingerprint)
        condemned = remove_coverage(connection, gone, now)
        count_live_bytes(connection, [new], now)
        return len(still), frozenset(condemned)

    return warehouse.catalog.run(swap)


def _still_there(connection: Connection, live: Sequence[_Live]) -> list[_Live]:
    of = schema.memos.c
    found: set[_Live] = set()
    for chunk in chunks([one.key for one in live]):
        query = select(of.memo_key, of.fingerprint, of.file).where(of.memo_key.in_(chunk), of.state == MemoState.READY)
        found.update(_Live(*row) for row in connection.execute(query))
    return [one for one in live if one in found]


def _contents_of(connection: Connection, moved: Sequence[_Live]) -> Mapping[str, set[str]]:
    """For which contents the moved memos are found today: the same components will be found in the new file."""
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
