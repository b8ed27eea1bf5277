"""How large the gradients of the dense weights were."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GradientNorms:
    """The norms of the gradients of dense weights since a process began.

    Attributes:
        total: their sum.
        steps: the steps in which the whole gradient was at hand.
    """

    total: float = 0.0
    steps: int = 0

    def with_step(self, squared_norm: float) -> GradientNorms:
        """With one more step, by the sum of the squares of its gradient; one that overflows is left out."""
        if not math.isfinite(squared_norm):
            return self
        return GradientNorms(self.total + squared_norm**0.5, self.steps + 1)


#: Of weights whose gradients this process does not have whole.
NO_NORMS = GradientNorms()
