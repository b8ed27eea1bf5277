"""The syntax of cells in a delimited file: delimiter, quotes and escapes.

An escape character makes a quote, the delimiter, a line end or itself after it a part of the value; before any other
character it is a plain character. So an escape takes the next character with it wherever a cell begins or ends, and the
escapes of a whole block can be found without its cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

#: A byte that no text in UTF-8 has, and that is neither a quote nor a delimiter.
_MASK = b"\xff"
_QUOTE = ord('"')


@dataclass(frozen=True, slots=True)
class Syntax:
    """How the records of a delimited file are split.

    Attributes:
        delimiter: the character between cells.
        quoted: whether a cell may be quoted.
        escape: the escape character; empty for none.
    """

    delimiter: str
    quoted: bool
    escape: str = ""

    def may_span_lines(self, data: bytes) -> bool:
        """Whether ``data`` holds a character that can make a line end a part of a value."""
        return (self.quoted and b'"' in data) or self.escapes(data)

    def escapes(self, data: bytes) -> bool:
        """Whether ``data`` holds the escape character."""
        return bool(self.escape) and self.escape.encode() in data


@lru_cache(maxsize=16)
def _quotes(escape: str) -> re.Pattern[bytes]:
    return re.compile(re.escape(escape.encode()) + rb'.|""|"', re.DOTALL)


@lru_cache(maxsize=16)
def _ends(syntax: Syntax) -> re.Pattern[bytes]:
    """Escaped characters, and as a group delimiters and line ends."""
    escaped = re.escape(syntax.escape.encode()) + rb"(?:\r\n|.)|"
    return re.compile(
        (escaped if syntax.escape else b"") + b"(" + re.escape(syntax.delimiter.encode()) + rb"|\n)", re.DOTALL
    )


@lru_cache(maxsize=16)
def _escapes(syntax: Syntax) -> re.Pattern[bytes]:
    """An escape with the character that it makes a part of the value, as a group."""
    special = [
        re.escape(syntax.escape.encode()),
        re.escape(syntax.delimiter.encode()),
        *([b'"'] if syntax.quoted else []),
    ]
    return re.compile(re.escape(syntax.escape.encode()) + rb"(\r\n|[\r\n]|" + b"|".join(special) + b")")


def closing_quote(text: bytes, at: int, syntax: Syntax) -> int:
    """The position of the closing quote of the value that begins at ``at``; -1 if it has none."""
    if not syntax.escape:
        while (at := text.find(b'"', at)) >= 0 and text.startswith(b'"', at + 1):
            at += 2
        return at
    for found in _quotes(syntax.escape).finditer(text, at):
        if found.group() == b'"':
            return found.start()
    return -1


def cell_ends(text: bytes, at: int, syntax: Syntax) -> Iterator[int]:
    """The positions of the delimiters and line ends after ``at`` that no escape makes a part of a value."""
    return (found.start() for found in _ends(syntax).finditer(text, at) if found[1])


def unescaped(cell: bytes, syntax: Syntax, *, quoted: bool) -> bytes:
    """The value of a cell without its quotes."""
    if not syntax.escapes(cell):
        return cell.replace(b'""', b'"') if quoted else cell
    if not quoted:
        return _escapes(syntax).sub(rb"\1", cell)
    doubled = re.compile(_escapes(syntax).pattern + b'|"(")')
    return doubled.sub(lambda found: found[1] or found[2], cell)


def masked(data: bytes, syntax: Syntax) -> bytes | None:
    """``data`` of the same length with bytes of no meaning in place of escapes and what they escape.

    None if a carriage return is escaped, whose line end may be escaped too.
    """
    if not syntax.escapes(data):
        return data
    if syntax.escape.encode() + b"\r" in data:
        return None
    return _escapes(syntax).sub(_MASK * 2, data)


def without_escapes(data: bytes, plain: bytes, syntax: Syntax) -> bytes | None:
    """The same cells without escapes; None if one of them is needed outside of quotes.

    ``plain``: the masked data, whose quotes all open or close a cell or are doubled inside one.
    """
    if not syntax.escapes(data):
        return data
    pattern, escape = _escapes(syntax), syntax.escape.encode()
    places = np.fromiter((found.start() for found in pattern.finditer(data) if found[1] != escape), np.int64)
    if len(places) and not (syntax.quoted and _are_inside_quotes(places, plain)):
        return None
    return pattern.sub(lambda found: b'""' if found[1] == b'"' else found[1], data)


def _are_inside_quotes(places: np.ndarray[Any, np.dtype[np.int64]], plain: bytes) -> bool:
    quotes = np.flatnonzero(np.frombuffer(plain, np.uint8) == _QUOTE)
    return bool((np.searchsorted(quotes, places) % 2 == 1).all())
