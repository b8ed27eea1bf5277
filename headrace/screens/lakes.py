"""The screen of a table that was brought to a version of its lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.changes import recompute_table
from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.screens.tables import schema_lines, unreadable_lines
from headrace.terminal.units import bytes_text, count_text, many
from warehouse.tables.lake_folders import FORMAT_NAMES

if TYPE_CHECKING:
    from warehouse.lakes.refresh import Refreshed


@dataclass(frozen=True, slots=True, repr=False)
class LakeScreen(Shown):
    """What a refresh brought, and what must be computed again."""

    done: Refreshed

    def json_fields(self) -> dict[str, Any]:
        """The fields of the refresh, with the table's name and version instead of the table."""
        fields = fields_of(self.done)
        return {**fields, "table": self.done.table.name, "version": self.done.table.version}

    def line(self) -> str:
        """What changed, in one line."""
        done = self.done
        lake = f"{FORMAT_NAMES[done.lake.format]} {done.lake.location}"
        table = f"table {done.table.name}, version {done.table.version}"
        if not done.before:
            return f"{table}: {many(done.appended_rows, 'row')} of version {done.lake.version} of {lake}"
        if done.before == done.lake.version:
            return f"{table}: nothing new in {lake}, version {done.lake.version}"
        parts = [f"{verb} {what}" for verb, what in self._changes()] or ["no row changed"]
        return f"{table}: {lake} went from version {done.before} to {done.lake.version}: {', '.join(parts)}"

    def render(self) -> RenderableType:
        """The change, the size of the table, warnings, and what must be computed."""
        done = self.done
        lines = [self.line(), f"{many(done.rows, 'live row')}, {bytes_text(done.bytes)}"]
        lines += [
            f"text that is not UTF-8 is read with U+FFFD for invalid bytes: {place}" for place in done.replaced[:4]
        ]
        lines += schema_lines(done.schema_changes)
        lines += unreadable_lines(done.table.name, done.unreadable)
        lines += [f"a model that reads this column fails: {place}" for place in done.unfit]
        lines += done.notes
        if not done.recompute:
            return "\n".join([*lines, "nothing must be computed"] if done.changed and done.before else lines)
        return Group("\n".join(lines), *recompute_table(done.recompute, dry_run=False))

    def _changes(self) -> list[tuple[str, str]]:
        done = self.done
        found = [
            (done.appended_rows, "appended", many(done.appended_rows, "row")),
            (done.updated_rows, "overlaid", f"{', '.join(done.updated_columns)} of {many(done.updated_rows, 'row')}"),
            (done.deleted_rows, "deleted", many(done.deleted_rows, "row")),
            (done.moved_rows, "kept", f"{count_text(done.moved_rows)} that are in other files now"),
        ]
        return [(verb, text) for count, verb, text in found if count]
