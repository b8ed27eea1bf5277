"""Delete files that nothing names any more.

*What makes it safe beside workers, evictors, compaction and readers, without stopping them.* The folder is listed
first, and then the catalog is read; only what was listed is judged. So a file that appears later is left alone, and one
that was there is either named by a row by the time the catalog is read, or its writer has yet to name it, and then:

* a worker's memo file carries the name of its lease. While any task is leased under that name, the file stays. No
  lease's name is given twice and a task that lost its lease cannot commit under it, so afterwards nobody can name it.
* whoever writes without a lease (compaction, analyses, changes of tables) is given ``leftover_secs`` from its last write.
  Those files are deleted inside write transactions that look for their names again, and these writers, in the write
  transaction that names their files, look whether they are there. So either they are named first or found missing.

A condemned file held memos that were evicted or moved. Rows never come to name it again, but a job that read its
solution before may open it: it stays while a pin holds that was made before, or at about the time when, it was condemned
(:mod:`warehouse.reading.pins`), and while a task under its lease may still commit into it. Its row goes after its bytes: a
process killed in between leaves a row that the next run finds and removes.

Leases that ran out and that no worker takes over end first (:mod:`warehouse.queue.lost_leases`), so that their files go as well.
Only files of Headrace's own making are deleted (:mod:`warehouse.files.own_files`), never by way of a link; others are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, delete, exists, or_, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.files.memo_file import lease_of
from warehouse.files.own_files import HomeFiles, kind_of, list_home
from warehouse.maintenance.unreferenced_files import LEFTOVERS, LeftoverKind
from warehouse.queue.lost_leases import collect_lost, find_lost
from warehouse.reading.pins import clear_expired_pins, oldest_live_pin
from warehouse.scheduling.task_states import TaskState
from warehouse.storage.layout import COMPACTION, MEMOS
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile, is_unfinished
from warehouse.warehouse import Warehouse

Kind = Literal["orphan memos", "condemned memos"] | LeftoverKind

#: Seconds that a writer without a lease has from its last write to the row that names it.
LEFTOVER_SECS = 86_400.0
#: Files deleted in one write transaction, which other writers wait for.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that can go: what it is, its path relative to the home, its size."""

    kind: Kind
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection deleted, or with ``dry_run`` would delete.

    Attributes:
        dry_run: Nothing was deleted.
        garbage: The files.
        pinned: Condemned files that stay because of pins.
        pinned_bytes: Their bytes.
        named_meanwhile: Files that another process named, or deleted, before their turn came.
        rows: Rows of condemned files that were removed.
        expired: Leases that ran out and were ended, or would be; no worker takes their tasks over.
        foreign: Paths under Headrace's folders that Headrace did not make, links among them, and paths of the catalog that
            are no memo file's. They are left as they are.
    """

    dry_run: bool
    garbage: tuple[Garbage, ...]
    pinned: int = 0
    pinned_bytes: int = 0
    named_meanwhile: int = 0
    rows: int = 0
    expired: int = 0
    foreign: tuple[str, ...] = ()

    def by_kind(self) -> Mapping[str, tuple[int, int]]:
        """Files and bytes of each kind that there is any of, by kind."""
        files: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for one in self.garbage:
            files[one.kind] += 1
            sizes[one.kind] += one.size_bytes
        return {kind: (files[kind], sizes[kind]) for kind in sorted(files)}

    @property
    def size_bytes(self) -> int:
        """Bytes of all of it."""
        return sum(one.size_bytes for one in self.garbage)


def collect_garbage(warehouse: Warehouse, *, dry_run: bool = True, leftover_secs: float = LEFTOVER_SECS) -> Collected:
    """Delete what nothing names any more, or only say what that is.

    Files of writers without a lease, and unfinished writes, count as left over ``leftover_secs`` after they were last
    written. Raises :class:`~transforms.errors.StorageError` when the storage refuses; what was deleted stays deleted.
    """
    now = warehouse.clock()
    before_ns = int((now - leftover_secs) * 1e9)
    expired = 0 if dry_run else _end_lost_leases(warehouse, now)
    home = list_home(warehouse.storage)
    leftovers = {one.kind: list(one.old(home, before_ns)) for one in LEFTOVERS}
    with warehouse.catalog.read() as connection:
        lost = frozenset[int]()
        if dry_run:
            lost = find_lost(connection, now, warehouse.config.limits, warehouse.config.lease_secs).ids
            expired = len(lost)
        leased = _leases(connection, without=lost)
        judged = _judge(connection, warehouse, home, leased, before_ns, now)
        judged.guarded += _unnamed_leftovers(connection, warehouse.storage, leftovers)
    planned = (*judged.free, *judged.guarded)
    foreign = tuple(sorted({*home.foreign, *judged.foreign}))
    if dry_run:
        return Collected(True, planned, judged.pinned, judged.pinned_bytes, 0, len(judged.condemned), expired, foreign)
    deleted = [one for one in judged.free if warehouse.storage.delete(one.path)]
    rows = _forget_files(warehouse, _gone(warehouse.storage, judged.condemned, {one.path for one in deleted}), now)
    for batch in chunks(judged.guarded, _AT_ONCE):
        deleted += _delete_unnamed(warehouse, batch)
    return Collected(False, tuple(deleted), judged.pinned, judged.pinned_bytes, len(planned) - len(deleted), rows,
                     expired, foreign)  # fmt: skip


def _end_lost_leases(warehouse: Warehouse, now: float) -> int:
    config = warehouse.config
    return warehouse.catalog.run(
        lambda connection: collect_lost(connection, now, config.limits, config.lease_secs), idempotent=True
    )


def _leases(connection: Connection, *, without: Collection[int]) -> set[str]:
    """The names of the leases that tasks carry, but for some tasks."""
    of = schema.tasks.c
    rows = connection.execute(select(of.id, of.lease).where(of.state == TaskState.LEASED))
    return {row.lease for row in rows if row.id not in without}


def _gone(storage: Storage, condemned: Mapping[int, str], deleted: Collection[str]) -> list[int]:
    """The rows of condemned files that are not there any more; a file behind a link stays, and so does its row."""
    # One that is deleted only here was written, named and condemned after the folder was listed.
    return [
        row for row, path in condemned.items() if path in deleted or storage.delete(path) or not storage.exists(path)
    ]


@dataclass
class _Judged:
    """``free``: nothing can come to name them. ``guarded``: deleted under the write lock. ``condemned``: rows and paths."""

    free: list[Garbage]
    guarded: list[Garbage]
    condemned: dict[int, str]
    foreign: list[str]
    pinned: int = 0
    pinned_bytes: int = 0


def _judge(
    connection: Connection, warehouse: Warehouse, home: HomeFiles, leased: Collection[str], before_ns: int, now: float
) -> _Judged:
    of = schema.memo_files.c
    rows = {row.path: row for row in connection.execute(select(of.id, of.path, of.size_bytes, of.condemned_at))}
    judged = _Judged([], [], {}, [path for path in rows if kind_of(path) != "memos"])
    listed = {file.path for file in home.own["memos"]}
    pinned_since = _pinned_since(connection, warehouse, now)
    for row in rows.values():
        if row.condemned_at is not None and lease_of(row.path) not in leased and kind_of(row.path) == "memos":
            _judge_condemned(judged, row, row.path in listed, pinned_since)
    for file in (*home.own["memos"], *_unfinished_memos(home)):
        if file.path not in rows and lease_of(file.path) not in leased:
            _judge_unnamed(judged, file, is_old=file.mtime_ns <= before_ns)
    return judged


def _unfinished_memos(home: HomeFiles) -> list[ListedFile]:
    return [file for file in home.own["unfinished writes"] if file.path.startswith(f"{MEMOS}/")]


def _judge_unnamed(judged: _Judged, file: ListedFile, *, is_old: bool) -> None:
    """A memo file, perhaps unfinished, that no row names and no leased task may name."""
    lease = lease_of(file.path)
    if is_unfinished(file.path):
        # Its writer may have lost its lease and not know it yet; taking its file away would fail its whole job.
        judged.free += [Garbage("unfinished writes", file.path, file.size_bytes)] if is_old else []
    elif lease and not lease.startswith(COMPACTION):
        judged.free.append(Garbage("orphan memos", file.path, file.size_bytes))
    elif is_old:
        judged.guarded.append(Garbage("orphan memos", file.path, file.size_bytes))


def _unnamed_leftovers(
    connection: Connection, storage: Storage, old: Mapping[LeftoverKind, Sequence[ListedFile]]
) -> Iterator[Garbage]:
    for leftover in LEFTOVERS:
        files = old[leftover.kind]
        named = leftover.named(connection, storage, [file.path for file in files]) if files else set()
        for file in files:
            if file.path not in named:
                yield Garbage(leftover.kind, file.path, file.size_bytes)


def _judge_condemned(judged: _Judged, row: Any, is_listed: bool, pinned_since: float | None) -> None:
    if pinned_since is not None and row.condemned_at >= pinned_since:
        judged.pinned += 1
        judged.pinned_bytes += row.size_bytes
    else:
        judged.condemned[row.id] = row.path
        if is_listed:
            judged.free.append(Garbage("condemned memos", row.path, row.size_bytes))


def _pinned_since(connection: Connection, warehouse: Warehouse, now: float) -> float | None:
    """Files condemned from this moment on may be open in a job that holds a pin; clocks may differ a little."""
    oldest = oldest_live_pin(connection, now)
    return None if oldest is None else oldest - warehouse.config.pin_ttl_secs


def _forget_files(warehouse: Warehouse, files: Collection[int], now: float) -> int:
    """Remove the rows of condemned files, whose bytes are gone, and those of pins that ran out."""
    of = schema.memo_files.c
    named = or_(exists().where(schema.memos.c.file == of.id), exists().where(schema.coverage.c.file == of.id))

    def forget(connection: Connection) -> int:
        removed = 0
        for chunk in chunks(sorted(files)):
            unnamed = (of.id.in_(chunk), of.condemned_at.is_not(None), ~named)
            removed += connection.execute(delete(schema.memo_files).where(*unnamed)).rowcount
        clear_expired_pins(connection, now)
        return removed

    return warehouse.catalog.run(forget, idempotent=True)


def _delete_unnamed(warehouse: Warehouse, batch: Sequence[Garbage]) -> list[Garbage]:
    """Delete those that still nothing names. The write lock is held: nobody names one in between."""
    paths = [one.path for one in batch]
    with warehouse.catalog.write() as connection:
        of = schema.memo_files.c
        named = set(connection.execute(select(of.path).where(of.path.in_(paths))).scalars())
        for leftover in LEFTOVERS:
            mine = [one.path for one in batch if one.kind == leftover.kind]
            if mine:
                named |= leftover.named(connection, warehouse.storage, mine)
        return [one for one in batch if one.path not in named and warehouse.storage.delete(one.path)]
