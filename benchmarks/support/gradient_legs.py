"""The time of a gradient sum on a rectangle of chips, by its legs: along one ring of all chips, or along the columns and then the rows. Pure.

The rectangle is that of the TPU multipod (Kumar et al., MLSys 2021, section 3): a column of Y chips is a ring, since the links at its ends are
joined; a row of X chips is a line. Links work in both directions at once. **Simulated**: nothing was measured on such chips.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MeshChip:
    """A chip of the rectangle.

    Attributes:
        link_bytes_per_sec: of a link, in one direction.
        flops_per_sec: of its arithmetic; ``memory_bytes_per_sec``: of its memory.
        reached: the share of these rates that programs reach, in (0, 1].
        hop_secs: what each hop of a leg adds.
    """

    link_bytes_per_sec: float
    flops_per_sec: float
    memory_bytes_per_sec: float
    reached: float
    hop_secs: float

    def __post_init__(self) -> None:
        rates = (self.link_bytes_per_sec, self.flops_per_sec, self.memory_bytes_per_sec)
        if not all(math.isfinite(one) and one > 0 for one in rates):
            raise ConfigError("the rates of a chip must be finite numbers", value=rates, allowed="> 0")
        if not 0 < self.reached <= 1:
            raise ConfigError("the reached share must be above 0 and at most 1", value=self.reached)
        if not (math.isfinite(self.hop_secs) and self.hop_secs >= 0):
            raise ConfigError("hop_secs must be finite and >= 0", value=self.hop_secs)


#: TPU v3: four links of 656 Gbit/s, 123 T operations of bfloat16 and 900 GB/s a chip, as published; the reached share and the hop are assumed.
TPU_V3: Final = MeshChip(656e9 / 8, 123e12, 900e9, 0.5, 1e-6)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """``columns`` x ``rows`` chips: X is the number of columns, Y that of rows."""

    columns: int
    rows: int

    def __post_init__(self) -> None:
        if self.columns < 1 or self.rows < 1:
            raise ConfigError("a rectangle must have columns and rows", value=(self.columns, self.rows), allowed=">= 1")

    @property
    def chips(self) -> int:
        """All of them."""
        return self.columns * self.rows


@dataclass(frozen=True, slots=True)
class Legs:
    """The seconds of a sum: of the legs along columns (Y) and along rows (X), both ways; a ring of all chips is one leg, ``y``."""

    y: float
    x: float = 0.0

    @property
    def all(self) -> float:
        """Both."""
        return self.y + self.x


def ring_secs(summed_bytes: float, shape: Rectangle, chip: MeshChip) -> Legs:
    """One ring through all chips, cut into as many parts: parts are added on their way, then handed on."""
    return Legs(2 * _ring(summed_bytes, shape.chips, chip))


def two_leg_secs(summed_bytes: float, shape: Rectangle, chip: MeshChip) -> Legs:
    """Parts are added along each column, and a chip's part of them along its row; then they go back, rows first."""
    columns = 2 * _ring(summed_bytes, shape.rows, chip)
    return Legs(columns, 2 * _line(summed_bytes / shape.rows, shape.columns, chip))


def leg_bytes(summed_bytes: float, shape: Rectangle) -> tuple[float, float]:
    """The bytes that a chip sends in the legs of a two-leg sum: along its column, and along its row, where an array is ``1 / Y`` as long."""
    y = 2 * summed_bytes * (shape.rows - 1) / shape.rows
    return y, 2 * summed_bytes / shape.rows * (shape.columns - 1) / shape.columns


def _ring(summed_bytes: float, chips: int, chip: MeshChip) -> float:
    """Half of the array goes round in each direction."""
    return summed_bytes * (chips - 1) / chips / (2 * chip.link_bytes_per_sec * chip.reached) + (chips - 1) * chip.hop_secs  # fmt: skip


def _line(summed_bytes: float, chips: int, chip: MeshChip) -> float:
    """A ring on a line goes there by one direction of its links, and back by the other."""
    return summed_bytes * (chips - 1) / chips / (chip.link_bytes_per_sec * chip.reached) + (chips - 1) * chip.hop_secs
