"""Tables whose rows are joined to events: which rows an event sees, and the columns that are made of them.

    clicks = table("clicks", available_after="10m").where(boolean("clicked")).by("item", equals=int64("item"))
    recent = clicks.count(window="7d").log1p()

Each aggregate is an ordinary expression: a column of the events' table, which is computed from the rows that an event sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from transforms.durations import Duration, micros_of
from transforms.errors import InputError, TypeMismatch
from transforms.expressions.expression import Expr
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Artifact, RawColumn, component_document, raw_columns, topological
from transforms.graphs.programs import OWN_KEYWORDS
from transforms.graphs.subgraphs import subgraphs
from transforms.joins.column import JoinedColumn
from transforms.joins.column_names import Aggregate, is_joined
from transforms.joins.definition import (
    ALSO_WITHOUT_VALUE,
    LEAST_PRECISION,
    MOST_EXACT,
    MOST_PRECISION,
    MOST_ROWS,
    WITHOUT_VALUE,
    DayClock,
    JoinDefinition,
    KeyPair,
)
from transforms.names import check_name
from transforms.operators.full_pass import FULL_PASS
from transforms.operators.zones import clock_changes
from transforms.types import Dense, DType


@dataclass(frozen=True, slots=True)
class OtherTable:
    """A table whose rows are joined to events; :func:`table` makes it.

    Attributes:
        name: of the table.
        available_after_micros: how long after its time a row can be read.
        known_at: the column of timestamps from which on a row can be read, "" for none.
        includes_equal: whether a row of the event's own time is seen.
        as_of: the clock as of whose last midnight an event sees rows; None: as of its own time.
        condition: rows for which this is not true are left out.
        keys: what must be equal.
    """

    name: str
    available_after_micros: int = 0
    known_at: str = ""
    includes_equal: bool = False
    as_of: DayClock | None = None
    condition: Expr | None = None
    keys: tuple[KeyPair, ...] = ()

    def where(self, condition: Expr) -> OtherTable:
        """Only the rows for which ``condition``, an expression over this table, is true. A null is not true."""
        return replace(self, condition=self._narrowed(condition))

    def by(self, column: str | Expr, *, equals: Expr | None = None) -> KeyedTable:
        """Only the rows whose ``column`` is equal to ``equals``; a null is equal to nothing. Several keys must all be equal.

        Args:
            column: a column of this table by its name, which has the type of ``equals``, or an expression over this table.
            equals: an expression over the event; by default ``column`` itself, read from the events' table.
        """
        pair = _key_pair(column, equals, f"table {self.name}, key {len(self.keys) + 1}")
        return KeyedTable(self.name, self.available_after_micros, self.known_at, self.includes_equal, self.as_of, self.condition, (*self.keys, pair))  # fmt: skip

    def _narrowed(self, condition: Expr) -> Expr:
        where = f"table {self.name}, where"
        given = _expression(condition, where, 'such as hr.boolean("clicked")')
        if given.type != Dense(DType.BOOL):
            raise TypeMismatch("the condition of a table must be true or false", where=where, value=str(given.type), allowed="Dense[bool]",
                               next_step='compare a column, as in hr.float32("price") > 3')  # fmt: skip
        _check_part(given, where)
        return given if self.condition is None else self.condition & given


@dataclass(frozen=True, slots=True)
class KeyedTable(OtherTable):
    """The rows of another table with the keys of an event; :meth:`OtherTable.by` makes it.

    Each method is a column of the events' table. Only rows before the event are seen, and those with a value; ``window`` leaves out rows that are
    older than it.
    """

    def where(self, condition: Expr) -> KeyedTable:
        """As :meth:`OtherTable.where`."""
        return replace(self, condition=self._narrowed(condition))

    def latest(self, value: Expr, *, max_age: Duration | None = None, order: Expr | None = None) -> Expr:
        """The value of the latest row; null without one.

        Args:
            value: an expression over the other table.
            max_age: rows that are older than it are left out.
            order: which of several rows of one time is later; without it the greater value is.
        """
        return self._column(Aggregate.LATEST, value, window=max_age, order=order, window_name="max_age")

    def first(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None, order: Expr | None = None) -> Expr:  # fmt: skip
        """The value of the earliest row; null without one. Arguments as :meth:`latest` and :meth:`count`."""
        return self._column(Aggregate.FIRST, value, window=window, hop=hop, order=order)

    def count(self, *, window: Duration | None = None, hop: Duration | None = None) -> Expr:
        """The number of rows.

        Args:
            window: rows that are older than it are left out.
            hop: the start of the window is moved back to a multiple of it since 1970, so that a window is up to ``hop`` longer.
        """
        return self._column(Aggregate.COUNT, None, window=window, hop=hop)

    def sum(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None) -> Expr:
        """The sum of a number, or how often a boolean is true, as float64; 0 without rows."""
        return self._column(Aggregate.SUM, value, window=window, hop=hop)

    def mean(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None) -> Expr:
        """The mean of a number, or the share of true ones; null without rows."""
        return self._column(Aggregate.MEAN, value, window=window, hop=hop)

    def min(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None) -> Expr:
        """The least number or time, in its own type; null without rows."""
        return self._column(Aggregate.MIN, value, window=window, hop=hop)

    def max(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None) -> Expr:
        """The greatest number or time, in its own type; null without rows."""
        return self._column(Aggregate.MAX, value, window=window, hop=hop)

    def ratio(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None, prior: tuple[float, float] = (0, 0)) -> Expr:  # fmt: skip
        """The mean with a prior: ``(sum + prior[0]) / (rows + prior[1])``; null if nothing is below the line.

        A click rate is ``ratio(hr.boolean("clicked"), prior=(1, 50))``: an item without events has 0.02.
        """
        return self._column(Aggregate.RATIO, value, window=window, hop=hop, prior=self._prior(prior))

    def last(self, rows: int, value: Expr, *, window: Duration | None = None, hop: Duration | None = None, order: Expr | None = None) -> Expr:  # fmt: skip
        """The values of the last ``rows`` rows, as a list that ends with the newest. Other arguments as :meth:`latest` and :meth:`count`."""
        return self._column(Aggregate.LAST, value, window=window, hop=hop, order=order, rows=self._rows(Aggregate.LAST, rows))  # fmt: skip

    def ages(self, rows: int, value: Expr | None = None, *, window: Duration | None = None, hop: Duration | None = None, order: Expr | None = None) -> Expr:  # fmt: skip
        """The seconds from each of the last ``rows`` rows to the event, as a list that ends with the newest.

        With the arguments of :meth:`last` the rows are the same, so that item i of both lists belongs to one row; without ``value`` all rows count.
        """
        return self._column(Aggregate.AGES, value, window=window, hop=hop, order=order, rows=self._rows(Aggregate.AGES, rows))  # fmt: skip

    def decayed(self, value: Expr | None = None, *, half_life: Duration, window: Duration | None = None, hop: Duration | None = None) -> Expr:  # fmt: skip
        """The sum of a number, without ``value`` the number of rows, in which a row counts half after each ``half_life``."""
        micros = micros_of("half_life", half_life, where=f"{Aggregate.DECAYED} of table {self.name}")
        return self._column(Aggregate.DECAYED, value, window=window, hop=hop, half_life_micros=micros)

    def distinct(self, value: Expr, *, window: Duration | None = None, hop: Duration | None = None, exact_most: int = 1_000, precision: int = 12) -> Expr:  # fmt: skip
        """The number of distinct values.

        Args:
            value: an expression over the other table; a null is no value.
            window: as in :meth:`count`.
            hop: as in :meth:`count`.
            exact_most: up to this number values are counted one by one; more are estimated by HyperLogLog.
            precision: the estimate has 2 to the power of it registers, 4 to 16; 12 has a standard error of 1.6 %.
        """
        where = f"{Aggregate.DISTINCT} of table {self.name}"
        _check_whole("exact_most", exact_most, 1, MOST_EXACT, where)
        _check_whole("precision", precision, LEAST_PRECISION, MOST_PRECISION, where)
        return self._column(Aggregate.DISTINCT, value, window=window, hop=hop, exact_most=exact_most, precision=precision)  # fmt: skip

    def _rows(self, aggregate: Aggregate, rows: int) -> int:
        _check_whole("rows", rows, 1, MOST_ROWS, f"{aggregate} of table {self.name}")
        return rows

    def _prior(self, prior: object) -> tuple[float, float]:
        match prior:
            case (int() | float() as add, int() | float() as to) if not isinstance(add, bool) and not isinstance(
                to, bool
            ):
                if 0 <= add < float("inf") and 0 <= to < float("inf"):
                    return float(add), float(to)
        raise InputError("a prior must be two numbers of at least 0", where=f"ratio of table {self.name}", value=prior,
                         allowed="what is added to the sum, and to the number of rows, as in (1, 50)")  # fmt: skip

    def _column(
        self,
        aggregate: Aggregate,
        value: Expr | None,
        *,
        window: Duration | None,
        hop: Duration | None = None,
        order: Expr | None = None,
        window_name: str = "window",
        **others: Any,
    ) -> Expr:
        where = f"{aggregate} of table {self.name}"
        definition = JoinDefinition(
            table=self.name,
            keys=self.keys,
            aggregate=aggregate,
            value=None if value is None and aggregate in WITHOUT_VALUE | ALSO_WITHOUT_VALUE else _document(value, f"{where}, value"),
            where=None if self.condition is None else _document(self.condition, where),
            order=None if order is None else _document(order, f"{where}, order"),
            window_micros=None if window is None else micros_of(window_name, window, where=where),
            hop_micros=0 if hop is None else micros_of("hop", hop, where=where),
            available_after_micros=self.available_after_micros,
            known_at=self.known_at,
            includes_equal=self.includes_equal,
            as_of=self.as_of,
            **others,
        )  # fmt: skip
        return Expr(JoinedColumn.of(definition))


def table(
    name: str,
    *,
    available_after: Duration | None = None,
    known_at: str | None = None,
    including_equal: bool = False,
    as_of: Literal["day"] | None = None,
    zone: str = "UTC",
) -> OtherTable:
    """Another table, whose rows are joined to events: those before an event, that could be read by then.

    Args:
        name: of the table in the warehouse.
        available_after: how long after its time a row can be read, such as ``"10m"``.
        known_at: a column of timestamps from which on a row can be read; a row without one is not seen.
        including_equal: whether a row of the event's own time is seen.
        as_of: with "day" an event sees what it would have seen at the last midnight.
        zone: the time zone of that midnight, such as ``"Europe/Berlin"``.

    >>> users = table("users").by("id", equals=int64("user"))
    >>> users.latest(text("country"), max_age="90d").hash_buckets(300).type
    Dense(dtype=<DType.INT64: 'int64'>, buckets=300)
    >>> clicks = table("clicks", available_after="10m").by(int64("item"))
    >>> model = Model("ctr", client="search", label="clicked")
    >>> model.input("recent", clicks.count(window="7d").log1p())
    >>> model.input("rate", clicks.ratio(boolean("clicked"), window="7d", prior=(1, 50)))
    >>> [(one.table, str(one.aggregate)) for one in model.joins.values()]
    [('clicks', 'count'), ('clicks', 'ratio')]
    """
    check_name(name, "a table")
    where = f"table {name}"
    if known_at is not None and (not isinstance(known_at, str) or not known_at or is_joined(known_at)):
        raise InputError("known_at must be the name of a stored column of timestamps", where=where, value=known_at)
    if not isinstance(including_equal, bool):
        raise InputError("including_equal must be True or False", where=where, value=including_equal)
    after = 0 if available_after is None else micros_of("available_after", available_after, where=where)
    return OtherTable(name, after, known_at or "", including_equal, _clock(as_of, zone, where))


def _clock(as_of: object, zone: object, where: str) -> DayClock | None:
    if as_of not in (None, "day") or not isinstance(zone, str) or (as_of is None and zone != "UTC"):
        raise InputError(
            'as_of must be "day", and only beside it a zone may be named', where=where, value=(as_of, zone)
        )
    return None if as_of is None else DayClock(zone, *clock_changes(zone))


def _check_whole(name: str, value: object, least: int, most: int, where: str) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{name} must be a whole number in its range", where=where, value=value, allowed=f"{least:,} to {most:,}")  # fmt: skip


def _key_pair(column: str | Expr, equals: Expr | None, where: str) -> KeyPair:
    if equals is not None:
        equals = _expression(equals, where, 'equals=hr.int64("user")')
    if isinstance(column, str):
        if equals is None:
            raise InputError("a key must have a type, got a name alone", where=where, value=column,
                             next_step=f"write by(hr.int64({column!r})), or by({column!r}, equals=hr.int64(COLUMN OF THE EVENT)); hr.text if it is a text")  # fmt: skip
        column = Expr(RawColumn(Dense(equals.type.dtype), column))
    other = _expression(column, where, 'a column such as hr.int64("id")')
    own = other if equals is None else equals
    for side in (other, own):
        if not isinstance(side.type, Dense) or side.type.dtype in (DType.FLOAT32, DType.FLOAT64):
            raise TypeMismatch("a key must be one value that is equal or not", where=where, value=repr(side),
                               allowed="bool, int64, string, timestamp", next_step="cast a number with a fraction, or round it")  # fmt: skip
    if other.type.dtype is not own.type.dtype:
        raise TypeMismatch("the sides of a key must have one type", where=where, value=f"{other.type.dtype} and {own.type.dtype}",
                           next_step="cast one of them, or read it with the other type")  # fmt: skip
    return KeyPair(_document(other, where), _document(own, where))


def _expression(value: object, where: str, example: str) -> Expr:
    if isinstance(value, Expr):
        return value
    written = f"hr.int64({value!r}), or hr.text({value!r}) if it is a text" if isinstance(value, str) else example
    raise TypeMismatch("a part of a join must be an expression, which says its type", where=where, value=value, next_step=written)  # fmt: skip


def _document(value: object, where: str) -> dict[str, object]:
    given = _expression(value, where, 'a column such as hr.int64("id")')
    _check_part(given, where)
    return component_document(canonicalize(given.node))


def _check_part(part: Expr, where: str) -> None:
    """Raise for what a join cannot compute from the stored columns of a row or an event alone."""
    joined: Sequence[str] = [column.name for column in raw_columns(part.node) if is_joined(column.name)]
    if joined:
        raise InputError("a part of a join must read stored columns, got a joined column, which is computed later than what it joins", where=where,
                         value=joined[0], next_step="use the joined columns beside each other, in one expression above both")  # fmt: skip
    if not raw_columns(part.node):
        raise InputError("a part of a join must read a column, got what is the same for every row", where=where, value=repr(part))  # fmt: skip
    for node in topological([part.node]):
        if isinstance(node, Artifact):
            raise InputError("a part of a join must need no full pass, got the result of one", where=where, value=repr(part))  # fmt: skip
    for node in subgraphs(part.node):
        if node.op in FULL_PASS:
            raise InputError("a part of a join must need no full pass, since its range would follow the joined table", where=where, value=node.op,
                             next_step=f"join the value, and use {node.op} above the joined column")  # fmt: skip
        if node.op in OWN_KEYWORDS:
            raise InputError("a part of a join must consist of built-in operators, got a function of your own", where=where, value=node.op,
                             next_step="join the value, and use the function above the joined column")  # fmt: skip
