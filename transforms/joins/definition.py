"""The definition of a joined column: which rows of another table an event sees, and their aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from transforms.derived_documents import Omitted, document_of, number, read_value, whole
from transforms.documents import document_part
from transforms.durations import MOST_MICROS
from transforms.errors import InputError
from transforms.graphs.encoding import digest
from transforms.graphs.graph import component_from_document
from transforms.joins.column_names import Aggregate, joined_name
from transforms.names import check_name
from transforms.types import ColumnType, Dense, DType, Ragged

#: The form of a definition's document; another one would have another digest, and other columns.
FORMAT = "headrace.join/1"
#: The most rows of a history.
MOST_ROWS = 10_000
#: The most distinct values that are counted one by one, and the binary logarithms of registers of HyperLogLog.
MOST_EXACT = 100_000
LEAST_PRECISION, MOST_PRECISION = 4, 16
_DAY_SECS = 86_400
_MOST_SECS = (2**63 - 1) // 10**6

_Micros = Annotated[int, whole(0, MOST_MICROS)]


#: Aggregates without a value, those that need none, those of rows, and those of a number of last rows.
WITHOUT_VALUE = frozenset({Aggregate.COUNT})
ALSO_WITHOUT_VALUE = frozenset({Aggregate.AGES, Aggregate.DECAYED})
OF_ROWS = frozenset({Aggregate.LATEST, Aggregate.FIRST, Aggregate.LAST})
OF_LAST_ROWS = frozenset({Aggregate.LAST, Aggregate.AGES})


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Equal values join: an expression over the other table, and one over the event. Documents of components."""

    other: Mapping[str, Any]
    own: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DayClock:
    """The clock whose midnights are meant; its changes are part of the definition, as those of ``in_zone`` are of a component.

    Attributes:
        zone: its name in the IANA database.
        starts: when the clock changed, in seconds since 1970, ascending.
        offsets_secs: ahead of UTC before, between and after the changes.
    """

    zone: str
    starts: tuple[Annotated[int, whole(-_MOST_SECS, _MOST_SECS)], ...]
    offsets_secs: tuple[Annotated[int, whole(-_DAY_SECS, _DAY_SECS)], ...]

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for changes that no clock has."""
        is_ascending = all(a < b for a, b in pairwise((-_MOST_SECS, *self.starts, _MOST_SECS)))
        if (
            not is_ascending
            or len(self.offsets_secs) != len(self.starts) + 1
            or any(abs(one) > _DAY_SECS for one in self.offsets_secs)
        ):
            raise InputError("the changes of a clock must be ascending, each with an offset of at most a day", where=f"zone {self.zone}",
                             value=f"{len(self.starts)} changes, {len(self.offsets_secs)} offsets")  # fmt: skip


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
        half_life_micros: Of a decayed sum: after this time a row counts half.
        exact_most: Of distinct values: up to this number they are counted one by one.
        precision: Of more distinct values: the binary logarithm of the registers of HyperLogLog.
        hop_micros: The start of the window is moved back to a multiple of it since 1970.
        as_of: An event sees what it would have seen at the last midnight of this clock.
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
    half_life_micros: Omitted[_Micros] = 0
    exact_most: Omitted[Annotated[int, whole(0, MOST_EXACT)]] = 0
    precision: Omitted[Annotated[int, whole(0, MOST_PRECISION)]] = 0
    hop_micros: Omitted[_Micros] = 0
    as_of: Omitted[DayClock | None] = None

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for parts that contradict each other."""
        check_name(self.table, "a table")
        if not self.keys:
            raise InputError("a join must have a key", where=f"table {self.table}", value="none", next_step="add .by(COLUMN, equals=EXPRESSION)")  # fmt: skip
        where = f"{self.aggregate} of table {self.table}"
        if self.aggregate not in ALSO_WITHOUT_VALUE and (self.value is None) != (self.aggregate in WITHOUT_VALUE):
            raise InputError("an aggregate of rows must have a value, and a count none", where=where,
                             value="no value" if self.value is None else "a value")  # fmt: skip
        if (len(self.prior) == 2) != (self.aggregate is Aggregate.RATIO):
            raise InputError("a ratio must have a prior of two numbers, and only a ratio has one", where=where,
                             value=self.prior, next_step="give prior=(1, 50), or (0, 0) for none")  # fmt: skip
        if (self.rows > 0) != (self.aggregate in OF_LAST_ROWS):
            raise InputError("the last rows must be at least one, and other aggregates have no number of rows", where=where,
                             value=self.rows, allowed=f"1 to {MOST_ROWS}")  # fmt: skip
        if (self.half_life_micros > 0) != (self.aggregate is Aggregate.DECAYED):
            raise InputError(
                "a decayed sum must have a half-life, and only such a sum has one",
                where=where,
                value=self.half_life_micros,
            )
        is_counted = self.exact_most > 0 and self.precision >= LEAST_PRECISION
        if is_counted if self.aggregate is not Aggregate.DISTINCT else not is_counted:
            raise InputError("distinct values must have a limit and a precision, and other aggregates have none", where=where,
                             value=(self.exact_most, self.precision), allowed=f"1 to {MOST_EXACT:,}, and {LEAST_PRECISION} to {MOST_PRECISION}")  # fmt: skip
        if self.hop_micros and (
            self.window_micros is None or self.hop_micros > self.window_micros or self.as_of is not None
        ):
            raise InputError("a hop must be at most the window, and not beside as_of", where=where, value=self.hop_micros,
                             allowed="nothing" if self.window_micros is None else f"at most {self.window_micros} microseconds")  # fmt: skip

    @property
    def digest(self) -> str:
        """The identity of the definition, 64 hexadecimal digits."""
        return digest([FORMAT, self.to_document()])

    @property
    def column(self) -> str:
        """The name of the column in the table of the events: readable, and no other definition has it."""
        return joined_name(self.table, self.aggregate, self.digest)

    def check_events(self, table: str) -> None:
        """Raise :class:`InputError` if an event of ``table`` would see itself."""
        if self.includes_equal and table == self.table:
            raise InputError("a table that is joined to itself must leave out rows of the event's own time, or an event sees itself", where=f"table {table}",
                             value=f"{self.aggregate} with including_equal=True", next_step="leave out including_equal")  # fmt: skip

    def to_document(self) -> dict[str, Any]:
        """The definition as a JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def from_document(cls, document: object) -> JoinDefinition:
        """The inverse of :meth:`to_document`. Raises :class:`~transforms.errors.DataError` for any other document."""
        return read_value(cls, document_part(document, "joined column"))


def column_type(definition: JoinDefinition) -> ColumnType:
    """The type of a joined column. Raises :class:`InputError` for a value that the aggregate does not take."""
    aggregate = definition.aggregate
    if aggregate is Aggregate.AGES:
        return Ragged(DType.FLOAT64)
    if definition.value is None:
        return Dense(DType.FLOAT64 if aggregate is Aggregate.DECAYED else DType.INT64)
    value = component_from_document(dict(definition.value)).type
    where = f"{aggregate} of table {definition.table}"
    if not isinstance(value, Dense):
        raise InputError("the value of a joined row must be one value", where=where, value=str(value), allowed="Dense",
                         next_step="join lists by a key of their own, or take their length")  # fmt: skip
    if aggregate is Aggregate.LAST:
        return Ragged(value.dtype, value.buckets)
    if aggregate in OF_ROWS:
        return value
    if aggregate is Aggregate.DISTINCT:
        return Dense(DType.INT64)
    is_extreme = aggregate in (Aggregate.MIN, Aggregate.MAX)
    if value.buckets is not None or value.dtype is DType.STRING or (value.dtype is DType.TIMESTAMP and not is_extreme):
        raise InputError("the value of an aggregate must be a number", where=where, value=str(value), next_step="use latest, first or last of it",
                         allowed="bool, int64, float32, float64; of min and max also a timestamp")  # fmt: skip
    return value if is_extreme else Dense(DType.FLOAT64)
