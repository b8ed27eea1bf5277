"""Parsing the text form of Arrow types that a model can read."""

from __future__ import annotations

import re

import pyarrow as pa

_NESTED = re.compile(r"(list|large_list|list_view|large_list_view)<\w+: (.+?)(?: not null)?>")
_FIXED = re.compile(r"fixed_size_list<\w+: (.+?)(?: not null)?>\[(\d+)\]")
_PAIR = re.compile(r"struct<(id|weight): (.+?)(?: not null)?, (id|weight): (.+?)(?: not null)?>")
_DICTIONARY = re.compile(r"dictionary<values=(.+), indices=\w+, ordered=\d>")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")


def parse_arrow_type(spelled: str) -> pa.DataType | None:
    """The type with this text form, or None for a type that no model can read.

    The only structs are the pairs of ``id`` and ``weight`` in weighted lists.
    """
    if match := _NESTED.fullmatch(spelled):
        item = parse_arrow_type(match.group(2))
        wrap = pa.large_list if match.group(1).startswith("large") else pa.list_
        return None if item is None else wrap(item)
    if match := _FIXED.fullmatch(spelled):
        item = parse_arrow_type(match.group(1))
        return None if item is None else pa.list_(item, int(match.group(2)))
    if match := _PAIR.fullmatch(spelled):
        fields = {match.group(i): parse_arrow_type(match.group(i + 1)) for i in (1, 3)}
        return None if len(fields) < 2 or None in fields.values() else pa.struct(fields)
    if match := _DICTIONARY.fullmatch(spelled):
        value = parse_arrow_type(match.group(1))
        return None if value is None else pa.dictionary(pa.int32(), value)
    if match := _ZONED.fullmatch(spelled):
        return pa.timestamp(match.group(1), tz=match.group(2))
    if match := _DECIMAL.fullmatch(spelled):
        return _decimal(*map(int, match.groups()))
    try:
        return pa.type_for_alias(spelled)
    except ValueError:
        return None


def _decimal(bits: int, precision: int, scale: int) -> pa.DataType | None:
    makers = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
    try:
        return makers[bits](precision, scale)
    except ValueError:
        return None
