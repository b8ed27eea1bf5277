"""Which times an event sees: the window of a definition as bounds in microseconds. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.errors import DataError
from transforms.joins.definition import DayClock, JoinDefinition

#: The time of a row or an event without one.
NO_TIME: Final = -(1 << 63)
_LATEST: Final = (1 << 63) - 1
#: Microseconds of a second.
SECOND_US: Final = 10**6
_DAY_US: Final = 86_400 * SECOND_US


def micros(times: pa.ChunkedArray | pa.Array) -> Array:
    """Times as microseconds since 1970, :data:`NO_TIME` for a null. Raises :class:`DataError` for another type."""
    whole = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    if not pa.types.is_timestamp(whole.type):
        raise DataError("the time of a join must be a column of timestamps", value=str(whole.type))
    exact = whole.cast(pa.timestamp("us", whole.type.tz), safe=False)
    return np.asarray(pc.fill_null(exact.cast(pa.int64()), NO_TIME))


def seen_at(definition: JoinDefinition, at: Array) -> Array:
    """The times as of which events see rows: their own, or those of the last midnight."""
    return at if definition.as_of is None else day_starts(definition.as_of, at)


def known_before(definition: JoinDefinition, at: Array) -> Array:
    """The time before which rows must be known to events that see rows as of these times."""
    equal = 1 if definition.includes_equal else 0
    return np.minimum(at, _LATEST - equal) + equal


def window_end(definition: JoinDefinition) -> int:
    """The microseconds from an event to the time before which rows must be: so that they can be read after ``available_after``, too."""
    return int(definition.includes_equal) - definition.available_after_micros


def seen_range(definition: JoinDefinition, first: int, last: int) -> tuple[int, int]:
    """The first and the last time, both included, of rows that events from ``first`` to ``last`` see at most; later bounds have later ranges."""
    begin, end = (moment_seen_at(definition.as_of, one) for one in (first, last))
    return window_start(definition, begin), end + window_end(definition) - 1


def window_start(definition: JoinDefinition, seen_at_micros: int) -> int:
    """The first time of the window of an event that sees rows as of a moment."""
    window, hop = definition.window_micros, definition.hop_micros
    low = NO_TIME if window is None else seen_at_micros - window
    return low // hop * hop if hop else low


def moment_seen_at(clock: DayClock | None, at: int) -> int:
    """As :func:`seen_at`, of one event."""
    return at if clock is None else int(day_starts(clock, np.array([at], np.int64))[0])


def day_starts(clock: DayClock, at: Array) -> Array:
    """The start of the latest day that the clock has shown by each time; ascending times have ascending starts.

    A day starts at its first midnight, or, if the clock skips midnight, when it does so.
    """
    changes = _changes(clock)
    starts, offsets = changes.starts, changes.offsets
    change = np.searchsorted(starts, at, side="right")
    day = (np.clip(at, NO_TIME + 2 * _DAY_US, _LATEST - 2 * _DAY_US) + offsets[change]) // _DAY_US
    since = starts[np.maximum(change - 1, 0)] if len(starts) else at
    own = np.where(change > 0, np.maximum(day * _DAY_US - offsets[change], since), day * _DAY_US - offsets[change])
    return np.where(day > changes.latest[change], own, changes.began[change])


class _Changes(NamedTuple):
    """The changes of a clock in microseconds; by change, the latest day that was shown before it, and its start."""

    starts: Array
    offsets: Array
    latest: Array
    began: Array


@lru_cache(maxsize=64)
def _changes(clock: DayClock) -> _Changes:
    starts = np.array(clock.starts, np.int64) * SECOND_US
    offsets = np.array(clock.offsets_secs, np.int64) * SECOND_US
    latest = np.full(len(offsets), NO_TIME // _DAY_US - 1)
    began = np.full(len(offsets), NO_TIME)
    for k, start in enumerate(starts):
        day = (start - 1 + offsets[k]) // _DAY_US
        is_later = day > latest[k]
        latest[k + 1] = max(day, latest[k])
        began[k + 1] = max(day * _DAY_US - offsets[k], starts[k - 1] if k else NO_TIME) if is_later else began[k]
    return _Changes(starts, offsets, latest, began)
