"""Prints screens, as text or as JSON; no other module prints."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headrace.terminal.display import Display, display_of, in_place
from headrace.terminal.logs import log_settings, write_line
from headrace.terminal.parent import parent_of
from headrace.terminal.printable import json_printable, printable, printable_screen
from transforms.errors import StorageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Screen(Protocol):
    """A frozen dataclass that a command prints.

    Its fields are the JSON, unless it, or a value in it, has a method ``json_fields``.
    """

    def render(self) -> RenderableType:
        """The screen as rich text."""
        ...


@runtime_checkable
class CsvScreen(Protocol):
    """A screen that can be printed as CSV."""

    def csv_text(self) -> str:
        """Its rows as CSV."""
        ...


#: The width of text in a pipe or a file, and the least assumed width of a terminal, in cells.
PLAIN_WIDTH = 140
LEAST_WIDTH = 40

#: The beginning of a line of an error that holds one of its fields.
_LABEL = re.compile(r"  [a-z]+: +")

#: A file that gets the JSON of the screen as well, from ``headrace --record FILE``.
record_to: ContextVar[str] = ContextVar("record_to", default="")


def emit(screen: Screen, *, as_json: bool) -> None:
    """Print a screen on standard output."""
    text = _recorded(screen)
    display = display_of.get()
    if (parent := parent_of.get()) is not None:
        parent.screen(screen)
    elif display.as_csv and isinstance(screen, CsvScreen):
        sys.stdout.write(screen.csv_text())
    elif as_json:
        sys.stdout.write(json_text(screen) + "\n" if display.is_repeated else text)
    else:
        _draw(screen, display)


def _draw(screen: Screen, display: Display) -> None:
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    console.width = max(console.width, LEAST_WIDTH) if console.is_terminal else PLAIN_WIDTH
    shown = printable_screen(screen).render()
    if not display.is_repeated:
        return console.print(shown, soft_wrap=False)
    with console.capture() as captured:
        console.print(display.heading, "", shown, sep="\n", soft_wrap=False)
    text = captured.get()
    if console.is_terminal:
        sys.stdout.write(in_place(text, console.height, is_first=display.number == 0))
    else:
        sys.stdout.write("\n" * (display.number > 0) + text)


def plain_text(screen: Screen) -> str:
    """What :func:`emit` prints to a file, without the last line end."""
    return _printed(screen).export_text(styles=False).rstrip("\n")


def html_text(screen: Screen) -> str:
    """What :func:`emit` prints, as HTML for a notebook: escaped, in one width, with its own styles and nothing that runs."""
    form = '<pre style="font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.25;overflow-x:auto;white-space:pre">{code}</pre>'
    return _printed(screen).export_html(inline_styles=True, code_format=form)


def _printed(screen: Screen) -> Console:
    from rich.console import Console

    console = Console(file=io.StringIO(), record=True, markup=False, highlight=False, emoji=False, width=PLAIN_WIDTH,
                      force_terminal=False, force_jupyter=False)  # fmt: skip
    console.print(printable_screen(screen).render(), soft_wrap=False)
    return console


class LineScreen(Protocol):
    """A screen that is printed as it is, of any width, such as a line of a command that prints one after the other."""

    def line(self) -> str:
        """All of it, without the last line end."""


def json_text(screen: object, *, indent: int | None = None) -> str:
    """The JSON of a screen: in one line, or indented; invisible characters are escaped."""
    return json_printable(json.dumps(document(screen), indent=indent, ensure_ascii=False))


def _recorded(screen: object) -> str:
    """The JSON of a screen, which the file of ``--record`` gets."""
    text = json_text(screen, indent=2) + "\n"
    if record_to.get():
        write_output(record_to.get(), text, option="--record")
    return text


def emit_line(screen: LineScreen, *, as_json: bool) -> None:
    """Print a screen on standard output at once, as a line of text or of JSON; the file of ``--record`` has the last one."""
    _recorded(screen)
    text = json_text(screen) if as_json else printable(screen.line())
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a line, or some, on standard error, unless the command is quiet."""
    write_line(text)


def say_error(text: str, *, code: str = "") -> None:
    """Print an error on standard error; on a terminal its long lines go on beneath themselves. ``code``: the name of its class."""
    if log_settings().is_json:
        return write_line(text, level=logging.ERROR, code=code)
    from rich.console import Console

    console = Console(stderr=True)
    width = max(console.width, LEAST_WIDTH) if console.is_terminal else 0
    write_line(error_text(printable(text), width), level=logging.ERROR)


def error_text(text: str, width: int) -> str:
    """The text of an error in lines of at most ``width`` cells; 0 leaves every line as it is."""
    from headrace.terminal.wrapping import wrapped

    lines = []
    for line in text.split("\n"):
        label = _LABEL.match(line)
        indent = label.end() if label else 0
        parts = wrapped(line[indent:], width - indent) if width else [line[indent:]]
        lines += [line[:indent] + parts[0], *(" " * indent + part for part in parts[1:])]
    return "\n".join(lines)


def write_output(file: str, text: str, *, option: str) -> None:
    """Write the file of ``option``. Raises :class:`StorageError`."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError("the output file cannot be written", where=option, value=str(error),
                           next_step="name a file in a folder that exists")  from error  # fmt: skip


def document(value: Any) -> Any:
    """A screen (or any value in it) as JSON values: dataclasses become objects, times ISO 8601 texts."""
    if hasattr(value, "json_fields"):
        return document(value.json_fields())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: document(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value
