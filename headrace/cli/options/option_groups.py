"""Option groups: frozen dataclasses whose fields are the options of a command.

A field's annotation is the one place that states the option's type, default, help and marks. The command line, the panels of its help,
the arguments of processes that are started, and run files are made from the fields.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

from typer.core import TyperCommand
from typer.models import OptionInfo, ParameterInfo

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

#: The heading of the options that most people need.
FIRST_PANEL = "Options that most runs need"
_GroupT = TypeVar("_GroupT")


class Mark(Enum):
    """What a field says of its option beside type, default and help.

    Attributes:
        FIRST: the help shows it in the first panel.
        PATH: its text is a path of this machine, unless it is a URL.
        AUTO: the word "auto" is none.
        COUNT: its text may be a number.
        RANGE: its text is a number or a range of numbers.
        TIME: its text is a time.
        OF_THE_CALL: it belongs to one call of the command, and is in no run file.
    """

    FIRST = "first"
    PATH = "path"
    AUTO = "auto"
    COUNT = "count"
    RANGE = "range"
    TIME = "time"
    OF_THE_CALL = "of the call"


@dataclass(frozen=True)
class OptionField:
    """One option or argument of a command.

    Attributes:
        name: of the field, which is that of the command's parameter.
        kind: the type of its values.
        info: typer's description.
        default: its value if it is not given; :data:`dataclasses.MISSING` for a required argument.
        panel: the heading of its group in the help.
        marks: see :class:`Mark`.
    """

    name: str
    kind: Any
    info: ParameterInfo
    default: Any
    panel: str
    marks: frozenset[Mark]

    @property
    def is_argument(self) -> bool:
        """Whether the command line has its value without a name."""
        return not isinstance(self.info, OptionInfo)

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        if self.is_argument:
            return self.name.upper()
        declared = str(self.info.default) if self.info.default is not ... else ""
        return declared.partition("/")[0] or f"--{self.name.replace('_', '-')}"

    def parameter(self) -> inspect.Parameter:
        """The parameter of a function from which typer makes the option."""
        info = copy.copy(self.info)
        if self.kind is bool and isinstance(info, OptionInfo):
            info.show_default = False  # it would be the name of the flag that turns it off
        info.rich_help_panel = FIRST_PANEL if Mark.FIRST in self.marks else self.panel
        default = inspect.Parameter.empty if self.default is dataclasses.MISSING else self.default
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[self.kind, info]
        )


@cache
def option_fields(group: type) -> tuple[OptionField, ...]:
    """The options of a group and of the groups in it, in the order of the fields.

    ``PANEL`` of a group is the heading of its options in the help.
    """
    hints = get_type_hints(group, include_extras=True)
    found: list[OptionField] = []
    for field in dataclasses.fields(group):
        hint = hints[field.name]
        if _is_group(hint):
            found += option_fields(hint)
            continue
        kind, *extras = get_args(hint)
        (info,) = (one for one in extras if isinstance(one, ParameterInfo))
        marks = frozenset(one for one in extras if isinstance(one, Mark))
        found.append(OptionField(field.name, kind, info, field.default, getattr(group, "PANEL", "Options"), marks))
    return tuple(found)


def group_of_values(group: type[_GroupT], values: Mapping[str, Any]) -> _GroupT:
    """A group with the values of its options by name, which its own checks may refuse."""
    hints = get_type_hints(group)
    arguments = {
        field.name: group_of_values(hints[field.name], values) if _is_group(hints[field.name]) else values[field.name]
        for field in dataclasses.fields(group)  # type: ignore[arg-type]
    }
    return group(**arguments)


def values_of_group(group: object) -> dict[str, Any]:
    """The values of the options of a group, and of the groups in it, by name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(group):  # type: ignore[arg-type]
        value = getattr(group, field.name)
        found |= values_of_group(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function: each field of a parameter that is a group is an option."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    groups = {one.name: one.annotation for one in own if _is_group(one.annotation)}
    parameters = [
        parameter
        for one in own
        for parameter in (
            [field.parameter() for field in option_fields(groups[one.name])]
            if one.name in groups
            else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        )
    ]

    def command(**values: Any) -> None:
        given = {
            one.name: group_of_values(groups[one.name], values) if one.name in groups else values[one.name]
            for one in own
        }
        function(**given)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__wrapped__ = function  # type: ignore[attr-defined]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def is_given(field: OptionField, value: Any) -> bool:
    """Whether a value says something that a command without the option would not do."""
    return value != field.default and value not in ("", None, (), [])


def command_line(group: object, leave_out: Collection[str] = ()) -> list[str]:
    """The arguments that give a command the values of a group; defaults are left out, and so are some options."""
    values = values_of_group(group)
    found: list[str] = []
    for one in option_fields(type(group)):  # type: ignore[arg-type]
        value = values[one.name]
        if one.name in leave_out or not is_given(one, value):
            continue
        if one.is_argument:
            found.append(str(value))
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            found += [one.flag] if item is True else [one.flag, str(item)]
    return found


class GroupedCommand(TyperCommand):
    """A command whose help shows options by panel, the first panel first."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments, then the options of each panel, in the order of the groups."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], FIRST_PANEL: []}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                is_argument = one.param_type_name == "argument"
                panel = "Arguments" if is_argument else getattr(one, "rich_help_panel", None) or "Other options"
                panels.setdefault(panel, []).append((record[0].partition(" / ")[0], record[1]))  # without --no-…
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)
