"""The schema of a table that its files change: columns are added and widened, never removed or narrowed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow.types as pat

from warehouse.errors import SchemaDrift
from warehouse.tables.stored_types import parse_stored_type
from warehouse.tables.table import NULL, ColumnSchema
from warehouse.tables.widening import is_same_type, widest_text

#: The command that brings a file, whose user an error speaks to.
Command = Literal["add", "append", "feed", "import", "overlay", "refresh"]

#: The type of a level of folders.
LEVEL_TYPE = "string"
_PANDAS = (
    "; pandas stores whole numbers with missing values as floats: "
    'frame["{name}"] = frame["{name}"].astype("Int64") before to_parquet keeps them whole'
)


def with_levels(columns: tuple[ColumnSchema, ...], levels: Iterable[str]) -> tuple[ColumnSchema, ...]:
    """The columns of a file, and those of the levels of its folders that it does not have itself."""
    names = {column.name for column in columns}
    return (*columns, *(ColumnSchema(name, LEVEL_TYPE) for name in levels if name not in names))


@dataclass(frozen=True)
class DriftAdvice:
    """What the error of a file that does not fit says.

    Attributes:
        subject: what the file belongs to: ``table 'clicks'``.
        other: a name for a table of the files that do not fit.
        command: the command that brings the file.
        models_of: the live models that read a column.
    """

    subject: str
    other: str
    command: Command
    models_of: Callable[[str], Collection[str]]

    @classmethod
    def of_table(cls, table: str, command: Command, models_of: Callable[[str], Collection[str]]) -> DriftAdvice:
        """The advice about a file of this table."""
        return cls(f"table {table!r}", f"{table}_2", command, models_of)

    def conflict(self, column: ColumnSchema, found: str, path: str) -> SchemaDrift:
        """The error of a column whose values have no type in common with those of the table."""
        models = sorted(self.models_of(column.name))
        read = f", which live models read: {', '.join(models)}" if models else ""
        hint = _PANDAS.format(name=column.name) if _is_int_as_float(column.arrow_type, found) else ""
        return SchemaDrift(f"a file of {self.subject} has a column of another type{read}",
                           where=f"{path}, column {column.name}", value=found, allowed=column.arrow_type,
                           next_step=self._conflict_step(column) + hint)  # fmt: skip

    def _conflict_step(self, column: ColumnSchema) -> str:
        wanted, other = column.arrow_type, self.other
        match self.command:
            case "add":
                return (
                    f"write the file with {wanted}, then run the same command again; or move the files of the new type "
                    f"to a folder of their own: headrace table add {other} FOLDER"
                )
            case "append":
                return f"cast the column to {wanted} in the file, then append it again"
            case "import":
                return (
                    f"cast the column to {wanted} in the file, or declare it so in the schema file, then import it "
                    f"again; or import the files of the new type as a table of their own: headrace table import {other} FILES"
                )
            case "overlay":
                return f"write the values as {wanted}, or under another name"
            case "feed":
                return (
                    f"declare the column as {wanted} in the schema file, and give it again with --schema; or add the topic under "
                    f"another table name, such as {other}"
                )
            case "refresh":
                return f"change the column back to {wanted} in the lake, or add the lake under another table name, such as {other}"


def _is_int_as_float(wanted: str, found: str) -> bool:
    kinds = parse_stored_type(wanted), parse_stored_type(found)
    return kinds[0] is not None and kinds[1] is not None and pat.is_integer(kinds[0]) and pat.is_floating(kinds[1])


#: Columns that are all from one file.
NO_PATHS: Mapping[str, str] = {}


class SchemaMerge:
    """The schema of a table, into which those of its files are merged one by one.

    Attributes:
        widened_by: the first file that widened a column, by column.
    """

    def __init__(self, columns: Iterable[ColumnSchema], advice: DriftAdvice) -> None:
        self._columns = {column.name: column for column in columns}
        self._advice = advice
        self._last: Sequence[ColumnSchema] = ()
        self.widened_by: dict[str, str] = {}

    @property
    def columns(self) -> tuple[ColumnSchema, ...]:
        """The columns: those that the table had, then new ones in order of arrival."""
        return tuple(self._columns.values())

    def add(self, found: Sequence[ColumnSchema], path: str, paths: Mapping[str, str] = NO_PATHS) -> None:
        """Merge the columns of a file, or of several, of which ``paths`` names the one that a column is from.

        Raises :class:`SchemaDrift` for a column that differs in meaning.
        """
        if found == self._last:
            return
        for column in found:
            known = self._columns.get(column.name)
            from_file = paths.get(column.name, path)
            self._columns[column.name] = self._merged(known, column, from_file) if known else column
        self._last = found

    def _merged(self, known: ColumnSchema, found: ColumnSchema, path: str) -> ColumnSchema:
        merged = merged_column(known, found)
        if merged is None:
            raise self._advice.conflict(known, found.arrow_type, path)
        if merged.arrow_type != known.arrow_type and known.arrow_type != NULL:
            self.widened_by.setdefault(known.name, path)
        return merged


def merged_column(known: ColumnSchema, found: ColumnSchema) -> ColumnSchema | None:
    """The column of a table with the values of another source; None if the two differ in meaning."""
    wanted = widest_text(known.arrow_type, found.arrow_type)
    if wanted is None:
        return None
    overlay_only = known.overlay_only and found.overlay_only
    held = known.stored_types or (
        known.arrow_type,
    )  # the type of all values may be that of no file: int8 and uint16 are int32
    if found.arrow_type == NULL or (
        known.arrow_type == wanted and any(is_same_type(one, found.arrow_type) for one in held)
    ):
        return replace(known, overlay_only=overlay_only)
    new = () if any(is_same_type(one, found.arrow_type) for one in held) else (found.arrow_type,)
    return ColumnSchema(known.name, wanted, overlay_only, (*held, *new))
