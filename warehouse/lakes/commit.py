"""Writing a refresh: its versions of the table, and the lake's version and files, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from warehouse.changes.publish import Replacement, apply_new_files, apply_replacements, create_table, require_files
from warehouse.lakes.edits import Edits
from warehouse.lakes.origins import Origins, write_origins
from warehouse.lakes.parts import NewPart
from warehouse.lakes.state import KnownFile, check_lake, write_files, write_lake, write_parts
from warehouse.tables.evolution.evolved import EvolvedSchema
from warehouse.tables.followed import FollowedLake
from warehouse.tables.manifests import PlacedFragment, current_fragments
from warehouse.tables.parquet import read_schema
from warehouse.tables.table import Table
from warehouse.tables.versions import ChangeNote, TableChangeKind
from warehouse.warehouse import Warehouse

_NO_EDITS = Edits((), (), (), 0, 0)


@dataclass(frozen=True)
class Refresh:
    """A refresh whose files are written.

    Attributes:
        table: the table before it, with the columns that it has afterwards.
        lake: the lake at its new version.
        parts: parts with new rows.
        operation: the lake's operation, for the history.
        files: the lake's files that are new or changed, with the parts before this refresh that hold rows of them.
        gone: paths of the lake's files that are gone.
        moved: parts whose rows have other origins now.
        edits: the changes of fragments.
        current: the table's fragments before.
        is_new: whether the table is new.
        evolved: the schema with the lake's columns, of a table that is not new.
        notes: remarks for the user.
    """

    table: Table
    lake: FollowedLake
    parts: tuple[NewPart, ...]
    operation: str = ""
    files: Mapping[str, KnownFile] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    moved: Mapping[int, Origins] = field(default_factory=dict)
    edits: Edits = _NO_EDITS
    current: tuple[PlacedFragment, ...] = ()
    is_new: bool = False
    evolved: EvolvedSchema | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def nothing(cls, table: Table | None, lake: FollowedLake) -> Refresh:
        """No change of a table at the newest version of its lake."""
        assert table is not None
        return cls(table, lake, ())

    @property
    def overlays(self) -> tuple[Replacement, ...]:
        """Fragments with new values."""
        return self.edits.overlays

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that change."""
        edited = (one.placed.partition for one in (*self.edits.deletions, *self.edits.overlays))
        return tuple(sorted({*edited, *(part.file.partition for part in self.parts)}))


def commit_refresh(warehouse: Warehouse, refresh: Refresh, before: FollowedLake | None) -> int:
    """Write a refresh in one transaction and return the table's version.

    Raises :class:`~warehouse.errors.CatalogBusy` if another process changed the table or refreshed it meanwhile.
    """
    storage, name = warehouse.storage, refresh.table.name
    moved = {part: write_origins(storage, name, origins) for part, origins in refresh.moved.items()}

    def publish(connection: Connection) -> int:
        check_lake(connection, name, before, warehouse.catalog.where)
        require_files(storage, [*moved.values(), *(part.origins for part in refresh.parts)], name)
        table = _create(connection, warehouse, refresh) if refresh.is_new else _apply(connection, warehouse, refresh)
        write_lake(connection, name, refresh.lake, is_new=before is None)
        new = write_parts(connection, name, refresh.parts, moved)
        files = {
            path: replace(one, parts=(*one.parts, *(number for number, part in new.items() if path in part.sources)))
            for path, one in refresh.files.items()
        }
        write_files(connection, name, refresh.gone, files)
        return table.version

    return warehouse.catalog.run(publish)


def _apply(connection: Connection, warehouse: Warehouse, refresh: Refresh) -> Table:
    """The versions of a known table: deletions, then overlays, then new rows."""
    edits, evolved = refresh.edits, refresh.evolved
    table = refresh.table if evolved is None else replace(refresh.table, columns=evolved.before)
    if edits.deletions:
        rows = sum(one.fragment.deleted_rows - one.placed.fragment.deleted_rows for one in edits.deletions)
        note = _note(refresh, "delete", (), rows, len(edits.deletions))
        version = apply_replacements(connection, warehouse, table, refresh.current, edits.deletions, note, evolved)
        table = replace(refresh.table, version=version)
    if edits.overlays:
        current = current_fragments(connection, table.name)
        note = _note(refresh, "overlay", edits.columns, edits.updated_rows, len(edits.overlays))
        version = apply_replacements(connection, warehouse, table, current, edits.overlays, note, evolved)
        table = replace(refresh.table, version=version)
    if refresh.parts:
        current = current_fragments(connection, table.name)
        note = _note(refresh, "append", (), _rows(refresh), _fragments(refresh))
        files = [part.file for part in refresh.parts]
        version = apply_new_files(connection, warehouse, table, current, files, note, evolved)
        table = replace(refresh.table, version=version)
    return table


def _create(connection: Connection, warehouse: Warehouse, refresh: Refresh) -> Table:
    """The first version of a new table, or the next of one that was dropped."""
    columns = read_schema(warehouse.storage, refresh.parts[0].file.file.path)
    note = _note(refresh, "register", (), _rows(refresh), _fragments(refresh))
    files = [part.file for part in refresh.parts]
    return create_table(connection, warehouse, replace(refresh.table, columns=columns), files, note)


def _rows(refresh: Refresh) -> int:
    return sum(part.rows for part in refresh.parts)


def _fragments(refresh: Refresh) -> int:
    return sum(len(part.file.fragments) for part in refresh.parts)


def _note(refresh: Refresh, kind: TableChangeKind, columns: tuple[str, ...], rows: int, fragments: int) -> ChangeNote:
    source = f"{refresh.lake.location}, version {refresh.lake.version}"
    return ChangeNote(kind, columns, rows, fragments, source, refresh.operation)
