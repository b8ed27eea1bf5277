"""TPU generations and slices: what a name such as ``v5p:4x4x4`` stands for.

The facts are those of the cloud's pages on TPU generations and on TPUs in GKE. A slice that this module accepts exists; whether a
zone or a project has one is another question.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from trainer.errors import ConfigError

_GIB: Final = 1 << 30
#: Generations whose TensorCores are devices of their own; a chip of the others is one device.
_DEVICES_OF_A_CHIP = {"tpu7x": 2}


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs.

    Attributes:
        name: as in ``v5p:4x4x4``, which the compiler uses too.
        tensor_cores: of a chip.
        sparse_cores: of a chip; 0: it has none. Those of v4 are programmed by TensorFlow's ``TPUEmbedding``, later ones by
            ``TPUEmbeddingV2``.
        hbm_bytes: the high-bandwidth memory of a chip.
        shapes: the slices that are listed one by one, smallest first.
        largest: the largest slice of a generation that also has every slice of whole cubes of 4 x 4 x 4 chips up to it; else empty.
        gke_accelerator: the label ``cloud.google.com/gke-tpu-accelerator`` of its nodes.
        machine_type: of its virtual machines, without the number of chips.
        vm_type: the accelerator type of the TPU API, without the size of the slice; empty: that API does not have it.
        vm_counts_cores: the size of a slice in that type is in TensorCores, not in chips.
        vm_runtime: the system image of the TPU API.
    """

    name: str
    tensor_cores: int
    sparse_cores: int
    hbm_bytes: int
    shapes: tuple[tuple[int, ...], ...]
    largest: tuple[int, ...]
    gke_accelerator: str
    machine_type: str
    vm_type: str
    vm_counts_cores: bool
    vm_runtime: str

    @property
    def allowed(self) -> str:
        """The slices of this generation, in words."""
        listed = ", ".join(_shape_text(one) for one in self.shapes)
        if not self.largest:
            return listed
        return f"{listed}, or three multiples of 4, ascending, up to {_shape_text(self.largest)}"

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether there are slices of this shape."""
        if shape in self.shapes:
            return True
        is_sorted = 0 < len(shape) == len(self.largest) and list(shape) == sorted(shape)
        return is_sorted and all(
            size % 4 == 0 and 0 < size <= most for size, most in zip(shape, self.largest, strict=True)
        )


_SQUARES = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_BELOW_A_CUBE = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))

#: All generations, oldest first.
GENERATIONS: Final = (
    Generation("v4", 2, 4, 32 * _GIB, _BELOW_A_CUBE, (12, 16, 16), "tpu-v4-podslice", "ct4p-hightpu", "v4", True,
               "tpu-ubuntu2204-base"),
    Generation("v5e", 1, 0, 16 * _GIB, _SQUARES, (), "tpu-v5-lite-podslice", "ct5lp-hightpu", "v5litepod", False,
               "v2-alpha-tpuv5-lite"),
    Generation("v5p", 2, 4, 95 * _GIB, _BELOW_A_CUBE, (16, 16, 24), "tpu-v5p-slice", "ct5p-hightpu", "v5p", True,
               "v2-alpha-tpuv5"),
    Generation("v6e", 1, 2, 32 * _GIB, _SQUARES, (), "tpu-v6e-slice", "ct6e-standard", "v6e", False, "v2-alpha-tpuv6e"),
    Generation("tpu7x", 2, 4, 192 * _GIB, _BELOW_A_CUBE, (16, 16, 36), "tpu7x", "tpu7x-standard", "", True, ""),
)  # fmt: skip
_BY_NAME: Final = {one.name: one for one in GENERATIONS}


@dataclass(frozen=True, slots=True)
class Topology:
    """A TPU slice.

    Attributes:
        generation: of its chips.
        shape: the chips in each dimension.
    """

    generation: Generation
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str, *, where: str = "--topology") -> Topology:
        """The slice that ``v5p:4x4x4`` names. Raises :class:`ConfigError` for one that does not exist."""
        name, colon, sizes = text.partition(":")
        generation = _BY_NAME.get(name)
        if generation is None or not colon:
            raise ConfigError("a topology must be a TPU generation and the shape of a slice", where=where, value=text[:80],
                              allowed=f"{', '.join(_BY_NAME)}; a shape such as v5p:4x4x4")  # fmt: skip
        shape = _parse_shape(sizes)
        if not generation.has_shape(shape):
            raise ConfigError("the shape of a slice must exist in its TPU generation", where=where, value=text[:80],
                              allowed=f"{name}: {generation.allowed}")  # fmt: skip
        return cls(generation, shape)

    def __str__(self) -> str:
        return f"{self.generation.name}:{self.shape_text}"

    @property
    def shape_text(self) -> str:
        """The shape, such as ``4x4x4``: the label ``cloud.google.com/gke-tpu-topology`` of its nodes."""
        return _shape_text(self.shape)

    @property
    def chips(self) -> int:
        """The chips of the slice."""
        return math.prod(self.shape)

    @property
    def devices(self) -> int:
        """The devices of the slice as TensorFlow counts them: a copy of a model's dense part is on each."""
        return self.chips * _DEVICES_OF_A_CHIP.get(self.generation.name, 1)

    @property
    def chips_per_host(self) -> int:
        """The chips of a virtual machine: 4, but a slice of up to 8 chips in two dimensions is one machine."""
        return self.chips if len(self.shape) == 2 and self.chips <= 8 else 4

    @property
    def hosts(self) -> int:
        """The virtual machines of the slice."""
        return self.chips // self.chips_per_host

    @property
    def sparse_cores(self) -> int:
        """The SparseCores of the slice."""
        return self.chips * self.generation.sparse_cores

    @property
    def hbm_bytes(self) -> int:
        """The high-bandwidth memory of the slice."""
        return self.chips * self.generation.hbm_bytes

    @property
    def machine_type(self) -> str:
        """The type of its virtual machines."""
        return f"{self.generation.machine_type}-{self.chips_per_host}t"

    @property
    def vm_type(self) -> str:
        """The accelerator type of the TPU API, such as ``v5p-128``; empty: that API does not have the generation."""
        own = self.generation
        size = self.chips * (own.tensor_cores if own.vm_counts_cores else 1)
        return f"{own.vm_type}-{size}" if own.vm_type else ""


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _parse_shape(text: str) -> tuple[int, ...]:
    """The numbers of ``4x4x4``; nothing for other texts, which is the shape of no slice."""
    sizes = text.split("x")
    if len(sizes) > 3 or not all(one.isascii() and one.isdigit() and 0 < len(one) <= 3 for one in sizes):
        return ()
    shape = tuple(map(int, sizes))
    return shape if text == _shape_text(shape) else ()  # one spelling of a slice
