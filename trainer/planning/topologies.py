"""What tables are planned for: cores with their memory and the seconds that each kind of work takes on one. Pure.

The bandwidths of accelerators are those that their makers publish, shared by the cores of a chip. The seconds of a row and of a shard on
them are assumptions. The rates of ``cpu`` are fitted to measured steps of processes that exchange rows; those of ``ps`` differ in the network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final

from trainer.errors import ConfigError
from trainer.options.topology import Topology
from trainer.planning.plan import MOST_CORES

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class CoreRates:
    """What work costs a core. All are seconds >= 0, but for ``access_bytes``.

    Attributes:
        access_bytes: the granularity of its memory; a row is read and written in whole accesses.
        shard_secs: of a shard, in each step.
        request_secs: of a row that another core asks for.
        read_byte_secs: of a byte that is read for a request.
        wire_byte_secs: of a byte that it sends or receives.
        gradient_byte_secs: of a byte of gradients that it adds.
        update_secs: of a distinct row that is updated.
        update_byte_secs: of a byte of a row and its slots, which are read and written.
        id_secs: of an id of its own part of the batch, for each slice of the table.
        place_byte_secs: of a byte of a row that it places among those of its part of the batch, and of the row's gradient.
        combine_byte_secs: of a byte that it combines into activations, and of a byte of the activations' gradients.
        step_secs: of a step, whatever its work is.
    """

    access_bytes: int
    shard_secs: float
    request_secs: float
    read_byte_secs: float
    wire_byte_secs: float
    gradient_byte_secs: float
    update_secs: float
    update_byte_secs: float
    id_secs: float
    place_byte_secs: float
    combine_byte_secs: float
    step_secs: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value) or value < (1 if field.name == "access_bytes" else 0):
                raise ConfigError(f"{field.name} must be a finite number >= 0", value=value)


@dataclass(frozen=True, slots=True)
class PlanTopology:
    """Equal cores.

    Attributes:
        name: as users write it.
        cores: their number.
        memory_bytes: for tables, on each core.
        rates: what work costs.
        device_cores: cores of a device that have one copy of a replicated table together, which sums of the gradients of all its rows over the devices
            update; 0 where each core has a copy, and gets the gradients of single rows.
    """

    name: str
    cores: int
    memory_bytes: int
    rates: CoreRates
    device_cores: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= MOST_CORES:
            raise ConfigError(
                "the number of cores of a topology must be in range",
                where=self.name,
                value=self.cores,
                allowed=f"1 to {MOST_CORES}",
            )
        if self.memory_bytes < 1:
            raise ConfigError("a core must have memory", where=self.name, value=self.memory_bytes, allowed=">= 1 byte")

    def with_cores(self, cores: int) -> PlanTopology:
        """As many of the same cores."""
        return replace(self, cores=cores, name=f"{self.name.partition(':')[0]}:{cores}")


@dataclass(frozen=True, slots=True)
class _Chip:
    """The published figures of a chip: bytes a second of its memory and of its links to others, and the bytes of an access."""

    memory_bytes_per_sec: float
    link_bytes_per_sec: float
    access_bytes: int


_CHIPS: Final = {
    "v4": _Chip(1_228e9, 300e9, 32),
    "v5p": _Chip(2_765e9, 600e9, 32),
    "v6e": _Chip(1_640e9, 400e9, 32),
    "tpu7x": _Chip(7_380e9, 600e9, 64),
}
#: The share of an accelerator's memory that tables may take; the rest is the dense part's and the compiler's.
_TABLE_SHARE = 0.75
_ROW_SECS, _SHARD_SECS, _STEP_SECS = 1e-9, 2e-7, 5e-5

#: What work costs a core of the ``cpu`` engine that is a process with one thread: what ``benchmarks/plan_calibration.py`` fitted. A shard
#: costs less than its steps can show.
CPU_RATES: Final = CoreRates(
    access_bytes=64, shard_secs=0.0, request_secs=1.5e-8, read_byte_secs=1.7e-10, wire_byte_secs=2.5e-10, gradient_byte_secs=3.4e-10,
    update_secs=3.7e-8, update_byte_secs=1.0e-10, id_secs=2.9e-8, place_byte_secs=2.5e-10, combine_byte_secs=3e-12, step_secs=1e-3,
)  # fmt: skip

#: Names of topologies, as users see them.
ALLOWED: Final = "v4|v5p|v6e|tpu7x:SHAPE such as v5p:4x4x4, gpu:NUMBER, cpu:NUMBER, ps:NUMBER"


def topology_of(text: str, *, memory_bytes: int = 0) -> PlanTopology:
    """The topology of a name.

    ``v5p:4x4x4`` has the SparseCores of a slice, ``gpu:8`` GPUs of a host with links between them, ``cpu:4`` simulated cores, and ``ps:16``
    parameter servers on a network of 100 Gbit/s. ``memory_bytes``: of a core, in place of the usual one. Raises :class:`ConfigError`.
    """
    kind, _, number = text.partition(":")
    if kind in _CHIPS:
        found = _slice(Topology.parse(text, where="topology"))
    else:
        count = int(number) if number.isascii() and number.isdigit() and len(number) <= 5 else 0
        if kind not in _OTHERS or not 1 <= count <= MOST_CORES:
            raise ConfigError("a topology must be a known kind and its size", value=text[:80], allowed=ALLOWED)
        memory, rates = _OTHERS[kind]
        found = PlanTopology(text, count, memory, rates)
    return replace(found, memory_bytes=memory_bytes) if memory_bytes else found


def _slice(slice_: Topology) -> PlanTopology:
    generation = slice_.generation
    chip, cores = _CHIPS[generation.name], generation.sparse_cores
    memory = int(generation.hbm_bytes * _TABLE_SHARE) // cores
    return PlanTopology(str(slice_), slice_.sparse_cores, memory, _accelerator(chip, cores), device_cores=cores)


def _accelerator(chip: _Chip, cores: int) -> CoreRates:
    memory, link = cores / chip.memory_bytes_per_sec, cores / chip.link_bytes_per_sec
    return CoreRates(
        access_bytes=chip.access_bytes, shard_secs=_SHARD_SECS, request_secs=_ROW_SECS, read_byte_secs=memory,
        wire_byte_secs=link, gradient_byte_secs=memory, update_secs=_ROW_SECS, update_byte_secs=memory, id_secs=_ROW_SECS / 4,
        place_byte_secs=memory, combine_byte_secs=memory, step_secs=_STEP_SECS,
    )  # fmt: skip


_OTHERS: Final = {
    "gpu": (int(80 * _GIB * _TABLE_SHARE), _accelerator(_Chip(3_350e9, 450e9, 32), 1)),
    "cpu": (16 * _GIB, CPU_RATES),
    "ps": (64 * _GIB, replace(CPU_RATES, wire_byte_secs=8 / 100e9)),
}
