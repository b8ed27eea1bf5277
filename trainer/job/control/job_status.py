"""The status of a job, from the job and the last reports of its members. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.job.control.messages import JobStatus, MemberStatus, RoleReport
from trainer.scheduling.events import Role
from trainer.scheduling.job import Job
from trainer.scheduling.orders import WantRoles
from trainer.scheduling.transitions import JobState


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """What the controller knows beside the job.

    Attributes:
        job, release: the identity of the job; the release of the controller.
        process_id, lease: of the controller.
        wanted: the processes that the job needs.
        wanted_readers: chosen within the limits.
        published_secs: when the last commit was published, in epoch seconds; None if none was.
        trained_secs: the end of the newest committed partition in epoch seconds; None if unknown.
        at_secs: the wall clock.
        log_bytes: the length of the log.
        problem: the last error that is being retried.
    """

    job: str
    release: str
    process_id: int
    lease: int
    wanted: WantRoles
    wanted_readers: int
    published_secs: float | None
    trained_secs: float | None
    at_secs: float
    log_bytes: int
    problem: str


def job_status(job: Job, facts: ControllerFacts, reports: Mapping[Role, RoleReport]) -> JobStatus:
    """The status of a job now."""
    deadline = job.deadline_secs
    is_waiting, scales = job.state is JobState.RESTARTING, job.settings.scales_from > 0
    return JobStatus(
        job=facts.job,
        release=facts.release,
        process_id=facts.process_id,
        lease=facts.lease,
        state=job.state,
        phase=job.phase,
        attempt=job.attempt,
        epoch=job.epoch,
        first_unit=job.first_unit,
        stop_unit=job.stop_unit,
        attempt_secs=job.now_secs - job.begun_secs if job.attempt else 0.0,
        commit_epochs=job.commit.epochs,
        commit_attempt=job.commit.attempt,
        next_unit=job.commit.next_unit,
        planned_units=_planned_units(job),
        partition=job.partition,
        wanted_partition=job.partition if job.next_partition is None else job.next_partition,
        pending_attempt=job.pending.commit.attempt if job.pending else None,
        is_publishing=job.pending is not None and job.pending.is_publishing,
        members=tuple(_member_status(job, role, reports.get(role, RoleReport())) for role in sorted(job.members)),
        wanted_hosts=facts.wanted.hosts,
        wanted_readers=facts.wanted_readers,
        least_readers=facts.wanted.least_readers,
        most_readers=facts.wanted.most_readers,
        used_servers=job.settings.servers - len(job.unused_servers) if scales and job.attempt else 0,
        wanted_servers=job.wanted_servers if scales else 0,
        most_servers=job.settings.servers if scales else 0,
        running_servers=job.running_servers,
        hold=job.hold,
        restarts=job.restarts,
        reader_failures=job.reader_failures,
        resume_in_secs=max(0.0, job.resume_secs - job.now_secs) if is_waiting else None,
        stop_asked=job.stop_asked,
        deadline_in_secs=None if deadline is None else deadline - job.now_secs,
        is_leaving=None in job.notices or job.is_all_away,
        away=tuple(sorted(job.away)),
        away_for_secs=job.now_secs - job.away_secs if job.away else None,
        published_secs=facts.published_secs,
        staleness_secs=None if facts.trained_secs is None else max(0.0, facts.at_secs - facts.trained_secs),
        log_bytes=facts.log_bytes,
        problem=facts.problem,
    )


def _planned_units(job: Job) -> int:
    data = job.next_data or job.data
    return data.stop_unit if data else 0


def _member_status(job: Job, role: Role, report: RoleReport) -> MemberStatus:
    member = job.members[role]
    return MemberStatus(
        role=role,
        incarnation=member.incarnation,
        address=report.address,
        silent_secs=job.now_secs - member.seen_secs,
        is_leaving=member.is_leaving,
        rank=job.hosts.index(role.name) if job.is_ranked(role) else None,
        progress=report.progress,
        buffer=report.buffer,
    )
