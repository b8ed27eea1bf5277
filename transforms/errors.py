"""The errors that Headrace raises on purpose, under one root.

    HeadraceError                      exit status
    ├── InputError                     2   the user's input is wrong: a model, an expression, an option, a schema file
    │   ├── UnknownColumn
    │   ├── TypeMismatch
    │   ├── DuplicateInput
    │   └── OtherRelease
    ├── DataError                      3   the bytes are not as expected: drifted schema, truncated file
    │   └── InvalidText
    ├── NotFound                       4   a name that is not in the catalog
    ├── Busy                           5   another process holds a resource that this one needs
    └── StorageError                   6   the disk or the object store failed: full, read-only, unreachable

Each package adds subclasses of these; the command line maps each class to its exit status.
Any other exception is a defect and exits with status 70.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import ClassVar

#: The bytes of a long text that an error shows.
_SHOWN_BYTES = 60


class HeadraceError(Exception):
    """One message: the rule, where, the value, what is allowed and the next step, each also an attribute.

    >>> try:
    ...     try_(text("query").lower(), {"title": ["red"]})
    ... except HeadraceError as error:
    ...     error.value, error.exit_status
    ('query', 2)
    """

    exit_status: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        value: object = None,
        allowed: str = "",
        next_step: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.value = value
        self.allowed = allowed
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where:   {self.where}")
        if self.value is not None:
            lines.append(f"  value:   {_shown(self.value)}")
        if self.allowed:
            lines.append(f"  allowed: {self.allowed}")
        if self.next_step:
            lines.append(f"  next:    {self.next_step}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Beam carries exceptions between processes; keyword-only fields survive through the instance dict.
        return (_rebuild, (type(self), self.what, dict(self.__dict__)))


def _shown(value: object) -> str:
    """``repr(value)``, or the type of a value whose ``repr`` fails."""
    try:
        return repr(value)
    except Exception as error:  # a foreign type's own code, or an int of more digits than Python prints
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"


def _rebuild(kind: type[HeadraceError], what: str, fields: dict[str, object]) -> HeadraceError:
    error = kind.__new__(kind)
    Exception.__init__(error, what)
    error.__dict__.update(fields)
    return error


class InputError(HeadraceError):
    """The user's input (model, expression, option, schema file) is wrong."""

    exit_status = 2


class UnknownColumn(InputError):
    """An expression or a label reads a column that the table does not have."""


class TypeMismatch(InputError):
    """An operator or a table does not take the type of a value."""


class DuplicateInput(InputError):
    """Two inputs of a model have the same name."""


class OtherRelease(InputError):
    """A component needs an operator that another release has, or has in another version."""


class DataError(HeadraceError):
    """Stored bytes differ from the catalog: missing, truncated or of another schema."""

    exit_status = 3


class InvalidText(DataError):
    """A text that is not UTF-8.

    Attributes:
        row: the first such row, from 0; None for a value of a dictionary that no row has.
        text: its bytes.
    """

    def __init__(self, row: int | None, text: bytes, *, where: str = "", next_step: str = "") -> None:
        place = "a dictionary, in no row" if row is None else f"row {row}"
        shown = text[:_SHOWN_BYTES]
        super().__init__(
            "text must be UTF-8",
            where=", ".join(filter(None, [where, place])) + (f", {len(text)} bytes" if len(text) > len(shown) else ""),
            value=shown,
            allowed="UTF-8 without stray bytes, overlong forms and surrogates",
            next_step=next_step or "write the text as UTF-8",
        )
        self.row = row
        self.text = text


class NotFound(HeadraceError):
    """A table, model, component or task is not in the catalog."""

    exit_status = 4


class Busy(HeadraceError):
    """Another process holds a resource that this one needs; nothing was changed."""

    exit_status = 5


class StorageError(HeadraceError):
    """A read or a write of the storage failed: disk full, permission denied, unreachable."""

    exit_status = 6


def listed(items: Sequence[str], most: int = 5) -> str:
    """The first items and the number of the others, as text for an error's ``value``."""
    more = len(items) - most
    return "; ".join(items[:most]) + (f"; and {more:,} more" if more > 0 else "")


def nearest(name: str, known: Iterable[str], limit: int = 3) -> str:
    """The known names closest to ``name``, best first, as text for an error's ``allowed`` or ``next_step``."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=limit, cutoff=0.5)
    return ", ".join(close or names[:20]) or "(none)"
