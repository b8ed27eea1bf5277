"""The narrowest type that holds the values of two stored types without loss. Pure.

==========================  =======================================================================
integers                    the smallest one that holds both; none for ``uint64`` with a signed type
floats                      the wider one
decimals                    as many digits before and after the point as the larger of both
times, days, times of day   the finer unit; times of two zones are in UTC
lists, maps, objects        those of the widest items; an object has the fields of both
null                        the other type
==========================  =======================================================================

All other pairs differ in meaning: numbers and text, integers and floats, times with and without a zone.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pat

from warehouse.files.digests import column_digest, logical_type
from warehouse.tables.stored_types import parse_stored_type

_UNITS = ("s", "ms", "us", "ns")
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_DECIMALS = ((9, pa.decimal32), (18, pa.decimal64), (38, pa.decimal128), (76, pa.decimal256))
_BITS = {"decimal32": 9, "decimal64": 18, "decimal128": 38, "decimal256": 76}


def is_same_type(one: str, other: str) -> bool:
    """Whether two types, in text form, are physical variants of one: equal values have equal digests."""
    if one == other:
        return True
    kinds = parse_stored_type(one), parse_stored_type(other)
    if kinds[0] is None or kinds[1] is None:
        return _bare(one) == _bare(other)
    return bool(logical_type(kinds[0]) == logical_type(kinds[1]))


_SPELLINGS = ("large_", "_view")


def _bare(spelled: str) -> str:
    for prefix in _SPELLINGS:
        spelled = spelled.replace(prefix, "")
    if spelled.startswith("dictionary<values="):
        spelled = spelled.removeprefix("dictionary<values=").split(", indices=")[0]
    return spelled.replace(" not null", "").replace("<element:", "<item:")


@lru_cache(maxsize=4096)
def widest_text(one: str, other: str) -> str | None:
    """The text form of :func:`widest_type`; ``one`` itself if it holds the values of ``other``."""
    if is_same_type(one, other):
        return one
    first, second = parse_stored_type(one), parse_stored_type(other)
    found = None if first is None or second is None else widest_type(first, second)
    if found is None:
        return None
    return one if logical_type(found) == logical_type(first) else str(found)


def widest_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds the values of both, ``one`` if that is it; None if there is none."""
    found = _widest(one, other)
    if found is None or not all(_is_cast(kind, found) for kind in (one, other)):
        return None
    return found


def _is_cast(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow has the cast."""
    try:
        pa.array([], stored).cast(wanted)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _widest(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if logical_type(one) == logical_type(other) or pat.is_null(other):
        return one
    if pat.is_null(one):
        return other
    one, other = (kind.value_type if pat.is_dictionary(kind) else kind for kind in (one, other))
    if pat.is_integer(one) and pat.is_integer(other):
        return _integer(one, other)
    if pat.is_floating(one) and pat.is_floating(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if pat.is_decimal(one) and pat.is_decimal(other):
        return _decimal(one, other)
    if pat.is_nested(one) and pat.is_nested(other):
        return _nested(one, other)
    return _time(one, other)


def _integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pat.is_signed_integer(one) == pat.is_signed_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    signed, unsigned = (one, other) if pat.is_signed_integer(one) else (other, one)
    return _SIGNED.get(max(signed.bit_width, 2 * unsigned.bit_width))


def _decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    # Never a narrower storage than that of either, whose values are read as they are.
    least = max(_BITS[str(kind).partition("(")[0]] for kind in (one, other))
    return next((make(digits, scale) for most, make in _DECIMALS if most >= max(digits, least)), None)


def _time(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pat.is_timestamp(one) and pat.is_timestamp(other):
        if (one.tz is None) != (other.tz is None):
            return None  # a time without a zone may be local
        return pa.timestamp(_finer(one, other), tz=one.tz if one.tz == other.tz else "UTC")
    if pat.is_date(one) and pat.is_date(other):
        return pa.date64()
    if pat.is_duration(one) and pat.is_duration(other):
        return pa.duration(_finer(one, other))
    if pat.is_time(one) and pat.is_time(other):
        unit = _finer(one, other)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    return None


def _finer(one: pa.DataType, other: pa.DataType) -> str:
    return _UNITS[max(_UNITS.index(one.unit), _UNITS.index(other.unit))]


def _nested(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pat.is_struct(one) and pat.is_struct(other):
        return _object(one, other)
    if pat.is_map(one) and pat.is_map(other):
        item = _widest(one.item_type, other.item_type)
        same = logical_type(one.key_type) == logical_type(other.key_type)
        return pa.map_(one.key_type, item) if same and item is not None else None
    if pat.is_fixed_size_list(one) or pat.is_fixed_size_list(other):
        if not (pat.is_fixed_size_list(one) and pat.is_fixed_size_list(other)) or one.list_size != other.list_size:
            return None
        item = _widest(one.value_type, other.value_type)
        return None if item is None else pa.list_(pa.field(one.value_field.name, item), one.list_size)
    if not all(pat.is_list(kind) or pat.is_large_list(kind) for kind in (one, other)):
        return None
    item = _widest(one.value_type, other.value_type)
    make = pa.large_list if pat.is_large_list(one) or pat.is_large_list(other) else pa.list_
    return None if item is None else make(pa.field(one.value_field.name, item))


def _object(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    fields = {field.name: field.type for field in one}
    if len(fields) < one.num_fields or len({field.name for field in other}) < other.num_fields:
        return None  # two fields of one name
    for field in other:
        found = _widest(fields[field.name], field.type) if field.name in fields else field.type
        if found is None:
            return None
        fields[field.name] = found
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


def may_overflow(stored: str, wanted: str) -> bool:
    """Whether a value of a type may not fit its widest type: nanoseconds reach from 1677 to 2262 only."""
    return stored != wanted and any(f"{kind}[ns" in wanted for kind in ("timestamp", "duration"))


def cast_exactly(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array | pa.ChunkedArray | None:
    """``column`` in a narrower or wider type, or None unless every value is the same there."""
    try:
        found = column.cast(wanted)
        if not any(kind in str(column.type) for kind in _ROUNDED):
            return found
        return found if column_digest(found.cast(column.type)) == column_digest(column) else None
    except (pa.ArrowException, ValueError):
        return None


#: Arrow's checked casts between types of one family fail for a value that does not fit, but for these.
_ROUNDED = ("float", "double", "date64", "struct")
