"""The faults of a run, drawn from a seed. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.job.launch.chaos.wire_damage import DamageKind, DamagePoint, Direction
from transforms.errors import InputError

#: The longest that a fault lasts, in means of the time between faults.
_MOST_HOLD = 4.0


class FaultKind(StrEnum):
    """What is done to a process, or by :data:`WIRE_KINDS` to the bytes between two.

    A preemption is the SIGTERM that announces it; see :data:`LASTING` for those that last.
    """

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"
    SLOW_DISK = "slow-disk"
    PREEMPT = "preempt"
    KILL_KEEPER = "kill-keeper"
    SLOW_LINK = "slow-link"
    LOSE_MACHINE = "lose-machine"
    FULL_MEMORY = "full-memory"
    NEIGHBOUR = "neighbour"
    FLIP = "flip"
    DROP = "drop"
    REPEAT = "repeat"
    REORDER = "reorder"
    DELAY = "delay"


class Side(StrEnum):
    """The connections that a partition cuts: those to the controller, those from other roles, or all."""

    CONTROLLER = "controller"
    PEERS = "peers"
    ALL = "all"


#: The roles of a job, each drawn equally often.
ROLES = ("controller", "reader", "host")
#: The roles of the parameter servers and the embedding workers of a job that has some.
SERVER, WORKER = "server", "worker"
#: The kinds of damage of bytes, which are done to the connections between a pair of roles.
WIRE_KINDS = {FaultKind(kind.value): kind for kind in DamageKind}
#: The kinds that are done to whole processes and all their connections; others are asked for by name.
PROCESS_KINDS = frozenset(FaultKind) - {*WIRE_KINDS, FaultKind.NEIGHBOUR, FaultKind.FULL_MEMORY}
#: The kinds of faults that end after a time.
LASTING = frozenset(
    {FaultKind.PAUSE, FaultKind.PARTITION, FaultKind.SLOW_DISK, FaultKind.SLOW_LINK, FaultKind.FULL_MEMORY, *WIRE_KINDS}
)
#: The kinds that only some roles have; all roles have the other kinds. The controller writes no parts, and a server no files.
_ROLES_OF_KIND = {
    FaultKind.SLOW_DISK: ("reader", "host"),
    FaultKind.KILL_KEEPER: (SERVER, WORKER),
    FaultKind.SLOW_LINK: (SERVER, WORKER),
    FaultKind.LOSE_MACHINE: (SERVER,),
    FaultKind.FULL_MEMORY: (SERVER,),
    FaultKind.NEIGHBOUR: ("controller", "reader", SERVER, WORKER),
}
#: The longest distance from the begin of a damage to its bytes: short where messages are documents.
_MOST_BYTES_OF_PAIR = {"host-controller": 1 << 11, "reader-controller": 1 << 11}
_MOST_BYTES, _MOST_RUN_BYTES = 1 << 17, 1 << 10


def pairs_of(roles: Sequence[str], hosts: int = 2) -> tuple[str, ...]:
    """The pairs of roles between which a job has connections: the one that connects first.

    Servers, and embedding workers, do not connect to each other: hosts and workers move what one of them has to another.
    """
    pairs = ["host-controller", "reader-controller", "host-reader"]
    pairs += ["host-host"] if hosts > 1 else []
    pairs += ["host-server"] if SERVER in roles else []
    return (*pairs, *(("host-worker", "worker-server") if WORKER in roles else ()))


def roles_of(kind: FaultKind, roles: Sequence[str], hosts: int = 2) -> tuple[str, ...]:
    """The roles, or pairs of roles, among these that a kind of fault applies to."""
    if kind in WIRE_KINDS:
        return pairs_of(roles, hosts)
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
        hosts: of the job.
    """

    seed: int = 1
    faults: int = 20
    mean_secs: float = 3.0
    kinds: tuple[FaultKind, ...] = kinds_of(ROLES)
    roles: tuple[str, ...] = ROLES
    hosts: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.faults <= 100_000:
            raise InputError("the number of faults must be from 1 to 100,000", value=self.faults)
        if not 0.01 <= self.mean_secs <= 3600:
            raise InputError("the mean time between faults must be from 0.01 to 3,600 seconds", value=self.mean_secs)
        if not self.kinds:
            raise InputError("at least one kind of fault must be given", allowed=", ".join(FaultKind))
        for kind in self.kinds:
            if not roles_of(kind, self.roles):
                raise InputError("a kind of fault needs a role that the job has", value=kind, allowed=", ".join(kinds_of(self.roles)),
                                 next_step="give --servers to the training")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        after_secs: since the fault before.
        kind: what is done.
        role: to which kind of process; of damaged bytes, between which pair.
        pick: to which of the processes of the kind that run: its place as a share of their number, in [0, 1).
        hold_secs: how long it lasts; 0 for a kind that does not last. Damage of bytes ends with its first one.
        side: the connections that a partition cuts.
        is_reset: whether a partition resets connections; else their bytes stop.
        damage: what happens to which bytes, from the begin of the fault on; None for other kinds.
        direction: of the damaged bytes.
    """

    after_secs: float
    kind: FaultKind
    role: str
    pick: float
    hold_secs: float
    side: Side
    is_reset: bool
    damage: DamagePoint | None = None
    direction: Direction = Direction.REQUESTS

    def target(self, names: Sequence[str]) -> str:
        """The process that the fault hits, among the running ones."""
        return sorted(names)[int(self.pick * len(names))]


def make_schedule(settings: ChaosSettings) -> tuple[Fault, ...]:
    """The faults in order."""
    draw = random.Random(settings.seed)
    return tuple(_draw_fault(draw, settings) for _ in range(settings.faults))


def _draw_fault(draw: random.Random, settings: ChaosSettings) -> Fault:
    kind = draw.choice(settings.kinds)
    mean = settings.mean_secs
    hold = min(_exponential(draw, mean), _MOST_HOLD * mean)
    fault = Fault(
        after_secs=_exponential(draw, mean),
        kind=kind,
        role=draw.choice(roles_of(kind, settings.roles, settings.hosts)),
        pick=draw.random(),
        hold_secs=hold if kind in LASTING else 0.0,
        side=draw.choice(tuple(Side)),
        is_reset=draw.random() < 0.5,
    )
    if kind not in WIRE_KINDS:
        return fault
    return replace(fault, hold_secs=_MOST_HOLD * mean, damage=_draw_damage(draw, fault, hold),
                   direction=draw.choice(tuple(Direction)))  # fmt: skip


def _draw_damage(draw: random.Random, fault: Fault, delay_secs: float) -> DamagePoint:
    """Short and long distances, and runs, equally often."""
    distance = _logarithmic(draw, _MOST_BYTES_OF_PAIR.get(fault.role, _MOST_BYTES)) - 1
    return DamagePoint(
        distance, WIRE_KINDS[fault.kind], _logarithmic(draw, _MOST_RUN_BYTES), draw.randrange(8), delay_secs
    )


def _logarithmic(draw: random.Random, most: int) -> int:
    return int(most ** draw.random())


def _exponential(draw: random.Random, mean: float) -> float:
    return -mean * math.log(1.0 - draw.random())
