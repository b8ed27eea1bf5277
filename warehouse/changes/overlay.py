"""Overlay columns: values that arrive after their events, and corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import InputError
from transforms.joins.column_names import is_joined
from warehouse.changes.outcome import AffectedFragment, Change, find_recomputes
from warehouse.changes.publish import OverlayWriter, Replacement, commit_replacements
from warehouse.changes.rejoins import find_rejoins
from warehouse.changes.sources import AlignedValues, KeyedValues, ValueSource
from warehouse.changes.values import GivenRows, Source, plain_column, source_name, table_type
from warehouse.files.digests import column_digest
from warehouse.tables.evolution.evolved import EvolvedSchema, models_reading
from warehouse.tables.evolution.fragment_schema import FragmentSchema
from warehouse.tables.evolution.known_values import known_digest
from warehouse.tables.evolution.refusals import HeldColumns
from warehouse.tables.evolution.schema import DriftAdvice
from warehouse.tables.followed import FollowedLake, followed_lake
from warehouse.tables.manifests import PlacedFragment, current_fragments, file_digests, get_table
from warehouse.tables.overflow import refuse_overflow
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

    Raises :class:`DataError` for null or repeated keys and other row counts, :class:`TypeMismatch`,
    :class:`~warehouse.errors.SchemaDrift` for values that differ in meaning from the column, :class:`UnknownColumn`,
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
        stored = file_digests(connection, name, (placed.fragment for placed in current))
    if not current:
        raise InputError("no partition starts in this range", where=f"table {name}", value=_range_text(between))
    source: ValueSource
    advice = DriftAdvice.of_table(name, "overlay", models_reading(warehouse.catalog, name))
    if on:
        source = KeyedValues.read(warehouse.storage, table, values, on, chosen, advice)
    elif isinstance(values, GivenRows):
        raise InputError("values of a text file must be joined by a key", where=values.name, next_step="--on KEY")
    else:
        source = AlignedValues.read(warehouse.storage, table, values, chosen, current, advice)
    joined = [column for column in source.columns if is_joined(column)]
    if joined:
        raise InputError("a joined column must follow the table that it is joined from, and be given no values", where=f"table {name}, {source.where}",
                         value=", ".join(joined), next_step="correct that table; headrace work computes the column again")  # fmt: skip
    if kind == "fix":
        for column in source.columns:
            table.column(column)
    if lake is not None:
        _refuse_lake_columns(table, source, lake)
    evolved = _evolved(warehouse, table, source)
    run = OverlayRun(warehouse, table, source, stored, OverlayWriter(warehouse.storage, name), dry_run)
    try:
        replacements, rows = run.all(current)
        affected = [
            AffectedFragment(one.placed.fragment, replace(one.placed, fragment=one.fragment)) for one in replacements
        ]
        with warehouse.catalog.read() as connection:
            recompute = find_recomputes(connection, warehouse.config, name, affected, warehouse.clock(), source.after)
            rejoins = find_rejoins(connection, name, affected)
    except BaseException:
        run.writer.discard()
        raise
    version = table.version
    if replacements and not dry_run:
        note = ChangeNote(kind, source.columns, rows, len(replacements), source_name(values), why)
        version = commit_replacements(warehouse, table, current, replacements, note, evolved)
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
        added_columns=tuple(one.column for one in evolved.changes if not one.before) if replacements else (),
        widened_columns=tuple(one for one in evolved.changes if one.before) if replacements else (),
        unknown_keys=source.unknown_keys,
        notes=_notes(table, source),
        recompute=recompute,
        rejoins=rejoins,
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


def _evolved(warehouse: Warehouse, table: Table, source: ValueSource) -> EvolvedSchema:
    """The table's schema with the values of a change. Raises :class:`SchemaDrift` if a live model could not read it."""
    types = {column.name: column.arrow_type for column in table.columns}
    widened = {one.name: source.where for one in source.after if types.get(one.name, one.arrow_type) != one.arrow_type}
    placed = warehouse.catalog.query(lambda connection: current_fragments(connection, table.name)) if widened else ()
    held = HeldColumns([(one.partition, one.fragment) for one in placed])
    evolved = EvolvedSchema(table.name, "overlay", table.columns, source.after, widened, (), held)
    warehouse.catalog.query(evolved.check)
    refuse_overflow(warehouse.storage, evolved, (one.fragment for one in placed))
    return evolved


@dataclass(frozen=True)
class OverlayRun:
    """One overlay. Fragments are processed one at a time, so memory is that of a fragment's columns.

    ``file_digests``: what :func:`~warehouse.tables.manifests.file_digests` returns.
    """

    warehouse: Warehouse
    table: Table
    source: ValueSource
    file_digests: Mapping[str, Mapping[str, str]]  # of fragments with overlays, by fragment_id
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
        had = {column.name for column in self.table.columns}
        known = [name for name in self.source.columns if name in had]
        before = read_raw(self.warehouse.storage, placed.fragment, known) if known and rows.null_count else None
        made = {}
        for name in self.source.columns:
            wanted = table_type(self._schema[name], values.column(name).type)
            made[name] = plain_column(values.column(name), wanted, f"{self.source.where}, column {name}").take(rows)
            if before is not None and name in known:
                old = plain_column(before.column(name), wanted, f"{placed.fragment.path}, column {name}")
                made[name] = _choose(rows.is_valid(), made[name], old)
        return made

    def _replacement(self, placed: PlacedFragment, columns: Mapping[str, pa.Array]) -> Replacement | None:
        fragment = FragmentSchema(self.source.after).of(placed.fragment)
        stored = self.file_digests.get(fragment.fragment_id, placed.fragment.digests)
        digests, overlays = dict(fragment.digests), {one.column: one for one in fragment.overlays}
        checksums = {name: self._checksum(name, array, digests[name], stored) for name, array in columns.items()}
        changed = [name for name in columns if checksums[name] != digests[name]]
        if not changed:
            return None
        new: dict[str, pa.Array] = {}
        for name in changed:
            digests[name], column = checksums[name], self._schema[name]
            if _is_absent(name, columns[name], stored):
                overlays[name] = Overlay(name, "", checksums[name], column.first_type)
            elif checksums[name] == stored.get(name):
                overlays.pop(name, None)  # the file holds these values
            else:
                new[name] = columns[name]
        known = {name: checksums[name] for name in new}
        file = self.writer.write(placed, new, known) if new and not self.dry_run else None
        overlays |= {name: Overlay(name, file.file.path if file else "-", checksum) for name, checksum in known.items()}
        ordered = tuple(overlays[name] for name in sorted(overlays))
        return Replacement(placed, replace(fragment, digests=digests, overlays=ordered), file)

    def _checksum(self, name: str, array: pa.Array, current: str, stored: Mapping[str, str]) -> str:
        """The digest of new values; that of the current ones, or of the file's, if they are equal in another type."""
        column = self._schema[name]
        if _is_absent(name, array, stored):
            return absent_digest(column.first_type, len(array))
        known, own = {current, stored.get(name, "")}, column_digest(array)
        if own in known:
            return own
        types = (*column.stored_types, column.arrow_type) if column.stored_types else ()
        return known_digest(array, types, known) or own

    @cached_property
    def _schema(self) -> Mapping[str, ColumnSchema]:
        return {column.name: column for column in self.source.after}


def _is_absent(name: str, array: pa.Array, stored: Mapping[str, str]) -> bool:
    """Whether a column that the file has no values of has none at all: all nulls are the same content, with one digest."""
    return name not in stored and array.null_count == len(array)


def _choose(named: pa.Array, new: pa.Array, old: pa.Array) -> pa.Array:
    """``new`` where ``named``, else ``old``, for any type."""
    positions = pa.array(np.arange(len(new)))
    return pa.concat_arrays([new, old]).take(pc.if_else(named, positions, pc.add(positions, len(new))))
