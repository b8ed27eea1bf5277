"""Rows of ``fragments`` as SQL: their places, and the units of computation, of the current version of a table."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, Select, and_, or_, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of

#: The table and the partition of a fragment.
Place = tuple[str, str]


def fragment_places(connection: Connection, rows: Collection[int]) -> dict[int, Place]:
    """The places of the fragments in these rows; of a merged one that of its first member."""
    of = schema.fragments.c
    found: dict[int, Place] = {}
    for chunk in chunks(sorted(rows)):
        query = select(of.id, of.table_name, of.partition).where(one_of(connection, of.id, chunk))
        for row, table, partition in connection.execute(query):
            found[row] = table, partition
    return found


def is_unit(fragment: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that the fragment in this row is a unit of computation of a table now.

    That is a merged fragment, or one of a current manifest that is no part of a merged one.
    """
    # Aliases, since the caller's statement may have these tables too.
    part, merge = schema.merged_fragments.alias(), schema.merged_fragments.alias()
    member, manifest = schema.manifest_fragments.alias(), schema.manifests.alias()
    in_manifest = (
        select(member.c.fragment)
        .join(manifest, manifest.c.id == member.c.manifest)
        .where(manifest.c.current.is_(True), member.c.fragment == fragment)
    )
    is_part = select(part.c.fragment).where(part.c.fragment == fragment)
    is_merged = select(merge.c.merged).where(merge.c.merged == fragment)
    return or_(and_(in_manifest.exists(), ~is_part.exists()), is_merged.exists())


def unit_rows() -> tuple[Select[tuple[int]], Select[tuple[int]]]:
    """The rows for which :func:`is_unit` holds, in two lists: of current manifests, and merged."""
    members, manifests, parts = schema.manifest_fragments.c, schema.manifests.c, schema.merged_fragments.c
    current = (
        select(members.fragment)
        .join(schema.manifests, manifests.id == members.manifest)
        .where(manifests.current.is_(True), members.fragment.not_in(select(parts.fragment)))
    )
    return current, select(parts.merged)
