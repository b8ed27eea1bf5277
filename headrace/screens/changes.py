"""Screens of ``headrace table append``, ``overlay``, ``fix``, ``delete`` and ``history``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rich.console import Group, RenderableType

from headrace.screens.grid import grid
from headrace.screens.units import count_text, many, time_text


@dataclass(frozen=True, slots=True)
class RecomputeRow:
    """A component whose memos do not hold for the new version. ``inputs``: its names in ``models``, if it is an input."""

    fingerprint: str
    expression: str
    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    models: tuple[str, ...]
    memos: int
    rows: int


_DONE = {
    "append": ("appended", "would append"),
    "overlay": ("overlaid", "would overlay"),
    "fix": ("fixed", "would fix"),
    "delete": ("retracted", "would retract"),
}


@dataclass(frozen=True, slots=True)
class ChangeScreen:
    """What a change of a table did, or would do, and what has to be computed again for it."""

    table: str
    kind: str
    version: int
    changed: bool
    dry_run: bool
    rows: int
    fragments: int
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    added_columns: tuple[str, ...]
    unknown_keys: int
    notes: tuple[str, ...]
    recompute: tuple[RecomputeRow, ...]

    def render(self) -> RenderableType:
        """What was done, what was odd, what has to be computed."""
        lines = [self._head()]
        if self.added_columns:
            lines.append(f"new columns: {', '.join(self.added_columns)}")
        if self.unknown_keys:
            lines.append(
                f"{many(self.unknown_keys, 'key')} of the file {'is' if self.unknown_keys == 1 else 'are'} of no event"
            )
        lines += self.notes
        if not self.recompute:
            return "\n".join([*lines, "nothing has to be computed for it"] if self.changed else lines)
        rows = sum(one.rows for one in self.recompute)
        memos = sum(one.memos for one in self.recompute)
        lines.append(f"to compute: {many(memos, 'memo')}, {many(rows, 'row')}; "
                     + ("nothing was changed yet" if self.dry_run else "next: headrace work"))  # fmt: skip
        table = grid(
            ("input*", "reads*", "models*", "memos>", "rows>"),
            ((", ".join(one.inputs) or f"part of inputs: {one.expression}", ", ".join(one.columns), ", ".join(one.models),
              count_text(one.memos), count_text(one.rows)) for one in self.recompute),
        )  # fmt: skip
        return Group("\n".join(lines), "", table)

    def _head(self) -> str:
        if not self.changed:
            return f"nothing changed: table {self.table} stays at version {self.version}"
        verb = _DONE[self.kind][self.dry_run]
        columns = f" {', '.join(self.columns)} of" if self.kind in ("overlay", "fix") else ""
        where = f"{many(self.fragments, 'fragment')} of {many(len(self.partitions), 'partition')}"
        after = f"table {self.table} is at version {self.version}"
        return f"{verb}{columns} {many(self.rows, 'row')} in {where}; {after}"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a table."""

    version: int
    at: datetime | None
    kind: str
    columns: tuple[str, ...]
    rows: int
    fragments: int
    partitions: int
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class HistoryScreen:
    """Every version of a table."""

    table: str
    versions: tuple[VersionRow, ...]

    def render(self) -> RenderableType:
        """A table of versions, oldest first."""
        rows = (
            (str(one.version), time_text(one.at), one.kind, ", ".join(one.columns) or "-", count_text(one.partitions),
             count_text(one.fragments), count_text(one.rows), one.source or "-", one.why or "-")
            for one in self.versions
        )  # fmt: skip
        columns = ("version>", "when", "what", "columns", "partitions>", "fragments>", "rows>", "from*", "why*")
        return grid(columns, rows, title=f"table {self.table}")
