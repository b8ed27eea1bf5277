"""Round numbers along an axis. Pure."""

from __future__ import annotations

import math


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round numbers from ``low`` to ``high``, equally far apart: 1, 2 or 5 times a power of ten."""
    if not high > low or most < 2:
        return [low]
    least = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(least))
    apart = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first = math.ceil(low / apart - 1e-9)
    last = math.floor(high / apart + 1e-9)
    return [number * apart for number in range(first, last + 1)]


def tick_text(value: float, apart: float) -> str:
    """A number with the decimals that tell it from the next one, ``apart`` away; thousands as ``12k``, millions as ``3M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{_plain(value / size, apart / size)}{unit}"
    return _plain(value, apart)


def _plain(value: float, apart: float) -> str:
    decimals = max(0, -math.floor(math.log10(apart) + 1e-9)) if apart > 0 else 3
    return f"{value:.{min(decimals, 9)}f}"
