"""Overlay columns: values that arrive after their events, and corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, select

from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.changes.outcome import AffectedFragment, Change, find_recomputes
from warehouse.changes.publish import OverlayWriter, Replacement, commit_replacements
from warehouse.changes.sources import AlignedValues, KeyedValues, ValueSource
from warehouse.changes.values import GivenRows, Source, plain_column, source_name, table_type
from warehouse.files.digests import column_digest
from warehouse.tables.followed import FollowedLake, followed_lake
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table
from warehouse.tables.raw import read_raw
from warehouse.tables.table import ColumnSchema, Overlay, Table, absent_digest
from warehouse.tables.versions import ChangeNote, TableChangeKind
from warehouse.warehouse import Warehouse


def overlay_columns(
    warehouse: Warehouse,
    table: str,
    values: Source,
    *,
    on: Sequence[str] = (),
    columns: Sequence[str] = (),
    start: datetime | None = None,
    end: datetime | None = None,
    why: str = "",
    dry_run: bool = False,
) -> Change:
    """Give columns new values from the next version of a table on.

    Args:
        warehouse: the warehouse.
        table: the table.
        values: a file, or rows, to join by keys; without ``on`` a folder that mirrors the table's files, row by row.
        on: key columns; events without a row keep their values.
        columns: the columns to take, by default all but the keys; a column that the table does not have is added, null
            for events without a value.
        start: the start of the first partition to search.
        end: the end of the range of partitions to search.
        why: the reason for the table's history.
        dry_run: change nothing.

    Raises :class:`DataError` for null or repeated keys and other row counts, :class:`TypeMismatch`, :class:`UnknownColumn`,
    :class:`~warehouse.errors.UnknownTable`, and :class:`~warehouse.errors.CatalogBusy` if the table changed meanwhile. Nothing is
    changed then.
    """
    return _overlay(warehouse, "overlay", table, values, on, columns, (start, end), why, dry_run)


def fix_columns(
    warehouse: Warehouse,
    table: str,
    values: Source,
    *,
    why: str,
    on: Sequence[str] = (),
    columns: Sequence[str] = (),
    start: datetime | None = None,
    end: datetime | None = None,
    dry_run: bool = False,
) -> Change:
    """Correct existing columns, as :func:`overlay_columns` does, with a reason for the table's history.

    Raises :class:`InputError` without a reason, and :class:`UnknownColumn` for a column that the table does not have.
    """
    if not why.strip():
        raise InputError("--why must be a reason", where=f"table {table}", value=why, next_step="--why TEXT")
    return _overlay(warehouse, "fix", table, values, on, columns, (start, end), why, dry_run)


def _overlay(
    warehouse: Warehouse,
    kind: TableChangeKind,
    name: str,
    values: Source,
    on: Sequence[str],
    chosen: Sequence[str],
    between: tuple[datetime | None, datetime | None],
    why: str,
    dry_run: bool,
) -> Change:
    with warehouse.catalog.read() as connection:
        table = get_table(connection, name)
        current = current_fragments(connection, name, *between)
        lake = followed_lake(connection, name)
        in_files = stored_digests(connection, name, current)
    if not current:
        raise InputError("no partition starts in this range", where=f"table {name}", value=_range_text(between))
    source: ValueSource
    if on:
        source = KeyedValues.read(warehouse.storage, table, values, on, chosen)
    elif isinstance(values, GivenRows):
        raise InputError("values of a text file must be joined by a key", where=values.name,
                         next_step="--on KEY")  # fmt: skip
    else:
        source = AlignedValues.read(warehouse.storage, table, values, chosen, current)
    if kind == "fix":
        for column in source.columns:
            table.column(column)
    if lake is not None:
        _refuse_lake_columns(table, source, lake)
    run = OverlayRun(warehouse, table, source, in_files, OverlayWriter(warehouse.storage, name), dry_run)
    try:
        replacements, rows = run.all(current)
        affected = [
            AffectedFragment(one.placed.fragment, replace(one.placed, fragment=one.fragment)) for one in replacements
        ]
        with warehouse.catalog.read() as connection:
            recompute = find_recomputes(
                connection, warehouse.config, name, affected, warehouse.clock(),
                {column.name: column.arrow_type for column in source.added},
            )  # fmt: skip
    except BaseException:
        run.writer.discard()
        raise
    version = table.version
    if replacements and not dry_run:
        note = ChangeNote(kind, source.columns, rows, len(replacements), source_name(values), why)
        version = commit_replacements(warehouse, table, current, replacements, note, source.added)
    return Change(
        table=name,
        kind=kind,
        version=version,
        changed=bool(replacements),
        dry_run=dry_run,
        rows=rows,
        fragments=len(replacements),
        partitions=tuple(dict.fromkeys(one.placed.partition for one in replacements)),
        columns=source.columns,
        added_columns=tuple(column.name for column in source.added) if replacements else (),
        unknown_keys=source.unknown_keys,
        notes=_notes(table, source),
        recompute=recompute,
    )


def _refuse_lake_columns(table: Table, source: ValueSource, lake: FollowedLake) -> None:
    taken = {column.name for column in table.file_columns}.intersection(source.columns)
    if taken:
        raise InputError("columns of a lake must be changed in the lake: the next refresh brings its values", where=f"table {table.name}, {source.where}",
                         value=", ".join(sorted(taken)), allowed="columns that the lake does not have",
                         next_step=f"change {lake.location}, then headrace table add {table.name} {lake.location}")  # fmt: skip


def _notes(table: Table, source: ValueSource) -> tuple[str, ...]:
    if table.time_column in source.columns:
        return ("the time column changed, but every event stays in its partition",)
    return ()


def _range_text(between: tuple[datetime | None, datetime | None]) -> str:
    return " to ".join("-" if at is None else at.isoformat() for at in between)


def stored_digests(
    connection: Connection, table: str, current: Sequence[PlacedFragment]
) -> dict[str, Mapping[str, str]]:
    """The digests of the columns in the files of fragments with overlays, by fragment_id."""
    of = schema.fragments.c
    wanted = sorted({placed.fragment.fragment_id for placed in current if placed.fragment.overlays})
    found: dict[str, Mapping[str, str]] = {}
    for chunk in chunks(wanted):
        query = select(of.fragment_id, of.digests)
        query = query.where(of.table_name == table, of.overlays.is_(None), of.fragment_id.in_(chunk))
        found.update((row.fragment_id, row.digests) for row in connection.execute(query))
    return found


@dataclass(frozen=True)
class OverlayRun:
    """One overlay. Fragments are processed one at a time, so memory is that of a fragment's columns.

    ``stored_digests``: what :func:`stored_digests` returns.
    """

    warehouse: Warehouse
    table: Table
    source: ValueSource
    stored_digests: Mapping[str, Mapping[str, str]]
    writer: OverlayWriter
    dry_run: bool

    def all(self, current: Sequence[PlacedFragment]) -> tuple[list[Replacement], int]:
        """The fragments that change, and the number of events with a value."""
        replacements, rows = [], 0
        for placed in current:
            given = self.source.values_for(placed)
            if given is None:
                continue
            rows += len(given.rows) - given.rows.null_count
            made = self._replacement(placed, self._new_columns(placed, given.rows, given.values))
            if made is not None:
                replacements.append(made)
        return replacements, rows

    def _new_columns(self, placed: PlacedFragment, rows: pa.Array, values: pa.Table) -> dict[str, pa.Array]:
        """The new columns: ``values`` at ``rows``, and the previous value if a row is null."""
        known = [name for name in self.source.columns if name not in {column.name for column in self.source.added}]
        before = read_raw(self.warehouse.storage, placed.fragment, known) if known and rows.null_count else None
        made = {}
        for name in self.source.columns:
            wanted = table_type(self._schema(name), values.column(name).type)
            made[name] = plain_column(values.column(name), wanted, f"{self.source.where}, column {name}").take(rows)
            if before is not None and name in known:
                old = plain_column(before.column(name), wanted, f"{placed.fragment.path}, column {name}")
                made[name] = _choose(rows.is_valid(), made[name], old)
        return made

    def _replacement(self, placed: PlacedFragment, columns: Mapping[str, pa.Array]) -> Replacement | None:
        fragment = placed.fragment
        digests, overlays = dict(fragment.digests), {one.column: one for one in fragment.overlays}
        for column in self.source.added:
            digests[column.name] = absent_digest(column.arrow_type, fragment.rows)
            overlays[column.name] = Overlay(column.name, "", digests[column.name], column.arrow_type)
        checksums = {name: _checksum(self._schema(name), array) for name, array in columns.items()}
        changed = [name for name in columns if checksums[name] != digests[name]]
        if not changed:
            return None
        stored = self.stored_digests.get(fragment.fragment_id, fragment.digests)
        new: dict[str, pa.Array] = {}
        for name in changed:
            digests[name], column = checksums[name], self._schema(name)
            if _is_absent(column, columns[name]):
                overlays[name] = Overlay(name, "", checksums[name], column.arrow_type)
            elif checksums[name] == stored.get(name):
                overlays.pop(name, None)  # the file holds these values
            else:
                new[name] = columns[name]
        known = {name: checksums[name] for name in new}
        file = self.writer.write(placed, new, known) if new and not self.dry_run else None
        overlays |= {name: Overlay(name, file.file.path if file else "-", checksum) for name, checksum in known.items()}
        ordered = tuple(overlays[name] for name in sorted(overlays))
        return Replacement(placed, replace(fragment, digests=digests, overlays=ordered), file)

    def _schema(self, name: str) -> ColumnSchema:
        found = next((column for column in self.source.added if column.name == name), None)
        return found or self.table.column(name)


def _is_absent(column: ColumnSchema, array: pa.Array) -> bool:
    """Whether an overlay-only column has no values: all nulls are the same content, with one digest."""
    return column.overlay_only and array.null_count == len(array)


def _checksum(column: ColumnSchema, array: pa.Array) -> str:
    return absent_digest(column.arrow_type, len(array)) if _is_absent(column, array) else column_digest(array)


def _choose(named: pa.Array, new: pa.Array, old: pa.Array) -> pa.Array:
    """``new`` where ``named``, else ``old``, for any type."""
    positions = pa.array(np.arange(len(new)))
    return pa.concat_arrays([new, old]).take(pc.if_else(named, positions, pc.add(positions, len(new))))
