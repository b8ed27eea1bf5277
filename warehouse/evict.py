"""Forget memos on purpose, and sweep away files that nobody knows.

The rows go first and the files after them, so that a process killed in between leaves files that the next sweep
finds, never a row without its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from transforms.errors import InputError
from warehouse import schema
from warehouse.catalog import chunks
from warehouse.errors import UnknownComponent
from warehouse.memos import evict_memos
from warehouse.task_states import MemoState
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Eviction:
    """What an eviction removed, or with ``dry_run`` would remove.

    ``bytes`` is the evicted columns' share of their files. ``files`` are deleted: those in which nothing else is
    ready; a file that other components share stays until they go too. ``models`` are the live models that read the
    component and will compute it on the fly until someone submits them again.
    """

    fingerprint: str
    dry_run: bool
    memos: int
    rows: int
    bytes: int
    files: tuple[str, ...]
    models: tuple[str, ...]


def evict_component(warehouse: Warehouse, fingerprint: str, *, why: str, dry_run: bool = False) -> Eviction:
    """Evict every ready memo of a component. A tombstone keeps when and ``why``, for ``explain``.

    Queued and running tasks are left alone. Raises :class:`UnknownComponent`, and :class:`InputError` without a reason.
    """
    if not why.strip():
        raise InputError("an eviction says why", where=f"component {fingerprint}", value=why)
    of, now = schema.memos.c, warehouse.clock()
    ready = (of.fingerprint == fingerprint, of.state == MemoState.READY)

    def evict(connection: Connection) -> Eviction:
        known = connection.execute(
            select(schema.components.c.fingerprint).where(schema.components.c.fingerprint == fingerprint)
        ).first()
        if known is None:
            raise UnknownComponent("no such component", value=fingerprint, next_step="headrace graphs ls")
        count, rows, size_bytes = connection.execute(
            select(func.count(), func.sum(of.rows), func.sum(of.size_bytes)).where(*ready)
        ).one()
        keys: dict[str, str] = {}
        touched: dict[int, set[str]] = {}
        for key, file in connection.execute(select(of.memo_key, of.file).where(*ready)):
            keys[key] = fingerprint
            touched.setdefault(file, set()).add(fingerprint)
        alone = set(touched) - _needed_by_others(connection, touched, fingerprint)
        paths = select(schema.memo_files.c.path).where(schema.memo_files.c.id.in_(sorted(alone)))
        files = tuple(sorted(connection.execute(paths).scalars()))
        models = _live_readers(connection, fingerprint)
        if not dry_run:
            evict_memos(connection, keys, touched, why, now)
        return Eviction(fingerprint, dry_run, count, int(rows or 0), int(size_bytes or 0), files, models)

    if dry_run:
        with warehouse.catalog.read() as connection:
            return evict(connection)
    evicted = warehouse.catalog.run(evict)
    for file in evicted.files:
        warehouse.storage.delete(file)
    return evicted


def _needed_by_others(connection: Connection, files: Iterable[int], fingerprint: str) -> set[int]:
    of = schema.memos.c
    needed: set[int] = set()
    for chunk in chunks(sorted(files)):
        query = select(of.file).where(of.file.in_(chunk), of.fingerprint != fingerprint, of.state == MemoState.READY)
        needed.update(connection.execute(query.distinct()).scalars())
    return needed


def _live_readers(connection: Connection, fingerprint: str) -> tuple[str, ...]:
    models, inputs = schema.models.c, schema.model_inputs.c
    query = (
        select(models.name)
        .join(schema.model_inputs, inputs.model == models.id)
        .where(inputs.fingerprint == fingerprint, models.live.is_(True))
        .distinct()
        .order_by(models.name)
    )
    return tuple(connection.execute(query).scalars())


def sweep_orphans(warehouse: Warehouse, *, older_than_secs: float) -> tuple[str, ...]:
    """Delete memo files that no ready memo is in, overlays that no change names, and unfinished writes, if they are
    older than that; returns them.

    A killed worker, or a killed change of a table, leaves such files. Choose an age that no running one reaches between
    writing and committing.
    """
    storage = warehouse.storage
    with warehouse.catalog.read() as connection:
        of = schema.memo_files.c
        known = set(connection.execute(select(of.path).where(of.condemned_at.is_(None))).scalars())
        known.update(connection.execute(select(schema.overlays.c.path).distinct()).scalars())
    home = storage.absolute(storage.home).rstrip("/")
    known_paths = {f"{home}/{file}" for file in known}
    deadline_ns = int((warehouse.clock() - older_than_secs) * 1e9)
    folders = (f"{home}/memos", f"{home}/overlays")
    candidates = [
        file for folder in folders for file in (*storage.list(folder), *storage.list(folder, temporaries=True))
    ]
    swept = [file.path for file in candidates if file.path not in known_paths and file.mtime_ns <= deadline_ns]
    return tuple(path for path in swept if storage.delete(path))
