"""Garbage collection: delete unreferenced files.

It is safe beside workers, evictions, compaction and readers. The folder is listed first, then the catalog is
read; only listed files are candidates. So later files stay, and a listed file is referenced by a row, or its writer has
yet to commit the reference:

* A worker's memo file has the name of its lease, and stays while any task is leased under that name. Lease names are
  unique, and a task that lost its lease cannot commit under it, so that no later reference is possible.
* Files of writers without a lease (compaction, analyses, changes of tables) stay for ``leftover_secs`` after their last write.
  They are deleted in write transactions that look for references again, and their writers check, in the write
  transaction that adds the reference, that the files exist. So the file is referenced, or the writer finds it missing.

A memo file becomes unreferenced when its memos are evicted or moved. A job with an older solution may open it: it stays while a pin from
before, or from about that time, holds (:mod:`warehouse.reading.pins`), and while a task under its lease may commit into it. An eviction can be undone
(:mod:`warehouse.eviction.restore`): so the file is marked in a transaction that finds it still unreferenced, after which nothing refers to it
again, and then deleted. Its row is removed after its bytes: a process killed in between leaves a marked row that the next run removes.

Values of joined columns that later ones have superseded are forgotten in the catalog first, then deleted (:mod:`warehouse.joins.superseded`).

Expired leases that no worker takes over end first (:mod:`warehouse.queue.lost_leases`), so that their files are deleted too.
Only files made by Headrace are deleted (:mod:`warehouse.files.own_files`), never through a link; others are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, delete, exists, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.files.memo_file import lease_of
from warehouse.files.own_files import HomeFiles, kind_of, list_home
from warehouse.joins.superseded import forget_superseded, superseded_files
from warehouse.maintenance.unreferenced_files import COLLECTED_FILES, CollectedKind
from warehouse.models.joined_columns import forget_views
from warehouse.queue.lost_leases import collect_lost, find_lost
from warehouse.reading.pins import clear_expired_pins, oldest_live_pin
from warehouse.scheduling.task_states import TaskState
from warehouse.storage.layout import COMPACTION, MEMOS
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile, is_unfinished
from warehouse.warehouse import Warehouse

Kind = Literal["orphan memos", "unreferenced memos", "superseded joined columns"] | CollectedKind

#: Seconds that a writer without a lease has from its last write to the commit of the reference.
LEFTOVER_SECS = 86_400.0
#: Files per write transaction, for which other writers wait.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that can be deleted; ``path`` is relative to the home."""

    kind: Kind
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Collected:
    """The effect of a garbage collection.

    Attributes:
        dry_run: It was only planned.
        garbage: The deleted files.
        pinned: Unreferenced memo files that stay because of pins.
        pinned_bytes: Their bytes.
        named_meanwhile: Files that another process referenced, or deleted, meanwhile.
        rows: Rows of unreferenced memo files that were removed.
        expired: Expired leases that were ended; no worker takes their tasks over.
        foreign: Paths under Headrace's folders that Headrace did not make, such as links, and paths in the catalog that
            are not those of memo files. They stay.
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
        """Numbers of files and of bytes by kind."""
        files: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for one in self.garbage:
            files[one.kind] += 1
            sizes[one.kind] += one.size_bytes
        return {kind: (files[kind], sizes[kind]) for kind in sorted(files)}

    @property
    def size_bytes(self) -> int:
        """Bytes of all deleted files."""
        return sum(one.size_bytes for one in self.garbage)


def collect_garbage(warehouse: Warehouse, *, dry_run: bool = True, leftover_secs: float = LEFTOVER_SECS) -> Collected:
    """Delete unreferenced files, or only plan that.

    Files of writers without a lease, and unfinished writes, are deleted ``leftover_secs`` after their last write.
    Raises :class:`~transforms.errors.StorageError` if the storage refuses; earlier deletions stay.
    """
    now = warehouse.clock()
    before_ns = int((now - leftover_secs) * 1e9)
    expired = 0 if dry_run else _end_lost_leases(warehouse, now)
    home = list_home(warehouse.storage)
    leftovers = {one.kind: list(one.old(home, before_ns)) for one in COLLECTED_FILES}
    with warehouse.catalog.read() as connection:
        lost = frozenset[int]()
        if dry_run:
            ended = find_lost(connection, now, warehouse.config.limits, warehouse.config.lease_secs)
            lost, expired = ended.ids, len(ended.all)
        leased = _leases(connection, without=lost)
        plan = _plan_memos(connection, warehouse, home, leased, before_ns, now)
        plan.needs_lock += _unreferenced_files(connection, warehouse.storage, leftovers)
        superseded_before = min(now - leftover_secs, _pinned_since(connection, warehouse, now) or now)
        superseded = superseded_files(connection, superseded_before)
    overlays = [Garbage("superseded joined columns", path, size) for path, size in sorted(superseded.items())]
    planned = (*plan.deletable, *plan.needs_lock, *overlays)
    foreign = tuple(sorted({*home.foreign, *plan.foreign}))
    if dry_run:
        return Collected(True, planned, plan.pinned, plan.pinned_bytes, 0, len(plan.unreferenced), expired, foreign)
    warehouse.catalog.run(lambda connection: forget_views(connection, now - leftover_secs), idempotent=True)
    forgotten = warehouse.catalog.run(
        lambda connection: forget_superseded(connection, superseded_before, superseded), idempotent=True
    )
    unclaimed = plan.unreferenced.keys() - _claim(warehouse, plan.unreferenced, now)
    restored = {plan.unreferenced.pop(row) for row in unclaimed}
    deleted = [one for one in plan.deletable if one.path not in restored and warehouse.storage.delete(one.path)]
    rows = _remove_rows(warehouse, _gone(warehouse.storage, plan.unreferenced, {one.path for one in deleted}), now)
    for batch in chunks(plan.needs_lock, _AT_ONCE):
        deleted += _delete_unreferenced(warehouse, batch)
    deleted += [one for one in overlays if one.path in forgotten and warehouse.storage.delete(one.path)]
    return Collected(
        False, tuple(deleted), plan.pinned, plan.pinned_bytes, len(planned) - len(deleted), rows, expired, foreign
    )


def _end_lost_leases(warehouse: Warehouse, now: float) -> int:
    config = warehouse.config
    return warehouse.catalog.run(
        lambda connection: collect_lost(connection, now, config.limits, config.lease_secs), idempotent=True
    )


def _leases(connection: Connection, *, without: Collection[int]) -> set[str]:
    """The lease names of leased tasks, without some tasks."""
    of = schema.tasks.c
    rows = connection.execute(select(of.id, of.lease).where(of.state == TaskState.LEASED))
    return {row.lease for row in rows if row.id not in without}


def _claim(warehouse: Warehouse, files: Collection[int], now: float) -> set[int]:
    """Mark these files as being deleted, in transactions of some files each; returns those that are unreferenced still."""
    of = schema.memo_files.c
    claimed: set[int] = set()
    for batch in chunks(sorted(files)):

        def claim(connection: Connection, batch: Sequence[int] = batch) -> set[int]:
            free = (of.id.in_(batch), of.condemned_at.is_not(None), ~_named())
            connection.execute(
                update(schema.memo_files).where(*free, of.collected_at.is_(None)).values(collected_at=now)
            )
            return set(connection.execute(select(of.id).where(*free)).scalars())

        claimed |= warehouse.catalog.run(claim, idempotent=True)
    return claimed


def _named() -> ColumnElement[bool]:
    """Whether a memo or the coverage refers to a file."""
    of = schema.memo_files.c
    return or_(exists().where(schema.memos.c.file == of.id), exists().where(schema.coverage.c.file == of.id))


def _gone(storage: Storage, unreferenced: Mapping[int, str], deleted: Collection[str]) -> list[int]:
    """The rows of unreferenced files that no longer exist; a file behind a link stays with its row."""
    # A file that is deleted only here was written and became unreferenced after the folder was listed.
    return [
        row for row, path in unreferenced.items() if path in deleted or storage.delete(path) or not storage.exists(path)
    ]


@dataclass
class _Plan:
    """The files to delete.

    Attributes:
        deletable: Files to which no reference is possible.
        needs_lock: Files that are checked again and deleted under the write lock.
        unreferenced: Rows of unreferenced memo files with their paths.
        foreign: Paths that Headrace did not make.
        pinned: The number of pinned files.
        pinned_bytes: Their bytes.
    """

    deletable: list[Garbage]
    needs_lock: list[Garbage]
    unreferenced: dict[int, str]
    foreign: list[str]
    pinned: int = 0
    pinned_bytes: int = 0


def _plan_memos(
    connection: Connection, warehouse: Warehouse, home: HomeFiles, leased: Collection[str], before_ns: int, now: float
) -> _Plan:
    of = schema.memo_files.c
    rows = {row.path: row for row in connection.execute(select(of.id, of.path, of.size_bytes, of.condemned_at))}
    plan = _Plan([], [], {}, [path for path in rows if kind_of(path) != "memos"])
    listed = {file.path for file in home.own["memos"]}
    pinned_since = _pinned_since(connection, warehouse, now)
    for row in rows.values():
        if row.condemned_at is not None and lease_of(row.path) not in leased and kind_of(row.path) == "memos":
            _add_unreferenced(plan, row, row.path in listed, pinned_since)
    for file in (*home.own["memos"], *_unfinished_memos(home)):
        if file.path not in rows and lease_of(file.path) not in leased:
            _add_orphan(plan, file, is_old=file.mtime_ns <= before_ns)
    return plan


def _unfinished_memos(home: HomeFiles) -> list[ListedFile]:
    return [file for file in home.own["unfinished writes"] if file.path.startswith(f"{MEMOS}/")]


def _add_orphan(plan: _Plan, file: ListedFile, *, is_old: bool) -> None:
    """Add a memo file, finished or not, that no row and no leased task refers to."""
    lease = lease_of(file.path)
    if is_unfinished(file.path):
        # Its writer may have lost its lease without notice yet; deleting the file would fail its whole job.
        plan.deletable += [Garbage("unfinished writes", file.path, file.size_bytes)] if is_old else []
    elif lease and not lease.startswith(COMPACTION):
        plan.deletable.append(Garbage("orphan memos", file.path, file.size_bytes))
    elif is_old:
        plan.needs_lock.append(Garbage("orphan memos", file.path, file.size_bytes))


def _unreferenced_files(
    connection: Connection, storage: Storage, old: Mapping[CollectedKind, Sequence[ListedFile]]
) -> Iterator[Garbage]:
    for files in COLLECTED_FILES:
        listed = old[files.kind]
        referenced = files.referenced(connection, storage, [file.path for file in listed]) if listed else set()
        for file in listed:
            if file.path not in referenced:
                yield Garbage(files.kind, file.path, file.size_bytes)


def _add_unreferenced(plan: _Plan, row: Any, is_listed: bool, pinned_since: float | None) -> None:
    if pinned_since is not None and row.condemned_at >= pinned_since:
        plan.pinned += 1
        plan.pinned_bytes += row.size_bytes
    else:
        plan.unreferenced[row.id] = row.path
        if is_listed:
            plan.deletable.append(Garbage("unreferenced memos", row.path, row.size_bytes))


def _pinned_since(connection: Connection, warehouse: Warehouse, now: float) -> float | None:
    """Files that became unreferenced from this time on may be open in a pinned job, with a margin for clocks."""
    oldest = oldest_live_pin(connection, now)
    return None if oldest is None else oldest - warehouse.config.pin_ttl_secs


def _remove_rows(warehouse: Warehouse, files: Collection[int], now: float) -> int:
    """Remove the rows of deleted unreferenced files, and of expired pins."""
    of, kept = schema.memo_files.c, schema.evicted_coverage

    def forget(connection: Connection) -> int:
        removed = 0
        for chunk in chunks(sorted(files)):
            unnamed = (of.id.in_(chunk), of.condemned_at.is_not(None), ~_named())
            connection.execute(delete(kept).where(kept.c.file.in_(select(of.id).where(*unnamed))))
            removed += connection.execute(delete(schema.memo_files).where(*unnamed)).rowcount
        clear_expired_pins(connection, now)
        return removed

    return warehouse.catalog.run(forget, idempotent=True)


def _delete_unreferenced(warehouse: Warehouse, batch: Sequence[Garbage]) -> list[Garbage]:
    """Delete files that are still unreferenced, under the write lock."""
    paths = [one.path for one in batch]
    with warehouse.catalog.write() as connection:
        of = schema.memo_files.c
        referenced = set(connection.execute(select(of.path).where(of.path.in_(paths))).scalars())
        for files in COLLECTED_FILES:
            mine = [one.path for one in batch if one.kind == files.kind]
            if mine:
                referenced |= files.referenced(connection, warehouse.storage, mine)
        return [one for one in batch if one.path not in referenced and warehouse.storage.delete(one.path)]
