"""The number of parameter servers that shall have the tables, from what hosts and servers report."""

from __future__ import annotations

from dataclasses import replace

from trainer.job.control.buffer_samples import add_sample, join_samples
from trainer.job.control.messages import RoleReport, ServerLoad
from trainer.scheduling.buffer_control import BufferSample
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.job import Job
from trainer.scheduling.server_control import ServerControl, ServerLimits, ServerSample, control_servers
from trainer.scheduling.transitions import ATTEMPT, JobState

#: States of a job that trains, or that a change of its servers, or a failure, keeps from it.
_ACTIVE = ATTEMPT | {JobState.STARTING, JobState.RESTARTING}


class WantedServers:
    """The number of a job that scales its servers; any other job has none.

    ``limits``: without the limits of servers, which the job gives.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._control = ServerControl(0)
        self._hosts: dict[str, BufferSample] = {}
        # By server, the newest load, and the busy share of the time before it.
        self._loads: dict[str, tuple[ServerLoad, float]] = {}
        self._at_secs: float | None = None

    def add(self, role: Role, report: RoleReport) -> None:
        """Add what a host or a server has measured."""
        if role.kind is RoleKind.HOST and report.buffer is not None:
            self._hosts[role.name] = add_sample(self._hosts.get(role.name), report.buffer)
        elif role.kind is RoleKind.SERVER and report.load is not None:
            before = self._loads.get(role.name)
            share = 0.0 if before is None else busy_share(before[0], report.load)
            if share is not None:
                self._loads[role.name] = report.load, share

    def update(self, job: Job) -> int | None:
        """Another number that is wanted now, from the samples since the last update; None: that of the job."""
        settings, hosts = job.settings, self._hosts
        if not settings.scales_from:
            return None
        elapsed_secs = 0.0 if self._at_secs is None else job.now_secs - self._at_secs
        self._at_secs, self._hosts = job.now_secs, {}
        if self._control.servers != job.wanted_servers:  # of a new controller, or by a person
            self._control = ServerControl(job.wanted_servers)
        if job.state not in _ACTIVE or not hosts:
            return None
        found = join_samples(job.now_secs, hosts)
        used = [name for name in self._loads if name not in job.unused_servers]
        sample = ServerSample(
            at_secs=job.now_secs,
            elapsed_secs=elapsed_secs,
            rows=found.consumed_rows,
            training_secs=found.busy_secs,
            wait_secs=found.wait_secs,
            busy_share=max((self._loads[name][1] for name in used), default=0.0),
            servers=settings.servers - len(job.unused_servers),
        )
        limits = replace(self._limits, least=settings.scales_from, most=settings.servers)
        self._control = control_servers(self._control, sample, limits)
        return None if self._control.servers == job.wanted_servers else self._control.servers


def busy_share(before: ServerLoad, now: ServerLoad) -> float | None:
    """The share of the time between two loads in which a server was busy, at most 1; None where there is no time between them.

    A process that was started again has been busy for all of its time at most.
    """
    secs = now.at_secs - before.at_secs
    if secs <= 0:
        return None
    is_same = now.process == before.process and now.processor_secs >= before.processor_secs
    return min((now.processor_secs - (before.processor_secs if is_same else 0.0)) / secs, 1.0)
