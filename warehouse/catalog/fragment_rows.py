"""Units of computation as SQL: fragments of the current version of a table, merged or by themselves."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Select, and_, or_, select

from warehouse.catalog import schema


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
