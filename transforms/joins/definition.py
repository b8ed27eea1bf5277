"""The definition of a joined column: which rows of another table an event sees, and their aggregate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from transforms.derived_documents import Omitted, document_of, number, read_value, whole
from transforms.documents import document_part
from transforms.durations import MOST_MICROS
from transforms.errors import InputError
from transforms.graphs.encoding import digest
from transforms.graphs.graph import component_from_document
from transforms.names import check_name, is_name
from transforms.types import ColumnType, Dense, DType, Ragged

#: The form of a definition's document; another one would have another digest, and other columns.
FORMAT = "headrace.join/1"
#: The most rows of a history.
MOST_ROWS = 10_000
#: Digits of the digest in a column's name: 64 bits among the columns of a table.
_DIGITS = 16
_COLUMN = re.compile(rf"@(.+)\.([a-z]+)#[0-9a-f]{{{_DIGITS}}}")

_Micros = Annotated[int, whole(0, MOST_MICROS)]


class Aggregate(StrEnum):
    """The result of the visible rows. ``ratio`` is the mean of numbers or of false and true with a prior."""

    LATEST = "latest"
    FIRST = "first"
    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    RATIO = "ratio"
    LAST = "last"


#: Aggregates without a value, and those of rows.
WITHOUT_VALUE = frozenset({Aggregate.COUNT})
OF_ROWS = frozenset({Aggregate.LATEST, Aggregate.FIRST, Aggregate.LAST})


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Equal values join: an expression over the other table, and one over the event. Documents of components."""

    other: Mapping[str, Any]
    own: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinDefinition:
    """A joined column. A row is seen by an event at ``t`` if its time is before ``t``, and the later one of ``time + available_after`` and its value of ``known_at`` too.

    Attributes:
        table: The other table, by name.
        keys: What must be equal; a null joins nothing.
        aggregate: The result of the visible rows.
        value: The value of a row, as the document of a component; a row without one is left out. None: the number of rows.
        where: Rows for which this is not true are left out.
        window_micros: Rows from ``t - window`` on are seen; None: all.
        available_after_micros: How long after its time a row can be read.
        known_at: A column of timestamps from which on a row can be read.
        order: What orders rows of one time, before the bytes of the value.
        includes_equal: Whether a row of the time ``t`` itself is seen.
        prior: Of a ratio: added to the sum, and to the number.
        rows: Of the last rows: how many.
    """

    table: str
    keys: tuple[KeyPair, ...]
    aggregate: Aggregate
    value: Omitted[Mapping[str, Any] | None] = None
    where: Omitted[Mapping[str, Any] | None] = None
    window_micros: Omitted[_Micros | None] = None
    available_after_micros: Omitted[_Micros] = 0
    known_at: Omitted[str] = ""
    order: Omitted[Mapping[str, Any] | None] = None
    includes_equal: Omitted[bool] = False
    prior: Omitted[tuple[Annotated[float, number(0.0)], ...]] = ()
    rows: Omitted[Annotated[int, whole(0, MOST_ROWS)]] = 0

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for parts that contradict each other."""
        check_name(self.table, "a table")
        if not self.keys:
            raise InputError("a join must have a key", where=f"table {self.table}", value="none", next_step="add .by(COLUMN, equals=EXPRESSION)")  # fmt: skip
        if (self.value is None) != (self.aggregate in WITHOUT_VALUE):
            raise InputError("an aggregate of rows must have a value, and a count none", where=f"{self.aggregate} of table {self.table}",
                             value="no value" if self.value is None else "a value")  # fmt: skip
        if (len(self.prior) == 2) != (self.aggregate is Aggregate.RATIO):
            raise InputError("a ratio must have a prior of two numbers, and only a ratio has one", where=f"{self.aggregate} of table {self.table}",
                             value=self.prior, next_step="give prior=(1, 50), or (0, 0) for none")  # fmt: skip
        if (self.rows > 0) != (self.aggregate is Aggregate.LAST):
            raise InputError("the last rows must be at least one, and other aggregates have no number of rows", where=f"{self.aggregate} of table {self.table}",
                             value=self.rows, allowed=f"1 to {MOST_ROWS}")  # fmt: skip

    @property
    def digest(self) -> str:
        """The identity of the definition, 64 hexadecimal digits."""
        return digest([FORMAT, self.to_document()])

    @property
    def column(self) -> str:
        """The name of the column in the table of the events: readable, and no other definition has it."""
        return f"@{self.table}.{self.aggregate}#{self.digest[:_DIGITS]}"

    def to_document(self) -> dict[str, Any]:
        """The definition as a JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def from_document(cls, document: object) -> JoinDefinition:
        """The inverse of :meth:`to_document`. Raises :class:`~transforms.errors.DataError` for any other document."""
        return read_value(cls, document_part(document, "joined column"))


def is_joined(column_name: str) -> bool:
    """Whether a name is that of a joined column: ``@TABLE.AGGREGATE#`` and 16 hexadecimal digits."""
    found = _COLUMN.fullmatch(column_name)
    return found is not None and is_name(found.group(1)) and found.group(2) in set(Aggregate)


def column_type(definition: JoinDefinition) -> ColumnType:
    """The type of a joined column. Raises :class:`InputError` for a value that the aggregate does not take."""
    if definition.value is None:
        return Dense(DType.INT64)
    value = component_from_document(dict(definition.value)).type
    where = f"{definition.aggregate} of table {definition.table}"
    if not isinstance(value, Dense):
        raise InputError("the value of a joined row must be one value", where=where, value=str(value), allowed="Dense",
                         next_step="join lists by a key of their own, or take their length")  # fmt: skip
    if definition.aggregate is Aggregate.LAST:
        return Ragged(value.dtype, value.buckets)
    if definition.aggregate in OF_ROWS:
        return value
    is_extreme = definition.aggregate in (Aggregate.MIN, Aggregate.MAX)
    if value.buckets is not None or value.dtype is DType.STRING or (value.dtype is DType.TIMESTAMP and not is_extreme):
        raise InputError("the value of an aggregate must be a number", where=where, value=str(value), next_step="use latest, first or last of it",
                         allowed="bool, int64, float32, float64; of min and max also a timestamp")  # fmt: skip
    return value if is_extreme else Dense(DType.FLOAT64)
