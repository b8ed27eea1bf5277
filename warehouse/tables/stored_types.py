"""Parsing the text form of any stored Arrow type, also of those that no model can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa

from warehouse.tables.arrow_types import parse_arrow_type

_LEAF = re.compile(r"[a-z_0-9]+(?:\[[^\]]*\]|\(\d+, -?\d+\))?")
_FIXED_BYTES = re.compile(r"fixed_size_binary\[(\d+)\]")
_SIZE = re.compile(r"\[(\d+)\]")
_LISTS: dict[str, Callable[[pa.Field], pa.DataType]] = {
    "list<": pa.list_,
    "large_list<": pa.large_list,
    "list_view<": pa.list_view,
    "large_list_view<": pa.large_list_view,
}
_NOT_NULL = " not null"
_MOST_LEVELS = 64


class _UnknownText(Exception):
    """The rest of a text is no type."""


@lru_cache(maxsize=4096)
def parse_stored_type(spelled: str) -> pa.DataType | None:
    """The type with this text form; None for one whose text does not state it, such as an extension type."""
    reader = _Reader(spelled)
    try:
        found = reader.type(_MOST_LEVELS)
    except (_UnknownText, pa.ArrowException, ValueError):
        return None
    # Names of fields may hold any character: a text that reads as another type is not understood.
    return found if reader.is_done and str(found) == spelled else None


class _Reader:
    """A text, read from the left."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def is_done(self) -> bool:
        """Whether all of the text was read."""
        return self._at == len(self._text)

    def type(self, levels: int) -> pa.DataType:
        """The type that begins here. Raises :class:`_UnknownText`."""
        if not levels:
            raise _UnknownText
        for prefix, make in _LISTS.items():
            if self._has(prefix):
                field = self._field(levels)
                self._require(">")
                return make(field)
        if self._has("fixed_size_list<"):
            field = self._field(levels)
            self._require(">")
            return pa.list_(field, int(self._match(_SIZE)[1]))
        if self._has("struct<"):
            return pa.struct(self._fields(levels))
        if self._has("map<"):
            key = self.type(levels - 1)
            self._require(", ")
            item = self.type(levels - 1)
            self._require(">")
            return pa.map_(key, item)
        if self._has("dictionary<values="):
            return self._dictionary(levels)
        return self._leaf()

    def _dictionary(self, levels: int) -> pa.DataType:
        values = self.type(levels - 1)
        self._require(", indices=")
        indices = self._leaf()
        self._require(", ordered=")
        ordered = self._has("1")
        if not ordered:
            self._require("0")
        self._require(">")
        return pa.dictionary(indices, values, ordered=ordered)

    def _fields(self, levels: int) -> list[pa.Field]:
        if self._has(">"):
            return []
        fields = [self._field(levels)]
        while self._has(", "):
            fields.append(self._field(levels))
        self._require(">")
        return fields

    def _field(self, levels: int) -> pa.Field:
        end = self._text.find(": ", self._at)
        if end < 0:
            raise _UnknownText
        name, self._at = self._text[self._at : end], end + 2
        kind = self.type(levels - 1)
        return pa.field(name, kind, nullable=not self._has(_NOT_NULL))

    def _leaf(self) -> pa.DataType:
        spelled = self._match(_LEAF)[0]
        if fixed := _FIXED_BYTES.fullmatch(spelled):
            return pa.binary(int(fixed[1]))
        found = parse_arrow_type(spelled)
        if found is None:
            raise _UnknownText
        return found

    def _has(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _require(self, text: str) -> None:
        if not self._has(text):
            raise _UnknownText

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _UnknownText
        self._at = found.end()
        return found
