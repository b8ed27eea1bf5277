"""Bring a table to a version of the lake that it follows.

Each refresh is one transaction: a process that is killed before it leaves the table at its version, and after it the table has the
rows of the lake's version, each once. What a killed refresh wrote is unreferenced and deleted by ``gc``. In the history a
refresh is up to three versions: ``delete``, ``overlay`` and ``append``, each of what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from transforms.errors import DataError, InputError
from warehouse.changes.new_rows import stored_columns
from warehouse.changes.outcome import AffectedFragment, Recompute, find_recomputes
from warehouse.errors import SchemaDrift
from warehouse.lakes.commit import Refresh, commit_refresh
from warehouse.lakes.comparison import Comparison, compare
from warehouse.lakes.edits import Editor, Edits
from warehouse.lakes.old_rows import fragments_of_files
from warehouse.lakes.parts import LakeProgress, NewPart, PartWriter
from warehouse.lakes.placement import Placement, placement_of
from warehouse.lakes.snapshot import LakeSnapshot, live_rows
from warehouse.lakes.state import KnownFile, KnownPart, known_files, known_parts
from warehouse.tables.evolution.evolved import EvolvedSchema, FileSchema, evolved_schema, models_reading
from warehouse.tables.evolution.fragment_schema import FragmentSchema
from warehouse.tables.evolution.schema_changes import SchemaChange
from warehouse.tables.followed import FollowedLake, followed_lake
from warehouse.tables.fragment_sizes import fragment_sizes
from warehouse.tables.manifests import PlacedFragment, current_fragments, file_digests, find_table
from warehouse.tables.overflow import check_overflow, overflowing_types, refuse_overflow
from warehouse.tables.parquet import invalid_text_rule
from warehouse.tables.partitions import partition_range
from warehouse.tables.readable_types import UnreadableColumn, unreadable_columns
from warehouse.tables.register import check_table_name
from warehouse.tables.table import Table
from warehouse.tables.value_checks import ValueChecks
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """How a lake's rows become a table's. Empty values are the defaults, or those of the table's first refresh.

    Attributes:
        time_column: the column of event times; by default the only timestamp.
        time_unit: the unit of a time column of integers: s, ms, us or ns.
        partition_by: ``hour`` or ``day``, the default.
        keys: the columns that identify a row through changes; by default those that the lake declares.
        invalid_text: ``refuse`` text that is not UTF-8, or ``replace`` invalid bytes by U+FFFD.
    """

    time_column: str = ""
    time_unit: str = ""
    partition_by: str = ""
    keys: tuple[str, ...] = ()
    invalid_text: str = "refuse"


@dataclass(frozen=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        table: the table, at its new version.
        lake: the lake, at the version whose rows the table has now.
        before: the version of the lake before; empty for a new table.
        changed: whether the table has a new version.
        partitions: the partitions that changed.
        appended_rows: events that are new.
        deleted_rows: events that were deleted.
        updated_rows: events with new values.
        updated_columns: the columns with new values.
        moved_rows: events that the lake keeps in other files, with the same values.
        rows: the live events of the whole table.
        bytes: the compressed bytes of its files.
        recompute: what models must compute again.
        schema_changes: columns that are new or of a wider type.
        unreadable: columns that no model reads, of a new table.
        unfit: columns with values that their declared type cannot hold, one text each.
        replaced: columns in which invalid text was replaced, one text each.
        notes: remarks for the user.
    """

    table: Table
    lake: FollowedLake
    before: str
    changed: bool
    partitions: tuple[str, ...]
    appended_rows: int
    deleted_rows: int
    updated_rows: int
    updated_columns: tuple[str, ...]
    moved_rows: int
    rows: int
    bytes: int
    recompute: tuple[Recompute, ...]
    schema_changes: tuple[SchemaChange, ...] = ()
    unreadable: tuple[UnreadableColumn, ...] = ()
    unfit: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Known:
    """The table in the catalog before a refresh."""

    table: Table | None
    lake: FollowedLake | None
    files: Mapping[str, KnownFile]
    parts: Mapping[int, KnownPart]
    current: tuple[PlacedFragment, ...]
    file_digests: Mapping[str, Mapping[str, str]]

    def read_by(self, evolved: EvolvedSchema) -> _Known:
        """The table as a newer schema reads it: columns that it does not have yet are null."""
        assert self.table is not None
        columns = FragmentSchema(evolved.columns)
        current = tuple(replace(placed, fragment=columns.of(placed.fragment)) for placed in self.current)
        return replace(self, table=replace(self.table, columns=evolved.columns), current=current)


def refresh_lake(
    warehouse: Warehouse,
    name: str,
    location: str,
    snapshot: LakeSnapshot,
    options: LakeOptions = LakeOptions(),
    *,
    progress: LakeProgress | None = None,
) -> Refreshed:
    """Create table ``name`` with the rows of a version of a lake, or bring it there.

    Raises :class:`InputError` for a table of another lake or of files, and for other options than before;
    :class:`~warehouse.errors.SchemaDrift` for other columns, :class:`DataError` for rows without a time, and
    :class:`~warehouse.errors.CatalogBusy` if another process changed the table meanwhile. Nothing is changed then.
    """
    check_table_name(warehouse, name)
    known = _load(warehouse, name)
    _check_lake(name, known, location, snapshot)
    lake, placement = _followed(name, known, location, snapshot, options)
    if known.lake is not None and known.lake == lake:
        return _result(warehouse, known, Refresh.nothing(known.table, lake), ())
    evolved = None
    if known.table is not None:
        evolved = _evolved(warehouse, known.table, known.current, snapshot, location)
        known = known.read_by(evolved)
    replaced: list[str] = []
    checks = ValueChecks(None, False, {}, {})
    overflowing = overflowing_types(evolved.columns) if evolved is not None else {}

    def on_rows(path: str, first_row: int, rows: pa.Table) -> None:
        check_overflow(rows, overflowing, location, f"table {name!r}")
        checks.check(path, first_row, rows)

    writer = PartWriter(warehouse, name, placement, invalid_text_rule(options.invalid_text, replaced), on_rows)
    editor: Editor | None = None
    try:
        if known.table is None or known.lake is None:
            refresh = _first(warehouse, name, snapshot, lake, placement, writer, progress)
        else:
            editor = Editor(warehouse, known.table, snapshot, placement, lake.keys, writer, known.file_digests)
            refresh = replace(_next(warehouse, known.table, known, snapshot, lake, editor, writer), evolved=evolved)
        recompute = _recomputes(warehouse, known, refresh)
    except BaseException:
        writer.discard()
        if editor is not None:
            editor.writer.discard()
        raise
    version = commit_refresh(warehouse, refresh, known.lake)
    done = replace(refresh, table=replace(refresh.table, version=version))
    found = _result(warehouse, known, done, recompute)
    return replace(found, unfit=tuple(checks.unfit), replaced=tuple(replaced))


def _load(warehouse: Warehouse, name: str) -> _Known:
    with warehouse.catalog.read() as connection:
        current = current_fragments(connection, name)
        return _Known(find_table(connection, name), followed_lake(connection, name), known_files(connection, name),
                      known_parts(connection, name), current, file_digests(connection, name, (placed.fragment for placed in current)))  # fmt: skip


def _check_lake(name: str, known: _Known, location: str, snapshot: LakeSnapshot) -> None:
    if known.table is not None and known.lake is None:
        raise InputError("a table of files must not become one of a lake", where=f"table {name}", value=location,
                         allowed=known.table.root, next_step="use another table name")  # fmt: skip
    if known.lake is None:
        return
    if known.lake.location != location:
        raise InputError("the lake must be the one of the registered table", where=f"table {name}", value=location,
                         allowed=known.lake.location, next_step="use another table name")  # fmt: skip
    if known.lake.lake_id != snapshot.lake_id:
        raise DataError("the lake's table must be the one that was registered: another one was created in its place",
                        where=location, value=snapshot.lake_id, allowed=known.lake.lake_id,
                        next_step=f"use another table name, or drop this one: headrace table drop {name}")  # fmt: skip


def _followed(
    name: str, known: _Known, location: str, snapshot: LakeSnapshot, options: LakeOptions
) -> tuple[FollowedLake, Placement]:
    """The lake at the snapshot's version, and the placement of its rows; options must not change, but for keys."""
    lake, table = known.lake, known.table
    before = {} if lake is None or table is None else {
        "--time-column": (table.time_column or "", options.time_column),
        "--time-unit": (lake.time_unit, options.time_unit),
        "--partition-by": (lake.partition_by, options.partition_by),
    }  # fmt: skip
    for option, (stored, given) in before.items():
        if given and given != stored:
            raise InputError("an option of a lake must stay as it was when the table was added", where=f"table {name}, {option}",
                             value=given, allowed=stored, next_step="leave it out, or use another table name")  # fmt: skip
    if lake is not None and table is not None:
        placement = placement_of(snapshot.schema, table.time_column or "", lake.time_unit, lake.partition_by, location)
    else:
        placement = placement_of(
            snapshot.schema, options.time_column, options.time_unit, options.partition_by or "day", location
        )
    keys = options.keys or (lake.keys if lake is not None else ()) or snapshot.keys
    for key in keys:
        Table(name, "", stored_columns(snapshot.schema), None, 0).column(key)
    return FollowedLake(location, snapshot.format, snapshot.lake_id, snapshot.version, placement.partition_by,
                        placement.time_unit, tuple(keys)), placement  # fmt: skip


def _evolved(
    warehouse: Warehouse, table: Table, current: Sequence[PlacedFragment], snapshot: LakeSnapshot, location: str
) -> EvolvedSchema:
    """The table's columns with those of the snapshot: new ones, and those of a wider type."""
    files = [FileSchema(location, "", stored_columns(snapshot.schema))]
    found = evolved_schema(warehouse.catalog, table, table.name, "refresh", files, table.time_column)
    for name in found.lacking:
        models = sorted(models_reading(warehouse.catalog, table.name)(name))
        read = f", which live models read: {', '.join(models)}" if models else ""
        raise SchemaDrift(f"the columns of a lake must stay in it{read}", where=f"{location}, column {name}", value="absent",
                          allowed=table.column(name).arrow_type, next_step="add the lake under another table name")  # fmt: skip
    refuse_overflow(warehouse.storage, found, (placed.fragment for placed in current))
    return found


def _first(
    warehouse: Warehouse,
    name: str,
    snapshot: LakeSnapshot,
    lake: FollowedLake,
    placement: Placement,
    writer: PartWriter,
    progress: LakeProgress | None,
) -> Refresh:
    for number, file in enumerate(snapshot.files):
        if progress:
            progress(number, len(snapshot.files), file.path)
        for live in live_rows(snapshot, file):
            writer.add(live)
    parts = writer.finish()
    if progress and snapshot.files:
        progress(len(snapshot.files), len(snapshot.files), snapshot.files[-1].path)
    if not parts:
        raise DataError("a lake's table must have rows to be added", where=lake.location, value=f"version {lake.version}: 0 rows",
                        next_step="add it when rows have been written")  # fmt: skip
    table = Table(
        name, f"{warehouse.storage.root}/{writer.folder}", stored_columns(snapshot.schema), placement.time_column, 0
    )
    files = _known_files(snapshot, [file.path for file in snapshot.files])
    return Refresh(table, lake, parts, operation=snapshot.operation, files=files, is_new=True)


def _next(
    warehouse: Warehouse,
    table: Table,
    known: _Known,
    snapshot: LakeSnapshot,
    lake: FollowedLake,
    editor: Editor,
    writer: PartWriter,
) -> Refresh:
    fragments = fragments_of_files(known.current)
    found = compare(warehouse.storage, snapshot, known.files, known.parts, fragments)
    edits = editor.apply(found)
    moved = {part: edited.origins() for part, edited in found.origins.items()}
    parts = writer.finish()
    new = [source.file.path for source in found.sources] + [file.path for file in found.changed]
    files = _known_files(snapshot, new)
    held: dict[str, set[int]] = {path: set() for path in files}
    for path, one in known.files.items():
        if path in held:
            held[path].update(part for part in one.parts if part not in moved)
    for part, origins in moved.items():
        for path in origins.sources & held.keys():
            held[path].add(part)
    files = {path: replace(one, parts=tuple(sorted(held[path]))) for path, one in files.items()}
    return Refresh(
        table, lake, parts, operation=snapshot.operation, files=files, gone=found.gone, moved=moved, edits=edits,
        current=known.current, notes=_notes(found, edits, parts, lake),
    )  # fmt: skip


def _known_files(snapshot: LakeSnapshot, paths: Sequence[str]) -> dict[str, KnownFile]:
    """The files at ``paths``, of which no part has rows yet."""
    wanted = set(paths)
    return {file.path: KnownFile(file.state, ()) for file in snapshot.files if file.path in wanted}


def _notes(found: Comparison, edits: Edits, parts: Sequence[NewPart], lake: FollowedLake) -> tuple[str, ...]:
    deleted = sum(_newly_deleted(edits))
    if lake.keys or not deleted or not parts or not found.gone:
        return ()
    return (
        "rows of rewritten files that had no equal row were deleted, and new ones appended; with --key COLUMN, rows with "
        "equal keys keep their place and their memos of unchanged columns",
    )


def _newly_deleted(edits: Edits) -> list[int]:
    return [one.fragment.deleted_rows - one.placed.fragment.deleted_rows for one in edits.deletions]


def _recomputes(warehouse: Warehouse, known: _Known, refresh: Refresh) -> tuple[Recompute, ...]:
    if known.table is None:
        return ()
    columns = FragmentSchema(known.table.columns)
    affected = [
        AffectedFragment(one.placed.fragment, replace(one.placed, fragment=one.fragment)) for one in refresh.overlays
    ]
    for part in refresh.parts:
        start, end = partition_range(part.file.partition)
        affected += [
            AffectedFragment(None, PlacedFragment(0, part.file.partition, 0, start, end, 0, columns.of(fragment)))
            for fragment in part.file.fragments
        ]
    with warehouse.catalog.read() as connection:
        now = warehouse.clock()
        return find_recomputes(connection, warehouse.config, known.table.name, affected, now, known.table.columns)


def _result(warehouse: Warehouse, known: _Known, done: Refresh, recompute: tuple[Recompute, ...]) -> Refreshed:
    with warehouse.catalog.read() as connection:
        current = current_fragments(connection, done.table.name)
        small = fragment_sizes(connection, done.table.name).warning(done.table.name)
    before = 0 if known.table is None else known.table.version
    return Refreshed(
        table=done.table,
        lake=done.lake,
        before="" if known.lake is None else known.lake.version,
        changed=done.table.version != before,
        partitions=done.partitions,
        appended_rows=sum(part.rows for part in done.parts),
        deleted_rows=sum(_newly_deleted(done.edits)),
        updated_rows=done.edits.updated_rows,
        updated_columns=done.edits.columns,
        moved_rows=done.edits.moved_rows,
        rows=sum(placed.fragment.live_rows for placed in current),
        bytes=sum(placed.fragment.size_bytes for placed in current),
        recompute=recompute,
        schema_changes=() if done.evolved is None or done.table.version == before else done.evolved.changes,
        unreadable=unreadable_columns(done.table.file_columns) if known.table is None else (),
        notes=(*done.notes, *([small] if small and done.parts else [])),
    )
