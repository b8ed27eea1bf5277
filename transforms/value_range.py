"""A closed range of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class ValueRange:
    """``[least, most]``. Raises :class:`InputError` for ends that are no finite numbers in this order."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.least) and math.isfinite(self.most) and self.least <= self.most):
            raise InputError("a range must have two finite ends in order", value=f"{self.least} to {self.most}", allowed="least <= most",
                             next_step="between(0, 1) is the range from 0 to 1, both included")  # fmt: skip

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}"
