"""Publishing joined columns: files first, then one transaction with the next version of the table.

Values that a fragment has already make no version: only that they are those of a further view is noted, so nothing that is computed from them is
computed again. A worker that is killed leaves the old version and files without a reference, which ``gc`` deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlalchemy import Connection

from warehouse.catalog import schema
from warehouse.catalog.catalog import insert_absent
from warehouse.changes.publish import OverlayWriter, Replacement, WrittenOverlay, apply_replacements
from warehouse.files.digests import column_digest
from warehouse.models.joined_columns import JoinedRecord, forget_failure
from warehouse.models.joined_types import values_type
from warehouse.tables.evolution.evolved import EvolvedSchema
from warehouse.tables.evolution.refusals import HeldColumns
from warehouse.tables.manifests import PlacedFragment, current_fragments, find_table
from warehouse.tables.table import ColumnSchema, Fragment, Overlay, Table
from warehouse.tables.versions import ChangeNote
from warehouse.warehouse import Warehouse

_WRITES_AT_ONCE = 4


@dataclass(frozen=True)
class ComputedColumn:
    """The values of a joined column over a fragment.

    Attributes:
        placed: The fragment.
        record: The column.
        view: The digest of what they were computed from.
        values: Value i of event i; None: those that the fragment has.
        changed: How many events have other values than before; None: there were none.
        cause: Why they were computed, as a sentence.
    """

    placed: PlacedFragment
    record: JoinedRecord
    view: str
    values: pa.Array | None
    changed: int | None
    cause: str


def publish_columns(warehouse: Warehouse, table: str, other: Table, computed: Sequence[ComputedColumn]) -> int:
    """Publish computed columns of a table in one version; returns how many fragments have new values.

    ``other``: the table that they are joined from, as it was read. Fragments that are gone meanwhile are left out.
    """
    writer = OverlayWriter(warehouse.storage, table)
    checksums = [_checksum(one) for one in computed]
    by_fragment: defaultdict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(computed):
        if one.placed.fragment.digests.get(one.record.column) != checksums[at]:
            by_fragment[one.placed.row].append(at)
    new = {row: {computed[at].record.column: checksums[at] for at in places} for row, places in by_fragment.items()}

    def written(row: int) -> WrittenOverlay:
        places = by_fragment[row]
        values = {computed[at].record.column: computed[at].values for at in places}
        return writer.write(computed[places[0]].placed, values, new[row])

    try:
        with ThreadPoolExecutor(_WRITES_AT_ONCE) as pool:  # most of the time they wait for the disk
            files = dict(zip(by_fragment, pool.map(written, by_fragment), strict=True))
    except BaseException:
        writer.discard()
        raise
    seen = [
        {"view": one.view, "table_name": table, "column_name": one.record.column, "checksum": checksum, "other_version": other.version,
         "computed_at": warehouse.clock(), "events": one.placed.fragment.rows, "changed_events": one.changed, "cause": one.cause}
        for one, checksum in zip(computed, checksums, strict=True)
    ]  # fmt: skip
    columns = {one.record.column: one.record for one in computed}

    def publish(connection: Connection) -> int:
        known = find_table(connection, table)
        if known is None:
            return 0
        published = _publish(connection, warehouse, known, other, columns, files, new) if files else 0
        insert_absent(connection, schema.joined_views, seen)
        for name in columns:
            forget_failure(connection, table, name)
        return published

    return warehouse.catalog.run(publish)


def _checksum(computed: ComputedColumn) -> str:
    if computed.values is None:
        return computed.placed.fragment.digests[computed.record.column]
    return column_digest(computed.values)


def _publish(
    connection: Connection,
    warehouse: Warehouse,
    table: Table,
    other: Table,
    columns: Mapping[str, JoinedRecord],
    files: Mapping[int, WrittenOverlay],
    new: Mapping[int, Mapping[str, str]],
) -> int:
    current = current_fragments(connection, table.name)
    replacements = [
        Replacement(placed, _overlaid(placed, files[placed.row], new[placed.row]), files[placed.row])
        for placed in current
        if placed.row in files
    ]
    if not replacements:
        return 0
    known = {column.name for column in table.columns}
    added = tuple(
        ColumnSchema(name, str(values_type(one.definition)), overlay_only=True)
        for name, one in sorted(columns.items())
        if name not in known
    )
    evolved = EvolvedSchema(table.name, "overlay", table.columns, (*table.columns, *added), {}, (), HeldColumns([]))
    rows = sum(one.placed.fragment.rows for one in replacements)
    note = ChangeNote("overlay", tuple(sorted(columns)), rows, len(replacements), f"table {other.name}, version {other.version}",
                      "joined columns", from_table=(other.name, other.version))  # fmt: skip
    apply_replacements(connection, warehouse, table, current, replacements, note, evolved)
    return len(replacements)


def _overlaid(placed: PlacedFragment, file: WrittenOverlay, checksums: Mapping[str, str]) -> Fragment:
    fragment = placed.fragment
    overlays = {one.column: one for one in fragment.overlays}
    overlays |= {name: Overlay(name, file.file.path, checksum) for name, checksum in checksums.items()}
    ordered = tuple(overlays[name] for name in sorted(overlays))
    return replace(fragment, digests={**fragment.digests, **checksums}, overlays=ordered)
