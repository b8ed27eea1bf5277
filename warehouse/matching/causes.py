"""Causes of missing memos, for ``explain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import Connection, select

from transforms.graphs.graph import Node, component_from_document, operator_versions, raw_columns, shape_identity
from transforms.joins.column_names import is_joined
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.matching.match import MemoMatch, MemoRequest
from warehouse.memos.memos import MemoRecord, find_memos
from warehouse.models.joined_columns import last_view
from warehouse.models.models import load_documents
from warehouse.tables.manifests import PlacedFragment, earlier_fragments
from warehouse.tables.table import memo_key

CauseCode = Literal["never_seen", "operator_version", "data_changed", "evicted"]


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause as a code and as a sentence."""

    code: CauseCode
    text: str


NEVER_SEEN = Cause("never_seen", "this component was never computed over this data")


def find_causes(
    connection: Connection, table: str, missing: Sequence[MemoMatch], components: Mapping[str, Node], current: Set[int]
) -> dict[str, Cause]:
    """The cause of every missing memo, by memo key.

    The first of: the memo was evicted; the same structure with other operator versions has a memo over the same data; the
    same component has a memo over earlier data of this fragment; otherwise it was never seen.

    Args:
        connection: The catalog.
        table: The table of the fragments.
        missing: The missing memos.
        components: Their components, and possibly others, by fingerprint.
        current: The rows of the table's current fragments.
    """
    causes = {
        item.request.memo_key: _evicted(item.record) for item in missing if item.record and item.record.evicted_at
    }
    unknown = [item.request for item in missing if item.request.memo_key not in causes]
    causes.update(_other_versions(connection, unknown, components))
    unknown = [item for item in unknown if item.memo_key not in causes]
    causes.update(_changed_data(connection, table, unknown, components, current))
    return {item.request.memo_key: causes.get(item.request.memo_key, NEVER_SEEN) for item in missing}


def _evicted(record: MemoRecord) -> Cause:
    moment = datetime.fromtimestamp(record.evicted_at or 0, UTC)
    return Cause("evicted", f"evicted on {moment:%Y-%m-%d} ({record.evicted_why})")


def _other_versions(
    connection: Connection, unknown: Sequence[MemoRequest], components: Mapping[str, Node]
) -> dict[str, Cause]:
    relatives = _relatives(connection, {item.fingerprint for item in unknown}, components)
    columns_of = _columns_of(unknown, components)
    candidates: list[tuple[MemoRequest, Node, str]] = []
    for item in unknown:
        columns = columns_of[item.fingerprint]
        for fingerprint, root in relatives.get(item.fingerprint, ()):
            key = memo_key(fingerprint, item.placed.fragment.digests, columns)
            candidates.append((item, root, key))
    known = find_memos(connection, [key for _, _, key in candidates])
    return {
        item.memo_key: Cause("operator_version", _version_text(components[item.fingerprint], root))
        for item, root, key in candidates
        if key in known
    }


def _relatives(
    connection: Connection, fingerprints: set[str], components: Mapping[str, Node]
) -> dict[str, list[tuple[str, Node]]]:
    """The other components of the same shape, oldest first, by fingerprint."""
    of = schema.components.c
    shapes: dict[str, str] = {}
    for chunk in chunks(sorted(fingerprints)):
        shapes.update(
            tuple(row)
            for row in connection.execute(
                select(of.fingerprint, of.shape).where(one_of(connection, of.fingerprint, chunk))
            )
        )
    for fingerprint in sorted(fingerprints - shapes.keys()):
        shapes[fingerprint] = shape_identity(components[fingerprint])
    by_shape: dict[str, list[str]] = {}
    for chunk in chunks(sorted(set(shapes.values()))):
        alike = (
            select(of.shape, of.fingerprint)
            .where(one_of(connection, of.shape, chunk))
            .order_by(of.created_at, of.fingerprint)
        )
        for shape, fingerprint in connection.execute(alike):
            by_shape.setdefault(shape, []).append(fingerprint)
    others = {one: [other for other in by_shape.get(shape, ()) if other != one] for one, shape in shapes.items()}
    documents = load_documents(connection, {other for listed in others.values() for other in listed})
    roots = {other: component_from_document(document) for other, document in documents.items()}
    return {one: [(other, roots[other]) for other in listed] for one, listed in others.items()}


def _version_text(now: Node, before: Node) -> str:
    old = operator_versions(before)
    parts = [
        f"operator {name} version {version} instead of {old[name]}"
        for name, version in sorted(operator_versions(now).items())
        if old.get(name) != version
    ]
    return "same structure but " + ", ".join(parts)


def _changed_data(
    connection: Connection,
    table: str,
    unknown: Sequence[MemoRequest],
    components: Mapping[str, Node],
    current: Set[int],
) -> dict[str, Cause]:
    unknown = [item for item in unknown if not item.placed.is_merged]
    partitions = {item.placed.partition for item in unknown if item.placed.partition_version > 1}
    if not partitions:
        return {}
    earlier: dict[str, list[PlacedFragment]] = {}
    for placed in earlier_fragments(connection, table, partitions):
        if placed.row in current:
            continue  # it is current: it was not replaced
        earlier.setdefault(placed.partition, []).append(placed)
    candidates: list[tuple[MemoRequest, PlacedFragment, str]] = []
    columns_of = _columns_of(unknown, components)
    for item in unknown:
        columns = columns_of[item.fingerprint]
        columns_set = frozenset(columns)
        for before in earlier.get(item.placed.partition, ()):
            if _same_location(before, item.placed) and before.fragment.digests.keys() >= columns_set:
                key = memo_key(item.fingerprint, before.fragment.digests, columns)
                candidates.append((item, before, key))
    known = find_memos(connection, [key for _, _, key in candidates])
    causes = {}
    for item, before, key in candidates:
        if key in known:
            causes[item.memo_key] = _changed_text(connection, table, item, before, columns_of[item.fingerprint])
    return causes


def _columns_of(wanted: Sequence[MemoRequest], components: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    fingerprints = {item.fingerprint for item in wanted}
    return {one: tuple(column.name for column in raw_columns(components[one])) for one in fingerprints}


def _same_location(before: PlacedFragment, now: PlacedFragment) -> bool:
    """Whether ``before`` was at the place of ``now``: the same part of a file, or the same position."""
    if before.fragment.path == now.fragment.path:
        return before.fragment.row_groups == now.fragment.row_groups
    return before.position == now.position


def _changed_text(
    connection: Connection, table: str, item: MemoRequest, before: PlacedFragment, columns: Sequence[str]
) -> Cause:
    now, then = item.placed.fragment.digests, before.fragment.digests
    changed = [name for name in columns if now[name] != then.get(name)]
    noun = "column" if len(changed) == 1 else "columns"
    views = [last_view(connection, table, name, now[name]) for name in changed if is_joined(name)]
    why = "; ".join(dict.fromkeys(view.cause for view in views if view is not None))
    return Cause("data_changed", f"data changed in {noun} {', '.join(changed)}" + (f": {why}" if why else ""))
