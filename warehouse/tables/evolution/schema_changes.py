"""Columns that a change of a table added or widened. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warehouse.tables.table import ColumnSchema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A new column, whose ``before`` is empty, or one that holds values of a wider type now."""

    column: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change in a few words."""
        return (
            f"{self.column} from {self.before} to {self.after}" if self.before else f"new {self.column}, {self.after}"
        )


def schema_changes(before: Iterable[ColumnSchema], after: Iterable[ColumnSchema]) -> tuple[SchemaChange, ...]:
    """What makes ``after`` of ``before``, in the order of columns; a file with a narrower type changes nothing."""
    known = {column.name: column.arrow_type for column in before}
    return tuple(
        SchemaChange(column.name, known.get(column.name, ""), column.arrow_type)
        for column in after
        if known.get(column.name) != column.arrow_type
    )
