"""Loops that check offsets and bytes of text before any other kernel reads them.

These are the only kernels that may be handed what nothing has checked yet: they read what the caller says is there, in
order, and follow no position that comes out of the data before it is known to lie inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.kernels.compiled import compiled
from transforms.kernels.spans import Array, load64

_CONTINUATION = np.uint8(0x80)
_TOP_BITS = np.uint8(0xC0)
#: Of each of eight bytes.
_HIGH_BITS = np.uint64(0x8080808080808080)


@compiled
def ascends(offsets: Array) -> Any:
    """Whether no offset is negative, nor less than the one before it."""
    seen = offsets[0]
    zero = seen ^ seen
    # In the offsets' own width, which is fast: without a negative one no difference wraps.
    for i in range(1, len(offsets)):
        seen |= offsets[i] | (offsets[i] - offsets[i - 1])
    return seen >= zero


@compiled
def is_ascii(data: Array) -> Any:
    """Whether every byte is below 128."""
    seen, whole = np.uint64(0), len(data) // 8
    for word in range(whole):
        seen |= load64(data, 8 * word)
    for i in range(8 * whole, len(data)):
        seen |= np.uint64(data[i])
    return (seen & _HIGH_BITS) == np.uint64(0)


@compiled
def cuts_character(data: Array, offsets: Array) -> bool:
    """Whether an offset, all of which lie within ``data`` or at its end, stands inside of a character."""
    cuts = 0
    for i in range(len(offsets)):
        at = offsets[i]
        if at < len(data):
            cuts += (data[at] & _TOP_BITS) == _CONTINUATION
    return cuts > 0
