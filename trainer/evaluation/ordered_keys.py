"""Unsigned integers in the order of scores, which sort and compare faster than floats and have no special values. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.errors import BadFeature
from transforms.arrays import Array

#: Values that are looked at together.
_BLOCK: Final = 1 << 20


def ordered_keys(scores: Array) -> Array:
    """Keys in the order of the scores; equal scores, also 0.0 and -0.0, have equal keys.

    Args:
        scores: [events], floats or integers.

    Returns:
        uint32 [events] where all scores are float32 values, whatever their type, else uint64.

    Raises:
        BadFeature: for a score that is NaN, which has no place in an order.
    """
    values = np.asarray(scores)
    if values.dtype.kind in "bu":
        return values.astype(np.uint64)
    if values.dtype.kind == "i":
        signed: Array = values.astype(np.int64)
        return signed.view(np.uint64) ^ np.uint64(1 << 63)
    if _are_short(values):
        return _keys(values, np.float32, np.uint32)
    return _keys(values, np.float64, np.uint64)


def _are_short(values: Array) -> bool:
    """Whether all floats are float32 values. A NaN is refused in either case."""
    blocks = (values[first : first + _BLOCK] for first in range(0, len(values), _BLOCK))
    with np.errstate(over="ignore"):  # a value beyond float32's becomes infinite, and differs
        return all(bool((one.astype(np.float32) == one).all()) or bool(np.isnan(one).any()) for one in blocks)


def _keys(values: Array, number: type[np.floating], unsigned: type[np.unsignedinteger]) -> Array:
    found = np.empty(len(values), unsigned)
    sign = unsigned(1 << (8 * np.dtype(unsigned).itemsize - 1))
    for first in range(0, len(values), _BLOCK):
        own = values[first : first + _BLOCK].astype(number) + number(0)  # -0.0 becomes 0.0
        missing = np.isnan(own)
        if missing.any():
            raise BadFeature("a score must be a number, got NaN", where=f"event {first + int(missing.argmax())}", value="NaN",
                             next_step="score events with weights that are finite: headrace ckpt verify")  # fmt: skip
        bits = own.view(unsigned)
        found[first : first + _BLOCK] = np.where(bits & sign, ~bits, bits | sign)
    return found
