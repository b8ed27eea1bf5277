"""Screens of ``headrace table append``, ``overlay``, ``fix``, ``delete`` and ``history``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.screens.tables import schema_lines
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text, many, time_text

if TYPE_CHECKING:
    from warehouse.changes.outcome import Change, Recompute, Rejoin
    from warehouse.tables.history import TableVersion


_DONE = {
    "append": ("appended", "would append"),
    "overlay": ("overlaid", "would overlay"),
    "fix": ("fixed", "would fix"),
    "delete": ("deleted", "would delete"),
}


def recompute_table(recompute: Sequence[Recompute], *, dry_run: bool) -> tuple[RenderableType, ...]:
    """What must be computed: the sums, and a table of components."""
    rows, memos = sum(one.rows for one in recompute), sum(one.memos for one in recompute)
    head = f"to compute: {many(memos, 'memo')}, {many(rows, 'row')}; "
    table = grid(
        ("input*", "reads*", "models*", "memos>", "rows>"),
        ((", ".join(one.inputs) or f"part of inputs: {one.expression}", ", ".join(one.columns), ", ".join(one.models),
          count_text(one.memos), count_text(one.rows)) for one in recompute),
    )  # fmt: skip
    return head + ("nothing was changed" if dry_run else "next: headrace work"), "", table


@dataclass(frozen=True, slots=True, repr=False)
class ChangeScreen(Shown):
    """What a change of a table did or would do, and what must be computed again."""

    change: Change

    def json_fields(self) -> dict[str, Any]:
        """The fields of the change."""
        return fields_of(self.change)

    def render(self) -> RenderableType:
        """What was done, notes, and what must be computed."""
        change = self.change
        lines = [self._head()]
        if change.added_columns:
            lines.append(f"new columns: {', '.join(change.added_columns)}")
        lines += schema_lines(change.widened_columns)
        if change.unknown_keys:
            lines.append(
                f"{many(change.unknown_keys, 'key')} of the file {'matches' if change.unknown_keys == 1 else 'match'} no event"
            )
        lines += change.notes
        lines += [_rejoined(one, change.table, dry_run=change.dry_run) for one in change.rejoins]
        if not change.recompute:
            return "\n".join([*lines, "nothing must be computed"] if change.changed and not change.rejoins else lines)
        return Group("\n".join(lines), *recompute_table(change.recompute, dry_run=change.dry_run))

    def _head(self) -> str:
        change = self.change
        if not change.changed:
            return f"nothing changed: table {change.table} stays at version {change.version}"
        verb = _DONE[change.kind][change.dry_run]
        columns = f" {', '.join(change.columns)} of" if change.kind in ("overlay", "fix") else ""
        where = f"{many(change.fragments, 'fragment')} of {many(len(change.partitions), 'partition')}"
        after = f"table {change.table} is at version {change.version}"
        return f"{verb}{columns} {many(change.rows, 'row')} in {where}; {after}"


def _rejoined(one: Rejoin, table: str, *, dry_run: bool) -> str:
    """The joined columns that may change, in one line."""
    own = "" if one.table == table else f" of table {one.table}"
    said = f"{many(len(one.columns), 'joined column')}{own} may change in at most {many(one.fragments, 'fragment')}, {many(one.rows, 'row')}, for {', '.join(one.models)}"
    return said if dry_run else f"{said}; next: headrace work"


@dataclass(frozen=True, slots=True, repr=False)
class HistoryScreen(Listing):
    """Every version of a table."""

    rows_field: ClassVar[str] = "versions"
    columns: ClassVar[tuple[str, ...]] = (
        "version",
        "at",
        "kind",
        "columns",
        "rows",
        "fragments",
        "partitions",
        "source",
        "why",
        "schema",
    )

    table: str
    versions: tuple[TableVersion, ...]

    def render(self) -> RenderableType:
        """A table of versions, oldest first."""
        # The column appears with the first change of the schema.
        changed = any(one.schema for one in self.versions)
        rows = (
            (str(one.version), time_text(one.at), one.kind, ", ".join(one.columns) or "-",
             *(("; ".join(change.text for change in one.schema) or "-",) if changed else ()), count_text(one.partitions),
             count_text(one.fragments), count_text(one.rows), one.source or "-", one.why or "-")
            for one in self.versions
        )  # fmt: skip
        schema = ("schema*",) if changed else ()
        columns = (
            "version>",
            "when",
            "what",
            "columns",
            *schema,
            "partitions>",
            "fragments>",
            "rows>",
            "from*",
            "why*",
        )
        return grid(columns, rows, title=f"table {self.table}")
