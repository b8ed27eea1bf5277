"""What the members of a job reported last. It is not logged: a restarted controller receives it with the next heartbeats."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.job.control.messages import Peer, RoleCall, RoleReport
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.job import Job


class RoleReports:
    """The last reports of processes, by role."""

    def __init__(self) -> None:
        self._found: dict[Role, tuple[int, RoleReport]] = {}

    def add(self, job: Job, call: RoleCall) -> None:
        """Keep the report of a message of a member."""
        if call.report is not None and job.is_current(call.role, call.incarnation):
            self._found[call.role] = (call.incarnation, call.report)

    def of_members(self, job: Job) -> Mapping[Role, RoleReport]:
        """The reports of current members; others are forgotten."""
        self._found = {role: one for role, one in self._found.items() if job.is_current(role, one[0])}
        return {role: report for role, (_, report) in self._found.items()}

    def peers(self, job: Job) -> tuple[Peer, ...]:
        """The processes that serve others, without those that were ordered to leave."""
        reports = self.of_members(job)
        return tuple(
            Peer(role, job.members[role].incarnation, reports[role].address)
            for role in sorted(reports)
            if reports[role].address and not job.members[role].is_leaving
        )

    def trained_secs(self, job: Job) -> float | None:
        """The end of the newest partition that hosts trained in the attempt of the last commit; None if unknown."""
        found = [
            report.progress.event_secs
            for role, report in self.of_members(job).items()
            if role.kind is RoleKind.HOST and report.progress and report.progress.attempt == job.commit.attempt
        ]
        return max(found, default=0.0) or None
