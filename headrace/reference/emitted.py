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
    """Reads the code of a command, and of the functions of the command line that it calls, and notes what they emit.

    ``screens``: the classes by name; ``seen``: the functions that were read.
    """

    def __init__(
        self, function: FunctionType, given: Mapping[str, Typed], screens: dict[str, Any], seen: set[FunctionType]
    ) -> None:
        declared = {name: Typed(kind) for name, kind in parameters_of(function).items()}
        super().__init__(function, {**declared, **given}, ())
        self._screens, self._seen = screens, seen
        seen.add(function)
        self.run(body_of(function).body)

    def on_call(self, function: Any, values: Sequence[Typed], named: Mapping[str, Typed]) -> None:
        """Note a screen, or read a function of the command line."""
        if function in (emit, emit_line) and values:
            kind = values[0].kind
            for one in typing.get_args(kind) or (kind,):
                self._screens.setdefault(getattr(one, "__name__", str(one)), one)
        elif isinstance(function, FunctionType) and function.__module__.startswith(_OWN) and function not in self._seen:
            given = dict(zip(parameters_of(function), values, strict=False))
            _Emitted(function, {**given, **named}, self._screens, self._seen)


def screens_of(command: Command) -> Mapping[str, Any]:
    """The classes of the screens that a command emits, by name."""
    callback = inspect.unwrap(command.callback) if command.callback is not None else None
    screens: dict[str, Any] = {}
    if isinstance(callback, FunctionType):
        _Emitted(callback, {}, screens, set())
    return screens
