"""Sizes, times and durations in options."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from transforms.errors import InputError

_UNITS = {"": 1, "b": 1}
_UNITS.update({f"{letter}{suffix}": 1000**power for power, letter in enumerate("kmgtp", 1) for suffix in ("", "b")})
_UNITS.update({f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)})
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)", re.ASCII)
_SPAN_SECS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|)", re.ASCII)
_AGE_SECS = {"": 86_400, "d": 86_400, "h": 3_600}
_MOST_SECS = 365_250 * 86_400


def bytes_of(option: str, text: str) -> int | None:
    """``500GB`` as 500,000,000,000 bytes, ``1.5 GiB`` as 1,610,612,736; None for no text. Raises :class:`InputError`."""
    if not text:
        return None
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None or found.group(2) not in _UNITS:
        raise InputError("a size must be a number of bytes or have a unit", where=option, value=text,
                         allowed="such as 4096, 500GB, 1.5GiB, 20MB")  # fmt: skip
    size = float(found.group(1)) * _UNITS[found.group(2)]
    if not size < 2**63:
        raise InputError("a size must be less than 8 EiB", where=option, value=text)
    return round(size)


def moment_of(option: str, text: str) -> datetime | None:
    """An ISO 8601 time, in UTC unless it has an offset; None for no text. Raises :class:`InputError`."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment.astimezone(UTC)  # year 0 or 10,000 in UTC: OverflowError
    except (ValueError, OverflowError):
        raise InputError(
            "a time must be ISO 8601", where=option, value=text, allowed="such as 2026-03-02T18:00"
        ) from None
    return moment


def span_of(option: str, text: str) -> float:
    """``90s``, ``30m``, ``2h`` and ``1.5d`` as seconds. Raises :class:`InputError`."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise InputError(
            "a duration must be a number with a unit", where=option, value=text, allowed="such as 90s, 30m, 2h, 1.5d"
        )
    secs = float(found.group(1)) * _SPAN_SECS[found.group(2)]
    if secs > _MOST_SECS:
        raise InputError("a duration must be at most 1,000 years", where=option, value=text)
    return secs


def check_grace(option: str, secs: float) -> float:
    """A grace period in seconds. Raises :class:`InputError` for a negative number, NaN or infinity."""
    if not 0 <= secs < math.inf:
        raise InputError("a grace period must be a number of seconds", where=option, value=secs)
    return secs


def age_of(option: str, text: str, now: float) -> float | None:
    """The epoch seconds of a time, or of an age before ``now``: ``30`` or ``30d`` days, ``12h`` hours."""
    if not text:
        return None
    found = _AGE.fullmatch(text.strip().lower())
    if found is not None:
        age_secs = float(found.group(1)) * _AGE_SECS[found.group(2)]
        if age_secs > _MOST_SECS:
            raise InputError("an age must be at most 1,000 years", where=option, value=text)
        return now - age_secs
    try:
        moment = moment_of(option, text)
    except InputError:
        raise InputError("an age must be a number of days or hours, or a time", where=option, value=text,
                         allowed="30 or 30d (days), 12h (hours), or ISO 8601, such as 2026-03-02") from None  # fmt: skip
    assert moment is not None
    return moment.timestamp()
