"""Typed access to the entries of a schema document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from pipelines.errors import LogSchemaError

Entry = Mapping[str, object]


def object_entry(value: object, where: str, keys: Sequence[str]) -> Entry:
    """A JSON object whose keys are all in ``keys``."""
    if not isinstance(value, Mapping):
        raise LogSchemaError("an entry must be a JSON object", where=where, value=value)
    for key in value:
        if key not in keys:
            raise LogSchemaError(f"the entry {key!r} must be a known one", where=where, allowed=", ".join(keys))
    return value


def needed(entry: Entry, key: str, where: str) -> object:
    """The value of ``key``, which is required."""
    if key not in entry:
        raise LogSchemaError(f"the entry {key!r} must be given", where=where)
    return entry[key]


def list_entry(value: object, where: str) -> list[object]:
    """A JSON list."""
    if not isinstance(value, list):
        raise LogSchemaError("an entry must be a JSON list", where=where, value=value)
    return value


def text_entry(value: object, where: str) -> str:
    """Text that UTF-8 can encode."""
    if not isinstance(value, str):
        raise LogSchemaError("an entry must be text", where=where, value=value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise LogSchemaError(
            "an entry must be valid Unicode, got a lone surrogate", where=where, value=ascii(value)
        ) from None
    return value


def flag_entry(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise LogSchemaError("an entry must be true or false", where=where, value=value)
    return value


def choice_entry(value: object, choices: object, where: str) -> str:
    """One of the texts that a ``Literal`` lists."""
    allowed = get_args(choices)
    if value not in allowed:
        raise LogSchemaError(
            "an entry must be one of its choices", where=where, value=value, allowed=", ".join(allowed)
        )
    return str(value)


def character_entry(value: object, where: str, excluded: str) -> str:
    """One character that UTF-8 can encode and that is not in ``excluded``."""
    text = text_entry(value, where)
    if len(text) != 1 or text in excluded or text == "\0":
        raise LogSchemaError(
            "an entry must be one character", where=where, value=value, allowed=f"one character, none of {excluded!r}"
        )
    return text
