"""Rows that are pushed, and keys that are asked for, as tables of declared types."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from transforms.errors import InputError

#: Rows as given: one, several, or in Arrow's form.
GivenRows: TypeAlias = Mapping[str, object] | Sequence[Mapping[str, object]] | pa.Table | pa.RecordBatch


def given_table(rows: GivenRows, types: Mapping[str, pa.DataType], where: str) -> pa.Table:
    """Rows as a table with at least the columns of ``types``; other members of a row are left out.

    Raises :class:`InputError` for a member that is not there, and for a value of another type.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        for name in types:
            _check_there(name, rows.column_names, where)
        return rows
    each: Sequence[Any] = [rows] if isinstance(rows, Mapping) else rows
    if isinstance(each, str | bytes) or not isinstance(each, Sequence) or not all(isinstance(one, Mapping) for one in each):  # fmt: skip
        raise InputError("rows must be given by the names of their columns", where=where, value=type(rows).__name__,
                         allowed="a mapping, a list of mappings, a pyarrow table or record batch")  # fmt: skip
    return pa.table({name: _column(each, name, kind, where) for name, kind in types.items()})


def _column(rows: Sequence[Mapping[str, object]], name: str, kind: pa.DataType, where: str) -> pa.Array:
    values = []
    for one in rows:
        _check_there(name, one, where)
        values.append(_checked(one[name], kind, f"{where}, {name}"))
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"a value must have the type {kind}", where=f"{where}, {name}", value=str(error)) from None


def _check_there(name: str, given: Any, where: str) -> None:
    if name not in given:
        raise InputError("a row must have the columns that joined columns read", where=where, value=f"no {name}",
                         allowed=", ".join(str(one) for one in list(given)[:20]))  # fmt: skip


def _checked(value: object, kind: pa.DataType, where: str) -> object:
    """A value that Arrow converts without a change."""
    wanted: tuple[type, ...] = ()
    if pa.types.is_integer(kind):
        wanted = (int,)
    elif pa.types.is_floating(kind):
        wanted = (int, float)
    elif pa.types.is_boolean(kind):
        wanted = (bool,)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        wanted = (str,)
    elif pa.types.is_timestamp(kind):
        wanted = (datetime.datetime,)
    if value is not None and wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):  # fmt: skip
        raise InputError(f"a value must have the type {kind}", where=where, value=value, allowed=" or ".join(one.__name__ for one in wanted))  # fmt: skip
    return value


#: The types of Python whose values are stored as they are, by type of Arrow.
_PLAIN: dict[pa.DataType, type] = {pa.int64(): int, pa.string(): str, pa.bool_(): bool}
_ABSENT = object()


def plain_values(given: Mapping[str, object], types: Mapping[str, pa.DataType]) -> dict[str, object] | None:
    """The members of a row by the names of ``types``; None if one of them is not there, is wrong, or must be converted."""
    found: dict[str, object] = {}
    for name, kind in types.items():
        value = given.get(name, _ABSENT)
        if value is not None and (type(value) is not _PLAIN.get(kind) or not _is_storable(value)):
            return None
        found[name] = value
    return found


def _is_storable(value: object) -> bool:
    """Whether a number fits 64 bits and a text has a UTF-8 form."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True


def micros_of_moment(moment: object, where: str) -> int:
    """A moment in microseconds since 1970; one without a zone is UTC. Raises :class:`InputError`."""
    if not isinstance(moment, datetime.datetime):
        raise InputError("a moment must be a datetime", where=where, value=moment, next_step="datetime.now(timezone.utc)")  # fmt: skip
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // datetime.timedelta(microseconds=1)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
