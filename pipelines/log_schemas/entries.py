"""Checks of one entry of a schema document: its kind, its choices, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from pipelines.errors import LogSchemaError

Entry = Mapping[str, object]


def object_entry(value: object, where: str, keys: Sequence[str]) -> Entry:
    """A JSON object that holds no other keys than ``keys``."""
    if not isinstance(value, Mapping):
        raise LogSchemaError("expected a JSON object", where=where, value=value)
    for key in value:
        if key not in keys:
            raise LogSchemaError(f"unknown entry {key!r}", where=where, allowed=", ".join(keys))
    return value


def needed(entry: Entry, key: str, where: str) -> object:
    """The value of ``key``, which must be there."""
    if key not in entry:
        raise LogSchemaError(f"the entry {key!r} is missing", where=where)
    return entry[key]


def list_entry(value: object, where: str) -> list[object]:
    """A JSON list."""
    if not isinstance(value, list):
        raise LogSchemaError("expected a JSON list", where=where, value=value)
    return value


def text_entry(value: object, where: str) -> str:
    """Text that UTF-8 can write."""
    if not isinstance(value, str):
        raise LogSchemaError("expected text", where=where, value=value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise LogSchemaError("text must be valid Unicode, got a lone surrogate", where=where,
                             value=ascii(value)) from None  # fmt: skip
    return value


def flag_entry(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise LogSchemaError("expected true or false", where=where, value=value)
    return value


def choice_entry(value: object, choices: object, where: str) -> str:
    """One of the texts that a ``Literal`` lists."""
    allowed = get_args(choices)
    if value not in allowed:
        raise LogSchemaError("not a choice here", where=where, value=value, allowed=", ".join(allowed))
    return str(value)


def character_entry(value: object, where: str, excluded: str) -> str:
    """One ASCII character, or one that UTF-8 writes, that is none of ``excluded``."""
    text = text_entry(value, where)
    if len(text) != 1 or text in excluded or text == "\0":
        raise LogSchemaError("expected one character", where=where, value=value,
                             allowed=f"one character, none of {excluded!r}")  # fmt: skip
    return text
