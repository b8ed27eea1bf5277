"""Leases on the fragments whose joined columns a worker computes, so that no two workers compute the same ones."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, update

from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_rows
from warehouse.catalog.catalog import chunks, one_of
from warehouse.errors import CatalogBusy, CatalogLost
from warehouse.joins.outdated import OutdatedFragment, OutdatedJoins
from warehouse.warehouse import Warehouse

#: At most so many events, and so many fragments, are leased together.
MOST_EVENTS = 4_000_000
MOST_FRAGMENTS = 500


@dataclass(frozen=True, slots=True)
class JoinLease:
    """A lease on fragments of one table and one other one; it ends if it is not renewed."""

    name: str
    fragments: tuple[OutdatedFragment, ...]


def lease_fragments(warehouse: Warehouse, worker: str, joins: OutdatedJoins) -> JoinLease | None:
    """Lease the first outdated fragments that no other worker has; None if others have all of them."""
    name, now = uuid.uuid4().hex, warehouse.clock()
    of = schema.join_leases

    def lease(connection: Connection) -> tuple[OutdatedFragment, ...]:
        connection.execute(delete(of).where(of.c.lease_until < now))
        taken = _taken(connection, joins)
        current = _current(connection, joins)
        chosen = first_fragments(
            one
            for one in joins.fragments
            if one.own.placed.row not in taken and one.own.placed.row in current and not _is_done(connection, one)
        )
        insert_rows(connection, of, [
            {"other_table": joins.other.name, "fragment": one.own.placed.row, "lease": name, "worker": worker,
             "lease_until": now + warehouse.config.lease_secs}
            for one in chosen
        ])  # fmt: skip
        return chosen

    found = warehouse.catalog.run(lease)
    return JoinLease(name, found) if found else None


def first_fragments(fragments: Iterable[OutdatedFragment]) -> tuple[OutdatedFragment, ...]:
    """The first of the fragments, as many as are leased together. Pure."""
    chosen: list[OutdatedFragment] = []
    events = 0
    for one in fragments:
        events += one.own.placed.fragment.rows
        if chosen and (events > MOST_EVENTS or len(chosen) >= MOST_FRAGMENTS):
            break
        chosen.append(one)
    return tuple(chosen)


def _taken(connection: Connection, joins: OutdatedJoins) -> set[int]:
    of = schema.join_leases.c
    found: set[int] = set()
    for chunk in chunks([one.own.placed.row for one in joins.fragments]):
        query = select(of.fragment).where(of.other_table == joins.other.name, one_of(connection, of.fragment, chunk))
        found.update(connection.execute(query).scalars())
    return found


def _current(connection: Connection, joins: OutdatedJoins) -> set[int]:
    """The rows of fragments that no other worker has replaced since they were found to be outdated."""
    members, manifests = schema.manifest_fragments.c, schema.manifests.c
    query = select(members.fragment).join(schema.manifests, manifests.id == members.manifest)
    query = query.where(manifests.table_name == joins.table.name, manifests.current.is_(True))
    return set(connection.execute(query).scalars())


def _is_done(connection: Connection, one: OutdatedFragment) -> bool:
    """Whether another worker has found since then that a fragment has the values of all its views."""
    of, digests = schema.joined_views.c, one.own.placed.fragment.digests
    views = {view: digests.get(record.column) for record, view in one.columns}
    query = select(of.view, of.checksum).where(of.view.in_(sorted(views)))
    known = {view for view, checksum in connection.execute(query) if views[view] == checksum}
    return known == views.keys()


def leased_elsewhere(warehouse: Warehouse) -> int:
    """How many fragments any worker has leased now."""
    of = schema.join_leases.c
    with warehouse.catalog.read() as connection:
        return len(connection.execute(select(of.fragment).where(of.lease_until >= warehouse.clock())).all())


@contextmanager
def renewed(warehouse: Warehouse, lease: JoinLease) -> Iterator[None]:
    """Renew a lease until the block ends, and release it then; while the catalog is unavailable it may end."""
    done = threading.Event()
    of = schema.join_leases

    def renew(connection: Connection) -> None:
        until = warehouse.clock() + warehouse.config.lease_secs
        connection.execute(update(of).where(of.c.lease == lease.name).values(lease_until=until))

    def attend() -> None:
        while not done.wait(warehouse.config.lease_secs / 3):
            try:
                warehouse.catalog.run(renew, idempotent=True)
            except (CatalogBusy, CatalogLost):
                continue  # the next one may succeed

    thread = threading.Thread(target=attend, name=f"join lease {lease.name[:8]}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _release(warehouse, lease)


def _release(warehouse: Warehouse, lease: JoinLease) -> None:
    of = schema.join_leases
    try:
        warehouse.catalog.run(
            lambda connection: connection.execute(delete(of).where(of.c.lease == lease.name)), idempotent=True
        )
    except (CatalogBusy, CatalogLost):
        return  # it ends by itself
