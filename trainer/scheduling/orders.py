"""What a job asks for: orders to roles, and instructions to the controller's edge.

Orders are *levels*, not edges: :func:`trainer.scheduling.current_orders.orders_for` gives the current orders of a role at any time, every
heartbeat is answered with them, and a role ignores an order that it has followed. So a lost, repeated or reordered message delays
a job and does not change what it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainer.scheduling.events import Role
from trainer.scheduling.holds import ErrorClass
from transforms.derived_documents import Omitted


class TrainingPhase(StrEnum):
    """Initial training trains the history; caught-up training trains new data as it lands."""

    INITIAL = "initial"
    CAUGHT_UP = "caught-up"


@dataclass(frozen=True, slots=True)
class Commit:
    """A published commit.

    Attributes:
        epochs: the number of epochs up to it; the next epoch has this number.
        attempt: the attempt that trained it; 0 for the beginning of a job.
        next_unit: the units below this number are trained.
    """

    epochs: int = 0
    attempt: int = 0
    next_unit: int = 0


#: The beginning of a job: no event is trained.
BEGINNING = Commit()


@dataclass(frozen=True, slots=True)
class StartEpoch:
    """Order to a host: train its shares of the units of ``[first_unit, stop_unit)``.

    Attributes:
        attempt: the number of the attempt; it never repeats.
        epoch: the number of the epoch.
        hosts: all hosts by rank.
        continues: the attempt at whose end the host is: it keeps that state, after a snapshot if the attempt is not written yet.
            None: the host restores ``commit`` first, or initial values if that is the beginning.
        data: the name of the plan.
        unused_servers: the parameter servers of the job that have no tables in the attempt.
        partition: the name of the plan by which hosts hold the tables; empty: rows are spread over them.
    """

    attempt: int
    epoch: int
    first_unit: int
    stop_unit: int
    hosts: tuple[str, ...]
    continues: int | None
    commit: Commit
    data: str
    unused_servers: tuple[str, ...] = ()
    partition: Omitted[str] = ""


@dataclass(frozen=True, slots=True)
class AskPosition:
    """Order to a host: report the first unit that is not begun, and begin no other."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """Order to a host: train the units below ``stop_unit``, then be quiet. ``within_secs``: the rest of a grace period, or None."""

    attempt: int
    stop_unit: int
    within_secs: float | None


@dataclass(frozen=True, slots=True)
class WritePart:
    """Order to a host: write its part of the commit of an attempt, as it was at the attempt's end."""

    attempt: int
    epoch: int
    stop_unit: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Order to a host: discard attempts up to this one; a part that it has been ordered to write is still written."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Order to a role: end, a reader after its current units.

    Attributes:
        reason: for a person.
        is_over: the job has ended; else it goes on, and a later process of the role may join.
    """

    reason: str
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Order to a process that is not a member any more: join with at least this incarnation."""

    least_incarnation: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer to a process that cannot join: it ends with an error."""

    reason: str


Order = StartEpoch | AskPosition | EndEpoch | WritePart | GiveUp | Leave | Rejoin | Refuse


@dataclass(frozen=True, slots=True)
class Send:
    """Send an order to one process of a role. A later process of the role must not receive it."""

    role: Role
    incarnation: int
    order: Order


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the commit of an attempt atomically; answer with Published, or with CommitFailed if it certainly is not.

    Attributes:
        attempt: the attempt.
        commit: the new commit.
        hosts: the hosts by rank.
        parts: of each host, its part.
        partition: the name of the plan by which they hold the tables; empty: rows are spread over them.
    """

    attempt: int
    commit: Commit
    hosts: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    partition: Omitted[str] = ""


@dataclass(frozen=True, slots=True)
class WantRoles:
    """Run so many processes: ``hosts``, and readers between the limits (:mod:`trainer.scheduling.buffer_control` chooses)."""

    hosts: int
    least_readers: int
    most_readers: int


@dataclass(frozen=True, slots=True)
class ChangePhase:
    """The job entered a phase; its slice and its embedding placement may change before the next attempt."""

    phase: TrainingPhase


@dataclass(frozen=True, slots=True)
class Hold:
    """The job is held.

    Attributes:
        error_class: DATA_NOT_READY holds lift themselves; a person releases the others.
        reason: the error, or the used up budget of restarts.
        role: the role that failed, as text; "" for none.
    """

    error_class: ErrorClass
    reason: str
    role: str = ""


Instruction = Send | Publish | WantRoles | ChangePhase | Hold
