"""Memory for activations and messages, used again: fresh memory costs as much as a lookup."""

from __future__ import annotations

import sys

import numpy as np

from trainer.tables.kernels.memory import LINE_FLOATS, first_aligned
from transforms.arrays import Array


class OutputPool:
    """Gives flat float32 arrays whose address is a multiple of 64, the same one again when nothing refers to it any more.

    ``spare``: the share of an array's size by which its memory is larger, for sizes that vary. ``kept``: arrays that are kept.
    """

    def __init__(self, *, spare: float = 0.0, kept: int = 3) -> None:
        self._held: list[Array] = []
        self._firsts: list[int] = []
        self._spare, self._kept = spare, kept

    def take(self, size: int) -> Array:
        """An array of ``size`` values, which may have any values."""
        for position, first in enumerate(self._firsts):
            # The list and the call's argument refer to it, and nothing else: a view would.
            if len(self._held[position]) >= size + LINE_FLOATS and sys.getrefcount(self._held[position]) == 2:
                return self._held[position][first : first + size]
        memory = np.empty(int(size * (1 + self._spare)) + LINE_FLOATS, np.float32)
        first = first_aligned(memory)
        self._held = [*self._held[1 - self._kept :], memory]
        self._firsts = [*self._firsts[1 - self._kept :], first]
        return memory[first : first + size]

    def take_bytes(self, size: int) -> Array:
        """As :meth:`take`, uint8."""
        return self.take(-(-size // 4)).view(np.uint8)[:size]
