"""The options of ``headrace train`` in the arguments of another command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.main import get_command_from_info
from typer.models import CommandInfo

from headrace.cli.options.option_groups import GroupedCommand, group_of_values, grouped
from headrace.cli.train_options.training import TrainOptions


@grouped
def _command(options: TrainOptions) -> None:
    """Never called: its parameters parse the arguments."""


def training_values(arguments: Sequence[str]) -> dict[str, Any]:
    """The values of the options by name, each of its type; they are not checked against each other."""
    info = CommandInfo("train", cls=GroupedCommand, callback=_command)
    command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    with command.make_context("headrace train", list(arguments)) as context:
        return dict(context.params)


def parse_training(arguments: Sequence[str], *, hosts: int = 0) -> TrainOptions:
    """The options, checked as the command does.

    Args:
        arguments: after ``train``.
        hosts: of a training whose arguments do not say a number; 0: it runs in one process.

    Raises :class:`~transforms.errors.InputError`.
    """
    values = training_values(arguments)
    return group_of_values(TrainOptions, {**values, "hosts": values["hosts"] or hosts})
