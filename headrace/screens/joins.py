"""The screen of ``headrace table joins``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from warehouse.joins.eviction import UnreadColumn


@dataclass(frozen=True, slots=True)
class JoinRow:
    """A joined column.

    Attributes:
        table: the table that has it.
        column: its name.
        join: how it is made, in one line.
        arrow_type: the type of its values.
        models: the live models that read it; without one it is not computed any more.
        fragments: the fragments of the table.
        computed: those of them that have values of it.
        error: why it failed; empty if it did not.
    """

    table: str
    column: str
    join: str
    arrow_type: str
    models: tuple[str, ...]
    fragments: int
    computed: int
    error: str

    @property
    def state(self) -> str:
        """What is to be said of its values."""
        if self.error:
            return "failed"
        if not self.models:
            return "no live model"
        return (
            "all" if self.computed == self.fragments else f"{count_text(self.computed)} of {count_text(self.fragments)}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class JoinsScreen(Shown):
    """The joined columns of one table, or of all."""

    joins: tuple[JoinRow, ...]

    def json_fields(self) -> dict[str, Any]:
        """The columns."""
        return {"joins": [fields_of(one) for one in self.joins]}

    def render(self) -> RenderableType:
        """One line per column, then what failed, and the next step."""
        if not self.joins:
            return "no model joins columns of other tables"
        rows = [
            (one.table, one.column, one.join, ", ".join(one.models) or "-", one.state)
            for one in self.joins
        ]  # fmt: skip
        parts: list[RenderableType] = [grid(("table", "column", "joined*", "models*", "values in fragments"), rows)]
        failed = [one for one in self.joins if one.error]
        parts += ["", *(f"{one.column}: {one.error}" for one in failed)] if failed else []
        waiting = sum(one.computed < one.fragments for one in self.joins if one.models)
        if failed:
            parts.append(
                "next: correct what failed; it is computed again when one of its tables changes, or a model with it is submitted"
            )
        elif waiting:
            parts.append(f"{many(waiting, 'column')} must be computed; next: headrace work --until-idle")
        elif unread := sum(not one.models and one.computed > 0 for one in self.joins):
            parts.append(f"no live model reads {many(unread, 'column')}; next: headrace table joins --evict-unread")
        return Group(*parts)


@dataclass(frozen=True, slots=True, repr=False)
class EvictedJoinsScreen(Shown):
    """Joined columns that no live model reads, evicted or not."""

    columns: tuple[UnreadColumn, ...]
    dry_run: bool

    def json_fields(self) -> dict[str, Any]:
        """The columns, and whether they are still there."""
        return {"columns": [fields_of(one) for one in self.columns], "dry_run": self.dry_run}

    def render(self) -> RenderableType:
        """One line per column, and the next step."""
        if not self.columns:
            return "live models read every joined column that has values: nothing to evict"
        rows = [(one.table, one.column, count_text(one.fragments), bytes_text(one.size_bytes)) for one in self.columns]
        size = bytes_text(sum(one.size_bytes for one in self.columns))
        verb = "would evict" if self.dry_run else "evicted"
        next_step = (
            "nothing was changed; next: the same command with --yes"
            if self.dry_run
            else "headrace gc deletes a file once all of its columns are evicted and no job can read it; a model that joins a column again has it computed again"
        )
        said = f"{verb} {many(len(rows), 'joined column')}, {size}"
        return Group(grid(("table", "column", "fragments>", "size>"), rows), "", said, next_step)
