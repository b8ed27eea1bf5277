"""Loops that check offsets and bytes of text before any other kernel reads them.

These are the only kernels that may be handed what nothing has checked yet: they read what the caller says is there, in
order, and follow no position that comes out of the data before it is known to lie inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.kernels.compiled import compiled
from transforms.kernels.spans import Array

_CONTINUATION = np.uint8(0x80)
_TOP_BITS = np.uint8(0xC0)


@compiled
def ascends(offsets: Array) -> bool:
    """Whether no offset is less than the one before it."""
    descents = 0
    for i in range(1, len(offsets)):
        descents += offsets[i] < offsets[i - 1]
    return descents == 0


@compiled
def is_ascii(data: Array) -> Any:
    """Whether every byte is below 128."""
    seen = np.uint8(0)
    for i in range(len(data)):
        seen |= data[i]
    return seen < np.uint8(128)


@compiled
def cuts_character(data: Array, offsets: Array) -> bool:
    """Whether an offset, all of which lie within ``data`` or at its end, stands inside of a character."""
    cuts = 0
    for i in range(len(offsets)):
        at = offsets[i]
        if at < len(data):
            cuts += (data[at] & _TOP_BITS) == _CONTINUATION
    return cuts > 0


@compiled
def limits(codes: Array) -> tuple[Any, Any]:
    """The least and the greatest of at least one integer."""
    least = greatest = codes[0]
    for i in range(len(codes)):
        least, greatest = min(least, codes[i]), max(greatest, codes[i])
    return least, greatest
