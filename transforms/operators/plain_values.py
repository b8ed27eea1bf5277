"""Values in documents and fingerprints: exact Python types, numbers in range, one NaN."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from itertools import islice

from transforms.errors import InputError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
#: The most values that one parameter may hold.
VALUES_MAX = 10_000_000


def plain(value: object, where: str) -> object:
    """A bool, int, float or str of exactly this type, every NaN the same; a tuple of such; anything else as it is.

    Raises :class:`InputError` for a whole number beyond int64, and for text that UTF-8 cannot hold.
    """
    match value:
        case bool():
            return value
        case int():
            return as_int64(int.__int__(value), where)
        case float():
            return math.nan if math.isnan(value) else float.__float__(value)
        case str():
            return as_text(str.__str__(value), where)
        case tuple():
            return tuple(plain(item, where) for item in value)
        case _:
            return value


def unboxed(value: object) -> object:
    """The Python value of a numpy scalar, and those of a list or tuple as a tuple; anything else as it is."""
    numpy = sys.modules.get("numpy")
    if numpy is None:  # where it is not loaded no value is a scalar of it
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, list | tuple):
        return tuple(item.item() if isinstance(item, numpy.generic) else item for item in value)
    return value.item() if isinstance(value, numpy.generic) else value


def as_text(value: str, where: str) -> str:
    """``value``. Raises :class:`InputError` for half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError("text must be without lone surrogates, which UTF-8 cannot hold", where=where,
                         value=value.encode("unicode_escape"), allowed="Unicode text",
                         next_step="decode the text properly before it reaches Headrace") from None  # fmt: skip
    return value


def as_float64(value: float, where: str) -> float:
    """A whole number as the nearest float64, and a float as it is. Raises :class:`InputError` beyond float64."""
    try:
        return float(value)
    except OverflowError:
        raise InputError("a number must be within the range of float64", where=where, value=_magnitude(value),
                         allowed="-1.8e308 .. 1.8e308, inf and -inf", next_step="write infinity as float('inf')") from None  # fmt: skip


def as_int64(value: int, where: str) -> int:
    """``value``. Raises :class:`InputError` beyond int64."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise InputError("a whole number must be within the range of int64", where=where, value=_magnitude(value),
                         allowed=f"{INT64_MIN} .. {INT64_MAX}", next_step="write it as a float, or use a column of text")  # fmt: skip
    return value


def as_values(values: object, where: str, example: str) -> tuple[object, ...]:
    """The items of a collection. Raises :class:`InputError` for one value, text, and too many items."""
    try:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError("one value")
        found = tuple(islice(values, VALUES_MAX + 1))
    except TypeError:
        raise InputError("a parameter must be a list of values", where=where, value="None" if values is None else values,
                         allowed="a list or tuple", next_step=f"write them as a list, as in {example}") from None  # fmt: skip
    if len(found) > VALUES_MAX:
        raise InputError("a parameter must hold fewer values", where=where, value=f"more than {VALUES_MAX:,}",
                         allowed=f"at most {VALUES_MAX:,}")  # fmt: skip
    return found


def _magnitude(value: float) -> object:
    """A number that Python prints, or how many bits one has that it does not."""
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and value.bit_length() > 2_000 else value
