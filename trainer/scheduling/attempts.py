"""The life of an attempt: it begins, ends early, becomes quiet, is committed or given up. Pure.

A function takes a job and returns the job after the step and the instructions. An *attempt* trains one epoch; its number never
repeats. The epoch of an attempt that was given up is trained again, up to the same unit, under the next number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from trainer.scheduling.current_orders import send_orders
from trainer.scheduling.events import DataRange, Role, RoleKind
from trainer.scheduling.holds import ErrorClass, ErrorDocument, classify
from trainer.scheduling.job import Job, PendingCommit
from trainer.scheduling.orders import ChangePhase, Commit, Hold, Instruction, Publish, TrainingPhase, WantRoles
from trainer.scheduling.transitions import ATTEMPT, JobState

Outcome = tuple[Job, tuple[Instruction, ...]]


def want_roles(job: Job) -> WantRoles:
    """The processes that the job needs now."""
    if job.state in (JobState.HELD, JobState.DONE, JobState.STOPPED):
        return WantRoles(0, 0, 0)
    phase = job.settings.of(job.phase)
    return WantRoles(job.wanted_hosts, phase.least_readers, phase.most_readers)


def begin(job: Job) -> Outcome:
    """Begin the next attempt, or wait for what is missing: a publication's outcome, data, roles."""
    waiting = JobState.AWAY if job.away else JobState.STARTING
    if job.pending is not None or (job.data is None and job.next_data is None):
        return replace(job, state=waiting), ()
    job, changed = _change_phase(_with_next_partition(_with_next_data(job)))
    assert job.data is not None
    if job.commit.next_unit >= job.data.stop_unit:
        job, told = _all_trained(job, job.data)
    elif job.misses_servers or job.misses_workers or (hosts := _hosts_to_begin(job)) is None:
        return replace(job, state=waiting), changed
    else:
        continues = job.continues if hosts == job.hosts and _keeps_servers(job) else None
        job, told = _start(replace(job, hosts=hosts), job.commit.epochs, job.commit.next_unit, continues)
    return job, (*changed, *told)


def _with_next_data(job: Job) -> Job:
    return job if job.next_data is None else replace(job, data=job.next_data, next_data=None)


def _with_next_partition(job: Job) -> Job:
    """The job with the plan of its tables that is due. Hosts then restore the last commit, since they hold other rows."""
    if job.next_partition is None:
        return job
    continues = job.continues if job.next_partition == job.partition else None
    return replace(job, partition=job.next_partition, next_partition=None, continues=continues)


def _change_phase(job: Job) -> Outcome:
    """The phase after the newest commit. If it needs fewer hosts, the others leave."""
    assert job.data is not None
    phase = _phase_of(job, job.data, job.commit.next_unit)
    if phase is job.phase:
        return job, ()
    before, job = job.wanted_hosts, replace(job, phase=phase)
    surplus = job.present(RoleKind.HOST)[job.wanted_hosts :] if job.wanted_hosts < before else ()
    job, told = _dismiss(job, {Role(RoleKind.HOST, name) for name in surplus})
    return job, (ChangePhase(phase), want_roles(job), *told)


def _phase_of(job: Job, data: DataRange, next_unit: int) -> TrainingPhase:
    """The phase of a job that has trained the units of ``data`` below ``next_unit``."""
    rest = data.stop_unit - next_unit
    behind = job.settings.behind_units
    if rest <= 0 and data.is_last and not job.settings.is_finite:
        return TrainingPhase.CAUGHT_UP
    return TrainingPhase.INITIAL if behind is not None and rest >= behind else job.phase


def _all_trained(job: Job, data: DataRange) -> Outcome:
    if not (job.settings.is_finite and data.is_last):
        return replace(job, state=JobState.WAITING_FOR_DATA), ()
    return end_job(job, JobState.DONE)


def _hosts_to_begin(job: Job) -> tuple[str, ...] | None:
    """The hosts of the next attempt by rank, or None if roles are missing."""
    present = job.present(RoleKind.HOST)
    readers = job.settings.of(job.phase).least_readers
    if len(present) < job.needed_hosts or len(job.present(RoleKind.READER)) < readers:
        return None
    size = min(len(present), job.wanted_hosts)
    if job.continues is not None and len(job.hosts) == size and set(job.hosts) <= set(present):
        return job.hosts
    return present[:size]


def _away_watched(job: Job) -> frozenset[Role]:
    return frozenset(role for role in job.away if role.kind.is_watched)


def _keeps_servers(job: Job) -> bool:
    """Whether the next attempt has its tables on the parameter servers of the last one."""
    return job.next_unused == job.unused_servers


def _start(job: Job, epoch: int, first_unit: int, continues: int | None) -> Outcome:
    assert job.data is not None
    stop_unit = job.retry_stop or next(stop for stop in job.data.stops if stop > first_unit)
    is_complete = len(job.hosts) == job.wanted_hosts
    away = _away_watched(job) if is_complete else job.away
    job = replace(
        job,
        state=JobState.TRAINING,
        away=away,
        is_all_away=False,
        unused_servers=job.next_unused,
        attempt=job.attempt + 1,
        epoch=epoch,
        first_unit=first_unit,
        stop_unit=stop_unit,
        continues=continues,
        begun_secs=job.now_secs,
        positions={},
        drained=frozenset(),
    )
    return job, send_orders(job)


def end_early(job: Job) -> Outcome:
    """End the epoch at the first unit that no host has begun, as far as all hosts must go."""
    stopped = dict.fromkeys(job.drained, job.stop_unit)
    return _end_if_known(replace(job, state=JobState.ENDING, positions=stopped))


def take_servers(job: Job) -> Outcome:
    """End the epoch early if other parameter servers shall have the tables, and these are there."""
    if not job.settings.scales_from or job.state is not JobState.TRAINING or _keeps_servers(job):
        return job, ()
    is_whole = job.settings.servers - len(job.next_unused) == job.wanted_servers
    return end_early(job) if is_whole else (job, ())


def place(job: Job, host: str, next_unit: int) -> Outcome:
    """Record the position of a host, while the epoch ends."""
    return _end_if_known(replace(job, positions={**job.positions, host: next_unit}))


def _end_if_known(job: Job) -> Outcome:
    if any(host not in job.positions for host in job.hosts):
        return job, send_orders(job)
    most = max(job.positions.values())
    if most <= job.first_unit and not (job.notices or job.stop_asked):
        most = job.first_unit + 1
    stop_unit = min(max(most, job.first_unit), job.stop_unit)
    drained = job.drained if stop_unit == job.stop_unit else frozenset[str]()
    job = replace(job, state=JobState.DRAINING, stop_unit=stop_unit, drained=drained)
    if stop_unit == job.first_unit and job.pending is None:
        return after_commit(replace(job, continues=None))  # nothing was begun since the last commit
    return quiesce(job) if drained == set(job.hosts) else (job, send_orders(job))


def drain(job: Job, host: str) -> Outcome:
    """Record that a host is quiet at the end of the epoch."""
    job = replace(job, drained=job.drained | {host})
    if job.state is JobState.ENDING:
        return place(job, host, job.stop_unit)
    job = replace(job, state=JobState.DRAINING)
    return quiesce(job) if job.drained == set(job.hosts) else (job, ())


def quiesce(job: Job) -> Outcome:
    """All hosts are quiet at the end of the epoch: commit it, after the commit before it."""
    if job.pending is not None:
        job = replace(job, state=JobState.COMMITTING)
        return job, send_orders(job)
    if job.stop_unit == job.first_unit:
        return after_commit(replace(job, continues=job.attempt))
    commit = Commit(job.epoch + 1, job.attempt, job.stop_unit)
    incarnations = {name: job.members[Role(RoleKind.HOST, name)].incarnation for name in job.hosts}
    job = replace(
        job,
        state=JobState.COMMITTING,
        pending=PendingCommit(commit, job.hosts, incarnations, partition=job.partition),
        continues=job.attempt,
        retry_stop=None,
    )
    if not _may_overlap(job):
        return job, send_orders(job)
    job = _with_next_data(job)
    return _start(job, job.epoch + 1, job.stop_unit, job.attempt)


def _may_overlap(job: Job) -> bool:
    """Whether the next epoch can begin before this one is committed."""
    data = job.next_data or job.data
    return (
        job.settings.overlap
        and not job.notices
        and not job.stop_asked
        and data is not None
        and job.stop_unit < data.stop_unit
        and _phase_of(job, data, job.stop_unit) is job.phase
        and _hosts_to_begin(job) == job.hosts
        and _keeps_servers(job)
        and job.next_partition in (None, job.partition)
        and not job.misses_workers
    )


def take_part(job: Job, host: str, part: str) -> Outcome:
    """Record the part of a host; with the last one, publish."""
    pending = job.pending
    assert pending is not None
    pending = replace(pending, parts={**pending.parts, host: part})
    pending = replace(pending, is_publishing=not pending.missing)
    return replace(job, pending=pending), (publish_order(pending),) if pending.is_publishing else ()


def publish_order(pending: PendingCommit) -> Publish:
    """The order to publish; repeating it is safe."""
    return Publish(pending.commit.attempt, pending.commit, pending.hosts, pending.parts, pending.partition)


def publish(job: Job) -> Outcome:
    """The pending commit is published."""
    pending = job.pending
    assert pending is not None
    job = replace(job, commit=pending.commit, pending=None, restarts=0, reader_failures=0)
    if job.state is JobState.COMMITTING:
        return after_commit(job) if pending.commit.attempt == job.attempt else quiesce(job)
    if job.attempt == pending.commit.attempt:
        job = replace(job, retry_stop=None)
    return begin(job) if job.state in (JobState.STARTING, JobState.AWAY) else (job, ())


def after_commit(job: Job) -> Outcome:
    """All that was trained is committed: stop, let roles leave, or begin the next epoch."""
    if job.stop_asked:
        return end_job(job, JobState.STOPPED)
    job, told = let_leave(job)
    job, more = begin(job)
    return job, (*told, *more)


def let_leave(job: Job) -> Outcome:
    """Order the roles with a notice to leave. Parameter servers and embedding workers stay when the whole job leaves."""
    gone = {role for role in job.notices if role is not None}
    if None in job.notices:
        gone |= _dismissible(job) | {Role(RoleKind.HOST, name) for name in job.hosts}
    noticed = gone & set(job.members)
    job = with_away(job, gone)
    job = replace(job, notices={}, is_all_away=job.is_all_away or None in job.notices)
    return _dismiss(job, noticed)


def _dismissible(job: Job) -> set[Role]:
    """The members that the job starts and ends; parameter servers and embedding workers are there before it and after it."""
    return {role for role in job.members if not role.kind.is_watched}


def with_away(job: Job, roles: Iterable[Role]) -> Job:
    """The job after these roles left by a notice. Without a parameter server hosts must restore the last commit."""
    away = job.away | {role for role in roles if role.kind is not RoleKind.READER and not job.is_surplus(role)}
    if away == job.away:
        return job
    has_lost_rows = any(role.kind is RoleKind.SERVER for role in away - job.away)
    return replace(
        job,
        away=away,
        away_secs=job.away_secs if job.away else job.now_secs,
        continues=None if has_lost_rows else job.continues,
    )


def lose_server(job: Job, role: Role) -> Outcome:
    """A parameter server with a notice is gone before the job has let it leave."""
    job = with_away(job, {role})
    pending = job.pending
    if pending is not None and not pending.is_publishing:
        job = drop_commit(job)  # its rows are read from the servers
    if job.state not in ATTEMPT:
        return begin(job) if job.state in (JobState.STARTING, JobState.AWAY) else (job, ())
    if role.name in job.unused_servers or is_published_soon(job):
        return job, ()
    if job.stop_asked:
        return restart(job, f"{role} left", str(role))
    return leave_now(give_up(job))


def lose_worker(job: Job, role: Role) -> Outcome:
    """An embedding worker with a notice is gone before the job has let it leave. Hosts need one to train, and none to commit."""
    job = with_away(job, {role})
    if job.state not in ATTEMPT:
        return begin(job) if job.state in (JobState.STARTING, JobState.AWAY) else (job, ())
    if not job.misses_workers or job.state is JobState.COMMITTING:
        return job, ()
    if job.stop_asked:
        return restart(job, f"{role} left", str(role))
    return leave_now(give_up(job))


def is_published_soon(job: Job) -> bool:
    """Whether the commit of the attempt needs no process but the controller any more."""
    pending = job.pending
    is_own = pending is not None and pending.is_publishing and pending.commit.attempt == job.attempt
    return is_own and job.state is JobState.COMMITTING


def _dismiss(job: Job, roles: set[Role]) -> Outcome:
    members = {role: replace(one, is_leaving=one.is_leaving or role in roles) for role, one in job.members.items()}
    job = drop_lost_commit(replace(job, members=members))
    return job, send_orders(job, *sorted(roles)) if roles else ()


def drop_lost_commit(job: Job) -> Job:
    """The job without its pending commit, if a process that has not written its part is gone."""
    pending = job.pending
    if pending is None or pending.is_publishing:
        return job
    members = {host: job.members.get(Role(RoleKind.HOST, host)) for host in pending.missing}
    present = all(
        one is not None and not one.is_leaving and one.incarnation == pending.incarnations[host]
        for host, one in members.items()
    )
    return job if present else drop_commit(job)


def drop_commit(job: Job) -> Job:
    """Without the pending commit: its epoch is trained again."""
    pending = job.pending
    return job if pending is None else replace(job, pending=None, retry_stop=pending.commit.next_unit)


def give_up(job: Job) -> Job:
    """Give the attempt up. The caller decides on the next state: RESTARTING is only a placeholder.

    A commit that is being written is kept if all processes that write it are there.
    """
    job = replace(
        job,
        state=JobState.RESTARTING,
        continues=None,
        positions={},
        drained=frozenset(),
        retry_stop=_stop_again(job),
    )
    return drop_lost_commit(job)


def _stop_again(job: Job) -> int | None:
    """The end of the epoch that is trained next if the attempt is given up now, and the pending commit succeeds."""
    own = job.pending is not None and job.pending.commit.attempt == job.attempt
    dropped = job.pending is None and job.commit.next_unit < job.first_unit
    if own or dropped:
        return job.retry_stop
    return job.stop_unit if job.stop_unit > job.first_unit else None


def restart(job: Job, reason: str, role: str = "") -> Outcome:
    """After a transient error: give the attempt up and begin the next one after a backoff; or leave, stop, or hold."""
    if job.state in ATTEMPT:
        job = give_up(job)
    if job.stop_asked:
        return end_job(job, JobState.STOPPED)
    if job.notices:
        return leave_now(job)
    job = replace(job, restarts=job.restarts + 1)
    if job.restarts > job.settings.most_restarts:
        text = f"{job.settings.most_restarts} restarts without a commit between them; the last reason: {reason}"
        return hold(job, Hold(ErrorClass.TRANSIENT, text, role))
    wait_secs = job.settings.backoff.wait_secs(job.restarts, 1.0)
    job = replace(job, state=JobState.RESTARTING, resume_secs=job.now_secs + wait_secs)
    return job, send_orders(job)


def leave_now(job: Job) -> Outcome:
    """The attempt was given up and the roles with a notice leave."""
    job, told = let_leave(job)
    job, more = begin(job)
    rest = () if job.state in ATTEMPT else tuple(one for one in send_orders(job) if one not in told)
    return job, (*told, *more, *rest)


def fail(job: Job, error: ErrorDocument, role: str = "") -> Outcome:
    """After an error of a host or of a commit: restart or hold, by its class."""
    error_class = classify(error)
    if error_class is ErrorClass.TRANSIENT:
        return restart(job, error.summary, role)
    return hold(give_up(job) if job.state in ATTEMPT else job, Hold(error_class, error.reason, role))


def hold(job: Job, reason: Hold) -> Outcome:
    """Hold the job: all roles leave. A job that was to stop stops."""
    if job.stop_asked:
        return end_job(job, JobState.STOPPED)
    job, told = _end_roles(replace(job, state=JobState.HELD, hold=reason))
    return job, (reason, *told)


def release(job: Job) -> Outcome:
    """End the hold."""
    job = replace(job, state=JobState.STARTING, hold=None, restarts=0, reader_failures=0)
    job, told = begin(job)
    return job, (want_roles(job), *told)


def end_job(job: Job, state: JobState) -> Outcome:
    """End the job in a final state: all roles leave."""
    return _end_roles(replace(job, state=state, hold=None))


def _end_roles(job: Job) -> Outcome:
    job = replace(job, notices={}, away=_away_watched(job), is_all_away=False, continues=None)
    job, told = _dismiss(job, _dismissible(job))
    return job, tuple(chain((want_roles(job),), told))


def extend(job: Job, data: DataRange) -> Job:
    """The job with more data for its next attempt; a range that is shorter is older and changes nothing."""
    known = job.next_data or job.data
    return job if known is not None and data.stop_unit < known.stop_unit else replace(job, next_data=data)
