"""Values of options that have their type already, taken as they are.

Typer converts each value by pydantic, whose import takes as long as a fifth of a small command; most values need no conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

if TYPE_CHECKING:
    from typer._click import Command, Context

_PLAIN = (str, int, float, bool)


def take_plain_values(command: Command) -> None:
    """Let the parameters of a command convert only values that are not of their type; Typer does the rest."""
    own: Any = command
    own.get_params = partial(_light_params, command.get_params)  # with the option --help, which is made on demand


def _light_params(params: Callable[[Context], Sequence[Any]], context: Context) -> list[Any]:
    found = list(params(context))
    for parameter in found:
        convert = getattr(parameter, "get_runtime_param", None)
        if convert is None or isinstance(getattr(convert, "__self__", None), _Conversion):
            continue
        if parameter.type_descriptor.parameter_info.parser is None:
            parameter.get_runtime_param = _Conversion(parameter.type_descriptor.annotation, convert).itself
    return found


class _Conversion:
    """The conversion of the values of one parameter.

    Args:
        annotation: The type of its values.
        convert: Makes Typer's own conversion.
    """

    def __init__(self, annotation: Any, convert: Callable[[], Any]) -> None:
        self._annotation = annotation
        self._convert = convert

    def itself(self) -> _Conversion:
        """What Typer asks for at each value."""
        return self

    def coerce(self, value: Any, **context: Any) -> Any:
        """The value in the type of the parameter. Raises what Typer raises for a wrong one."""
        if value is None:
            return () if _takes_several(context["param"]) else None
        if _is_plain(value, self._annotation):
            return value
        if get_origin(self._annotation) is list and isinstance(value, list | tuple):
            (kind,) = get_args(self._annotation)
            if all(_is_plain(item, kind) for item in value):
                return list(value)
        return self._convert().coerce(value, **context)


def _takes_several(parameter: Any) -> bool:
    return bool(parameter.multiple) or parameter.nargs == -1


def _is_plain(value: object, kind: object) -> bool:
    """Whether a value is exactly of a plain type; text only if it is ASCII, as the rest may hold what UTF-8 cannot."""
    return kind in _PLAIN and type(value) is kind and (not isinstance(value, str) or value.isascii())
