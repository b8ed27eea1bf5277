"""Append late rows as new immutable files, so that only the new rows are computed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
from sqlalchemy import select

from transforms.arrays import Ints
from transforms.errors import DataError, InputError, TypeMismatch
from warehouse.catalog import schema
from warehouse.changes.outcome import AffectedFragment, Change, Recompute, Rejoin, find_recomputes
from warehouse.changes.publish import NewFile, apply_new_files
from warehouse.changes.rejoins import find_rejoins
from warehouse.changes.unique import unseen_rows
from warehouse.changes.values import (
    GivenRows,
    Source,
    SourcePart,
    joined_parts,
    plain_column,
    read_parts,
    source_name,
    table_type,
)
from warehouse.files.digests import table_digests
from warehouse.storage.stored_file import ListedFile
from warehouse.tables.evolution.evolved import EvolvedSchema, FileSchema, evolved_schema
from warehouse.tables.evolution.fragment_schema import FragmentSchema
from warehouse.tables.evolution.known_values import KnownValues
from warehouse.tables.fragment_sizes import fragment_sizes
from warehouse.tables.hive_levels import is_side_file, parse_levels, spell_like
from warehouse.tables.manifests import PlacedFragment, current_fragments, file_digests, get_table
from warehouse.tables.overflow import check_overflow, overflowing_types, refuse_overflow
from warehouse.tables.parquet import OnInvalidText, invalid_text_rule, read_fragments
from warehouse.tables.partitions import partition_range, refuse_overlaps
from warehouse.tables.raw import read_raw
from warehouse.tables.scan import refuse_half_imports, relative_path
from warehouse.tables.table import ColumnSchema, Fragment, Table
from warehouse.tables.versions import ChangeNote
from warehouse.tables.widening import widest_text
from warehouse.warehouse import Warehouse

ROW_GROUP_ROWS = 131_072
_HOUR_US = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def append_rows(
    warehouse: Warehouse,
    table: str,
    files: Sequence[Source],
    *,
    partition: str = "",
    create: bool = False,
    why: str = "",
    dry_run: bool = False,
    invalid_text: str = "refuse",
    unique_by: Sequence[str] = (),
) -> Change:
    """Append rows to a table as fragments of their own.

    The name of a new file depends on its content, so rows that were appended before are left out and reported; if no row
    remains, that is an error.

    Args:
        warehouse: the warehouse.
        table: the table.
        files: Parquet files, or rows in memory.
        partition: the partition of all rows; by default each row goes to the partition of its time.
        create: create missing partitions.
        why: the reason for the table's history.
        dry_run: change nothing.
        invalid_text: ``refuse`` text that is not UTF-8, or ``replace`` invalid bytes by U+FFFD.
        unique_by: key columns; a row is left out if its key is in its partition, deleted events included, or in an
            earlier row. A key with a null equals no other.

    Raises :class:`~transforms.errors.InvalidText`, :class:`InputError` for rows that the table has, :class:`DataError` for times
    without a partition, :class:`~warehouse.errors.SchemaDrift`, :class:`~warehouse.errors.UnknownTable`,
    :class:`~warehouse.errors.MissingFile` and :class:`~warehouse.errors.CatalogBusy`. Nothing is registered then.
    """
    with warehouse.catalog.read() as connection:
        known = get_table(connection, table)
        current = current_fragments(connection, table)
        paths = set(connection.execute(select(schema.files.c.path).where(schema.files.c.table_name == table)).scalars())
    refuse_half_imports(warehouse.storage, known.root)
    replaced: list[str] = []
    files = _without_side_files(files)
    names = ", ".join(map(source_name, files))
    parts = _read(warehouse, known, files, invalid_text_rule(invalid_text, replaced))
    split = dict(_split(known, joined_parts(parts), current, partition, create, names))
    evolved = _evolved(warehouse, known, parts, split, current, names)
    split, repeated = _without_known_keys(warehouse, known, evolved, split, current, unique_by)
    if not split:
        return _nothing_new(known, dry_run, _repeated_note(repeated, unique_by))
    values = _known_values(warehouse, known, evolved, current)
    folders = _PartitionFolders(known.root, current)
    late = [_Late(folders.of(key), key, part, values, warehouse.config.read_threads) for key, part in split.items()]
    new = _missing_parts(late, current, paths)
    again = _row_count(late) - _row_count(new)
    if not new:
        raise InputError("the rows must not be in the table yet", where=names, value=f"rows: {again:,}",
                         next_step=f"headrace table history {table} shows when they were appended")  # fmt: skip
    placed_files = [] if dry_run else [one.write(warehouse) for one in new]
    fragments = [one.dry_run_fragments() for one in new] if dry_run else [found for _, found in placed_files]
    recompute, rejoins = _recomputes(warehouse, known, new, fragments, evolved)
    version, small = known.version, ""
    if not dry_run:
        version = _commit(warehouse, known, current, new, placed_files, evolved, names, why)
        with warehouse.catalog.read() as connection:
            small = fragment_sizes(connection, table).warning(table)
    notes = (*_repeated_note(repeated, unique_by), *_notes(again, replaced), *([small] if small else []))
    return replace(
        _nothing_new(known, dry_run, notes),
        version=version,
        changed=True,
        rows=_row_count(new),
        fragments=sum(map(len, fragments)),
        partitions=tuple(one.partition for one in new),
        recompute=recompute,
        rejoins=rejoins,
        added_columns=tuple(one.column for one in evolved.changes if not one.before),
        widened_columns=tuple(one for one in evolved.changes if one.before),
    )


def _without_known_keys(
    warehouse: Warehouse,
    table: Table,
    evolved: EvolvedSchema,
    split: dict[str, pa.Table],
    current: Sequence[PlacedFragment],
    unique_by: Sequence[str],
) -> tuple[dict[str, pa.Table], int]:
    """The rows of each partition whose key is new in it, and the number of rows that are left out."""
    if not unique_by:
        return split, 0
    table, columns = replace(table, columns=evolved.columns), FragmentSchema(evolved.columns)
    types = {name: _key_type(table, name, next(iter(split.values()))) for name in unique_by}
    kept: dict[str, pa.Table] = {}
    for partition, rows in split.items():
        known = []
        for placed in current:
            if placed.partition == partition:
                raw = read_raw(warehouse.storage, columns.of(placed.fragment), list(types))
                known.append(_key_columns(raw, types, placed.fragment.path))
        unseen = unseen_rows(_key_columns(rows, types, partition), known)
        if unseen.any():
            kept[partition] = rows if unseen.all() else rows.filter(pa.array(unseen))
    before, after = (sum(rows.num_rows for rows in parts.values()) for parts in (split, kept))
    return kept, before - after


def _key_type(table: Table, name: str, rows: pa.Table) -> pa.DataType:
    column = table.column(name)
    if name not in rows.column_names:
        raise InputError("a key of new rows must be a column of their files", where=f"--unique-by, table {table.name}",
                         value=name, allowed=", ".join(rows.column_names))  # fmt: skip
    kind = table_type(column, rows.column(name).type)
    if pat.is_nested(kind):
        raise InputError(
            "a key must be a number, a text or a time", where=f"--unique-by, column {name}", value=str(kind)
        )
    return kind


def _key_columns(rows: pa.Table, types: Mapping[str, pa.DataType], where: str) -> dict[str, pa.Array]:
    return {name: plain_column(rows.column(name), kind, f"{where}, column {name}") for name, kind in types.items()}


def _repeated_note(repeated: int, unique_by: Sequence[str]) -> tuple[str, ...]:
    if not repeated:
        return ()
    return (
        f"rows left out, since their partition or an earlier row has the same {', '.join(unique_by)}: {repeated:,}",
    )


def _nothing_new(table: Table, dry_run: bool, notes: tuple[str, ...]) -> Change:
    return Change(table=table.name, kind="append", version=table.version, changed=False, dry_run=dry_run, rows=0,
                  fragments=0, partitions=(), columns=(), added_columns=(), unknown_keys=0, notes=notes,
                  recompute=())  # fmt: skip


def _missing_parts(late: Sequence[_Late], current: Sequence[PlacedFragment], paths: Set[str]) -> list[_Late]:
    """The parts that no file of the table holds."""
    contents = {(placed.partition, placed.fragment.fragment_id) for placed in current}
    return [one for one in late if one.path not in paths and (one.partition, one.identity) not in contents]


def _row_count(late: Sequence[_Late]) -> int:
    return sum(one.rows.num_rows for one in late)


def _recomputes(
    warehouse: Warehouse,
    table: Table,
    new: Sequence[_Late],
    fragments: Sequence[tuple[Fragment, ...]],
    evolved: EvolvedSchema,
) -> tuple[tuple[Recompute, ...], tuple[Rejoin, ...]]:
    columns = FragmentSchema(evolved.columns)
    affected = [
        AffectedFragment(None, _placed(one, columns.of(fragment)))
        for one, found in zip(new, fragments, strict=True)
        for fragment in found
    ]
    with warehouse.catalog.read() as connection:
        recompute = find_recomputes(
            connection, warehouse.config, table.name, affected, warehouse.clock(), evolved.columns
        )
        return recompute, find_rejoins(connection, table.name, affected)


def _notes(again: int, replaced: Sequence[str]) -> tuple[str, ...]:
    left_out = (f"left out, since the table has them already: {again:,} of the rows",) if again else ()
    return left_out + tuple(f"written with U+FFFD for what is not UTF-8: {place} is the first" for place in replaced)


class _Late:
    """The late rows of one partition, and their file, whose name depends on their content."""

    def __init__(self, folder: str, partition: str, rows: pa.Table, known: KnownValues, threads: int) -> None:
        self.partition, self.rows, self._known = partition, rows, known
        self._stored = known.stored(rows, table_digests(rows, threads))
        self.identity = self._stored.identity
        self.path = f"{folder}/late-{self.identity[:24]}.parquet"

    def dry_run_fragments(self) -> tuple[Fragment, ...]:
        """The rows as one fragment of a file that is not written."""
        stored = self._stored
        return (Fragment(stored.identity, self.path, (), self.rows.num_rows, 0, stored.digests,
                         digest_types=stored.digest_types),)  # fmt: skip

    def write(self, warehouse: Warehouse) -> tuple[ListedFile, tuple[Fragment, ...]]:
        """Write the file and read its fragments."""
        storage, config = warehouse.storage, warehouse.config

        def write(file: Any) -> None:
            pq.write_table(self.rows, file, row_group_size=ROW_GROUP_ROWS, compression="zstd")

        storage.write_atomic(self.path, write)
        listed = storage.list(self.path.rpartition("/")[0])
        stored = next(file for file in listed if file.path == self.path)
        return stored, read_fragments(storage, self.path, config.fragment_rows, config.read_threads, known=self._known)


def _placed(late: _Late, fragment: Fragment) -> PlacedFragment:
    """A fragment in its partition, before it is in a manifest."""
    return PlacedFragment(0, late.partition, 0, *partition_range(late.partition), 0, fragment)


def _commit(
    warehouse: Warehouse,
    table: Table,
    current: Sequence[PlacedFragment],
    new: Sequence[_Late],
    placed_files: Sequence[tuple[ListedFile, tuple[Fragment, ...]]],
    evolved: EvolvedSchema,
    source: str,
    why: str,
) -> int:
    note = ChangeNote("append", (), _row_count(new), sum(len(found) for _, found in placed_files), source, why)
    files = [NewFile(one.partition, *placed) for one, placed in zip(new, placed_files, strict=True)]
    return warehouse.catalog.run(
        lambda connection: apply_new_files(connection, warehouse, table, current, files, note, evolved)
    )


def _without_side_files(files: Sequence[Source]) -> list[Source]:
    """The files that hold rows. Raises :class:`InputError` if all are side files of writers, as a shell's pattern may name."""
    kept = [file for file in files if not is_side_file(posixpath.basename(source_name(file).rstrip("/")))]
    if not kept:
        raise InputError("the files must have rows to append", where=", ".join(map(source_name, files)), value="side files of writers",
                         allowed="names that begin with neither _ nor .", next_step="rename the files")  # fmt: skip
    return kept


def _read(
    warehouse: Warehouse, table: Table, files: Sequence[Source], on_invalid_text: OnInvalidText
) -> list[SourcePart]:
    """The rows of all files. Raises :class:`~warehouse.errors.SchemaDrift` for a column that differs in meaning from the table's."""
    parts = []
    for file in files:
        for part in read_parts(warehouse.storage, file, on_invalid_text):
            rows = _as_stored(table, part.rows, part.path) if isinstance(file, GivenRows) else part.rows
            parts.append(SourcePart(part.path, rows))
    found = [FileSchema(part.path, "", _schema_of(part.rows)) for part in parts]
    evolved_schema(warehouse.catalog, table, table.name, "append", found, table.time_column)
    if not sum(part.rows.num_rows for part in parts):
        raise InputError("the files must have rows to append", where=", ".join(map(source_name, files)), value="0 rows",
                         next_step="check the program that wrote the files")  # fmt: skip
    return parts


def _schema_of(rows: pa.Table) -> tuple[ColumnSchema, ...]:
    return tuple(ColumnSchema(field.name, str(field.type)) for field in rows.schema)


def _evolved(
    warehouse: Warehouse,
    table: Table,
    parts: Sequence[SourcePart],
    split: Mapping[str, pa.Table],
    current: Sequence[PlacedFragment],
    where: str,
) -> EvolvedSchema:
    """The table's columns with those of the rows of each partition."""
    columns = [_schema_of(rows) for rows in split.values()]
    found = [FileSchema(where, key, one) for key, one in zip(split, columns, strict=True)]
    held = [(placed.partition, placed.fragment) for placed in current]
    evolved = evolved_schema(warehouse.catalog, table, table.name, "append", found, table.time_column, held)
    refuse_overflow(warehouse.storage, evolved, (placed.fragment for placed in current))
    types = overflowing_types(evolved.columns)
    for part in parts:
        check_overflow(part.rows, types, part.path, f"table {table.name!r}")
    return evolved


def _known_values(
    warehouse: Warehouse, table: Table, evolved: EvolvedSchema, current: Sequence[PlacedFragment]
) -> KnownValues:
    """The values of the table, by which rows are recognized that it has already, also in other types."""
    fragments = [placed.fragment for placed in current]
    with warehouse.catalog.read() as connection:
        stored = file_digests(connection, table.name, fragments)
    return KnownValues.of(evolved.columns, fragments, stored)


class _PartitionFolders:
    """The folders of a table's partitions, spelled as those of its files are: ``ds=2026-03-01``."""

    def __init__(self, root: str, current: Sequence[PlacedFragment]) -> None:
        self._root = root.rstrip("/")
        parsed = (
            parse_levels(posixpath.dirname(relative_path(placed.fragment.path, self._root))) for placed in current
        )
        self._known = {levels.key: levels for levels in parsed if levels.key}

    def of(self, partition: str) -> str:
        """The folder of new files of a partition."""
        if partition in self._known:
            return f"{self._root}/{self._known[partition].time_folder}"
        example = next(iter(self._known.values()), None)
        if example is None:
            return f"{self._root}/{partition}"
        return f"{self._root}/{spell_like(example.time, partition_range(partition)[0], hourly='/' in partition)}"


def _as_stored(table: Table, rows: pa.Table, where: str) -> pa.Table:
    """Rows of another format, cast to the types of the table's files; a value that fits a wider type only keeps its own."""
    columns = {}
    for name in rows.column_names:
        stored = next((one for one in table.columns if one.name == name), None)
        column = rows.column(name)
        columns[name] = column
        if stored is None or str(column.type) == stored.arrow_type:
            continue
        try:
            columns[name] = plain_column(column, table_type(stored, column.type), f"{where}, column {name}")
        except TypeMismatch:
            if widest_text(stored.arrow_type, str(column.type)) is None:
                raise
    return pa.table(columns)


def _split(
    table: Table, rows: pa.Table, current: Sequence[PlacedFragment], partition: str, create: bool, where: str
) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each partition, in time order; the order within a partition is kept."""
    known = {placed.partition: (placed.start, placed.end) for placed in current}
    if partition:
        partition, (start, end) = _parse_partition(partition)
        if partition not in known:
            _check_new_partitions({partition: rows.num_rows}, known, create, where, "")
            refuse_overlaps({**known, partition: (start, end)}, table.root)
        yield partition, rows
        return
    hours = _hours(table, rows, where)
    order = np.argsort(hours, kind="stable")
    sorted_hours = hours[order]
    firsts = np.flatnonzero(np.diff(sorted_hours, prepend=sorted_hours[0] - 1)).tolist()
    by_start = {span: key for key, span in known.items()}
    hourly = any("/" in key for key in known) or not known
    picked: dict[str, list[Any]] = {}
    for first, last in zip(firsts, [*firsts[1:], len(order)], strict=True):
        key = _partition_of(int(sorted_hours[first]), by_start, hourly)
        picked.setdefault(key, []).append(order[first:last])
    parts = {key: np.sort(np.concatenate(found)) for key, found in picked.items()}
    unknown = {key: len(found) for key, found in parts.items() if key not in known}
    _check_new_partitions(unknown, known, create, where, table.time_column or "")
    for key, found in parts.items():
        yield key, rows.take(pa.array(found))


def _parse_partition(spelled: str) -> tuple[str, tuple[datetime, datetime]]:
    """The key of a partition in any spelling of its folders, and its time range."""
    try:
        key = parse_levels(spelled).key or spelled
        return key, partition_range(key)
    except DataError as error:
        raise InputError("--partition must be a time partition", value=spelled, allowed=error.allowed) from None


def _hours(table: Table, rows: pa.Table, where: str) -> Ints:
    """The hours since 1970 of every row's time."""
    name = table.time_column
    if name is None:
        raise InputError("the table has no time column, so --partition is needed", where=f"table {table.name}",
                         next_step="--partition date=YYYY-MM-DD/hour=HH")  # fmt: skip
    times = rows.column(name)
    if not (pat.is_timestamp(times.type) or pat.is_date(times.type)):
        raise InputError("a time column of numbers has no unit, so --partition is needed", where=f"table {table.name}, column {name}",
                         value=str(times.type), next_step="--partition date=YYYY-MM-DD/hour=HH")  # fmt: skip
    if times.null_count:
        raise DataError("a time must not be null", where=f"{where}, column {name}", value=f"null in {times.null_count} of {len(times)}",
                        next_step="--partition puts all rows into one partition")  # fmt: skip
    unit = pa.timestamp("us", tz=times.type.tz if pat.is_timestamp(times.type) else None)
    microseconds = np.asarray(times.cast(unit, safe=False).cast(pa.int64()))
    hours: Ints = np.floor_divide(microseconds, _HOUR_US)
    return hours


def _partition_of(hour: int, by_start: dict[tuple[datetime, datetime], str], hourly: bool) -> str:
    """The partition of an hour: an existing one, or the name of a new one in the table's layout."""
    at = _EPOCH + timedelta(hours=hour)
    day = at.replace(hour=0)
    found = by_start.get((at, at + timedelta(hours=1))) or by_start.get((day, day + timedelta(days=1)))
    if found is not None:
        return found
    return f"date={day:%Y-%m-%d}/hour={at.hour:02d}" if hourly else f"date={day:%Y-%m-%d}"


def _check_new_partitions(
    unknown: dict[str, int], known: dict[str, Any], create: bool, where: str, time_column: str
) -> None:
    if not unknown or create:
        return
    some = ", ".join(f"{key} (rows: {rows:,})" for key, rows in list(unknown.items())[:3])
    there = f"{min(known)} to {max(known)}" if known else "(none)"
    check = f"check column {time_column}, or " if time_column else ""
    raise DataError("the table has no such partition", where=where, value=some + (", …" if len(unknown) > 3 else ""),
                    allowed=there, next_step=f"{check}--create makes new partitions")  # fmt: skip
