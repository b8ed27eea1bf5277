"""Messages between a controller and its roles: JSON documents, read strictly, of limited length.

A role's message holds its events and a report, which is not logged; the answer holds the current orders of that process and, for a
host, the addresses of the live readers and hosts. At a controller that restarts, reports make the addresses known again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from trainer.checkpoints.manifest import parse_json
from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.scheduling.buffer_control import BufferSample
from trainer.scheduling.documents import read_value, value_document
from trainer.scheduling.events import Event, Role, RoleKind
from trainer.scheduling.orders import Hold, Order, TrainingPhase
from trainer.scheduling.transitions import EventKind, JobState
from transforms.derived_documents import Omitted
from transforms.errors import DataError
from transforms.names import allowed_names, is_name

_T = TypeVar("_T")
#: The version of the messages.
PROTOCOL = 1
#: Longer messages to a controller are refused.
MOST_REQUEST_BYTES = 1 << 20
#: Longer answers of a controller are refused, except documents, which come in pieces.
MOST_ANSWER_BYTES = 16 << 20
_MOST_EVENTS = 64
_MOST_INCARNATION = 2**53
_MOST_TEXT = 4_000
_MOST_NUMBERS = 128
#: The figures of a role's progress, some of them by table.
_MOST_FIGURES = 1 << 13
#: The most characters of a role's name.
_MOST_NAME = 64
#: The events that a role may send about itself.
ROLE_EVENTS = frozenset(
    {
        EventKind.JOINED,
        EventKind.LEFT,
        EventKind.FAILED,
        EventKind.POSITION,
        EventKind.DRAINED,
        EventKind.PART_WRITTEN,
        EventKind.COMMIT_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a role is, for display.

    Attributes:
        attempt: the attempt that it works on.
        step: optimizer steps of the attempt.
        events: events of the attempt.
        unit: the last unit that it began; -1 for none.
        event_secs: the end, in epoch seconds, of the newest partition that it trained in the attempt; 0 if unknown.
        numbers: further figures by name, such as the loss; those that are not finite are not sent.
    """

    attempt: int = 0
    step: int = 0
    events: int = 0
    unit: int | None = None
    event_secs: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The work of a parameter server.

    Attributes:
        process: a number of its process.
        processor_secs: of that process since it began.
        at_secs: when it was measured, by the clock of the supervisor.
    """

    process: int
    processor_secs: float
    at_secs: float


@dataclass(frozen=True, slots=True)
class RoleReport:
    """What a role sends with each heartbeat; it is not logged.

    Attributes:
        address: where it serves, as ``host:port``; empty if it does not.
        buffer: of a host, what was measured since its report before.
        progress: how far it is.
        load: of a parameter server.
    """

    address: str = ""
    buffer: BufferSample | None = None
    progress: Progress | None = None
    load: Omitted[ServerLoad | None] = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A live process of the job that serves others.

    Attributes:
        role: its role.
        incarnation: its number among the processes of the role.
        address: where it serves, as ``host:port``.
    """

    role: Role
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class RoleCall:
    """A message of a role: a sign of life, with events and a report.

    Attributes:
        job: the identity of the job that the role belongs to.
        role, incarnation: the process.
        report: what is not logged; None: the last one remains.
        events: what is; their times are set by the controller.
        known: the key of the newest answer; the controller answers at once if its answer has another.
        wait_secs: else it waits up to so long for another answer.
    """

    job: str
    role: Role
    incarnation: int
    report: RoleReport | None = None
    events: tuple[Event, ...] = ()
    known: str = ""
    wait_secs: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a role.

    Attributes:
        lease, version: order the answers to a process: a pair that is lower than an earlier one is outdated.
        key: names the orders and peers, without the rest of a grace period.
        orders: the current orders of the process.
        peers: for a host, the live readers and hosts with an address.
    """

    lease: int
    version: int
    key: str
    orders: tuple[Order, ...] = ()
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A process of the job.

    Attributes:
        role, incarnation: the process.
        address: where it serves; empty if it does not, or has not reported since the controller started.
        silent_secs: since its last message, in job seconds.
        is_leaving: it was ordered to leave.
        rank: of a host of the attempt; None for others.
        progress, buffer: its last report.
    """

    role: Role
    incarnation: int
    address: str
    silent_secs: float
    is_leaving: bool
    rank: int | None
    progress: Progress | None
    buffer: BufferSample | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment, for supervisors and people.

    Attributes:
        job: its identity.
        release: of the controller.
        process_id, lease: of the controller.
        state, phase: of the job.
        attempt, epoch, first_unit, stop_unit: of the last attempt.
        attempt_secs: job seconds since it began.
        commit_epochs, commit_attempt, next_unit: the last commit: its epochs, attempt, and first unit that is not trained.
        planned_units: the units of the plan; 0 without one.
        partition, wanted_partition: the name of the plan by which hosts hold the tables in the last attempt, and from the next one on;
            empty: rows are spread over them.
        pending_attempt: of the commit that is being written; None without one.
        is_publishing: all of its parts are written.
        members: the processes, by role.
        wanted_hosts, wanted_readers: the processes that should run now.
        least_readers, most_readers: the limits of readers.
        hold: the reason of a hold.
        restarts, reader_failures: since the last commit.
        resume_in_secs: the rest of a backoff; None without one.
        stop_asked: a person asked the job to stop.
        deadline_in_secs: when an epoch must be committed because of a notice; None without one.
        is_leaving: there was a preemption notice for the whole job: no process is started until the next launch.
        away: the hosts and parameter servers that left after a preemption notice and are not back.
        away_for_secs: how long the first of them has been away, in job seconds; None if none is.
        published_secs: when the last commit was published by this controller, in epoch seconds; None if none was.
        staleness_secs: from the newest committed events to now; None if unknown.
        log_bytes: the length of the log.
        problem: the last error of the log or of a publication that is being retried; empty if it is over.
        used_servers, wanted_servers, most_servers: of a job that scales its parameter servers, those with tables, those that shall have them, and
            their largest number; 0 for others.
        running_servers: the names of those that must run now; none for other jobs.
    """

    job: str
    release: str
    process_id: int
    lease: int
    state: JobState
    phase: TrainingPhase
    attempt: int
    epoch: int
    first_unit: int
    stop_unit: int
    attempt_secs: float
    commit_epochs: int
    commit_attempt: int
    next_unit: int
    planned_units: int
    partition: str
    wanted_partition: str
    pending_attempt: int | None
    is_publishing: bool
    members: tuple[MemberStatus, ...]
    wanted_hosts: int
    wanted_readers: int
    least_readers: int
    most_readers: int
    hold: Hold | None
    restarts: int
    reader_failures: int
    resume_in_secs: float | None
    stop_asked: bool
    deadline_in_secs: float | None
    is_leaving: bool
    away: tuple[Role, ...]
    away_for_secs: float | None
    published_secs: float | None
    staleness_secs: float | None
    log_bytes: int
    problem: str
    used_servers: Omitted[int] = 0
    wanted_servers: Omitted[int] = 0
    most_servers: Omitted[int] = 0
    running_servers: Omitted[tuple[str, ...]] = ()

    def live(self, kind: RoleKind) -> tuple[MemberStatus, ...]:
        """The members of a kind that were not ordered to leave."""
        return tuple(one for one in self.members if one.role.kind is kind and not one.is_leaving)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        document: dict[str, Any] = value_document(self)
        return document

    @classmethod
    def read(cls, content: bytes) -> JobStatus:
        """The status of its document. Raises :class:`DataError`."""
        return _read(content, "a status", lambda found: read_value(JobStatus, found))


def to_bytes(document: object) -> bytes:
    """The text of a document."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False, default=_plain_number).encode()


def _plain_number(value: Any) -> Any:
    """The number in a numpy scalar."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a message must have plain values, got {type(value).__name__}")


def role_call_bytes(call: RoleCall) -> bytes:
    """The text of a role's message."""
    report = call.report
    if report is not None and report.progress is not None:
        numbers = {name: value for name, value in report.progress.numbers.items() if math.isfinite(value)}
        report = replace(report, progress=replace(report.progress, numbers=numbers))
    return to_bytes(value_document(replace(call, report=report)))


def read_role_call(content: bytes) -> RoleCall:
    """The inverse of :func:`role_call_bytes`. Raises :class:`DataError` for anything else."""
    return _read(content, "a role's message", _role_call)


def answer_bytes(answer: Answer) -> bytes:
    """The text of an answer."""
    return to_bytes(value_document(answer))


def read_answer(content: bytes) -> Answer:
    """The inverse of :func:`answer_bytes`. Raises :class:`DataError` for anything else."""
    return _read(content, "an answer", lambda found: read_value(Answer, found))


def read_members(content: bytes, *names: str) -> tuple[DocumentField, ...]:
    """The members of a small message, which must be exactly these. Raises :class:`DataError`."""

    def chosen(found: DocumentField) -> tuple[DocumentField, ...]:
        members = found.members()
        if members.keys() != set(names):
            raise TornCheckpoint("a message must have the members of its action", where=found.place,
                                 value=", ".join(map(str, members))[:200], allowed=", ".join(names) or "(none)")  # fmt: skip
        return tuple(members[name] for name in names)

    return _read(content, "a message", chosen)


def read_message_value(kind: type[_T], found: DocumentField) -> _T:
    """A frozen value in a message. Raises :class:`DataError`."""
    return _checked("a message", lambda: read_value(kind, found))


def check_role(role: Role) -> None:
    """Raise :class:`DataError` unless the role has a valid name."""
    if not is_name(role.name, most=_MOST_NAME):
        raise DataError(
            "the name of a role must be short and plain", value=role.name[:80], allowed=allowed_names(most=_MOST_NAME)
        )


def _role_call(found: DocumentField) -> RoleCall:
    events = len(found.at("events").items())
    if events > _MOST_EVENTS:
        raise DataError(
            "a message must have few events", where=found.place, value=events, allowed=f"at most {_MOST_EVENTS}"
        )
    call = read_value(RoleCall, found)
    _check_call(call)
    return call


def _check_call(call: RoleCall) -> None:
    check_role(call.role)
    _check(
        call.incarnation <= _MOST_INCARNATION, "an incarnation", call.incarnation, f"at most 2^53 = {_MOST_INCARNATION}"
    )
    _check(0 <= call.wait_secs <= 60, "a wait", call.wait_secs, "seconds in [0, 60]")
    _check(len(call.known) <= 100 and len(call.job) <= 200, "a key", call.known[:80], "a short text")
    report = call.report or RoleReport()
    _check(len(report.address) <= 300, "an address", report.address[:80], "host:port")
    progress = report.progress
    _check(progress is None or len(progress.numbers) <= _MOST_FIGURES, "figures", "more", f"at most {_MOST_FIGURES}")
    for event in call.events:
        _check(event.kind in ROLE_EVENTS, "an event of a role", str(event.kind), ", ".join(sorted(ROLE_EVENTS)))
        sender = (getattr(event, "role", None), getattr(event, "incarnation", None))
        _check(sender == (call.role, call.incarnation), "the sender of an event", str(sender[0]), f"{call.role} itself")
        for text in (getattr(event, "part", ""), getattr(event, "release", "")):
            _check(len(text) <= _MOST_TEXT, "a text", text[:80], f"at most {_MOST_TEXT} characters")
        error = getattr(event, "error", None)
        _check(error is None or (len(error.message) <= _MOST_TEXT and len(error.types) <= _MOST_NUMBERS
               and all(len(name) <= _MOST_TEXT for name in error.types)), "an error", "a longer one", f"at most {_MOST_TEXT} characters")  # fmt: skip


def _check(holds: bool, what: str, value: object, allowed: str) -> None:
    if not holds:
        raise DataError(f"{what} in a message must be in the allowed range", value=value, allowed=allowed)


def _read(content: bytes, what: str, read: Callable[[DocumentField], _T]) -> _T:
    return _checked(what, lambda: read(DocumentField(parse_json(content, what), what)))


def _checked(what: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except TornCheckpoint as error:
        raise DataError(f"{what} must be a valid document", where=error.where, value=error.value,
                        allowed=": ".join(filter(None, (error.what, error.allowed))),
                        next_step="run the same release of Headrace in all processes of a job") from None  # fmt: skip
