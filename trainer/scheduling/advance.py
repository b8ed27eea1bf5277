"""The machine of the training job: a job and an event give the next job and instructions. Pure.

The same function runs in production, where the controller logs each event before it acts on the instructions, in the replay of that
log, and in the simulator (:mod:`tests.simulation.training_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainer.scheduling.attempts import (
    Outcome,
    begin,
    drain,
    drop_commit,
    drop_lost_commit,
    end_early,
    end_job,
    extend,
    fail,
    give_up,
    hold,
    is_published_soon,
    leave_now,
    let_leave,
    lose_server,
    lose_worker,
    place,
    publish,
    publish_order,
    release,
    restart,
    take_part,
    take_servers,
    want_roles,
    with_away,
)
from trainer.scheduling.current_orders import answer, send_orders
from trainer.scheduling.due import next_due
from trainer.scheduling.events import (
    AttemptMessage,
    CommitFailed,
    DataChanged,
    Deadline,
    Drained,
    EpochDue,
    Event,
    Failed,
    Heartbeat,
    Joined,
    Left,
    Lost,
    Notice,
    PartitionChanged,
    PartWritten,
    PlanFailed,
    Position,
    Published,
    Recovered,
    Released,
    Resume,
    Role,
    RoleKind,
    RoleMessage,
    ServersChanged,
    StopAsked,
    Tick,
)
from trainer.scheduling.holds import ErrorClass, classify
from trainer.scheduling.job import Job, Member, pass_time, see, with_member, without_member
from trainer.scheduling.orders import Hold, Instruction, Refuse, Send
from trainer.scheduling.transitions import ATTEMPT, FINAL, EventKind, JobState, check_move, targets


def advance(job: Job, event: Event) -> Outcome:
    """The job after ``event`` and what is to be done. Equal arguments give equal results.

    Raises :class:`IllegalEvent` for an event that is impossible in the job's state: a command that it cannot follow, or a defect of
    the controller. Messages of roles are never impossible, only late.
    """
    targets(job.state, event.kind)
    job = pass_time(job, event.at_secs)
    told: tuple[Instruction, ...] = ()
    if isinstance(event, RoleMessage):
        if job.is_current(event.role, event.incarnation):
            job = see(job, event.role)
        elif isinstance(event, Joined) and _replaces(job, event):
            job, told = _apply(job, Lost(event.at_secs, event.role))
    job, more = _apply(job, event)
    job, due = _settle(job) if isinstance(event, Tick) else (job, ())
    return job, (*told, *more, *due)


def _apply(job: Job, event: Event) -> Outcome:
    if not targets(job.state, event.kind):
        return job, ()
    after, told = _HANDLERS[event.kind](job, event)
    check_move(job.state, event.kind, after.state)
    return after, told


def _tick(job: Job, event: Tick) -> Outcome:
    """Time only; :func:`advance` applies the events that are due."""
    return job, ()


def _settle(job: Job) -> Outcome:
    told: list[Instruction] = []
    while (due := next_due(job)) is not None:
        job, more = _apply(job, due)
        told += more
    return job, tuple(told)


def _recovered(job: Job, event: Recovered) -> Outcome:
    members = {role: replace(one, seen_secs=job.now_secs) for role, one in job.members.items()}
    job = replace(job, members=members)
    told: list[Instruction] = [want_roles(job), *send_orders(job, *sorted(members))]
    if job.pending is not None and job.pending.is_publishing:
        told.append(publish_order(job.pending))
    return job, tuple(told)


def _joined(job: Job, event: Joined) -> Outcome:
    role = event.role
    if reason := _refusal(job, event):
        return job, (Send(role, event.incarnation, Refuse(reason)),)
    is_new = event.incarnation > job.incarnations.get(role, 0)
    is_held = job.state is JobState.HELD and not role.kind.is_watched
    if job.state in FINAL or is_held or not is_new:
        return job, answer(job, role, event.incarnation)
    job = replace(
        with_member(job, role, Member(event.incarnation, job.now_secs)),
        incarnations={**job.incarnations, role: event.incarnation},
        away=job.away - {role},
    )
    told: tuple[Instruction, ...] = ()
    if job.state in (JobState.STARTING, JobState.AWAY):
        job, told = begin(job)
    elif role.kind is RoleKind.SERVER:
        job, told = take_servers(job)
    return job, told if job.state in ATTEMPT and job.is_ranked(role) else (*told, *send_orders(job, role))


def _refusal(job: Job, event: Joined) -> str:
    settings = job.settings
    if (event.release, event.protocol) == (settings.release, settings.protocol):
        return ""
    return (
        f"{event.role} must have release {settings.release!r} and protocol {settings.protocol}, "
        f"got {event.release!r} and {event.protocol}"
    )


def _replaces(job: Job, event: Joined) -> bool:
    """Whether a new process takes the place of a member, which must be gone."""
    known = job.members.get(event.role)
    return known is not None and event.incarnation > known.incarnation and not _refusal(job, event)


def _heartbeat(job: Job, event: Heartbeat) -> Outcome:
    return job, answer(job, event.role, event.incarnation)


def _left(job: Job, event: Left) -> Outcome:
    if not job.is_current(event.role, event.incarnation):
        return job, ()
    return _remove(job, event.role, f"{event.role} left")


def _lost(job: Job, event: Lost) -> Outcome:
    return _remove(job, event.role, f"{event.role} sent no heartbeat")


def _remove(job: Job, role: Role, reason: str) -> Outcome:
    """Remove a member; a host of the attempt ends it, unless its commit does not need the host any more."""
    was_leaving = job.members[role].is_leaving
    job = without_member(job, role)
    if role.kind.is_watched:  # hosts find out by themselves that one without a notice is gone
        lose = lose_server if role.kind is RoleKind.SERVER else lose_worker
        return lose(job, role) if role in job.notices else (job, ())
    if role in job.notices:
        job = with_away(job, {role})
        was_leaving = True
    if not job.is_ranked(role):
        return job, ()
    pending = job.pending
    if job.state is JobState.COMMITTING and pending is not None and pending.commit.attempt == job.attempt:
        job = drop_lost_commit(job)
        if job.pending is not None:
            return replace(job, continues=None), ()
    if job.state not in ATTEMPT:
        job = replace(drop_lost_commit(job), continues=None)
        return begin(job) if job.state in (JobState.STARTING, JobState.AWAY) else (job, ())
    if was_leaving and not job.stop_asked:
        return leave_now(give_up(job))
    return restart(job, reason, str(role))


def _failed(job: Job, event: Failed) -> Outcome:
    role = event.role
    writing = job.pending.commit.attempt if job.pending else 0
    if not job.is_current(role, event.incarnation) or event.attempt not in (0, job.attempt, writing):
        return job, ()
    is_transient = classify(event.error) is ErrorClass.TRANSIENT
    if is_transient and not (job.state in ATTEMPT and job.is_ranked(role)):
        job = replace(job, continues=None) if job.is_ranked(role) else job
        # After an attempt was given up, the failures of its other roles are consequences.
        return (job, ()) if event.attempt and job.state not in ATTEMPT else _count_failure(job, event)
    if role.kind is RoleKind.HOST and job.pending is not None and role.name in job.pending.missing:
        job = drop_commit(job)
    return fail(job, event.error, str(role))


def _count_failure(job: Job, event: Failed) -> Outcome:
    """A role failed that can be replaced while the attempt goes on."""
    job = replace(job, reader_failures=job.reader_failures + 1)
    most = job.settings.most_reader_failures
    if job.reader_failures <= most:
        return job, ()
    job = give_up(job) if job.state in ATTEMPT else job
    text = f"{most} failures of readers without a commit between them; the last: {event.error.summary}"
    return hold(job, Hold(ErrorClass.TRANSIENT, text, str(event.role)))


def _is_of_attempt(job: Job, event: AttemptMessage) -> bool:
    return event.attempt == job.attempt and job.is_ranked(event.role) and job.is_current(event.role, event.incarnation)


def _position(job: Job, event: Position) -> Outcome:
    if not _is_of_attempt(job, event) or event.role.name in job.positions:
        return job, ()
    return place(job, event.role.name, min(max(event.next_unit, job.first_unit), job.stop_unit))


def _drained(job: Job, event: Drained) -> Outcome:
    if not _is_of_attempt(job, event) or event.stop_unit != job.stop_unit or event.role.name in job.drained:
        return job, ()
    return drain(job, event.role.name)


def _part_written(job: Job, event: PartWritten) -> Outcome:
    pending = job.pending
    if pending is None or event.attempt != pending.commit.attempt or event.role.name not in pending.missing:
        return job, ()
    return take_part(job, event.role.name, event.part)


def _commit_failed(job: Job, event: CommitFailed) -> Outcome:
    pending = job.pending
    if pending is None or event.attempt != pending.commit.attempt:
        return job, ()
    if event.role is not None and (pending.is_publishing or not job.is_current(event.role, event.incarnation)):
        return job, ()
    if event.role is None and not pending.is_publishing:
        return job, ()
    job = drop_commit(job)
    if job.state in ATTEMPT:
        return fail(job, event.error, str(event.role or "the commit"))
    return begin(job) if job.state in (JobState.STARTING, JobState.AWAY) else (job, ())


def _published(job: Job, event: Published) -> Outcome:
    pending = job.pending
    if pending is None or not pending.is_publishing or event.attempt != pending.commit.attempt:
        return job, ()
    return publish(job)


def _epoch_due(job: Job, event: EpochDue) -> Outcome:
    return end_early(job)


def _deadline(job: Job, event: Deadline) -> Outcome:
    """The grace period ends. A commit that is being published needs no host; any other attempt is given up."""
    if is_published_soon(job):
        return let_leave(replace(job, continues=None))
    job = give_up(job)
    return end_job(job, JobState.STOPPED) if job.stop_asked else leave_now(job)


def _resume(job: Job, event: Resume) -> Outcome:
    return begin(job)


def _notice(job: Job, event: Notice) -> Outcome:
    end_secs = job.now_secs + max(0.0, event.grace_secs)
    role = event.role
    is_watched = role is not None and role.kind.is_watched
    if (job.state is JobState.HELD and not is_watched) or (role is not None and role not in job.members):
        return job, ()
    earlier = job.notices.get(role)
    noticed = replace(job, notices={**job.notices, role: end_secs if earlier is None else min(earlier, end_secs)})
    if job.state in ATTEMPT and (role is None or job.is_used(role)):
        return end_early(noticed) if job.state is JobState.TRAINING else (noticed, send_orders(noticed))
    if role is not None and job.state in ATTEMPT:
        # Not of the attempt: it leaves at once, and the attempt goes on.
        left, told = let_leave(replace(job, notices={role: end_secs}))
        away = job.away | ({role} if is_watched and not job.is_surplus(role) else set())
        return replace(left, notices=job.notices, away=away, continues=job.continues), told
    left, told = let_leave(noticed)
    if job.state in (JobState.RESTARTING, JobState.HELD):
        return left, told
    left, more = begin(replace(left, continues=None if role is None or job.is_ranked(role) else left.continues))
    return left, (*told, *more)


def _data_changed(job: Job, event: DataChanged) -> Outcome:
    job = extend(job, event.data)
    if job.state is JobState.HELD:
        lifts = job.hold is not None and job.hold.error_class is ErrorClass.DATA_NOT_READY
        return release(job) if lifts else (job, ())
    return begin(job) if job.state in (JobState.STARTING, JobState.AWAY, JobState.WAITING_FOR_DATA) else (job, ())


def _partition_changed(job: Job, event: PartitionChanged) -> Outcome:
    return replace(job, next_partition=None if event.partition == job.partition else event.partition), ()


def _servers_changed(job: Job, event: ServersChanged) -> Outcome:
    return take_servers(replace(job, scaled_servers=event.servers)) if job.settings.scales_from else (job, ())


def _plan_failed(job: Job, event: PlanFailed) -> Outcome:
    return (job, ()) if classify(event.error) is ErrorClass.TRANSIENT else fail(job, event.error, "the controller")


def _released(job: Job, event: Released) -> Outcome:
    return release(job)


def _stop_asked(job: Job, event: StopAsked) -> Outcome:
    job = replace(job, stop_asked=True)
    if job.state not in ATTEMPT or event.now:
        return end_job(give_up(job) if job.state in ATTEMPT else job, JobState.STOPPED)
    return end_early(job) if job.state is JobState.TRAINING else (job, ())


_HANDLERS: Mapping[EventKind, Callable[[Job, Any], Outcome]] = {
    EventKind.TICK: _tick,
    EventKind.RECOVERED: _recovered,
    EventKind.JOINED: _joined,
    EventKind.HEARTBEAT: _heartbeat,
    EventKind.LEFT: _left,
    EventKind.LOST: _lost,
    EventKind.FAILED: _failed,
    EventKind.POSITION: _position,
    EventKind.DRAINED: _drained,
    EventKind.PART_WRITTEN: _part_written,
    EventKind.COMMIT_FAILED: _commit_failed,
    EventKind.PUBLISHED: _published,
    EventKind.EPOCH_DUE: _epoch_due,
    EventKind.DEADLINE: _deadline,
    EventKind.RESUME: _resume,
    EventKind.NOTICE: _notice,
    EventKind.DATA_CHANGED: _data_changed,
    EventKind.PARTITION_CHANGED: _partition_changed,
    EventKind.SERVERS_CHANGED: _servers_changed,
    EventKind.PLAN_FAILED: _plan_failed,
    EventKind.RELEASED: _released,
    EventKind.STOP_ASKED: _stop_asked,
}
