"""What every screen is in Python and in a notebook: its text, its document, and its rows as a data frame."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.data_frames import frame_library
from headrace.terminal.output import document, html_text, plain_text
from transforms.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType


class Shown(ABC):
    """A frozen dataclass that a command prints, and that a method of :func:`headrace.open` returns.

    A screen has ``repr=False``: an interactive session shows its text.
    """

    __slots__ = ()

    @abstractmethod
    def render(self) -> RenderableType:
        """The screen as rich text."""

    def to_dict(self) -> dict[str, Any]:
        """The screen as JSON values, with the fields of ``--json``."""
        found: dict[str, Any] = document(self)
        return found

    def to_polars(self, rows: str = "") -> Any:
        """The rows of the screen as a ``polars.DataFrame``; ``rows``: see :func:`records_of`. Raises :class:`InputError`."""
        library = frame_library("polars", where="to_polars", otherwise="use to_dict()")
        return library.from_dicts(records_of(self.to_dict(), rows), infer_schema_length=None)

    def to_pandas(self, rows: str = "") -> Any:
        """The rows of the screen as a ``pandas.DataFrame``; ``rows``: see :func:`records_of`. Raises :class:`InputError`."""
        library = frame_library("pandas", where="to_pandas", otherwise="use to_dict()")
        return library.DataFrame(records_of(self.to_dict(), rows))

    def __str__(self) -> str:
        return plain_text(self)

    def __repr__(self) -> str:
        return plain_text(self)

    def _repr_html_(self) -> str:
        return html_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(plain_text(self))


def records_of(fields: Mapping[str, Any], rows: str = "") -> list[dict[str, Any]]:
    """One record per row of a screen's document, all with the same names.

    Args:
        fields: the document.
        rows: the field that holds the rows. Empty: the first that is a list of objects; without any, the document is the only row.

    Objects in a row become dotted names, such as ``memos.READY``; lists of objects become JSON. Raises :class:`InputError` for a field that has no rows.
    """
    of_rows = [name for name, value in fields.items() if _is_rows(value)]
    if rows and rows not in of_rows and fields.get(rows) != []:
        raise InputError("rows must be a field of the screen that is a list of objects", where="rows", value=rows,
                         allowed=", ".join(of_rows) or "none: leave it out")  # fmt: skip
    chosen = rows or next(iter(of_rows), "")
    found = [_flat(one) for one in (fields[chosen] if chosen else [fields])]
    names = dict.fromkeys(name for one in found for name in one)
    return [{name: one.get(name) for name in names} for one in found]


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": one for key, one in _flat(value).items()}
        elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
            found[name] = json.dumps(value, ensure_ascii=False)
        else:
            found[name] = value
    return found
