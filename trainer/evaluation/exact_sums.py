"""Sums of floats without rounding: equal for any order of the values, any division of them, and any number of hosts.

A float64 is a whole number of units of 2**-1074, so that a sum of floats is a whole number, too. The mean is rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_UNIT_BITS: Final = 1074
#: A sum is kept in limbs of 32 bits; the values of a block carry so little that 64 bits hold a limb.
_LIMB_BITS, _LIMBS, _BLOCK = 32, 68, 1 << 28


@dataclass(frozen=True, slots=True)
class ExactSum:
    """A sum of floats.

    Attributes:
        units: the sum of the finite values, in units of 2**-1074.
        special: the sum of the other values, an infinity or NaN; 0.0 without any.
    """

    units: int = 0
    special: float = 0.0

    def __add__(self, other: ExactSum) -> ExactSum:
        """The sum of both."""
        return ExactSum(self.units + other.units, self.special + other.special)

    def over(self, count: int) -> float:
        """The sum divided by a whole number above 0, correctly rounded; an infinity if it is beyond all floats."""
        if self.special != 0.0:
            return self.special
        try:
            return self.units / (count << _UNIT_BITS)
        except OverflowError:
            return float("inf") if self.units > 0 else float("-inf")

    @property
    def value(self) -> float:
        """The sum, correctly rounded."""
        return self.over(1)


def exact_sum(blocks: Iterable[Array]) -> ExactSum:
    """The sum of all values of float arrays [values]."""
    total = ExactSum()
    for block in blocks:
        values = np.ascontiguousarray(block, np.float64).reshape(-1)
        for first in range(0, len(values), _BLOCK):
            limbs = np.zeros(_LIMBS, np.int64)
            special = float(_add(values[first : first + _BLOCK], limbs))
            total += ExactSum(sum(one << _LIMB_BITS * k for k, one in enumerate(limbs.tolist())), special)
    return total


@compiled
def _add(values: Array, limbs: Array) -> float:
    """Add the finite values to the limbs, in units of 2**-1074; the sum of the others."""
    special, low_half = 0.0, np.uint64(0xFFFFFFFF)
    bits = values.view(np.uint64)
    for k in range(len(values)):
        exponent = np.int64((bits[k] >> np.uint64(52)) & np.uint64(0x7FF))
        if exponent == 0x7FF:
            special += values[k]
            continue
        fraction = bits[k] & np.uint64((1 << 52) - 1)
        if exponent:
            fraction |= np.uint64(1 << 52)
            exponent -= 1
        limb, shift = exponent >> 5, np.uint64(exponent & 31)
        low, high = (fraction & low_half) << shift, (fraction >> np.uint64(32)) << shift
        sign = np.int64(-1) if bits[k] >> np.uint64(63) else np.int64(1)
        limbs[limb] += sign * np.int64(low & low_half)
        limbs[limb + 1] += sign * (np.int64(low >> np.uint64(32)) + np.int64(high & low_half))
        limbs[limb + 2] += sign * np.int64(high >> np.uint64(32))
    return special
