"""Command groups that import and build a command when it is called.

Typer builds every command of an application at each start, with all its options: half of the time of ``headrace --help``, and
most of that of a small command. The help of a group needs only the first line of each command's text.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer._click import Command
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

from headrace.cli.plain_values import take_plain_values

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter
    from typer._click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Place:
    """Where a command is: the name of a function, of its description, or of a :class:`typer.Typer` for a group, in a module."""

    module: str
    name: str

    def load(self) -> Callable[..., Any] | CommandInfo | typer.Typer:
        """The function, its description, or the group."""
        found: Callable[..., Any] | CommandInfo | typer.Typer = getattr(import_module(self.module), self.name)
        return found


class LazyGroup(TyperGroup):
    """A group whose ``commands`` are :class:`LazyCommands`."""

    def list_commands(self, ctx: Context) -> list[str]:
        """The commands' names in order."""
        return list(self.commands)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands' names and the first lines of their texts; none of them is built."""
        commands = self.commands
        self.commands = commands.described() if isinstance(commands, LazyCommands) else commands
        try:
            super().format_commands(ctx, formatter)
        finally:
            self.commands = commands

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin so; none of the commands is built."""
        from typer._click.shell_completion import CompletionItem

        if incomplete and not incomplete[0].isalnum():  # an option
            return Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name) for name in self.commands if name.startswith(incomplete)]


class LazyCommands(MutableMapping[str, "Command"]):
    """The commands of a group by name; one is built when it is looked up."""

    def __init__(self, places: Mapping[str, Place | CommandInfo]) -> None:
        self._places = dict(places)
        self._built: dict[str, Command] = {}

    def described(self) -> dict[str, Command]:
        """Commands with their texts and nothing else."""
        return {name: TyperCommand(name=name, help=_text(place)) for name, place in self._places.items()}

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            self._built[name] = _build(name, self._places[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._places[name], self._built[name] = CommandInfo(name, help=command.help), command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._built.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def group_of(app: typer.Typer, places: Mapping[str, Place] | None = None) -> TyperGroup:
    """The group of an application: its callback and its help, with its own commands or those at ``places``."""
    bare = copy.copy(app)
    bare.registered_commands, bare.info = [], copy.copy(app.info)
    bare.info.cls = LazyGroup
    group = get_group(bare)
    take_plain_values(group)
    group.commands = LazyCommands({str(info.name): info for info in app.registered_commands} | dict(places or {}))
    return group


def _build(name: str, place: Place | CommandInfo) -> Command:
    found = place.load() if isinstance(place, Place) else place
    if isinstance(found, typer.Typer):
        group = group_of(found)
        group.name = name
        return group
    info = found if isinstance(found, CommandInfo) else CommandInfo(name, callback=found)
    command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    take_plain_values(command)
    return command


def _text(place: Place | CommandInfo) -> str | None:
    found = place.load() if isinstance(place, Place) else place
    if isinstance(found, typer.Typer):
        return str(found.info.help)
    if isinstance(found, CommandInfo):
        return found.help or inspect.getdoc(found.callback)
    return inspect.getdoc(found)
