"""The options of ``headrace train`` in the arguments of another command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typer.main import get_command_from_info
from typer.models import CommandInfo

from headrace.cli.options.devices import DeviceOptions
from headrace.cli.options.exports import ServingOptions
from headrace.cli.options.launchers import option_name
from headrace.cli.options.option_groups import (
    GroupedCommand,
    command_line,
    group_of_values,
    grouped,
    option_fields,
    values_of_group,
)
from headrace.cli.options.servers import ServerOptions
from headrace.cli.options.tpus import TpuOptions
from headrace.cli.options.training import read_options
from headrace.cli.train_options.hosts import HostOptions
from headrace.cli.train_options.run_file import PHASES, RunFile, key_of, read_run_file, save_run_file, write_run_file
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
            file = read_run_file(path, option_fields(TrainOptions), BY_PHASE)
            phase = opts.get("phase")
            ctx.default_map = dict(file.of_phase(phase) if phase else file.values)
            ctx.meta[_RUN_FILE], ctx.meta[_ARGUMENTS] = file, tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        """Run the command; its errors name the key of a value that comes from a run file."""
        with keys_in_errors(ctx):
            return super().invoke(ctx)


#: The run file of a context, and its arguments, in its ``meta``.
_RUN_FILE, _ARGUMENTS = "headrace.run_file", "headrace.arguments"
_CAUGHT_UP = ("caught_up_hosts", "caught_up_readers", "caught_up_epoch_secs")
#: Of the options of a cluster, those of the machines of hosts, of their images, and of the queue for them.
_MACHINES = ("topology", "accelerator", "images", "spot", "queue", "priority")
#: Options that may be different in the phases of a run file; the others hold for the whole run.
BY_PHASE = frozenset(
    one.name
    for group in (HostOptions, ServerOptions, ServingOptions, TpuOptions, DeviceOptions)
    for one in option_fields(group)
    if one.name not in ("follow", *_CAUGHT_UP)
) | frozenset(_MACHINES)


def has_phases(ctx: Context) -> bool:
    """Whether a command without ``--phase`` has a run file with phases. Raises :class:`InputError` for ``--phase`` without such a file."""
    file: RunFile | None = ctx.meta.get(_RUN_FILE)
    if file is None and ctx.params["phase"]:
        raise InputError(
            "--phase needs a run file with phases",
            where="--phase",
            value=ctx.params["phase"],
            next_step="give --from FILE",
        )
    return file is not None and bool(file.phases) and not ctx.params["phase"]


def phases_of(ctx: Context) -> dict[str, TrainOptions]:
    """The options of each phase of a command that :func:`has_phases`. Raises :class:`InputError`."""
    return options_of_phases(ctx.meta[_ARGUMENTS])


def options_of_phases(arguments: Sequence[str]) -> dict[str, TrainOptions]:
    """The options of each phase of the run file in these arguments, checked as the command does. Raises :class:`InputError`.

    Initial training ends when everything is trained, also where the file says ``follow``, which is of caught-up training.
    """
    found = {}
    for phase in PHASES:
        context = _context([*arguments, "--phase", phase])
        with keys_in_errors(context):
            if given := [option_name(one) for one in _CAUGHT_UP if context.params[one]]:
                raise InputError("caught-up training must have its settings in one place", where=", ".join(given),
                                 next_step="write them in the table [caught_up], without caught-up-")  # fmt: skip
            is_initial = phase == PHASES[0]
            found[phase] = group_of_values(
                TrainOptions, {**context.params, **({"follow": False} if is_initial else {})}
            )
            found[phase].check_phase(phase)
    check_unchanged(*(read_options(one.run.config) for one in found.values()))
    return found


def controllers_of_phases(arguments: Sequence[str]) -> dict[str, TrainOptions]:
    """The options of the controller of each phase, from ``train ARGS… -- train ARGS…``, checked as the command does.

    Raises :class:`InputError`.
    """
    found = dict(zip(PHASES, map(parse_training, _trainings(arguments)), strict=True))
    for phase, one in found.items():
        if not one.cluster.jobset:
            raise InputError("the controller of a phase must have the JobSet of its workers", where=f"--jobset, {phase}",
                             next_step="headrace train --from FILE --launcher gke writes this command")  # fmt: skip
    if len({one.run.run_dir for one in found.values()}) > 1:
        raise InputError("phases must be those of one run", where="--run-dir",
                         value=" and ".join(one.run.run_dir for one in found.values()))  # fmt: skip
    check_unchanged(*(read_options(one.run.config) for one in found.values()))
    return found


def _trainings(arguments: Sequence[str]) -> list[list[str]]:
    """The arguments of the training of each phase, without ``train``."""
    found: list[list[str]] = [[]]
    for one in arguments:
        if one == "--":
            found.append([])
        else:
            found[-1].append(one)
    if len(found) != len(PHASES) or any(one[:1] != ["train"] for one in found):
        raise InputError("phases must be the arguments of two trainings", where="-- train ARGS… -- train ARGS…",
                         value=f"{len(found)} lists of arguments", allowed="those of initial and of caught-up training")  # fmt: skip
    return [one[1:] for one in found]


def check_unchanged(initial: Mapping[str, Any], caught_up: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for training options that a run cannot go on with."""
    from trainer.options.resume_rules import option_changes

    for one in option_changes(initial, {**initial, **caught_up}):
        if not one.is_allowed:
            raise InputError("training options that stay must be equal in all phases", where=f"options.{one.option}", value=one.text(),
                             allowed=f"one value: {one.reason}", next_step="write it in the table [options]")  # fmt: skip


@contextmanager
def keys_in_errors(ctx: Context) -> Iterator[None]:
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
    return tuple(command_line(options, ("from_file", "save_as", "phase", "catch_up_secs")))


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
    with keys_in_errors(context):
        if has_phases(context):
            raise InputError("training in another command must have one phase", where="--from", value=context.params["from_file"],
                             allowed=f"--phase {' or '.join(PHASES)}", next_step="give --phase too")  # fmt: skip
        return group_of_values(TrainOptions, {**context.params, "hosts": context.params["hosts"] or hosts})
