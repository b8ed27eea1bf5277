"""Screens of ``headrace table``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many, time_text

if TYPE_CHECKING:
    from warehouse.tables.evolution.schema_changes import SchemaChange
    from warehouse.tables.readable_types import UnreadableColumn

_PLACES_SHOWN = 4
#: The most partitions of a topic in the text; the JSON has all.
_MOST_OFFSETS = 16
#: The most partitions in the text, the first half and the last; the JSON has all.
_MOST_PARTITIONS = 24
_TYPE_WIDTH = 60
_MOST_CHANGES = 8


def short_type(arrow_type: str) -> str:
    """A type, cut to fit into a line."""
    return arrow_type if len(arrow_type) <= _TYPE_WIDTH else f"{arrow_type[: _TYPE_WIDTH - 1]}…"


def unreadable_lines(table: str, columns: Sequence[UnreadableColumn]) -> list[str]:
    """A line for each of the first columns that no model reads."""
    lines = [
        f"no model can read {column.name}, {short_type(column.arrow_type)}: {column.why}. Store {column.cast}"
        for column in columns[:_PLACES_SHOWN]
    ]
    more = len(columns) - _PLACES_SHOWN
    return lines + ([f"… and {more} more columns: headrace table show {table}"] if more > 0 else [])


def schema_lines(changes: Sequence[SchemaChange]) -> list[str]:
    """The changes of a schema as lines: new columns, then those of a wider type."""
    new = [f"{one.column}, {short_type(one.after)}" for one in changes if not one.before]
    wider = [f"{one.column} from {short_type(one.before)} to {short_type(one.after)}" for one in changes if one.before]
    lines = [f"new columns, null in earlier files: {_some(new)}"] if new else []
    return [*lines, f"columns of a wider type: {_some(wider)}"] if wider else lines


def _some(texts: Sequence[str]) -> str:
    left_out = len(texts) - _MOST_CHANGES
    return "; ".join(texts[:_MOST_CHANGES]) + (f"; … and {left_out} more" if left_out > 0 else "")


@dataclass(frozen=True, slots=True, repr=False)
class RegisteredScreen(Shown):
    """What a registration found."""

    table: str
    version: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    rows: int
    size_bytes: int
    dropped: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unreadable: tuple[UnreadableColumn, ...] = ()
    unfit: tuple[str, ...] = ()
    outside: str = ""
    small_fragments: str = ""
    schema_changes: tuple[SchemaChange, ...] = ()
    lacking: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    unread_levels: tuple[str, ...] = ()

    def render(self) -> RenderableType:
        """The changes, then warnings."""
        new = f"{many(len(self.added), 'partition')} added, {len(self.changed)} changed, {self.unchanged} unchanged"
        text = (
            f"table {self.table}, version {self.version}: {new}; "
            f"{many(self.rows, 'row')}, {bytes_text(self.size_bytes)}"
        )
        for what, keys in (("changed", self.changed), ("removed", self.removed)):
            if keys:
                text += f"\n{what}: {', '.join(keys[:4])}" + (", …" if len(keys) > 4 else "")
        text += "".join(f"\n{line}" for line in schema_lines(self.schema_changes))
        if self.lacking:
            text += f"\ncolumns that some of the new files do not have, null there: {_some(self.lacking)}"
        if self.levels:
            text += f"\ncolumns by the names of folders: {', '.join(self.levels)}"
        for place in self.unread_levels:
            text += f"\na level of folders that is not read: {place}"
        for lost in self.dropped:
            text += f"\nnot applied any more, because the file holds other events now: {lost}"
        for place in self.replaced[:_PLACES_SHOWN]:
            text += (
                f"\ntext that is not UTF-8 is read with U+FFFD for invalid bytes: {place} is the first of its fragment"
            )
        if len(self.replaced) > _PLACES_SHOWN:
            text += f"\n… and {len(self.replaced) - _PLACES_SHOWN} more columns of fragments"
        text += "".join(f"\n{line}" for line in unreadable_lines(self.table, self.unreadable))
        if self.outside:
            text += f"\nevents with a time outside their partition: {self.outside}"
        for place in self.unfit:
            text += f"\na model that reads this column fails: {place}"
        if self.small_fragments:
            text += f"\n{self.small_fragments}"
        return text


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table in the list."""

    name: str
    version: int
    partitions: int
    rows: int
    size_bytes: int
    start: datetime | None
    end: datetime | None
    root: str


@dataclass(frozen=True, slots=True, repr=False)
class TablesScreen(Listing):
    """The registered tables."""

    rows_field: ClassVar[str] = "tables"
    columns: ClassVar[tuple[str, ...]] = ("name", "version", "partitions", "rows", "size_bytes", "start", "end", "root")

    tables: tuple[TableRow, ...]

    def render(self) -> RenderableType:
        """One line per table."""
        if not self.tables:
            return "no table is registered; next: headrace table add NAME FOLDER, or headrace table import"
        rows = (
            (t.name, str(t.version), count_text(t.partitions), count_text(t.rows), bytes_text(t.size_bytes),
             time_text(t.start), time_text(t.end), t.root)
            for t in self.tables
        )  # fmt: skip
        return grid(("table", "version>", "partitions>", "rows>", "size>", "from", "to", "folder*"), rows)


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One column of a table."""

    name: str
    arrow_type: str
    overlay_only: bool
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of a table. ``rows`` include ``deleted_rows``; ``overlaid``: the columns with an overlay."""

    partition: str
    version: int
    fragments: int
    rows: int
    size_bytes: int
    deleted_rows: int
    overlaid: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class TableScreen(Shown):
    """One table: its columns and its partitions."""

    name: str
    version: int
    root: str
    time_column: str | None
    columns: tuple[ColumnRow, ...]
    partitions: tuple[PartitionRow, ...]
    lake: str = ""
    topic: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)

    def render(self) -> RenderableType:
        """Facts, columns, partitions."""
        head = facts(
            (("table", self.name), ("version", str(self.version)), ("folder", self.root),
             ("time column", self.time_column or "-"), *([("follows", self.lake)] if self.lake else []),
             *([("fed by", self.topic), ("next offsets", _offsets_text(self.offsets))] if self.topic else []))
        )  # fmt: skip
        columns = grid(
            ("column", "type*"),
            ((c.name, f"{c.arrow_type}, only by overlay" if c.overlay_only else c.arrow_type) for c in self.columns),
        )
        # The two columns appear with the first change of the table.
        changed = any(p.deleted_rows or p.overlaid for p in self.partitions)
        extra = ("deleted>", "overlaid*") if changed else ()
        shown = self.partitions
        if len(shown) > _MOST_PARTITIONS:
            shown = shown[: _MOST_PARTITIONS // 2] + shown[-_MOST_PARTITIONS // 2 :]
        partitions = grid(
            ("partition", "version>", "fragments>", "rows>", "size>", *extra),
            ((p.partition, str(p.version), count_text(p.fragments), count_text(p.rows), bytes_text(p.size_bytes),
              *((count_text(p.deleted_rows), ", ".join(p.overlaid) or "-") if changed else ()))
             for p in shown),
        )  # fmt: skip
        left_out = len(self.partitions) - len(shown)
        more = [f"{many(left_out, 'partition')} in the middle not shown: --json lists all"] if left_out else []
        unread = [f"no model can read {c.name}: {c.unreadable}" for c in self.columns if c.unreadable]
        return Group(head, "", columns, "", *([*unread, ""] if unread else []), partitions, *more)


def _offsets_text(offsets: Mapping[int, int]) -> str:
    """``0: 42, 1: 40``: the offset after the last message, by partition of the topic."""
    shown = [f"{partition}: {offset}" for partition, offset in offsets.items()][:_MOST_OFFSETS]
    more = len(offsets) - len(shown)
    return ", ".join(shown) + (f" and {count_text(more)} more: --json lists all" if more else "")


@dataclass(frozen=True, slots=True, repr=False)
class ImportedScreen(Shown):
    """What an import wrote and rejected."""

    output: str
    rows: int
    rejected: int
    late_rows: int
    partitions: int
    rejects_folder: str
    registered: RegisteredScreen
    counts: Mapping[str, int] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    time_levels: tuple[str, ...] = ()
    time_column: str = ""

    def render(self) -> RenderableType:
        """The import, then the registration."""
        if not self.rows and not self.rejected and not self.counts:
            return Group("nothing new: every row of these files was imported before", self.registered.render())
        text = (
            f"imported {many(self.rows, 'row')} into {many(self.partitions, 'partition')} under {self.output}; "
            f"{count_text(self.late_rows)} of them late"
        )
        if self.rejected:
            text += f"\nrejected, with line and reason, under {self.rejects_folder}: {many(self.rejected, 'row')}"
        if self.levels:
            text += f"\ncolumns by the names of folders: {', '.join(self.levels)}"
        if self.time_levels:
            text += f"\nlevels of folders that are no columns, since {self.time_column} holds the times: {', '.join(self.time_levels)}"
        text += "".join(f"\n{what}: {count_text(count)}" for what, count in self.counts.items())
        return Group(text, self.registered.render())
