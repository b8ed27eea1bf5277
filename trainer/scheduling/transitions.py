"""The table of the training job: what each event does in each state. Pure.

Every pair of a state and an event is decided: the event *moves* the job to one of some states, is *late* (it changes nothing),
or is a *defect* (it raises). :func:`trainer.scheduling.advance.advance` consults the table before and after every event, so a
handler cannot reach a state that the table does not list. The diagram in ``docs/training-job-inside.md`` is drawn from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from trainer.errors import IllegalEvent


class JobState(StrEnum):
    """The state of a training job; :data:`MEANING` describes each."""

    STARTING = "STARTING"
    TRAINING = "TRAINING"
    ENDING = "ENDING"
    DRAINING = "DRAINING"
    COMMITTING = "COMMITTING"
    WAITING_FOR_DATA = "WAITING_FOR_DATA"
    AWAY = "AWAY"
    RESTARTING = "RESTARTING"
    HELD = "HELD"
    DONE = "DONE"
    STOPPED = "STOPPED"


MEANING: Mapping[JobState, str] = {
    JobState.STARTING: "roles, data or the outcome of a publication are missing; an attempt begins when they are there",
    JobState.TRAINING: "hosts train the units of an epoch",
    JobState.ENDING: "the epoch ends early: no host begins another unit until all have reported their positions",
    JobState.DRAINING: "hosts finish their units up to the last one of the epoch",
    JobState.COMMITTING: "all hosts are quiet; they write their parts, and the controller publishes the commit",
    JobState.WAITING_FOR_DATA: "all data is trained and committed",
    JobState.AWAY: "a host, a parameter server or the last embedding worker left after a preemption notice; the job waits until it is back",
    JobState.RESTARTING: "the attempt was given up; the next one begins after a backoff, from the last commit",
    JobState.HELD: "an error stopped all roles but the controller",
    JobState.DONE: "all data is trained and committed, and no more is expected",
    JobState.STOPPED: "the job was stopped",
}


class EventKind(StrEnum):
    """The kind of an event; the classes are in :mod:`trainer.scheduling.events`."""

    TICK = "tick"
    RECOVERED = "recovered"
    JOINED = "joined"
    HEARTBEAT = "heartbeat"
    LEFT = "left"
    LOST = "lost"
    FAILED = "failed"
    POSITION = "position"
    DRAINED = "drained"
    PART_WRITTEN = "part written"
    COMMIT_FAILED = "commit failed"
    PUBLISHED = "published"
    EPOCH_DUE = "epoch due"
    DEADLINE = "deadline"
    RESUME = "resume"
    NOTICE = "notice"
    DATA_CHANGED = "data changed"
    PARTITION_CHANGED = "partition changed"
    SERVERS_CHANGED = "servers changed"
    PLAN_FAILED = "plan failed"
    RELEASED = "released"
    STOP_ASKED = "stop asked"


_S = JobState
_ALL = frozenset(JobState)
#: States that a job does not leave.
FINAL = frozenset({_S.DONE, _S.STOPPED})
_LIVE = _ALL - FINAL
#: States in which hosts work on an attempt.
ATTEMPT = frozenset({_S.TRAINING, _S.ENDING, _S.DRAINING, _S.COMMITTING})
_IDLE = _LIVE - ATTEMPT
_ENDED_EARLY = ATTEMPT - {_S.TRAINING}
#: States that wait for roles or for the outcome of a publication.
_WAITS = frozenset({_S.STARTING, _S.AWAY})
#: Where a job goes whose attempt fails; with a notice or a request to stop, and those only after TRAINING, it may also leave,
#: begin the next attempt with fewer hosts, or stop.
_FAIL = (_S.RESTARTING, _S.HELD)
_LEAVE = (_S.AWAY, _S.TRAINING, _S.STOPPED)
_TRAINED = (_S.WAITING_FOR_DATA, _S.DONE)

#: Events that the machine makes from the time, see :func:`trainer.scheduling.due.due_events`.
DERIVED = frozenset({EventKind.LOST, EventKind.EPOCH_DUE, EventKind.DEADLINE, EventKind.RESUME})


def _stay(states: Iterable[JobState]) -> dict[JobState, frozenset[JobState]]:
    return {state: frozenset({state}) for state in states}


def _move(states: Iterable[JobState], *targets: JobState, stay: bool = False) -> dict[JobState, frozenset[JobState]]:
    return {state: frozenset({*targets, *((state,) if stay else ())}) for state in states}


_END_OF_ROLE = (
    _stay((_IDLE | FINAL) - _WAITS)
    | _move(_WAITS, _S.TRAINING, stay=True)
    | _move({_S.TRAINING}, *_FAIL, stay=True)
    | _move(_ENDED_EARLY, *_FAIL, *_LEAVE, stay=True)
)

#: By event, the states that it can lead to from each state that it applies in.
_MOVES: Mapping[EventKind, Mapping[JobState, frozenset[JobState]]] = {
    EventKind.TICK: _stay(_LIVE),
    EventKind.RECOVERED: _stay(_ALL),
    EventKind.JOINED: _stay(_ALL - _WAITS - {_S.TRAINING}) | _move({_S.TRAINING}, _S.ENDING, stay=True) | _move(_WAITS, _S.TRAINING, _S.STARTING, stay=True),
    EventKind.HEARTBEAT: _stay(_ALL),
    EventKind.LEFT: _END_OF_ROLE,
    EventKind.LOST: _END_OF_ROLE,
    EventKind.FAILED: _move({_S.TRAINING}, *_FAIL, stay=True)
    | _move(_ENDED_EARLY, *_FAIL, *_LEAVE, stay=True)
    | _move(_IDLE - {_S.HELD}, _S.HELD, stay=True),
    EventKind.POSITION: _move({_S.ENDING}, _S.DRAINING, *_LEAVE, stay=True),
    EventKind.DRAINED: _move({_S.TRAINING, _S.ENDING}, _S.DRAINING, _S.COMMITTING, _S.TRAINING, stay=True)
    | _move({_S.DRAINING}, _S.COMMITTING, *_LEAVE, stay=True),
    EventKind.PART_WRITTEN: _stay(_LIVE - {_S.HELD, _S.WAITING_FOR_DATA}),
    EventKind.COMMIT_FAILED: _move({_S.TRAINING}, *_FAIL, stay=True)
    | _move(_ENDED_EARLY, *_FAIL, *_LEAVE, stay=True)
    | _move(_WAITS, _S.TRAINING, stay=True)
    | _stay({_S.RESTARTING, _S.HELD, _S.STOPPED}),
    EventKind.PUBLISHED: _move({_S.COMMITTING}, *_LEAVE, *_TRAINED, _S.STARTING, stay=True)
    | _move(_WAITS, *_TRAINED, _S.TRAINING, stay=True)
    | _stay({_S.TRAINING, _S.ENDING, _S.DRAINING, _S.RESTARTING, _S.HELD, _S.STOPPED}),
    EventKind.EPOCH_DUE: _move({_S.TRAINING}, _S.ENDING),
    EventKind.DEADLINE: _move({_S.ENDING, _S.DRAINING}, *_LEAVE) | _move({_S.COMMITTING}, *_LEAVE, stay=True),
    EventKind.RESUME: _move({_S.RESTARTING}, *_TRAINED, _S.TRAINING, _S.STARTING, _S.AWAY),
    EventKind.NOTICE: _move({_S.TRAINING}, _S.ENDING, stay=True)
    | _stay({_S.ENDING, _S.DRAINING, _S.COMMITTING, _S.RESTARTING, _S.HELD, _S.WAITING_FOR_DATA})
    | _move(_WAITS, _S.AWAY, _S.TRAINING, stay=True),
    EventKind.DATA_CHANGED: _stay(ATTEMPT | {_S.RESTARTING})
    | _move({_S.STARTING}, *_TRAINED, _S.TRAINING, stay=True)
    | _move({_S.AWAY}, *_TRAINED, _S.TRAINING, stay=True)
    | _move({_S.WAITING_FOR_DATA}, _S.DONE, _S.TRAINING, _S.STARTING, _S.AWAY, stay=True)
    | _move({_S.HELD}, *_TRAINED, _S.STARTING, _S.AWAY, stay=True),
    EventKind.PARTITION_CHANGED: _stay(_LIVE),
    EventKind.SERVERS_CHANGED: _stay(_LIVE - {_S.TRAINING}) | _move({_S.TRAINING}, _S.ENDING, stay=True),
    EventKind.PLAN_FAILED: _move({_S.STARTING, _S.WAITING_FOR_DATA}, _S.HELD, stay=True),
    EventKind.RELEASED: _move({_S.HELD}, *_TRAINED, _S.STARTING, _S.AWAY),
    EventKind.STOP_ASKED: _move({_S.TRAINING}, _S.ENDING, _S.STOPPED)
    | _move(_ENDED_EARLY, _S.STOPPED, stay=True)
    | _move(_IDLE, _S.STOPPED),
}  # fmt: skip

#: By event, the states in which it comes too late and changes nothing. Messages of roles and repeated answers are late, not defects.
_LATE: Mapping[EventKind, frozenset[JobState]] = {
    EventKind.TICK: FINAL,
    EventKind.FAILED: frozenset({_S.HELD}) | FINAL,
    EventKind.POSITION: _ALL - {_S.ENDING},
    EventKind.DRAINED: _ALL - {_S.TRAINING, _S.ENDING, _S.DRAINING},
    EventKind.PART_WRITTEN: frozenset({_S.HELD, _S.WAITING_FOR_DATA}) | FINAL,
    EventKind.COMMIT_FAILED: frozenset({_S.WAITING_FOR_DATA, _S.DONE}),
    EventKind.PUBLISHED: frozenset({_S.WAITING_FOR_DATA, _S.DONE}),
    EventKind.NOTICE: FINAL,
    EventKind.DATA_CHANGED: FINAL,
    EventKind.PARTITION_CHANGED: FINAL,
    EventKind.SERVERS_CHANGED: FINAL,
    EventKind.PLAN_FAILED: _ALL - {_S.STARTING, _S.WAITING_FOR_DATA},
    EventKind.STOP_ASKED: FINAL,
}


def _table() -> dict[tuple[JobState, EventKind], frozenset[JobState]]:
    table = {(state, kind): targets for kind, moves in _MOVES.items() for state, targets in moves.items()}
    late = {(state, kind): frozenset[JobState]() for kind, states in _LATE.items() for state in states}
    return table | late


#: The possible next states of each state and event; the empty set if the event is late. An absent pair is a defect, or a
#: command that a person gave to a job that cannot follow it.
TRANSITIONS: Mapping[tuple[JobState, EventKind], frozenset[JobState]] = _table()


def targets(state: JobState, kind: EventKind) -> frozenset[JobState]:
    """The states after an event; empty if it is late. Raises :class:`IllegalEvent` with the possible events."""
    try:
        return TRANSITIONS[state, kind]
    except KeyError:
        possible = ", ".join(sorted(event for held, event in TRANSITIONS if held is state and TRANSITIONS[held, event]))
        raise IllegalEvent("event of a training job must be possible in its state", where=f"job state {state}", value=str(kind),
                           allowed=possible) from None  # fmt: skip


def check_move(before: JobState, kind: EventKind, after: JobState) -> None:
    """Raises :class:`IllegalEvent` unless the table lists the move."""
    allowed = targets(before, kind)
    if after not in allowed:
        raise IllegalEvent("next state of a training job must be in its table", where=f"{kind} in {before}",
                           value=str(after), allowed=", ".join(sorted(allowed)) or "(the event is late)")  # fmt: skip
