"""How many events a joined column has other values for, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array


def changed_events(before: pa.Array, after: pa.Array) -> int:
    """The number of events with other values; a null is a value, and so is NaN."""
    if pa.types.is_list(after.type) or pa.types.is_large_list(after.type):
        return int(np.count_nonzero(_changed_lists(before, after)))
    return int(np.count_nonzero(_changed(before, after)))


def _changed(before: pa.Array, after: pa.Array) -> Array:
    if pa.types.is_floating(after.type):
        kind = np.int64 if after.type.bit_width == 64 else np.int32
        numbers = [np.asarray(one.fill_null(0.0)).view(kind) for one in (before, after)]
        differ: Array = numbers[0] != numbers[1]
    else:
        differ = np.asarray(pc.fill_null(pc.not_equal(before, after), False))
    nulls: Array = np.asarray(before.is_null()) != np.asarray(after.is_null())
    return differ | nulls


def _changed_lists(before: pa.Array, after: pa.Array) -> Array:
    lengths = [np.asarray(pc.fill_null(pc.list_value_length(one), -1)) for one in (before, after)]
    differ: Array = lengths[0] != lengths[1]
    same = pa.array(~differ)
    items = _changed(*(pc.list_flatten(one.filter(same)) for one in (before, after)))
    places = np.repeat(np.flatnonzero(~differ), np.maximum(lengths[1][~differ], 0))
    differ[places[items]] = True
    return differ


def cause_text(
    table: str, before: Mapping[bytes, int] | None, after: Mapping[bytes, int], changed: int | None, events: int
) -> str:
    """Why a joined column was computed, as a sentence.

    Args:
        table: the other table.
        before: the rows of each content that was seen; None: the column had no values, or it is not known any more.
        after: the rows of each content that is seen now.
        changed: the events with other values.
        events: all events.
    """
    if before is None:
        return "the first values" if changed is None else f"changed {changed:,} of {events:,} events here"
    came = sum(rows for content, rows in after.items() if content not in before)
    left = sum(rows for content, rows in before.items() if content not in after)
    parts = [f"{came:,} new rows"] if came and not left else [f"{left:,} rows fewer"] if left and not came else []
    if came and left:
        parts = [f"{came:,} rows in place of {left:,}"]
    what = f"{parts[0]} of {table}" if parts else "events with another key or time"
    return f"{what} changed {changed or 0:,} of {events:,} events here"
