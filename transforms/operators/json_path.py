"""JSON paths, and JSON documents read as text: the grammar of ``json_extract``.

**Path.** ``$``, then any number of steps: ``.name`` (a letter, ``_`` or a code point beyond ASCII, then also digits),
``['any name']`` or ``["any name"]`` (without quotes, backslashes and controls), ``[0]`` (counted from 0). A subset of
RFC 9535.

**Document.** RFC 8259 to the letter, read whole: what is malformed anywhere gives null everywhere, and so does nesting
beyond 256 levels. Of members with one name the last counts. A string with half a surrogate pair is no text: null.
"""

from __future__ import annotations

import re
from functools import cache

DEPTH_MAX = 256
INDEX_MAX = 2**31 - 1

#: One step of a path: a member's name, or the position of an item.
Step = str | int

_NAME = r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*"
_QUOTED = r"""'[^'"\\\x00-\x1f]*'|"[^'"\\\x00-\x1f]*\""""
_STEP = rf"\.({_NAME})|\[(0|[1-9][0-9]{{0,9}})\]|\[({_QUOTED})\]"
_STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*"'
_SCALAR = rf"{_STRING}|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = r"((?:\\u[0-9A-Fa-f]{4})+)|\\(.)"


class _Malformed(ValueError):
    """The document is not JSON."""


@cache
def steps_of(path: str) -> tuple[Step, ...] | None:
    """The steps of a path; None if it is not one."""
    steps: list[Step] = []
    at = 1
    while path.startswith("$") and at < len(path):
        step = _compiled(_STEP).match(path, at)
        if step is None or (step[2] and int(step[2]) > INDEX_MAX):
            return None
        steps.append(int(step[2]) if step[2] else step[1] or step[3][1:-1])
        at = step.end()
    return tuple(steps) if path.startswith("$") else None


def json_extract(text: str, *, path: str) -> str | None:
    """The value at ``path``: a string's text, another value as it is written; None if absent, null or malformed."""
    steps = steps_of(path)
    assert steps is not None, "the operator checks its path"
    reader = _Reader(text, steps)
    try:
        reader.document()
    except _Malformed:
        return None
    found = reader.found
    if found is None or found == "null":
        return None
    return unquoted(found) if found.startswith('"') else found


def unquoted(string: str) -> str | None:
    """The text of a JSON string; None if it has half a surrogate pair."""
    text = re.sub(_ESCAPE, lambda at: _units(at[1]) if at[1] else _ESCAPES.get(at[2], at[2]), string[1:-1])
    return None if any("\ud800" <= point <= "\udfff" for point in text) else text


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The patterns, compiled at first use to keep the import fast."""
    return re.compile(pattern)


def _units(escapes: str) -> str:
    """A run of ``\\uXXXX`` as UTF-16; half a pair stays a surrogate."""
    units = bytes.fromhex(escapes.replace("\\u", ""))
    return units.decode("utf-16-be", "surrogatepass")


class _Reader:
    """One document, read from left to right; ``found`` is the text of the value at the path so far."""

    def __init__(self, text: str, steps: tuple[Step, ...]) -> None:
        self.text = text
        self.steps = steps
        self.at = 0
        self.found: str | None = None

    def document(self) -> None:
        self.value(0, matched=0)
        self.space()
        if self.at < len(self.text):
            raise _Malformed

    def value(self, depth: int, *, matched: int | None) -> None:
        """A value ``depth`` levels deep. ``matched`` is how many steps lead to it; None off the path."""
        self.space()
        start = self.at
        if self.text[start : start + 1] in ("{", "["):
            if depth == DEPTH_MAX:
                raise _Malformed
            self.children(depth + 1, None if matched == len(self.steps) else matched)
        else:
            self.token(_SCALAR)
        if matched == len(self.steps):
            self.found = self.text[start : self.at]

    def children(self, depth: int, matched: int | None) -> None:
        is_object = self.text[self.at] == "{"
        close = "}" if is_object else "]"
        self.at += 1
        self.space()
        position = 0
        while self.text[self.at : self.at + 1] != close or position:
            step: Step | None = self.name() if is_object else position
            follows = matched is not None and step == self.steps[matched] and type(step) is type(self.steps[matched])
            if follows:
                self.found = None
            self.value(depth, matched=(matched or 0) + 1 if follows else None)
            self.space()
            position += 1
            if self.text[self.at : self.at + 1] == close:
                break
            self.expect(",")
        self.at += 1

    def name(self) -> str | None:
        self.space()
        name = unquoted(self.token(_STRING))
        self.space()
        self.expect(":")
        return name

    def token(self, pattern: str) -> str:
        matched = _compiled(pattern).match(self.text, self.at)
        if matched is None:
            raise _Malformed
        self.at = matched.end()
        return matched[0]

    def expect(self, character: str) -> None:
        if self.text[self.at : self.at + 1] != character:
            raise _Malformed
        self.at += 1

    def space(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t", "\n", "\r"):
            self.at += 1
