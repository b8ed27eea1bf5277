"""Constants and parameters in a component's document: JSON values, with floats in hexadecimal to keep every bit."""

from __future__ import annotations

import math

from transforms.documents import INT64, MOST_BYTES, Part
from transforms.operators.declaration import Scalar
from transforms.types import ColumnType, Dense, DType

#: The maximum bits of an integer parameter: a seed may have more than 64 bits, but not thousands.
_MOST_MAGNITUDE = 2**256


def scalar_document(value: Scalar) -> object:
    """A constant or a parameter as a JSON value."""
    if isinstance(value, float):
        return {"float": value.hex()}
    return [scalar_document(item) for item in value] if isinstance(value, tuple) else value


def literal_from(part: Part, column_type: ColumnType) -> bool | int | float | str:
    """The value of a constant of the stated type. Raises :class:`~transforms.errors.DataError`."""
    if not isinstance(column_type, Dense):
        raise part.refused(f"absent: a literal is one value per event, not {column_type}")
    match column_type.dtype:
        case DType.BOOL:
            return part.boolean()
        case DType.STRING:
            return part.text(most=MOST_BYTES)
        case DType.FLOAT32 | DType.FLOAT64:
            return _float(part)
        case _:
            return part.integer(*INT64)


def param_from(part: Part) -> Scalar:
    """A parameter: a plain value, or a tuple of plain values of one kind. Raises :class:`~transforms.errors.DataError`."""
    if not isinstance(part.value, list | tuple):
        return _plain(part)
    values = tuple(_plain(item) for item in part.items())
    if len({type(value) for value in values}) > 1:
        raise part.refused("a list of values of one kind")
    return values  # type: ignore[return-value]  # of one kind, as checked above


def _plain(part: Part) -> bool | int | float | str:
    match part.value:
        case dict():
            return _float(part)
        case bool():
            return part.boolean()
        case int():
            return part.integer(-_MOST_MAGNITUDE, _MOST_MAGNITUDE)
        case _:
            return part.text(most=MOST_BYTES)


def _float(part: Part) -> float:
    """A float as :meth:`float.hex` spells it."""
    spelled = part.fields(("float",)).at("float")
    text = spelled.text(most=64)
    value = spelled.made(lambda: float.fromhex(text), "a float in hexadecimal")
    return math.nan if math.isnan(value) else value
