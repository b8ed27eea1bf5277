"""The documents that each command prints: the screens that its code, and what it calls in the command line, passes to ``emit``."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from headrace.reference.annotations import parameters_of
from headrace.reference.documents import Reader, Typed, body_of
from headrace.terminal.output import emit, emit_line

if TYPE_CHECKING:
    from typer._click import Command

_OWN = "headrace.cli"


class _Emitted(Reader):
    """Reads a command's code, and notes what it emits."""

    screens: dict[str, Any]
    seen: set[FunctionType]

    def on_call(self, function: Any, values: Sequence[Typed], named: Mapping[str, Typed]) -> None:
        """Note a screen, or read a function of the command line."""
        if function in (emit, emit_line) and values:
            kind = values[0].kind
            for one in typing.get_args(kind) or (kind,):
                self.screens.setdefault(getattr(one, "__name__", str(one)), one)
        elif isinstance(function, FunctionType) and function.__module__.startswith(_OWN) and function not in self.seen:
            self.seen.add(function)
            given = dict(zip(parameters_of(function), values, strict=False))
            names = {name: Typed(kind) for name, kind in parameters_of(function).items()}
            inner = _Emitted(function, {**names, **given, **named}, ())
            inner.screens, inner.seen = self.screens, self.seen
            inner.run(body_of(function).body)


def screens_of(command: Command) -> Mapping[str, Any]:
    """The classes of the screens that a command emits, by name."""
    callback = inspect.unwrap(command.callback) if command.callback is not None else None
    if not isinstance(callback, FunctionType):
        return {}
    reader = _Emitted(callback, {}, ())
    reader.screens, reader.seen = {}, set()
    reader.on_call(callback, [], {})
    return reader.screens
