"""Moving byte spans between buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, np.dtype[Any]]


@njit(cache=True, nogil=True)
def gather_spans(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Spans copied next to each other: (int64 offsets with one more entry than spans, their bytes)."""
    offsets = np.empty(len(starts) + 1, np.int64)
    offsets[0] = 0
    for i in range(len(starts)):
        offsets[i + 1] = offsets[i] + (ends[i] - starts[i])
    gathered = np.empty(offsets[-1], np.uint8)
    for i in range(len(starts)):
        at = offsets[i]
        for j in range(starts[i], ends[i]):
            gathered[at] = data[j]
            at += 1
    return offsets, gathered
