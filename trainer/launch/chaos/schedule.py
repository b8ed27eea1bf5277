"""The faults of a run, drawn from a seed. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from transforms.errors import InputError

#: The longest that a fault lasts, in means of the time between faults.
_MOST_HOLD = 4.0


class FaultKind(StrEnum):
    """What is done to a process. A preemption is the SIGTERM that announces it; see :data:`LASTING` for those that last."""

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"
    SLOW_DISK = "slow-disk"
    PREEMPT = "preempt"
    KILL_KEEPER = "kill-keeper"
    SLOW_LINK = "slow-link"
    LOSE_MACHINE = "lose-machine"


class Side(StrEnum):
    """The connections that a partition cuts: those to the controller, those from other roles, or all."""

    CONTROLLER = "controller"
    PEERS = "peers"
    ALL = "all"


#: The roles of a job, each drawn equally often.
ROLES = ("controller", "reader", "host")
#: The role of the parameter servers of a job that has some.
SERVER = "server"
#: The kinds of faults that end after a time.
LASTING = frozenset({FaultKind.PAUSE, FaultKind.PARTITION, FaultKind.SLOW_DISK, FaultKind.SLOW_LINK})
#: The kinds that only some roles have; the others are of all roles. The controller writes no parts, and a server no files.
_ROLES_OF_KIND = {
    FaultKind.SLOW_DISK: ("reader", "host"),
    FaultKind.KILL_KEEPER: (SERVER,),
    FaultKind.SLOW_LINK: (SERVER,),
    FaultKind.LOSE_MACHINE: (SERVER,),
}


def roles_of(kind: FaultKind, roles: Sequence[str]) -> tuple[str, ...]:
    """Those of some roles to which a kind of fault is done."""
    return tuple(role for role in roles if role in _ROLES_OF_KIND.get(kind, roles))


def kinds_of(roles: Sequence[str]) -> tuple[FaultKind, ...]:
    """The kinds of faults that are done to some roles."""
    return tuple(kind for kind in FaultKind if roles_of(kind, roles))


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """The settings of the faults of a run.

    Attributes:
        seed: equal seeds and settings give equal faults.
        faults: their number; a job that ends earlier has fewer.
        mean_secs: the mean time from the beginning of a fault to that of the next one.
        kinds: the kinds, each drawn equally often.
        roles: of the job, each drawn equally often among those of a kind.
    """

    seed: int = 1
    faults: int = 20
    mean_secs: float = 3.0
    kinds: tuple[FaultKind, ...] = kinds_of(ROLES)
    roles: tuple[str, ...] = ROLES

    def __post_init__(self) -> None:
        if not 1 <= self.faults <= 100_000:
            raise InputError("the number of faults must be from 1 to 100,000", value=self.faults)
        if not 0.01 <= self.mean_secs <= 3600:
            raise InputError("the mean time between faults must be from 0.01 to 3,600 seconds", value=self.mean_secs)
        if not self.kinds:
            raise InputError("at least one kind of fault must be given", allowed=", ".join(FaultKind))
        for kind in self.kinds:
            if not roles_of(kind, self.roles):
                raise InputError("a kind of fault must be one of a role of the job", value=kind, allowed=", ".join(kinds_of(self.roles)),
                                 next_step="give --servers to the training")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        after_secs: since the fault before.
        kind: what is done.
        role: to which kind of process.
        pick: to which of the processes of the kind that run: its place as a share of their number, in [0, 1).
        hold_secs: how long it lasts; 0 for a kind that does not last.
        side: the connections that a partition cuts.
        is_reset: whether a partition resets connections; else their bytes stop.
    """

    after_secs: float
    kind: FaultKind
    role: str
    pick: float
    hold_secs: float
    side: Side
    is_reset: bool

    def target(self, names: Sequence[str]) -> str:
        """Its process among those that run."""
        return sorted(names)[int(self.pick * len(names))]


def make_schedule(settings: ChaosSettings) -> tuple[Fault, ...]:
    """The faults in order."""
    draw = random.Random(settings.seed)
    return tuple(_draw_fault(draw, settings) for _ in range(settings.faults))


def _draw_fault(draw: random.Random, settings: ChaosSettings) -> Fault:
    kind = draw.choice(settings.kinds)
    mean = settings.mean_secs
    hold = min(_exponential(draw, mean), _MOST_HOLD * mean)
    return Fault(
        after_secs=_exponential(draw, mean),
        kind=kind,
        role=draw.choice(roles_of(kind, settings.roles)),
        pick=draw.random(),
        hold_secs=hold if kind in LASTING else 0.0,
        side=draw.choice(tuple(Side)),
        is_reset=draw.random() < 0.5,
    )


def _exponential(draw: random.Random, mean: float) -> float:
    return -mean * math.log(1.0 - draw.random())
