"""Which times an event sees: the window of a definition as bounds in microseconds. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.errors import DataError
from transforms.joins.definition import JoinDefinition

#: The time of a row or an event without one.
NO_TIME: Final = -(1 << 63)
_LATEST: Final = (1 << 63) - 1


def micros(times: pa.ChunkedArray | pa.Array) -> Array:
    """Times as microseconds since 1970, :data:`NO_TIME` for a null. Raises :class:`DataError` for another type."""
    whole = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    if not pa.types.is_timestamp(whole.type):
        raise DataError("the time of a join must be a column of timestamps", value=str(whole.type))
    exact = whole.cast(pa.timestamp("us", whole.type.tz), safe=False)
    return np.asarray(pc.fill_null(exact.cast(pa.int64()), NO_TIME))


def known_before(definition: JoinDefinition, at: Array) -> Array:
    """The time before which rows must be known to events at these times."""
    equal = 1 if definition.includes_equal else 0
    return np.minimum(at, _LATEST - equal) + equal


def window_end(definition: JoinDefinition, at: Array) -> Array:
    """The time before which rows must be: so that they can be read after ``available_after``, too."""
    after = definition.available_after_micros
    return np.maximum(known_before(definition, at), NO_TIME + after) - after


def window_start(definition: JoinDefinition, at: Array) -> Array:
    """The first time of the window; the least of all without one."""
    window = definition.window_micros
    return np.full(len(at), NO_TIME) if window is None else np.maximum(at, NO_TIME + window) - window
