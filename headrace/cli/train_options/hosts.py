"""The processes of a training job: hosts, readers, commits, preemption notices, and what is trained as data lands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import typer

from headrace.cli.options.launchers import option_name
from headrace.cli.options.option_groups import Mark
from headrace.terminal.quantities import check_grace
from trainer.options.process_range import ProcessRange
from transforms.errors import InputError

#: Options that make a training a job, those that only a job has, and those that need ``--follow``.
_OF_JOBS = ("hosts", "readers", "follow", "wait_for_memos", "shuffle_events")
_NEED_A_JOB = (
    "epoch_secs",
    "epoch_events",
    "epoch_steps",
    "least_hosts",
    "notice_file",
    "notice_http",
    "notice_metadata",
)
_NEED_FOLLOW = ("caught_up_hosts", "caught_up_readers", "caught_up_epoch_secs")


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The hosts and readers of a job; training in one process has none of them.

    Raises :class:`InputError` for options out of range, or without those that they need.
    """

    PANEL: ClassVar[str] = "Hosts (a job of several processes)"

    hosts: Annotated[
        int,
        typer.Option(help="Train with this number of host processes. Default: in this process.", show_default=False),
        Mark.FIRST,
    ] = 0
    readers: Annotated[
        str,
        typer.Option(
            metavar="N|N..M",
            help="Reader processes of a job with --hosts: a number, or a range. Default: as many as it needs.",
            show_default=False,
        ),
        Mark.RANGE,
    ] = ""
    epoch_secs: Annotated[
        float,
        typer.Option(
            help="The longest time between two commits of a job with --hosts. Default: no limit.", show_default=False
        ),
    ] = 0.0
    epoch_events: Annotated[
        int,
        typer.Option(
            "--epoch-events",
            help="A commit of a job after this number of events, too; whole work units.",
            show_default=False,
        ),
    ] = 0
    epoch_steps: Annotated[
        int, typer.Option("--epoch-steps", help="The same, after this number of optimizer steps.", show_default=False)
    ] = 0
    least_hosts: Annotated[
        int,
        typer.Option(
            "--least-hosts",
            help="Go on with this number of hosts after a preemption notice. Default: wait until all are back.",
            show_default=False,
        ),
    ] = 0
    grace_secs: Annotated[
        float, typer.Option(help="How long a job with --hosts has to commit after a preemption notice.")
    ] = 30.0
    notice_file: Annotated[
        str,
        typer.Option(metavar="FILE", help="A file whose appearance is a preemption notice; it may hold the seconds."),
        Mark.PATH,
    ] = ""
    notice_http: Annotated[
        str, typer.Option(help="Listen for preemption notices here, as host:port: POST /notice with the job's token.")
    ] = ""
    notice_metadata: Annotated[
        str,
        typer.Option(help="Take preemption notices from this metadata server: http://metadata.google.internal."),
    ] = ""
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", help="Train new data as it lands, until stopped; with --hosts, without --end."
        ),
    ] = False
    caught_up_hosts: Annotated[
        int,
        typer.Option(
            "--caught-up-hosts",
            help="Hosts once --follow has trained the history. Default: as before.",
            show_default=False,
        ),
    ] = 0
    caught_up_readers: Annotated[
        str,
        typer.Option(
            "--caught-up-readers",
            metavar="N|N..M",
            help="Readers from then on. Default: as before.",
            show_default=False,
        ),
        Mark.RANGE,
    ] = ""
    caught_up_epoch_secs: Annotated[
        float,
        typer.Option(
            "--caught-up-epoch-secs",
            help="The longest time between two commits from then on. Default: as before.",
            show_default=False,
        ),
    ] = 0.0
    wait_for_memos: Annotated[
        bool,
        typer.Option(
            "--wait-for-memos/--no-wait-for-memos", help="Hold a job with --hosts until all its memos are ready."
        ),
    ] = False
    shuffle_events: Annotated[
        int,
        typer.Option(
            help="Shuffle events in windows of this number, a multiple of batch_rows, in a job with --hosts.",
            show_default=False,
        ),
    ] = 0
    poll_secs: Annotated[float, typer.Option(help="Seconds between looks for new data or memos.")] = 1.0
    plan: Annotated[
        str,
        typer.Option(
            metavar="FILE|auto",
            help="Partition embedding tables by this plan of `headrace plan make`: over hosts, without --hosts over simulated cores. "
            "auto: a job's plan follows its data.",
            show_default=False,
        ),
        Mark.PATH,
        Mark.AUTO,
    ] = ""
    towers: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Give each tower of `headrace towers make` hosts of its own, which exchange by towers: with --hosts, docs/towers.md.",
            show_default=False,
        ),
        Mark.PATH,
    ] = ""
    hosts_per_machine: Annotated[
        int,
        typer.Option(
            "--hosts-per-machine",
            help="So many hosts, one after the other, share a machine: dense gradients are added inside machines first, and hosts by towers "
            "exchange between machines by equal places. Default: 1.",
            show_default=False,
        ),
    ] = 0
    dense_values: Annotated[
        str,
        typer.Option(
            "--dense-values",
            metavar="float32|bf16",
            help="Dense gradients between hosts, with --hosts-per-machine between machines: as they are, or rounded to bfloat16 and added in float32.",
            show_default=False,
        ),
    ] = ""
    tower_sums: Annotated[
        bool,
        typer.Option(
            "--tower-sums/--no-tower-sums",
            help="With --towers: hosts of a tower send sums of their rows of a bag where these are fewer bytes; results differ by rounding.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if not self.follow:
            self._refuse_given(
                _NEED_FOLLOW, "settings of caught-up training must go with --follow", "give --follow too"
            )
        if self.plan_follows_data and self.hosts < 2:
            raise InputError("a plan that follows the data must be that of two hosts or more: one host has all tables", where="--plan, --hosts",
                             value=f"auto, {self.hosts}", next_step="give --hosts 2 or more, or leave --plan out")  # fmt: skip
        if self.hosts_per_machine < 0:
            raise InputError("the hosts of a machine must be at least 1", where="--hosts-per-machine", value=self.hosts_per_machine,
                             allowed="from 1 on")  # fmt: skip
        self._check_dense_values()
        if not self.is_job:
            self._refuse_given(_NEED_A_JOB, "options of a job must go with --hosts", "give --hosts 1 too")
            return
        check_grace("--grace-secs", self.grace_secs)
        self._check_phases()
        if self.epoch_events < 0 or self.epoch_steps < 0:
            raise InputError("numbers of events and steps must be at least 0", where="--epoch-events, --epoch-steps",
                             value=(self.epoch_events, self.epoch_steps))  # fmt: skip

    def _check_dense_values(self) -> None:
        from trainer.tables.wire.settings import DENSE_VALUES

        if self.dense_values and self.dense_values not in DENSE_VALUES:
            raise InputError("--dense-values must be a known encoding", where="--dense-values", value=self.dense_values,
                             allowed=", ".join(DENSE_VALUES))  # fmt: skip

    @property
    def rounds_dense_values(self) -> bool:
        """Whether dense gradients are rounded on their way."""
        return self.dense_values not in ("", "float32")

    @property
    def is_job(self) -> bool:
        """Whether several processes train."""
        return any(getattr(self, name) for name in _OF_JOBS)

    @property
    def plan_follows_data(self) -> bool:
        """Whether the job changes the plan of its tables itself."""
        return self.plan == Mark.AUTO.value

    @property
    def reader_range(self) -> ProcessRange | None:
        """The numbers of readers; None: as many as the job needs."""
        return _range_of(self.readers, "--readers")

    @property
    def caught_up_reader_range(self) -> ProcessRange | None:
        """The numbers of readers once the history is trained; None: as many as the job needs."""
        return _range_of(self.caught_up_readers, "--caught-up-readers") or self.reader_range

    @property
    def most_hosts(self) -> int:
        """The most hosts at any time; 1 for training in one process."""
        return max(1, self.hosts, self.caught_up_hosts)

    def as_job(self, hosts: int = 0) -> HostOptions | None:
        """These options with their number of hosts, or ``hosts``; None for training in one process.

        Raises :class:`InputError` for options that do not fit the number.
        """
        return replace(self, hosts=hosts or self.hosts or 1) if hosts or self.is_job else None

    def _check_phases(self) -> None:
        """Raise :class:`InputError` for numbers of processes out of range."""
        later = (self.caught_up_hosts or self.hosts, self.caught_up_epoch_secs or self.epoch_secs)
        phases = {"": (self.hosts, self.epoch_secs), "caught-up-": later}
        for prefix, (hosts, epoch_secs) in phases.items():
            if hosts < 0 or not 0 <= epoch_secs < math.inf:
                raise InputError("a job must have at least one host", where=f"--{prefix}hosts, --{prefix}epoch-secs",
                                 value=(hosts, epoch_secs), allowed="hosts from 1 on, seconds from 0 on")  # fmt: skip
        _ = self.reader_range, self.caught_up_reader_range  # which raise
        fewest = min(self.hosts, later[0])
        if self.least_hosts < 0 or (fewest and self.least_hosts > fewest):  # without a number it is not known yet
            raise InputError("the least number of hosts must be at most that of the job", where="--least-hosts",
                             value=self.least_hosts, allowed=f"up to {fewest}")  # fmt: skip

    def _refuse_given(self, names: Sequence[str], rule: str, next_step: str) -> None:
        """Raise :class:`InputError` if any of these options is given."""
        if found := [option_name(name) for name in names if getattr(self, name)]:
            raise InputError(rule, where=", ".join(found), next_step=next_step)


def _range_of(text: str, option: str) -> ProcessRange | None:
    """The range of an option; None for no text. Raises :class:`InputError`."""
    return ProcessRange.parse(text, option) if text else None
