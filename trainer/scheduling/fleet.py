"""The scheduler of a fleet: which training jobs run on the slots of a machine. Pure.

Jobs are ordered by priority, then by age. :func:`plan` gives the next actions for the jobs as they are: a job starts if it fits in the
free slots; else it preempts running jobs if that is enough for it, and only then:

* jobs of lower priority, and
* jobs that were *backfilled* past it: they started in slots that were too few for it while it waited.

So small jobs use the slots for which a large one waits, and do not delay it. A job preempts only jobs that come after it in the order, so
preemptions have no cycles. A preempted job gets a notice, commits, leaves, and returns to the queue with its age.

A job that is held, stopped or over has no slots. On a cluster the states are those of a suspended JobSet: see :data:`ON_A_CLUSTER`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.errors import IllegalEvent
from warehouse.scheduling.backoff import Backoff


class FleetState(StrEnum):
    """The state of a job in a fleet."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    LEAVING = "LEAVING"
    STOPPING = "STOPPING"
    HELD = "HELD"
    DONE = "DONE"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class FleetEvent(StrEnum):
    """An event of a job in a fleet: of the scheduler, of a person, or the end of the job's process."""

    START = "start"
    NOTICE = "notice"
    STOP = "stop"
    RELEASE = "release"
    FINISH = "finish"
    LEAVE = "leave"
    HOLD = "hold"
    RETRY = "retry"
    FAIL = "fail"
    LOSE = "lose"


_S, _E = FleetState, FleetEvent

MEANING: Mapping[FleetState, str] = {
    _S.QUEUED: "the job waits for slots, or for the end of a backoff",
    _S.RUNNING: "its process runs",
    _S.LEAVING: "it was given a preemption notice: it commits, leaves, and is queued again",
    _S.STOPPING: "a person stopped it: it commits and ends",
    _S.HELD: "an error holds it; its slots are free",
    _S.DONE: "it has trained everything",
    _S.FAILED: "it ended with an error that does not pass, or too often",
    _S.STOPPED: "a person stopped it",
}

#: The same states on a cluster: of a JobSet, and of its Workload in a queue.
ON_A_CLUSTER: Mapping[FleetState, str] = {
    _S.QUEUED: "the JobSet is suspended, the Workload is active and waits for its quota",
    _S.RUNNING: "the Workload is admitted, the JobSet is resumed",
    _S.LEAVING: "the Workload is evicted; its pods have the grace period of their termination",
    _S.STOPPING: "the Workload is deactivated; its pods have the grace period of their termination",
    _S.HELD: "the Workload of its readers and hosts is deactivated, their JobSet is suspended; the controller stays",
    _S.DONE: "the JobSet is completed",
    _S.FAILED: "the JobSet has failed",
    _S.STOPPED: "the JobSet is suspended, the Workload is deactivated",
}

#: States in which a job has its slots.
HAS_SLOTS = frozenset({_S.RUNNING, _S.LEAVING, _S.STOPPING})
#: States that a job does not leave.
ENDED = frozenset({_S.DONE, _S.FAILED, _S.STOPPED})
_WORKS = (_S.RUNNING, _S.LEAVING)

TRANSITIONS: Mapping[tuple[FleetState, FleetEvent], FleetState] = {
    (_S.QUEUED, _E.START): _S.RUNNING,
    (_S.QUEUED, _E.STOP): _S.STOPPED,
    (_S.HELD, _E.RELEASE): _S.QUEUED,
    (_S.HELD, _E.STOP): _S.STOPPED,
    (_S.RUNNING, _E.NOTICE): _S.LEAVING,
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.LEAVING, _E.STOP): _S.STOPPING,
    (_S.STOPPING, _E.STOP): _S.STOPPING,
    **{(state, _E.FINISH): _S.DONE for state in (*_WORKS, _S.STOPPING)},
    **{(state, event): _S.QUEUED for state in _WORKS for event in (_E.LEAVE, _E.RETRY, _E.LOSE)},
    **{(state, _E.HOLD): _S.HELD for state in _WORKS},
    **{(state, _E.FAIL): _S.FAILED for state in _WORKS},
    **{(_S.STOPPING, event): _S.STOPPED for event in (_E.LEAVE, _E.RETRY, _E.LOSE, _E.HOLD, _E.FAIL)},
}

_BACKOFF = Backoff(first_secs=5.0, most_secs=300.0, jitter=0.0)
#: So many failures that may pass, without a notice or a hold between them; one more fails the job.
MOST_FAILURES = 5


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job of a fleet.

    Attributes:
        number: by which jobs are ordered in age.
        name: of the job, for people.
        slots: that it takes while it runs.
        priority: a higher one runs first.
        state: its state.
        starts: how often it was started.
        failures: failures that may pass, since the last notice or hold.
        not_before_secs: the end of its backoff, in epoch seconds.
        passed: the numbers of the jobs past which it was backfilled.
        reason: why it is not running; empty if it waits for slots.
    """

    number: int
    name: str
    slots: int = 1
    priority: int = 0
    state: FleetState = FleetState.QUEUED
    starts: int = 0
    failures: int = 0
    not_before_secs: float = 0.0
    passed: tuple[int, ...] = ()
    reason: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """The place in the order of jobs: by priority, then by age."""
        return -self.priority, self.number

    def is_ready(self, now_secs: float) -> bool:
        """Whether it is queued and its backoff is over; a longer one is ignored: the clock was set back."""
        waits = now_secs < self.not_before_secs <= now_secs + _BACKOFF.most_secs
        return self.state is FleetState.QUEUED and not waits


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start a job. ``passed``: the numbers of the jobs before it that wait for more slots than are free."""

    number: int
    passed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PreemptJob:
    """Give a job a preemption notice, so that the job ``for_number`` can start."""

    number: int
    for_number: int


FleetAction = StartJob | PreemptJob


def move(job: FleetJob, event: FleetEvent, *, now_secs: float = 0.0, reason: str = "", passed: tuple[int, ...] = ()) -> FleetJob:  # fmt: skip
    """The job after an event. Raises :class:`IllegalEvent` with the possible events.

    Args:
        job: before the event.
        event: the event.
        now_secs: epoch seconds, from which a backoff begins.
        reason: of the end of its process.
        passed: of a start.
    """
    if (job.state, event) not in TRANSITIONS:
        possible = ", ".join(sorted(one for state, one in TRANSITIONS if state is job.state))
        raise IllegalEvent("an event of a job must be possible in its state", where=f"job {job.name} is {job.state}",
                           value=str(event), allowed=possible or "(none: the job has ended)")  # fmt: skip
    if event is FleetEvent.RETRY and job.failures >= MOST_FAILURES:
        event = FleetEvent.FAIL
    after = replace(job, state=TRANSITIONS[job.state, event], reason=reason)
    if event is FleetEvent.START:
        return replace(after, starts=job.starts + 1, passed=passed, not_before_secs=0.0)
    if event is FleetEvent.RETRY:
        failures = job.failures + 1
        return replace(after, failures=failures, not_before_secs=now_secs + _BACKOFF.wait_secs(failures, 1.0))
    return replace(after, failures=0) if event in (FleetEvent.LEAVE, FleetEvent.HOLD) else after


def plan(jobs: Iterable[FleetJob], slots: int, now_secs: float) -> tuple[FleetAction, ...]:
    """The next actions. Equal arguments give equal actions, and none if the fleet is as it should be.

    Args:
        jobs: all jobs.
        slots: of the fleet. A job that needs more waits, and delays no other.
        now_secs: epoch seconds.
    """
    known = tuple(jobs)
    holders = [one for one in known if one.state in HAS_SLOTS]
    running = [one for one in holders if one.state is FleetState.RUNNING]
    free = slots - sum(one.slots for one in holders)
    coming = sum(one.slots for one in holders) - sum(one.slots for one in running)
    actions: list[FleetAction] = []
    blocked: list[int] = []
    for job in sorted((one for one in known if one.is_ready(now_secs)), key=lambda one: one.rank):
        if job.slots > slots:
            continue
        if job.slots <= free:
            free -= job.slots
            actions.append(StartJob(job.number, tuple(blocked)))
            continue
        if free + coming < job.slots:
            victims = _victims(job, running, job.slots - free - coming)
            running = [one for one in running if one not in victims]
            coming += sum(one.slots for one in victims)
            actions += (PreemptJob(one.number, job.number) for one in victims)
        if free + coming < job.slots:
            blocked.append(job.number)
            continue
        reserved = min(coming, job.slots)
        coming, free = coming - reserved, free - (job.slots - reserved)
    return tuple(actions)


def _victims(job: FleetJob, running: Iterable[FleetJob], missing: int) -> list[FleetJob]:
    """The running jobs to preempt for ``missing`` slots, last in the order first; none if they are too few."""
    candidates = [one for one in running if one.priority < job.priority or job.number in one.passed]
    chosen: list[FleetJob] = []
    found = 0
    for one in sorted(candidates, key=lambda one: one.rank, reverse=True):
        if found < missing:
            chosen.append(one)
            found += one.slots
    if found < missing:
        return []
    for one in reversed(tuple(chosen)):  # the first in the order are spared if the others are enough
        if found - one.slots >= missing:
            chosen.remove(one)
            found -= one.slots
    return chosen


def end_event(status: int, *, is_finished: bool | None, state: FleetState) -> FleetEvent:
    """The event of the end of a job's process.

    Args:
        status: its exit status; negative: the signal that ended it.
        is_finished: whether the job says that it has trained everything; None if it says nothing.
        state: of the job.
    """
    if status == 0:
        finished = state is FleetState.RUNNING if is_finished is None else is_finished
        return FleetEvent.FINISH if finished else FleetEvent.LEAVE
    if status == _HELD:
        return FleetEvent.HOLD
    if status < 0 or status in _SIGNALLED:
        return FleetEvent.RETRY if state is FleetState.RUNNING else FleetEvent.LEAVE
    return FleetEvent.RETRY if status in _PASSING else FleetEvent.FAIL


#: Exit statuses of ``headrace train``: a held job, errors that may pass, and ends by signals.
_HELD = 7
_PASSING = frozenset({5, 6})
_SIGNALLED = frozenset({130, 137, 143})
