"""Hidden units that are off: ReLU units whose output is zero for all events of the last steps. They have no gradient, and learn nothing.

A unit is off in a step where the gradient of its bias, summed over all events of all hosts and replicas, is exactly zero. All hosts of a
job and all replicas of a slice have the same sums, so they count the same units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from transforms.arrays import Array

#: A unit that was off for so many steps counts as off.
COUNTED_STEPS = 1000
_NAME = "hidden_"


@dataclass(frozen=True, slots=True)
class IdleUnits:
    """The state of the hidden units of a network.

    Attributes:
        units: all of them.
        off: those without a gradient in all of the last ``steps`` steps.
        steps: at most :data:`COUNTED_STEPS`; fewer in a process that has trained fewer.
    """

    units: int
    off: int
    steps: int

    def to_numbers(self) -> dict[str, float]:
        """The figures of a role's progress, by name."""
        return {f"{_NAME}{name}": float(value) for name, value in asdict(self).items()}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> IdleUnits | None:
        """The inverse of :meth:`to_numbers`; None without these figures. Others are ignored."""
        units, off, steps = (numbers.get(f"{_NAME}{name}", math.nan) for name in ("units", "off", "steps"))
        if not (0 <= off <= units < math.inf and 0 <= steps <= COUNTED_STEPS):
            return None
        return cls(int(units), int(off), int(steps))


class UnitCounter:
    """Counts, for every ReLU unit, the steps since it last had a gradient. It is no part of a checkpoint."""

    def __init__(self, units: int) -> None:
        self._steps_off = np.zeros(units, np.int64)
        self._steps = 0

    def add(self, is_on: Array) -> None:
        """Count a step: whether each unit had a gradient, bool [units]."""
        self._steps_off += 1
        self._steps_off[is_on] = 0
        self._steps += 1

    def counts(self) -> IdleUnits:
        """The state after the last step."""
        steps = min(self._steps, COUNTED_STEPS)
        return IdleUnits(len(self._steps_off), int((self._steps_off >= steps).sum()) if steps else 0, steps)
