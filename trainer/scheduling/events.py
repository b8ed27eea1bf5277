"""The events of a training job: messages of roles, answers of the controller's storage, requests, and the time.

Every event has ``at_secs``, the controller's clock when it was received. ``attempt`` is the attempt that a message is about; the
messages of an earlier attempt, and those of a process that was replaced (an earlier ``incarnation``), change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from trainer.scheduling.holds import ErrorDocument
from trainer.scheduling.transitions import EventKind
from transforms.errors import InputError


class RoleKind(StrEnum):
    """The kind of a process of the job, without its controller.

    A parameter server or an embedding worker does not know the job: the job's supervisor watches it, and sends its messages.
    """

    READER = "reader"
    HOST = "host"
    SERVER = "server"
    WORKER = "worker"

    @property
    def is_watched(self) -> bool:
        """Whether the supervisor sends the messages of the role, which is there before the job and after it."""
        return self in (RoleKind.SERVER, RoleKind.WORKER)


@dataclass(frozen=True, slots=True, order=True)
class Role:
    """A process by its place in the job; a restarted process has the same role and a higher incarnation."""

    kind: RoleKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class DataRange:
    """The units that a job trains, of a plan that only grows: a later range has all units of an earlier one.

    Attributes:
        name: names the plan to the roles, such as the digest of its document.
        stop_unit: the number of units.
        stops: the natural ends of epochs, ascending unit numbers; the last one is ``stop_unit``.
        is_last: false if more of the run is planned when these units are trained, such as its next pass: the job waits for it.
    """

    name: str
    stop_unit: int
    stops: tuple[int, ...]
    is_last: bool = True

    def __post_init__(self) -> None:
        if self.stops != tuple(sorted(set(self.stops))) or (self.stops[-1:] or (0,)) != (self.stop_unit,):
            raise InputError("ends of epochs must ascend to the number of units", where=self.name,
                             value=self.stops[-3:], allowed=f"ascending numbers, the last one {self.stop_unit}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """An event at a time of the controller's clock, in seconds."""

    kind: ClassVar[EventKind]
    at_secs: float


@dataclass(frozen=True, slots=True)
class RoleMessage(Event):
    """A message of a role's process."""

    role: Role
    incarnation: int


@dataclass(frozen=True, slots=True)
class AttemptMessage(RoleMessage):
    """A message of a role about an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time passed; see :func:`trainer.scheduling.due.next_due`."""

    kind = EventKind.TICK


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """A controller took over and replayed the log: every role gets its whole time to send a heartbeat."""

    kind = EventKind.RECOVERED


@dataclass(frozen=True, slots=True)
class Joined(RoleMessage):
    """A process is ready. Its incarnation must be higher than that of every earlier process of the role.

    Attributes:
        release: the release that it runs.
        protocol: the version of the messages that it speaks.
    """

    kind = EventKind.JOINED
    release: str
    protocol: int


@dataclass(frozen=True, slots=True)
class Heartbeat(RoleMessage):
    """A process is alive; the answer is its current orders."""

    kind = EventKind.HEARTBEAT


@dataclass(frozen=True, slots=True)
class Left(RoleMessage):
    """A process ended in order."""

    kind = EventKind.LEFT


@dataclass(frozen=True, slots=True)
class Failed(AttemptMessage):
    """A role failed in an attempt; 0: before its first one."""

    kind = EventKind.FAILED
    error: ErrorDocument


@dataclass(frozen=True, slots=True)
class Position(AttemptMessage):
    """The first unit before which the epoch may end for a host; it begins no other until the end of the epoch is fixed.

    That is the first unit that it has not begun, or the one after where it has trained only what earlier epochs have left.
    """

    kind = EventKind.POSITION
    next_unit: int


@dataclass(frozen=True, slots=True)
class Drained(AttemptMessage):
    """A host has trained its units below ``stop_unit`` and is quiet: it has no update in flight."""

    kind = EventKind.DRAINED
    stop_unit: int


@dataclass(frozen=True, slots=True)
class PartWritten(AttemptMessage):
    """A host has written its part of the commit; ``part`` names it, with its digest."""

    kind = EventKind.PART_WRITTEN
    part: str


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """A part was not written (``role``), or the commit was certainly not published (None)."""

    kind = EventKind.COMMIT_FAILED
    attempt: int
    error: ErrorDocument
    role: Role | None = None
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Published(Event):
    """The commit of an attempt is published and durable."""

    kind = EventKind.PUBLISHED
    attempt: int


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """A preemption notice: the role, or the whole job (None), ends in ``grace_secs``."""

    kind = EventKind.NOTICE
    grace_secs: float
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class DataChanged(Event):
    """There is more data, or data that was not ready is ready. It is used from the next attempt on."""

    kind = EventKind.DATA_CHANGED
    data: DataRange


@dataclass(frozen=True, slots=True)
class PartitionChanged(Event):
    """Hosts hold the tables by another partition plan from the next attempt on, which restores the commit before it.

    ``partition`` names the plan, such as by the digest of its document; empty: rows are spread over the hosts.
    """

    kind = EventKind.PARTITION_CHANGED
    partition: str


@dataclass(frozen=True, slots=True)
class ServersChanged(Event):
    """So many parameter servers shall have the tables, once they are there: the epoch ends early, and is committed first."""

    kind = EventKind.SERVERS_CHANGED
    servers: int


@dataclass(frozen=True, slots=True)
class PlanFailed(Event):
    """The controller cannot plan the units: the data is not ready, or the options or the data are wrong.

    It matters only while the job waits for data; the controller tries again by itself after a transient error.
    """

    kind = EventKind.PLAN_FAILED
    error: ErrorDocument


@dataclass(frozen=True, slots=True)
class Released(Event):
    """A person released the hold."""

    kind = EventKind.RELEASED


@dataclass(frozen=True, slots=True)
class StopAsked(Event):
    """A person stops the job: after a commit, or ``now``, which gives the epoch up."""

    kind = EventKind.STOP_ASKED
    now: bool = False


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """Derived: a role sent no heartbeat for too long."""

    kind = EventKind.LOST
    role: Role


@dataclass(frozen=True, slots=True)
class EpochDue(Event):
    """Derived: the epoch has lasted its time."""

    kind = EventKind.EPOCH_DUE


@dataclass(frozen=True, slots=True)
class Deadline(Event):
    """Derived: the grace period of a notice ends."""

    kind = EventKind.DEADLINE


@dataclass(frozen=True, slots=True)
class Resume(Event):
    """Derived: the backoff is over."""

    kind = EventKind.RESUME


#: The class of each kind of event.
EVENT_TYPES: dict[EventKind, type[Event]] = {
    cls.kind: cls
    for cls in (
        Tick, Recovered, Joined, Heartbeat, Left, Failed, Position, Drained, PartWritten, CommitFailed, Published, Notice,
        DataChanged, PartitionChanged, ServersChanged, PlanFailed, Released, StopAsked, Lost, EpochDue, Deadline, Resume,
    )
}  # fmt: skip
