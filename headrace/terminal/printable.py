"""Escapes control and invisible characters in text from outside.

Names of columns, tables and files, errors and samples may hold any character. Terminal commands and invisible characters are
written as Python escapes (``\\x1b``, ``\\u202e``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")
#: Controls, soft hyphen, marks and overrides of direction, zero widths, separators of lines and paragraphs, surrogates, tags; not
#: the two joiners of scripts and emoji.
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)


def printable(text: str, *, lines: bool = True) -> str:
    """``text`` with every control and invisible character escaped; with ``lines`` it keeps its line feeds."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def json_printable(text: str) -> str:
    """Equal JSON text without such characters; JSON itself escapes only those below 32."""
    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else _json_escaped(found[0]), text)


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def printable_screen(screen: _T) -> _T:
    """A copy of a screen, or of a value in one, with printable texts."""
    value: Any = screen
    if isinstance(value, str):
        found: Any = printable(value) if type(value) is str else value  # enum members are not from outside
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = _copied(value)
    elif isinstance(value, Mapping):
        found = {printable_screen(key): printable_screen(item) for key, item in value.items()}
    elif isinstance(value, tuple) and hasattr(value, "_make"):
        found = value._make(map(printable_screen, value))
    elif isinstance(value, list | tuple | frozenset | set):
        found = type(value)(map(printable_screen, value))
    else:
        found = value
    return found  # type: ignore[no-any-return]


def _copied(value: Any) -> Any:
    """A copy of a dataclass by field, without its constructor's checks."""
    copy = object.__new__(type(value))
    for field in dataclasses.fields(value):
        object.__setattr__(copy, field.name, printable_screen(getattr(value, field.name)))
    return copy
