"""Plain Python values as literal nodes, for arguments of operators."""

from __future__ import annotations

from datetime import date

from transforms.errors import InputError
from transforms.graphs.graph import Literal, Node, Operation
from transforms.operators.plain_values import as_float64, plain
from transforms.time_range import Moment, has_offset, microseconds
from transforms.types import ColumnType, Dense, DType

Value = bool | int | float | str | date


def operand_node(value: Value, peer: Node) -> Literal:
    """A plain value as a literal of a type that fits ``peer``.

    A number for a float column becomes a float of that width, so that ``price + 1`` is ``price + 1.0``; a date, a time or
    its text for a timestamp becomes a :func:`moment_node`.
    """
    if isinstance(value, str | date) and peer.type.dtype is DType.TIMESTAMP:
        return _moment_beside(value, peer)
    if isinstance(value, int | float) and not isinstance(value, bool) and _is_float(peer.type):
        return Literal(Dense(peer.type.dtype), as_float64(value, f"a constant beside {peer.type}"))
    return literal_node(value)


def literal_node(value: Value) -> Literal:
    """A constant: bool, int64, float64, string, or a timestamp of a date or time."""
    if isinstance(value, date):
        return moment_node(value)
    kinds = {bool: DType.BOOL, int: DType.INT64, float: DType.FLOAT64, str: DType.STRING}
    if type(value) not in kinds:
        raise InputError(
            "a literal must have a supported type", value=value, allowed="bool, int, float, str, date, datetime"
        )
    plain(value, "a literal")
    return Literal(Dense(kinds[type(value)]), value)


def moment_node(value: Moment) -> Literal:
    """A constant timestamp, in UTC unless it states an offset."""
    return Literal(Dense(DType.TIMESTAMP), microseconds(value))


def _is_float(column_type: ColumnType) -> bool:
    return column_type.dtype in {DType.FLOAT32, DType.FLOAT64}


def _moment_beside(value: str | date, peer: Node) -> Literal:
    """A moment as a literal. Raises :class:`InputError` for an offset that is compared with a wall clock."""
    literal_moment = moment_node(value)
    if has_offset(value) and _is_wall_clock(peer):
        raise InputError("a moment beside a wall clock must be written without an offset", where="in_zone", value=str(value),
                         allowed="what the wall clock shows, such as 2026-03-01T09:00",
                         next_step="compare the time itself, before in_zone, with a moment that has an offset")  # fmt: skip
    return literal_moment


def _is_wall_clock(node: Node) -> bool:
    """Whether a timestamp is the result of :meth:`in_zone`, or is computed from it."""
    ahead = [node]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Operation):
            if node.op == "in_zone":
                return True
            ahead += [arg for arg in node.operands if arg.type.dtype is DType.TIMESTAMP]
    return False
