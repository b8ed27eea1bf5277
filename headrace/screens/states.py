"""Screens of states of joined columns: what ``export states`` wrote, and what ``check skew`` found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from warehouse.joins.skew import ColumnSkew, Skew, SkewExample


@dataclass(frozen=True, slots=True)
class StatesRow:
    """A joined table in a link of states.

    Attributes:
        table: the table.
        version: whose rows are there after the link.
        added: how many rows the link adds.
        removed: how many it removes.
        rows: how many are there after it.
        size_bytes: of its files.
    """

    table: str
    version: int
    added: int
    removed: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class StatesScreen(Shown):
    """A link of states.

    Attributes:
        folder: of the links.
        link: the newest link.
        is_new: whether the link was written now; otherwise the newest link has all.
        model: the model.
        version: of the model.
        since: answers are for events from this moment on.
        columns: the joined columns, by name.
        rows_read: the rows of the other tables.
        tables: a row per joined table.
    """

    folder: str
    link: str
    is_new: bool
    model: str
    version: int
    since: datetime
    columns: tuple[str, ...]
    rows_read: int
    tables: tuple[StatesRow, ...]

    def render(self) -> RenderableType:
        """The link, then a line per table."""
        lines = [
            ("link", f"{self.folder}/{self.link}" + ("" if self.is_new else ", as before: nothing has changed")),
            ("model", f"{self.model} version {self.version}, {many(len(self.columns), 'joined column')}"),
            ("for events from", f"{self.since:%Y-%m-%d %H:%M:%S} on"),
            ("rows", f"{count_text(sum(one.rows for one in self.tables))} of {count_text(self.rows_read)}"),
        ]
        columns = ("table", "version>", "added>", "removed>", "rows>", "size>")
        rows = [
            (one.table, str(one.version), count_text(one.added), count_text(one.removed), count_text(one.rows), bytes_text(one.size_bytes))
            for one in self.tables
        ]  # fmt: skip
        return Group(facts(lines), "", grid(columns, rows))


@dataclass(frozen=True, slots=True)
class SkewRow:
    """A joined column of a log, with its definition in one line."""

    skew: ColumnSkew
    join: str


@dataclass(frozen=True, slots=True, repr=False)
class SkewScreen(Shown):
    """Logged answers against the warehouse.

    Attributes:
        log: the file or the folder.
        skew: what was found.
        rows: a row per logged column.
        unlogged: the joined columns of the model that the log does not have.
    """

    log: str
    skew: Skew
    rows: tuple[SkewRow, ...]
    unlogged: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether each logged answer is the offline one."""
        return all(one.skew.is_equal for one in self.rows)

    def json_fields(self) -> dict[str, Any]:
        """The figures and examples of each column."""
        columns = [{**fields_of(one.skew, "examples"), "join": one.join, "examples": [fields_of(each) for each in one.skew.examples]} for one in self.rows]  # fmt: skip
        return {
            "log": self.log,
            "model": self.skew.model,
            "version": self.skew.version,
            "tables": dict(self.skew.versions),
            "events": self.skew.rows,
            "equal": self.is_equal,
            "columns": columns,
            "unlogged": list(self.unlogged),
        }

    def render(self) -> RenderableType:
        """A line per column, then examples of those that differ."""
        found = self.skew
        tables = ", ".join(f"{name} version {version}" for name, version in found.versions.items())
        head = (
            f"model {found.model} version {found.version}: {many(found.rows, 'event')} of {self.log}, against {tables}"
        )
        columns = ("joined column*", "equal>", "missing>", "extra>", "different>", "largest difference>")
        rows = [
            (one.join, count_text(one.skew.equal), count_text(one.skew.missing), count_text(one.skew.extra), count_text(one.skew.different),
             "" if one.skew.largest_difference is None else f"{one.skew.largest_difference:.6g}")
            for one in self.rows
        ]  # fmt: skip
        parts: list[RenderableType] = [head, grid(columns, rows)]
        for one in self.rows:
            if one.skew.examples:
                parts += [
                    "",
                    grid(
                        ("row>", "time", "key*", "logged*", "offline*"),
                        map(_example, one.skew.examples),
                        title=one.join,
                    ),
                ]
        if self.unlogged:
            parts += ["", facts([(f"{k + 1}", text) for k, text in enumerate(self.unlogged)], title="not in the log")]
        parts += [
            "",
            "each logged answer is the offline one"
            if self.is_equal
            else "missing: no answer in the log; extra: none offline",
        ]
        return Group(*parts)


def _example(one: SkewExample) -> tuple[str, ...]:
    keys = ", ".join(f"{name} = {value}" for name, value in one.keys.items())
    return (count_text(one.row), one.at, keys, one.logged, one.offline)
