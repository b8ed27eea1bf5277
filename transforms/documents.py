"""Untrusted JSON documents: every value is checked once, when it is read.

A :class:`Part` is a value and its place in a document. A reader states what a part must be; anything else raises one
:class:`~transforms.errors.DataError` that names the place (``inputs[3].component.nodes[1].args[0]``), says what is allowed
and shows the shortened value. A reader returns only checked values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Self, TypeVar

from transforms.errors import DataError, HeadraceError

_T = TypeVar("_T")

#: The maximum size of a document.
MOST_BYTES = 1 << 30
#: The maximum nesting of lists and objects; Headrace writes less than half of it.
MOST_DEPTH = 64
#: The maximum length of a name, path or error.
MOST_CHARACTERS = 1 << 16
INT64 = (-(2**63), 2**63 - 1)
#: The maximum count of rows, bytes or versions.
MOST = 2**63 - 1

_SHOWN_CHARACTERS = 80
_HEXADECIMAL = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


def parse_document(text: str | bytes, kind: str, *, most_bytes: int = MOST_BYTES) -> Part:
    """The whole of a document named ``kind``, from JSON text.

    Raises :class:`DataError` for text that is not JSON, is longer than ``most_bytes`` or deeper than :data:`MOST_DEPTH`, gives
    one name two values, or holds NaN or an infinity.
    """
    whole = Part(None, kind)
    if len(text) > most_bytes:
        raise whole.refused(f"JSON of at most {most_bytes} bytes", value=f"{len(text)} of them")
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as error:
        raise whole.refused("a JSON document", value=str(error)) from None
    if _is_deeper(value, MOST_DEPTH):
        raise whole.refused(f"at most {MOST_DEPTH} lists and objects deep")
    return Part(value, kind)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {next(name for name in names if names.count(name) > 1)!r} is repeated in one object"
        )
    return found


def _refused_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _is_deeper(value: object, depth: int) -> bool:
    """Whether a value has more than ``depth`` levels; checked level by level, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def shortened(value: object) -> str:
    """A value as an error shows it: at most some dozens of characters."""
    shown = repr(value[: 2 * _SHOWN_CHARACTERS]) if isinstance(value, str | bytes) else _json_of(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"


def _json_of(value: object) -> str:
    match value:
        case bool() | float() | None:
            return json.dumps(value)
        case int():
            return str(value) if not _is_long(value) else f"a whole number of {value.bit_length()} bits"
        case dict():
            return f"an object of {len(value)} fields"
        case list() | tuple():
            return f"a list of {len(value)} items"
        case _:
            return type(value).__name__


def _is_long(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > 256


class Part:
    """A value and its place: a name or position of ``within``; a text names the whole document."""

    __slots__ = ("_key", "_within", "value")

    def __init__(self, value: object, within: Part | str, key: str | int = "") -> None:
        self.value = value
        self._within, self._key = within, key

    @property
    def place(self) -> str:
        """The path from the document's beginning; empty for the document itself."""
        if isinstance(self._within, str):
            return ""
        before = self._within.place
        if isinstance(self._key, int):
            return f"{before}[{self._key}]"
        if not _PLAIN_NAME.fullmatch(self._key):
            return f"{before}[{shortened(self._key)}]"
        return f"{before}.{self._key}" if before else self._key

    @property
    def kind(self) -> str:
        """The kind of the whole document."""
        return self._within if isinstance(self._within, str) else self._within.kind

    def refused(self, rule: str, *, value: object = None) -> DataError:
        """The error that this part must be ``rule``; ``value`` is shown instead of the part's own."""
        thing = f"{self.place} of the {self.kind}" if self.place else f"the {self.kind}"
        found = self.value if value is None else value
        is_short = isinstance(found, str | int | float) and len(shortened(found)) < _SHOWN_CHARACTERS
        short = found if is_short and not _is_long(found) else shortened(found)
        return DataError(f"{thing} must be {rule}, got {shortened(found)}", where=f"{self.kind}, {self.place or 'the whole'}",
                         value=short, allowed=rule, next_step="take the document from where it was written")  # fmt: skip

    def refused_by(self, error: HeadraceError) -> DataError:
        """The error that this part is not what ``error``, of the value in it, says that it must be."""
        where = f"{self.kind}, {self.place or 'the whole'}" + (f": {error.where}" if error.where else "")
        return DataError(error.what, where=where, value=error.value, allowed=error.allowed, next_step=error.next_step)

    def _part(self, value: object, key: str | int) -> Self:
        """A value in this one."""
        return type(self)(value, self, key)

    def fields(self, required: Collection[str], optional: Collection[str] | None = ()) -> Self:
        """This part, an object with all of ``required`` and no others but ``optional``; None allows any."""
        value = self.value
        if not isinstance(value, Mapping):
            raise self.refused("an object")
        if len(value) == len(required) and all(name in value for name in required):
            return self
        for name in required:
            if name not in value:
                raise self.refused(f"an object with {', '.join(required)}", value=name if value else None)
        for name in value:
            if optional is not None and name not in required and name not in optional:
                known = ", ".join((*required, *optional))
                raise self._part(value[name], str(name)).refused(f"absent: an object here has {known}", value=name)
        return self

    def has(self, name: str) -> bool:
        """Whether the object has this field."""
        return isinstance(self.value, Mapping) and name in self.value

    def at(self, name: str) -> Self:
        """A field that :meth:`fields` found."""
        return self._part(self.value[name], name)  # type: ignore[index]

    def items(self, *, most: int = MOST, least: int = 0) -> Iterable[Self]:
        """The parts of a list."""
        value = self.value
        if not isinstance(value, list | tuple):
            raise self.refused("a list")
        if not least <= len(value) <= most:
            raise self.refused(
                f"a list of {_span(least, most)} items" if most < MOST else f"a list of at least {least}"
            )
        return (self._part(item, position) for position, item in enumerate(value))

    def entries(self) -> Iterator[tuple[str, Self]]:
        """The names and parts of an object with any names."""
        if not isinstance(self.value, Mapping):
            raise self.refused("an object")
        for name, value in self.value.items():
            _ = self._part(name, str(name)).text()
            yield name, self._part(value, str(name))

    def text(self, *, least: int = 0, most: int = MOST_CHARACTERS, any_character: bool = False) -> str:
        """A text of this length that UTF-8 can encode; ``any_character`` allows lone surrogates."""
        value = self.value
        if type(value) is not str:
            raise self.refused("a string")
        if not least <= len(value) <= most:
            raise self.refused(f"a string of {least} to {most} characters", value=f"{len(value)} characters")
        if not any_character and not value.isascii() and _SURROGATE.search(value):
            raise self.refused("a string without lone surrogates")
        return value

    def name(self) -> str:
        """A text of at least one character and without the zero character."""
        found = self.text(least=1)
        if "\0" in found:
            raise self.refused("a name without the zero character")
        return found

    def one_of(self, allowed: Collection[str]) -> str:
        """One of these texts."""
        if type(self.value) is not str or self.value not in allowed:
            raise self.refused(f"one of {', '.join(allowed)}")
        return self.value

    def digest(self) -> str:
        """A SHA-256 in 64 hexadecimal digits."""
        value = self.value
        if type(value) is not str or not _HEXADECIMAL.fullmatch(value):
            raise self.refused("64 hexadecimal digits in lower case")
        return value

    def digests(self) -> dict[str, str]:
        """A digest by name, under any names."""
        found = self.value
        if type(found) is dict and all(map(_names_digest, found.items())):
            return dict(found)  # the common case, without a part for each
        return {name: part.digest() for name, part in self.entries()}

    def integer(self, least: int = 0, most: int = MOST) -> int:
        """A whole number from ``least`` to ``most``."""
        value = self.value
        if type(value) is not int or not least <= value <= most:
            raise self.refused(f"a whole number from {least} to {most}")
        return value

    def number(self, least: float = 0.0) -> float:
        """A finite number from ``least`` on."""
        value = self.value
        if type(value) not in (int, float) or not math.isfinite(_as_float(value)) or not value >= least:  # type: ignore[operator]
            raise self.refused("a finite number" if least == -math.inf else f"a finite number from {least:g} on")
        return float(value)  # type: ignore[arg-type]

    def boolean(self) -> bool:
        """True or false."""
        if type(self.value) is not bool:
            raise self.refused("true or false")
        return self.value

    def moment(self) -> datetime:
        """A moment in ISO 8601 with its offset from UTC."""
        try:
            found = datetime.fromisoformat(self.text(most=64))
        except ValueError:
            raise self.refused("a moment as ISO 8601 spells it") from None
        if found.tzinfo is None:
            raise self.refused("a moment with its offset from UTC")
        return found

    def inside_path(self) -> str:
        """A relative path that stays inside its folder."""
        found = self.name()
        if (
            found.startswith("/")
            or "\\" in found
            or "://" in found
            or any(one in ("", ".", "..") for one in found.split("/"))
        ):
            raise self.refused("a relative path that stays inside its folder")
        return found

    def outside_path(self) -> str:
        """The absolute path or the URI of a file."""
        found = self.name()
        if not (found.startswith("/") or "://" in found):
            raise self.refused("an absolute path or a URI")
        return found

    def made(self, make: Callable[[], _T], rule: str) -> _T:
        """The result of ``make``; an exception of it means that this part is not ``rule``."""
        try:
            return make()
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise self.refused(rule, value=f"{type(error).__name__}: {error}") from None


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _names_digest(entry: tuple[object, object]) -> bool:
    name, found = entry
    return type(name) is str and name.isascii() and type(found) is str and _HEXADECIMAL.fullmatch(found) is not None


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def document_part(document: object, kind: str) -> Part:
    """A parsed document, or a part of another one."""
    return document if isinstance(document, Part) else Part(document, kind)
