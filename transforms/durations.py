"""Durations: numbers with a unit, or timedeltas, as whole microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from transforms.errors import InputError

Duration = str | timedelta

#: The longest duration: a thousand years.
MOST_MICROS: Final = 1_000 * 366 * 86_400 * 10**6
_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)")
_UNIT_MICROS: Final = {"s": 10**6, "m": 60 * 10**6, "h": 3_600 * 10**6, "d": 86_400 * 10**6}


def micros_of(what: str, duration: object, *, where: str = "") -> int:
    """A duration such as ``"7d"``, ``"1.5h"`` or a timedelta in microseconds; a fraction of one is cut off.

    Raises :class:`InputError` for anything else, for a negative one, and for one of more than 1,000 years.
    """
    found = None
    if isinstance(duration, timedelta):
        found = duration // timedelta(microseconds=1)
    elif isinstance(duration, str) and (written := _WRITTEN.fullmatch(duration.strip().lower())) is not None:
        found = int(Fraction(written.group(1)) * _UNIT_MICROS[written.group(2)])
    if found is None or not 0 <= found <= MOST_MICROS:
        raise InputError(f"{what} must be a duration of at most 1,000 years", where=where, value=duration,
                         allowed='a number with a unit, such as "90s", "10m", "6h" or "7d", or a timedelta')  # fmt: skip
    return found


def duration_text(micros: int) -> str:
    """A duration in the largest unit of which it is a whole number, as :func:`micros_of` reads it; below a second with a fraction."""
    unit = next((unit for unit in ("d", "h", "m", "s") if micros and micros % _UNIT_MICROS[unit] == 0), "s")
    whole, rest = divmod(micros, _UNIT_MICROS[unit])
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + unit if rest else f"{whole}{unit}"
