"""Unsigned integers in the order of scores, which sort and compare faster than floats and have no special values. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.errors import BadFeature
from transforms.arrays import Array

#: Values that are looked at together.
_BLOCK: Final = 1 << 20


def ordered_keys(scores: Array, *, is_short: bool | None = None) -> Array:
    """Keys in the order of the scores; equal scores, also 0.0 and -0.0, have equal keys.

    Args:
        scores: [events], floats or integers.
        is_short: whether keys of floats have 32 bits, as :func:`has_short_keys` says of these scores and others; None: of these.

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
    if has_short_keys(values) if is_short is None else is_short:
        return _keys(values, np.float32, np.uint32)
    return _keys(values, np.float64, np.uint64)


def has_short_keys(scores: Array) -> bool:
    """Whether all scores are float32 values, whose keys have 32 bits; also where a NaN is among them, which is refused later."""
    values = np.asarray(scores)
    if values.dtype.kind != "f":
        return False
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
