"""Memory for activations, used again: fresh memory costs as much as a lookup."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from trainer.embedding.cpu.memory import LINE_FLOATS, aligned

Array = np.ndarray[Any, np.dtype[Any]]

_KEPT = 3


class OutputPool:
    """Gives flat float32 arrays whose address is a multiple of 64, the same one again when nothing refers to it any more."""

    def __init__(self) -> None:
        self._held: list[Array] = []

    def take(self, size: int) -> Array:
        """An array of ``size`` values, which may have any values."""
        for position in range(len(self._held)):
            # The list and the call's argument refer to it, and nothing else: a view would.
            if len(self._held[position]) == size + LINE_FLOATS and sys.getrefcount(self._held[position]) == 2:
                return aligned(self._held[position], size)
        memory = np.empty(size + LINE_FLOATS, np.float32)
        self._held = [*self._held[1 - _KEPT :], memory]
        return aligned(memory, size)
