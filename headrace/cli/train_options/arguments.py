"""The options of ``headrace train`` in the arguments of another command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typer.main import get_command_from_info
from typer.models import CommandInfo

from headrace.cli.options.option_groups import (
    GroupedCommand,
    command_line,
    group_of_values,
    grouped,
    option_fields,
    values_of_group,
)
from headrace.cli.train_options.run_file import RunFile, key_of, read_run_file, save_run_file, write_run_file
from headrace.cli.train_options.training import TrainOptions
from transforms.errors import InputError

if TYPE_CHECKING:
    from typer._click import Context

_FLAG = re.compile(r"--[a-z][a-z-]*|\bMODEL\b")


class TrainCommand(GroupedCommand):
    """``headrace train``, whose options may come from a run file; other flags replace them."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments; what they do not give has the value of the run file, if there is one."""
        opts, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        if path := opts.get("from_file"):
            file = read_run_file(path, option_fields(TrainOptions))
            ctx.default_map, ctx.meta[_RUN_FILE] = dict(file.values), file
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        """Run the command; its errors name the key of a value that comes from a run file."""
        with _keys_in_errors(ctx):
            return super().invoke(ctx)


#: The run file of a context, in its ``meta``.
_RUN_FILE = "headrace.run_file"


@contextmanager
def _keys_in_errors(ctx: Context) -> Iterator[None]:
    """Let errors about a flag whose value comes from a run file name the file and the key."""
    try:
        yield
    except InputError as error:
        file: RunFile | None = ctx.meta.get(_RUN_FILE)
        if file is None:
            raise
        taken = {
            name for name in file.values if str(getattr(ctx.get_parameter_source(name), "name", "")) == "DEFAULT_MAP"
        }
        keys = {one.flag: key_of(one) for one in option_fields(TrainOptions) if one.name in taken}
        error.where = _FLAG.sub(
            lambda flag: f"{flag[0]} ({file.place(keys[flag[0]])})" if flag[0] in keys else flag[0], error.where
        )
        raise


def save_options(options: TrainOptions) -> None:
    """Write the run file of ``--save-as``. Raises :class:`InputError`."""
    path, given = options.run.save_as, options.run.from_file
    if not path:
        return
    text = write_run_file(values_of_group(options), option_fields(TrainOptions), os.path.dirname(path))
    save_run_file(path, text, replaces=bool(given) and os.path.realpath(path) == os.path.realpath(given))


def arguments_without_file(options: TrainOptions) -> tuple[str, ...]:
    """The arguments that say the same without run files: one that is read may change, and one that is written is written once."""
    return tuple(command_line(options, ("from_file", "save_as")))


@grouped
def _command(options: TrainOptions) -> None:
    """Never called: its parameters parse the arguments."""


def training_values(arguments: Sequence[str]) -> dict[str, Any]:
    """The values of the options by name, each of its type; they are not checked against each other."""
    return dict(_context(arguments).params)


def _context(arguments: Sequence[str]) -> Context:
    info = CommandInfo("train", cls=TrainCommand, callback=_command)
    command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    with command.make_context("headrace train", list(arguments)) as context:
        return context


def parse_training(arguments: Sequence[str], *, hosts: int = 0) -> TrainOptions:
    """The options, checked as the command does.

    Args:
        arguments: after ``train``.
        hosts: of a training whose arguments do not say a number; 0: it runs in one process.

    Raises :class:`~transforms.errors.InputError`.
    """
    context = _context(arguments)
    with _keys_in_errors(context):
        return group_of_values(TrainOptions, {**context.params, "hosts": context.params["hosts"] or hosts})
