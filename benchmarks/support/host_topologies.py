"""Chips in hosts: fast links between the chips of a host, slower ones between hosts. Pure.

The figures of chips are those that their makers publish; of GPUs with TF32 where they have it, 8 to a host with a network card each. Shares of these
figures that programs reach, and the seconds of a message, are assumptions: :data:`REACHED`. A *host* of TPUs is a slice, whose chips have links of
their own; slices exchange over the data center network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final

from trainer.errors import ConfigError

MOST_CHIPS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReachedShares:
    """What programs reach of published figures; shares in (0, 1].

    Attributes:
        flops, memory: of a chip's arithmetic and memory bandwidth.
        intra: of the links inside a host, in exchanges between all of its chips.
        inter: of the links between hosts, in exchanges between all chips.
        message_secs: what each message of an exchange adds.
    """

    flops: float = 0.4
    memory: float = 0.7
    intra: float = 0.7
    inter: float = 0.8
    message_secs: float = 5e-6

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "message_secs":
                if not (math.isfinite(value) and value >= 0):
                    raise ConfigError("message_secs must be finite and >= 0", value=value)
            elif not 0.0 < value <= 1.0:
                raise ConfigError(f"the reached share of {field.name} must be above 0 and at most 1", value=value)


REACHED: Final = ReachedShares()


@dataclass(frozen=True, slots=True)
class HostTopology:
    """Equal hosts of equal chips. Rates are per chip, in one direction.

    Attributes:
        name: as users write it.
        hosts: their number.
        chips_per_host: those of each.
        flops_per_sec: of 32-bit matrix products, or what the chip has for them.
        memory_bytes_per_sec: of its memory.
        intra_bytes_per_sec: of its links to the chips of its host.
        inter_bytes_per_sec: of its link to other hosts.
        reached: what programs reach of these.
    """

    name: str
    hosts: int
    chips_per_host: int
    flops_per_sec: float
    memory_bytes_per_sec: float
    intra_bytes_per_sec: float
    inter_bytes_per_sec: float
    reached: ReachedShares = REACHED

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.chips_per_host < 1 or self.chips > MOST_CHIPS:
            raise ConfigError("the numbers of hosts and of chips per host must be in range", where=self.name,
                              value=(self.hosts, self.chips_per_host), allowed=f"1 to {MOST_CHIPS} chips in all")  # fmt: skip
        rates = (self.flops_per_sec, self.memory_bytes_per_sec, self.intra_bytes_per_sec, self.inter_bytes_per_sec)
        if not all(math.isfinite(rate) and rate > 0 for rate in rates):
            raise ConfigError("the rates of a chip must be finite numbers", where=self.name, value=rates, allowed="> 0")

    @property
    def chips(self) -> int:
        """The chips of all hosts."""
        return self.hosts * self.chips_per_host

    def exchange_secs(self, sent_bytes: float, group_hosts: int, chips_of_host: int) -> float:
        """An exchange between all chips of a group, each of which divides ``sent_bytes`` equally among them, itself included.

        Links inside hosts and between them work at the same time. ``group_hosts``: the hosts of the group; ``chips_of_host``: its chips in each.
        """
        size = group_hosts * chips_of_host
        inside = sent_bytes * (chips_of_host - 1) / size / (self.intra_bytes_per_sec * self.reached.intra)
        outside = sent_bytes * (size - chips_of_host) / size / (self.inter_bytes_per_sec * self.reached.inter)
        return max(inside, outside) + (size - 1) * self.reached.message_secs

    def sum_secs(self, summed_bytes: float, group_hosts: int) -> float:
        """The sum of an array over all chips of some hosts: parts are added in each host, then between hosts, and handed back inside hosts."""
        chips = self.chips_per_host
        inside = 2 * summed_bytes * (chips - 1) / chips / (self.intra_bytes_per_sec * self.reached.intra)
        between = (
            2 * summed_bytes * (group_hosts - 1) / group_hosts / (chips * self.inter_bytes_per_sec * self.reached.inter)
        )
        messages = 2 * (chips - 1 + group_hosts - 1)
        return inside + between + messages * self.reached.message_secs

    def memory_secs(self, moved_bytes: float) -> float:
        """What moving so many bytes of a chip's memory takes."""
        return moved_bytes / (self.memory_bytes_per_sec * self.reached.memory)

    def compute_secs(self, flops: float) -> float:
        """What so many operations take on a chip."""
        return flops / (self.flops_per_sec * self.reached.flops)


@dataclass(frozen=True, slots=True)
class _Kind:
    chips_per_host: int
    flops_per_sec: float
    memory_bytes_per_sec: float
    intra_bytes_per_sec: float
    inter_bytes_per_sec: float


#: NVLink's bandwidth is published as the sum of both directions, so half of it counts here. The slices of TPUs have 16 chips.
_KINDS: Final = {
    "v100": _Kind(8, 15.7e12, 900e9, 150e9, 100e9 / 8),
    "a100": _Kind(8, 156e12, 1_555e9, 300e9, 200e9 / 8),
    "h100": _Kind(8, 494e12, 3_350e9, 450e9, 400e9 / 8),
    "v5p": _Kind(16, 459e12, 2_765e9, 600e9, 50e9 / 8),
    "v6e": _Kind(16, 918e12, 1_640e9, 400e9, 100e9 / 8),
}
#: One torus of chips with three pairs of links: 16 of them count as a host, and what a chip has for others is set by the bisection.
_TORUS, _TORUS_LINK_BYTES_PER_SEC = "v5p-torus", 100e9

ALLOWED: Final = f"{', '.join((*_KINDS, _TORUS))}, each with its number of chips, such as a100:512"


def host_topology(text: str, *, reached: ReachedShares = REACHED) -> HostTopology:
    """The topology of a name: ``a100:512`` has 512 chips in hosts of 8, ``v5p:512`` in slices of 16.

    Fewer chips than a host has are one host. Raises :class:`ConfigError`.
    """
    name, _, number = text.partition(":")
    chips = int(number) if number.isascii() and number.isdigit() and number[0] != "0" and len(number) <= 6 else 0
    kind = _torus(chips) if name == _TORUS and chips else _KINDS.get(name)
    if kind is None or not 1 <= chips <= MOST_CHIPS:
        raise ConfigError(
            "a topology must be a known kind of chip and a number of chips", value=text[:80], allowed=ALLOWED
        )
    of_host = min(kind.chips_per_host, chips)
    if chips % of_host:
        raise ConfigError(
            "a number of chips must be whole hosts", value=text[:80], allowed=f"multiples of {kind.chips_per_host}"
        )
    return HostTopology(f"{name}:{chips}", chips // of_host, of_host, kind.flops_per_sec, kind.memory_bytes_per_sec,
                        kind.intra_bytes_per_sec, kind.inter_bytes_per_sec, reached)  # fmt: skip


def _torus(chips: int) -> _Kind:
    """Chips in one torus of about equal sides k: half of what each sends crosses 2 k² links, 8 links / k for a chip."""
    side = chips ** (1 / 3)
    return replace(_KINDS["v5p"], inter_bytes_per_sec=min(600e9, 8 * _TORUS_LINK_BYTES_PER_SEC / side))
