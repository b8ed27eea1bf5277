"""Delete events by deletion vectors of fragments, which reading for training applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import InputError
from warehouse.changes.outcome import AffectedFragment, Change
from warehouse.changes.publish import OverlayWriter, Replacement, commit_replacements
from warehouse.changes.rejoins import find_rejoins
from warehouse.changes.sources import EventKeys
from warehouse.changes.values import Source, parse_literal, plain_column, read_values, source_name
from warehouse.files.digests import column_digest
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import DELETED, PlacedFragment, current_fragments, get_table
from warehouse.tables.overlays import read_deletions
from warehouse.tables.parquet import check_columns
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Overlay, Table
from warehouse.tables.versions import ChangeNote
from warehouse.warehouse import Warehouse


def delete_rows(
    warehouse: Warehouse,
    table: str,
    *,
    where: Sequence[tuple[str, str]] = (),
    on: Sequence[str] = (),
    keys: Source = "",
    start: datetime | None = None,
    end: datetime | None = None,
    why: str = "",
    dry_run: bool = False,
) -> Change:
    """Delete events from the next version of a table on; files and memos do not change.

    Args:
        warehouse: the warehouse.
        table: the table.
        where: ``(column, value)`` conditions, all of which must hold; values are parsed by the column's type.
        on: key columns, instead of ``where``.
        keys: the file, or rows, with the keys of the events.
        start: the start of the first partition to search.
        end: the end of the range of partitions to search.
        why: the reason for the table's history.
        dry_run: change nothing.

    Raises :class:`InputError` unless exactly one of ``where`` and ``on`` with ``keys`` is given, and for an invalid value;
    :class:`~transforms.errors.DataError` for null or repeated keys, :class:`UnknownColumn`,
    :class:`~warehouse.errors.UnknownTable` and :class:`~warehouse.errors.CatalogBusy`.
    """
    if bool(where) == bool(on and keys) or bool(on) != bool(keys):
        raise InputError("events to delete must be chosen by conditions or by keys", where=f"table {table}",
                         allowed="--where COLUMN=VALUE, once or more; or --on KEY --keys FILE")  # fmt: skip
    with warehouse.catalog.read() as connection:
        known = get_table(connection, table)
        current = current_fragments(connection, table, start, end)
    storage = warehouse.storage
    chooser: _Where | _Keys
    chooser = _Where(storage, known, where) if where else _Keys(storage, known, on, keys)
    writer = OverlayWriter(storage, table)
    replacements, rows, before = [], 0, 0
    try:
        for placed in current:
            found = delete_chosen(storage, placed, chooser.chosen(placed), writer, dry_run)
            before += found[1]
            if found[0] is not None:
                replacements.append(found[0])
                rows += found[0].fragment.deleted_rows - placed.fragment.deleted_rows
    except BaseException:
        writer.discard()
        raise
    affected = [
        AffectedFragment(one.placed.fragment, replace(one.placed, fragment=one.fragment)) for one in replacements
    ]
    with warehouse.catalog.read() as connection:
        rejoins = find_rejoins(connection, table, affected)
    version = known.version
    if replacements and not dry_run:
        note = ChangeNote("delete", chooser.columns, rows, len(replacements), chooser.text, why)
        version = commit_replacements(warehouse, known, current, replacements, note)
    return Change(
        table=table,
        kind="delete",
        version=version,
        changed=bool(replacements),
        dry_run=dry_run,
        rows=rows,
        fragments=len(replacements),
        partitions=tuple(dict.fromkeys(one.placed.partition for one in replacements)),
        columns=chooser.columns,
        added_columns=(),
        unknown_keys=chooser.unknown_keys,
        notes=_notes(before, none=not before and not replacements),
        recompute=(),
        rejoins=rejoins,
    )


def _notes(before: int, *, none: bool) -> tuple[str, ...]:
    if none:
        return ("no event matches",)
    return (f"deleted before: {before:,} of these events",) if before else ()


def delete_chosen(
    storage: Storage, placed: PlacedFragment, chosen: pa.Array, writer: OverlayWriter, dry_run: bool
) -> tuple[Replacement | None, int]:
    """The fragment without the chosen events (None: unchanged), and how many of them were deleted before."""
    deleted, again = chosen, 0
    before = read_deletions(storage, placed.fragment) if chosen.true_count else None
    if before is not None:
        deleted = pc.or_(before, chosen)
        again = pc.and_(before, chosen).true_count
    count = deleted.true_count
    if count <= placed.fragment.deleted_rows:
        return None, again
    digest = column_digest(deleted)
    file = None if dry_run else writer.write(placed, {DELETED: deleted}, {DELETED: digest})
    vector = Overlay(DELETED, file.file.path if file else "-", digest)
    return Replacement(placed, replace(placed.fragment, deletions=vector, deleted_rows=count), file), again


class _Where:
    """Chooses events for which all conditions hold; a null equals no value."""

    unknown_keys = 0

    def __init__(self, storage: Storage, table: Table, conditions: Sequence[tuple[str, str]]) -> None:
        self._storage = storage
        self._values = [(name, parse_literal(text, table.column(name))) for name, text in conditions]
        self.columns = tuple(dict.fromkeys(name for name, _ in conditions))
        self.text = ", ".join(f"{name}={text}" for name, text in conditions)

    def chosen(self, placed: PlacedFragment) -> pa.BooleanArray:
        """True for every event that is chosen."""
        raw = read_raw(self._storage, placed.fragment, self.columns)
        chosen = pa.array([True]).take(pa.array([0] * raw.num_rows, pa.int64()))
        for name, value in self._values:
            column = plain_column(raw.column(name), value.type, f"{placed.fragment.path}, column {name}")
            chosen = pc.and_(chosen, pc.fill_null(pc.equal(column, value), False))
        return chosen


class _Keys:
    """Chooses events whose keys are in a file."""

    def __init__(self, storage: Storage, table: Table, on: Sequence[str], source: Source) -> None:
        values, path = read_values(storage, source), source_name(source)
        check_columns(on, values.schema.names, path)
        for name in on:
            table.column(name)
        self._keys = EventKeys(storage, table, values, on, path)
        self.columns, self.text = tuple(on), path

    @property
    def unknown_keys(self) -> int:
        """Keys without an event."""
        return self._keys.unmatched

    def chosen(self, placed: PlacedFragment) -> pa.BooleanArray:
        """True for every event that is chosen."""
        return self._keys.find(placed).is_valid()
