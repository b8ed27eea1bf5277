"""The current orders of every role, as a function of the job alone."""

from __future__ import annotations

from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.job import Job
from trainer.scheduling.orders import (
    AskPosition,
    EndEpoch,
    GiveUp,
    Leave,
    Order,
    Refuse,
    Rejoin,
    Send,
    StartEpoch,
    WritePart,
)
from trainer.scheduling.transitions import FINAL, JobState

_ENDED = {JobState.HELD: "the job is held", JobState.DONE: "the job is done", JobState.STOPPED: "the job was stopped"}
_ATTEMPT = (JobState.TRAINING, JobState.ENDING, JobState.DRAINING)


def orders_for(job: Job, role: Role, incarnation: int) -> tuple[Order, ...]:
    """The orders of a process, in the order in which it follows them. It ignores those that it has followed."""
    if role.kind.is_watched:
        return _of_watched(job, role, incarnation)
    if job.state in _ENDED:
        return (Leave(_ENDED[job.state], is_over=job.state in FINAL),)
    member = job.members.get(role)
    if member is None:
        return (Rejoin(job.incarnations.get(role, 0) + 1),)
    if member.incarnation != incarnation:
        return (Refuse(f"another process is {role}"),)
    if member.is_leaving:
        return (Leave("preemption notice"),)
    if role.kind is RoleKind.READER:
        return ()
    return (*_writing(job, role.name), *_training(job, role))


def _of_watched(job: Job, role: Role, incarnation: int) -> tuple[Order, ...]:
    """The orders of a parameter server or an embedding worker, which stays when the job ends; a server until all rows of a commit are read."""
    member = job.members.get(role)
    if member is None:
        return () if job.state in FINAL else (Rejoin(job.incarnations.get(role, 0) + 1),)
    if member.incarnation != incarnation:
        return (Refuse(f"another process is {role}"),)
    is_read = role.kind is RoleKind.WORKER or job.pending is None or job.pending.is_publishing
    return (Leave("preemption notice"),) if member.is_leaving and is_read else ()


def _writing(job: Job, host: str) -> tuple[Order, ...]:
    pending = job.pending
    if pending is None or host not in pending.missing:
        return ()
    commit = pending.commit
    return (WritePart(commit.attempt, commit.epochs - 1, commit.next_unit),)


def _training(job: Job, role: Role) -> tuple[Order, ...]:
    if not job.attempt:
        return ()
    if job.state in _ATTEMPT and job.is_ranked(role):
        started: tuple[Order, ...] = (start_order(job),)
        if job.state is JobState.ENDING and role.name not in job.positions:
            return (*started, AskPosition(job.attempt))
        if job.state is JobState.DRAINING and role.name not in job.drained:
            return (*started, EndEpoch(job.attempt, job.stop_unit, _rest_secs(job)))
        return started
    keeps = job.state is JobState.COMMITTING or job.continues == job.attempt
    return () if keeps and job.is_ranked(role) else (GiveUp(job.attempt),)


def start_order(job: Job) -> StartEpoch:
    """The order that begins the job's attempt."""
    name = job.data.name if job.data else ""
    return StartEpoch(
        job.attempt, job.epoch, job.first_unit, job.stop_unit, job.hosts, job.continues, job.commit, name, job.unused_servers,
        job.partition,
    )  # fmt: skip


def _rest_secs(job: Job) -> float | None:
    deadline_secs = job.deadline_secs
    return None if deadline_secs is None else max(0.0, deadline_secs - job.now_secs)


def answer(job: Job, role: Role, incarnation: int) -> tuple[Send, ...]:
    """The current orders of a process, as instructions."""
    return tuple(Send(role, incarnation, order) for order in orders_for(job, role, incarnation))


def send_orders(job: Job, *roles: Role) -> tuple[Send, ...]:
    """The current orders of members, as instructions; by default of all hosts of the attempt."""
    chosen = roles or tuple(Role(RoleKind.HOST, name) for name in job.hosts)
    members = ((role, job.members[role].incarnation) for role in chosen if role in job.members)
    return tuple(send for role, incarnation in members for send in answer(job, role, incarnation))
