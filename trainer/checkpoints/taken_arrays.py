"""Arrays of a host that its part of a commit holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer.checkpoints.host_part import Moment
from trainer.checkpoints.parted_arrays import PartedArrays
from transforms.arrays import Array


@dataclass(frozen=True)
class TakenArrays:
    """Arrays that were taken at one moment; ``parted``: those that come in parts."""

    moment: Moment
    arrays: Mapping[str, Array] = field(default_factory=dict)
    parted: Sequence[PartedArrays] = ()
