"""The devices of a slice as TensorFlow and the compiler count them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.options.topology import GENERATIONS, Topology
from trainer.planning.meshes import grid_coordinates
from trainer.tables.tpu.planned_strategy import PlannedSlice

#: Generations whose SparseCores ``TPUEmbeddingV2`` programs.
SPARSE_CORE_GENERATIONS = ("v5p", "v6e", "tpu7x")


@dataclass(frozen=True, slots=True)
class Devices:
    """Attributes: see the names; ``sparse_cores`` and ``hbm_bytes`` are those of a device, ``coordinates`` those of each in its slice."""

    count: int
    hosts: int
    sparse_cores: int
    hbm_bytes: int
    coordinates: tuple[tuple[int, ...], ...] = ()

    @property
    def planned(self) -> PlannedSlice:
        """The devices for a planned strategy: a replica of the model on each."""
        return PlannedSlice(self.count, self.hosts, self.sparse_cores)


def devices_of(topology: Topology, *, is_served: bool = False) -> Devices:
    """The devices of a slice with SparseCores. Raises :class:`ConfigError` for another generation.

    ``is_served``: servers hold the tables, so that any generation will do.
    """
    generation = topology.generation
    if not is_served and generation.name not in SPARSE_CORE_GENERATIONS:
        raise ConfigError("a checked slice must have SparseCores that TPUEmbeddingV2 programs", where="--topology",
                          value=str(topology), allowed=", ".join(SPARSE_CORE_GENERATIONS),
                          next_step="check another slice, or with --servers the dense part of the model alone")  # fmt: skip
    of_chip = topology.devices // topology.chips
    return Devices(
        count=topology.devices,
        hosts=topology.hosts,
        sparse_cores=generation.sparse_cores // of_chip,
        hbm_bytes=generation.hbm_bytes // of_chip,
        coordinates=grid_coordinates(topology.shape, of_chip),
    )


def smallest_slice(topology: Topology, chips: int) -> str:
    """The smallest slice of the same generation with at least so many chips; empty if there is none."""
    (generation,) = (one for one in GENERATIONS if one.name == topology.generation.name)
    shapes = list(generation.shapes)
    if generation.largest:
        first, second, third = (range(4, most + 1, 4) for most in generation.largest)
        shapes += [(a, b, c) for a in first for b in second for c in third if a <= b <= c]
    fitting = [made for shape in shapes if (made := Topology(generation, shape)).chips >= chips]
    return str(min(fitting, key=lambda made: made.chips)) if fitting else ""
