"""Merged fragments in the catalog: which fragments of current manifests are parts of one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, insert, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_numbered, one_of
from warehouse.catalog.fragment_rows import fragment_places
from warehouse.tables.manifests import fragment_of, fragment_schema, fragments_by_row
from warehouse.tables.table import Fragment, merge_fragments


@dataclass(frozen=True, slots=True)
class MergedPlace:
    """The place of a fragment in a merged one: the row of the latter, and the events before the fragment in it."""

    merged: int
    first_row: int


@dataclass(frozen=True, slots=True)
class MergedPart:
    """A fragment in a merged one: its row, the start of its partition in epoch seconds, and its events."""

    row: int
    start: float
    rows: int


def merged_places(connection: Connection, rows: Collection[int]) -> dict[int, MergedPlace]:
    """The places of those of these fragments that are parts of a merged fragment, by row."""
    of = schema.merged_fragments.c
    found: dict[int, MergedPlace] = {}
    for chunk in chunks(sorted(rows)):
        query = select(of.fragment, of.merged, of.first_row).where(one_of(connection, of.fragment, chunk))
        found |= {row.fragment: MergedPlace(row.merged, row.first_row) for row in connection.execute(query)}
    return found


def merged_without_members(connection: Connection, merged: Collection[int]) -> dict[int, Fragment]:
    """The merged fragments in these rows, without their members, which only reading raw data needs."""
    of = schema.fragments.c
    stored = [
        row
        for chunk in chunks(sorted(merged))
        for row in connection.execute(select(schema.fragments).where(one_of(connection, of.id, chunk)))
    ]
    columns = {table: fragment_schema(connection, table) for table in {row.table_name for row in stored}}
    return {row.id: fragment_of(row, columns[row.table_name]) for row in stored}


def members_of_merged(connection: Connection, merged: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The rows of the members of merged fragments, in order."""
    of = schema.fragments.c
    found: dict[int, tuple[int, ...]] = {}
    for chunk in chunks(sorted(merged)):
        query = select(of.id, of.members).where(one_of(connection, of.id, chunk), of.members.is_not(None))
        found |= {row.id: tuple(row.members) for row in connection.execute(query)}
    return found


def merged_with_partition(where: ColumnElement[bool]) -> Select[tuple[int]]:
    """The rows of the merged fragments with a part in a partition whose manifest fulfils ``where``."""
    parts = schema.merged_fragments.c
    return _placed_parts(select(parts.merged)).where(where)


def merged_parts(connection: Connection) -> dict[int, list[MergedPart]]:
    """The parts of each merged fragment, by its row."""
    parts, manifests, fragments = schema.merged_fragments.c, schema.manifests.c, schema.fragments
    query = _placed_parts(select(parts.merged, parts.fragment, manifests.start_at, fragments.c.rows))
    found: defaultdict[int, list[MergedPart]] = defaultdict(list)
    for merged, *part in connection.execute(query.join(fragments, fragments.c.id == parts.fragment)):
        found[merged].append(MergedPart(*part))
    return dict(found)


def _placed_parts(query: Select[Any]) -> Select[Any]:
    """``query`` over the parts of merged fragments with their current manifests."""
    parts, members, manifests = schema.merged_fragments, schema.manifest_fragments, schema.manifests
    return (
        query.select_from(parts)
        .join(members, members.c.fragment == parts.c.fragment)
        .join(manifests, manifests.c.id == members.c.manifest)
        .where(manifests.c.current.is_(True))
    )


def write_merges(connection: Connection, table: str, groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Merge each group of fragments, given by their rows; returns the rows of the merged fragments.

    Former merges of these fragments are removed.
    """
    fragments = fragments_by_row(connection, {row for group in groups for row in group})
    places = fragment_places(connection, [group[0] for group in groups])
    merged = insert_numbered(
        connection,
        schema.fragments,
        [_merged_row(table, places[group[0]][1], group, [fragments[row] for row in group]) for group in groups],
    )
    of = schema.merged_fragments
    for chunk in chunks(sorted(fragments)):
        former = select(of.c.merged).where(one_of(connection, of.c.fragment, chunk))
        connection.execute(delete(of).where(of.c.merged.in_(former)))
    rows = []
    for number, group in zip(merged, groups, strict=True):
        firsts = accumulate((fragments[row].rows for row in group), initial=0)
        rows += [
            {"fragment": row, "merged": number, "position": position, "first_row": first}
            for position, (row, first) in enumerate(zip(group, firsts, strict=False))
        ]
    if rows:
        connection.execute(insert(of), rows)
    return merged


def _merged_row(table: str, partition: str, group: Sequence[int], members: Sequence[Fragment]) -> dict[str, object]:
    whole = merge_fragments(members)
    return {
        "fragment_id": whole.fragment_id,
        "table_name": table,
        "partition": partition,
        "path": whole.path,
        "row_groups": list(whole.row_groups),
        "rows": whole.rows,
        "size_bytes": whole.size_bytes,
        "digests": dict(whole.digests),
        "overlays": {overlay.column: overlay.path for overlay in whole.overlays} or None,
        "members": list(group),
    }


def follow_changes(connection: Connection, table: str) -> None:
    """Let the merges of ``table`` consist of current fragments again, after its manifests changed.

    A member with new overlays, or whose file was read again with equal content, is replaced by its current fragment. A merge
    with a member whose content is gone is removed: its other members are fragments of their own again.
    """
    stale = _stale_merges(connection, table)
    if not stale:
        return
    members = members_of_merged(connection, stale)
    of = schema.merged_fragments
    for chunk in chunks(sorted(members)):
        connection.execute(delete(of).where(one_of(connection, of.c.merged, chunk)))
    successors = _successors(connection, table, members)
    groups = [
        [successors[row] for row in group] for group in members.values() if all(row in successors for row in group)
    ]
    if groups:
        write_merges(connection, table, groups)


def _stale_merges(connection: Connection, table: str) -> set[int]:
    of, fragments = schema.merged_fragments.c, schema.fragments.c
    members, manifests = schema.manifest_fragments.c, schema.manifests.c
    current = (
        select(members.fragment)
        .join(schema.manifests, manifests.id == members.manifest)
        .where(manifests.current.is_(True), members.fragment == of.fragment)
    )
    query = select(of.merged).join(schema.fragments, fragments.id == of.fragment)
    return set(connection.execute(query.where(fragments.table_name == table, ~current.exists())).scalars())


def _successors(connection: Connection, table: str, merges: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The current fragment of each member: itself, or one with its content, the nearest in time first."""
    rows = [row for group in merges.values() for row in group]
    of, manifests, members = schema.fragments.c, schema.manifests.c, schema.manifest_fragments.c
    identities: dict[int, str] = {}
    for chunk in chunks(sorted(rows)):
        stored = connection.execute(select(of.id, of.fragment_id).where(one_of(connection, of.id, chunk)))
        identities.update((one.id, one.fragment_id) for one in stored)
    parts = schema.merged_fragments.c
    taken = select(parts.fragment).where(parts.fragment == of.id).exists()
    free: defaultdict[str, deque[int]] = defaultdict(deque)
    for contents in chunks(sorted(set(identities.values()))):
        query = (
            select(of.id, of.fragment_id)
            .join(schema.manifest_fragments, members.fragment == of.id)
            .join(schema.manifests, manifests.id == members.manifest)
            .where(manifests.table_name == table, manifests.current.is_(True), ~taken)
            .where(one_of(connection, of.fragment_id, contents))
            .order_by(manifests.start_at, manifests.partition, members.position)
        )
        for one in connection.execute(query):
            free[one.fragment_id].append(one.id)
    successors: dict[int, int] = {}
    for row in rows:
        here = free[identities[row]]
        if row in here:
            here.remove(row)
            successors[row] = row
    for row in rows:
        here = free[identities[row]]
        if row not in successors and here:
            successors[row] = here.popleft()
    return successors
