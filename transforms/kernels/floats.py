"""The bits of floats, for loops without branches that a compiler can vectorise.

A loop that calls frexp or branches on a value is not vectorised. The same steps on bits, which compute both branches and
select one, are several times faster.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

MANTISSA, HALF_FIELD = 2**52 - 1, 1022


@intrinsic
def bits_of(context: Any, x: Any) -> Any:
    """The 64 bits of a float64, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@intrinsic
def from_bits(context: Any, bits: Any) -> Any:
    """The float64 of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate
