"""Hosts on a grid: those of one machine, or rack, are near each other, and the links between machines are slow. Pure.

Dense gradients are added on a grid in two legs (Kumar et al., "Exploring the limits of concurrency in ML training on Google TPUs", MLSys 2021): first
each machine adds the gradients of its own hosts, a share on each of them, then hosts of equal places add these sums over all machines. So a
float crosses the slow links once for each machine, where it would cross them once for each host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from trainer.errors import ConfigError

#: Dense weights of so many bytes are added in two legs. Below, two more rounds of messages take what the slow links save: benchmarks/grid_sums.py.
GRID_BYTES = 1 << 20
FLOAT_BYTES = 4
_NAME = "dense_sum_"


@dataclass(frozen=True, slots=True)
class HostGrid:
    """``machines`` machines of ``places`` hosts each: the host of rank r has the place ``r % places`` of the machine ``r // places``.

    Raises :class:`ConfigError` for fewer than two machines or places.
    """

    machines: int
    places: int

    def __post_init__(self) -> None:
        if self.machines < 2 or self.places < 2:
            raise ConfigError("a grid must have two machines of two hosts or more", where="--hosts-per-machine",
                              value=f"{self.machines} machines of {self.places}", allowed="at least 2 machines of 2")  # fmt: skip

    def __str__(self) -> str:
        return f"{self.machines} x {self.places}"

    @property
    def hosts(self) -> int:
        """All hosts."""
        return self.machines * self.places

    def near_of(self, rank: int) -> tuple[int, ...]:
        """The ranks of the hosts of its machine, by place."""
        first = rank - rank % self.places
        return tuple(range(first, first + self.places))

    def far_of(self, rank: int) -> tuple[int, ...]:
        """The ranks of the hosts of its place, by machine."""
        return tuple(range(rank % self.places, self.hosts, self.places))


def grid_of(hosts: int, machine_hosts: int) -> HostGrid | None:
    """The grid of ``hosts`` hosts of which ``machine_hosts``, in the order of ranks, share a machine; None if one machine has all, or each its own.

    Raises :class:`ConfigError` for machines that hosts do not fill.
    """
    if machine_hosts < 2 or hosts <= machine_hosts:
        return None
    if hosts % machine_hosts:
        raise ConfigError("the hosts of a machine must divide the hosts of the job", where="--hosts-per-machine", value=machine_hosts,
                          allowed=f"a divisor of {hosts}")  # fmt: skip
    return HostGrid(hosts // machine_hosts, machine_hosts)


def pays(grid: HostGrid | None, floats: int, least_bytes: int = GRID_BYTES) -> bool:
    """Whether so many dense weights are added in two legs. It is the same on all hosts."""
    return grid is not None and FLOAT_BYTES * floats >= max(least_bytes, 1)


@dataclass(frozen=True, slots=True)
class LegBytes:
    """What all hosts together send of dense gradients in a step.

    Attributes:
        near: inside machines.
        far: between them.
    """

    near: int
    far: int


def flat_bytes(
    floats: int, hosts: int, places: int, value_bytes: int = 2 * FLOAT_BYTES, whole_floats: int = 0
) -> LegBytes:
    """The bytes of sums without legs: each host adds a segment, of which it receives all parts and sends the sum to all hosts.

    Args:
        floats: of the vector.
        hosts: of the job.
        places: so many of them share a machine.
        value_bytes: of a part and of a sum together.
        whole_floats: of the vector, go whole to all hosts in place of that, and take ``value_bytes`` / 2 each.
    """
    of_pair = value_bytes * (floats - whole_floats)
    whole = value_bytes // 2 * whole_floats * hosts
    return LegBytes((places - 1) * (of_pair + whole), (hosts - places) * (of_pair + whole))


def grid_bytes(floats: int, grid: HostGrid, far_value_bytes: int = 2 * FLOAT_BYTES) -> LegBytes:
    """The bytes of sums in two legs, of which the far one has 1 / places of those of :func:`flat_bytes`."""
    near = 2 * FLOAT_BYTES * floats * grid.machines * (grid.places - 1)
    return LegBytes(near, far_value_bytes * floats * (grid.machines - 1))


@dataclass(frozen=True, slots=True)
class SumFigures:
    """How the hosts of a job add dense gradients, and what all of them together send in a step.

    Attributes:
        machines, places: of the hosts; machines of one host each where it is not known which share a machine.
        in_legs: 1 if they add in two legs, else 0.
        rounded: 1 if gradients are sent as bfloat16, else 0.
        near_bytes: inside machines, without the numbers of events and what weights have beside them.
        far_bytes: between machines.
    """

    machines: int
    places: int
    in_legs: int
    rounded: int
    near_bytes: int
    far_bytes: int

    @property
    def hosts(self) -> int:
        """All hosts."""
        return self.machines * self.places

    @property
    def order(self) -> str:
        """The order in which they add, as commits name it: empty for the order of ranks, of floats as they are."""
        legs = f"{self.machines} x {self.places}" if self.in_legs else ""
        return " ".join(filter(None, (legs, "bf16" if self.rounded else "")))

    def to_numbers(self) -> dict[str, float]:
        """The figures of a host's progress, by name."""
        return {f"{_NAME}{name}": float(value) for name, value in asdict(self).items()}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> SumFigures | None:
        """The inverse of :meth:`to_numbers`; None without these figures. Others are ignored."""
        found = [numbers.get(f"{_NAME}{one.name}", math.nan) for one in fields(cls)]
        return cls(*map(int, found)) if all(0 <= one < math.inf for one in found) else None
