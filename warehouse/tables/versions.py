"""Writing the next version of a table: its changed fragments, manifests and change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_numbered
from warehouse.errors import CatalogBusy
from warehouse.lineage.recording import record_table_version
from warehouse.tables.manifests import PlacedFragment, columns_document
from warehouse.tables.merges import follow_changes
from warehouse.tables.partitions import partition_range
from warehouse.tables.table import ColumnSchema, Fragment, Overlay
from warehouse.warehouse import Warehouse

TableChangeKind = Literal["register", "append", "overlay", "fix", "delete", "drop"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A fragment in a manifest: its row in the catalog, and its deletions."""

    fragment: int
    deletions: Overlay | None = None
    deleted_rows: int = 0

    @classmethod
    def of(cls, placed: PlacedFragment) -> Entry:
        """The manifest entry of a fragment, deletions applied."""
        return cls(placed.row, placed.fragment.deletions, placed.fragment.deleted_rows)


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """The change that made a version of a table; ``rows`` and ``fragments`` are those that it affected.

    ``schema``: the columns of the table from this version on, if they changed. ``from_table``: the table that the values are computed from, with
    its version.
    """

    kind: TableChangeKind
    columns: tuple[str, ...]
    rows: int
    fragments: int
    source: str
    why: str
    schema: tuple[ColumnSchema, ...] | None = None
    from_table: tuple[str, int] | None = None


def check_version(connection: Connection, table: str, expected: int | None, where: str) -> None:
    """Raise :class:`CatalogBusy` unless ``table`` has the expected version, which is None for an unknown or dropped table."""
    of = schema.tables.c
    row = connection.execute(select(of.version, of.dropped_at).where(of.name == table).with_for_update()).first()
    if (None if row is None or row.dropped_at is not None else row.version) != expected:
        raise CatalogBusy("another process registered or changed this table meanwhile", where=where, value=table,
                          next_step="run the command again")  # fmt: skip


def write_fragments(connection: Connection, table: str, fragments: Iterable[tuple[str, Fragment]]) -> tuple[int, ...]:
    """Insert rows of ``fragments``, each with its partition, and return their ids, in order."""
    return insert_numbered(connection, schema.fragments, [_fragment_row(table, *placed) for placed in fragments])


def _fragment_row(table: str, partition: str, fragment: Fragment) -> dict[str, Any]:
    absent = {overlay.column for overlay in fragment.overlays if overlay.is_absent}
    overlays = {overlay.column: overlay.path for overlay in fragment.overlays if not overlay.is_absent}
    return {
        "fragment_id": fragment.fragment_id,
        "table_name": table,
        "partition": partition,
        "path": fragment.path,
        "row_groups": list(fragment.row_groups),
        "rows": fragment.rows,
        "size_bytes": fragment.size_bytes,
        "digests": {column: found for column, found in fragment.digests.items() if column not in absent},
        "overlays": overlays or None,
        "levels": dict(fragment.levels) or None,
        "digest_types": dict(fragment.digest_types) or None,
    }


def write_manifests(
    connection: Connection, table: str, table_version: int, partitions: Mapping[str, Sequence[Entry]]
) -> None:
    """Write the next version of these partitions; one without entries is removed. Older versions do not change.

    Merged fragments follow: :func:`~warehouse.tables.merges.follow_changes`.
    """
    if not partitions:
        return
    of = schema.manifests
    mine = of.c.table_name == table
    query = select(of.c.partition, func.max(of.c.version).label("version")).where(mine).group_by(of.c.partition)
    latest = {row.partition: row.version for row in connection.execute(query)}
    for keys in chunks(sorted(partitions)):
        connection.execute(update(of).where(mine, of.c.partition.in_(keys)).values(current=False))
    manifests = []
    for key in partitions:
        start, end = partition_range(key)
        manifests.append({"table_name": table, "partition": key, "version": latest.get(key, 0) + 1,
                          "table_version": table_version, "start_at": start.timestamp(), "end_at": end.timestamp(),
                          "current": True})  # fmt: skip
    members = []
    for number, entries in zip(insert_numbered(connection, of, manifests), partitions.values(), strict=True):
        members += [_member(number, position, entry) for position, entry in enumerate(entries)]
    if members:
        connection.execute(insert(schema.manifest_fragments), members)
    follow_changes(connection, table)


def _member(manifest: int, position: int, entry: Entry) -> dict[str, Any]:
    vector = entry.deletions
    return {
        "manifest": manifest,
        "position": position,
        "fragment": entry.fragment,
        "deletions": None if vector is None else vector.path,
        "deletions_checksum": None if vector is None else vector.checksum,
        "deleted_rows": None if vector is None else entry.deleted_rows,
    }


def record_change(
    connection: Connection, warehouse: Warehouse, table: str, version: int, note: ChangeNote, now: float
) -> int:
    """Record the change that made this version and return its row.

    Models of other tables that wait for tasks over this one's data are matched again: an equal copy of it may be gone.
    """
    waits, models = schema.waits.c, schema.models
    waiting = select(waits.model).where(waits.table_name == table)
    others = (models.c.id.in_(waiting), models.c.table_name != table, models.c.live.is_(True))
    connection.execute(update(models).where(*others).values(table_version=-1))
    row = {"table_name": table, "table_version": version, "kind": note.kind, "columns": list(note.columns),
           "rows": note.rows, "fragments": note.fragments, "source": note.source, "why": note.why,
           "created_at": now, "schema": None if note.schema is None else columns_document(note.schema)}  # fmt: skip
    (number,) = insert_numbered(connection, schema.changes, [row])
    record_table_version(connection, warehouse, table, version, note.kind, note.source, note.rows, now, note.from_table)
    return number
