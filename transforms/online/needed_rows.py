"""The rows that events from a moment on may still see. Pure.

A row is left out where that changes no answer: it is older than each window, or enough later rows of its key, which all of these events see, come before
it in ``latest`` and ``last``; of ``first`` without a window, an earlier one does. Rows of equal times never take each other's place.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.joins.column_names import Aggregate
from transforms.joins.definition import JoinDefinition
from transforms.joins.keys import number_keys
from transforms.joins.parts import Parts
from transforms.joins.visibility import known_before, seen_at, seen_range
from transforms.online.joined_table import JoinedTable, used_rows
from transforms.online.row_block import RowBlock


def needed_rows(table: JoinedTable, block: RowBlock, since_micros: int, columns: list[str] | None = None) -> RowBlock:
    """The rows that joined columns (``columns``; None: all of the table) need for events from ``since_micros`` on."""
    kept = np.zeros(len(block.time), bool)
    for name in table.definitions if columns is None else columns:
        kept |= _needed(table.definitions[name], table.parts[name], block, since_micros)
    return block if kept.all() else block.take(np.flatnonzero(kept))


def _needed(definition: JoinDefinition, parts: Parts, block: RowBlock, since_micros: int) -> Array:
    first, last = seen_range(definition, since_micros, since_micros)
    used = used_rows(definition, parts, block)
    used &= block.time >= first
    most = _rows_taken(definition)
    if most is None or not used.any():
        return used
    seen = used & (block.time <= last)
    if definition.known_at:
        at = seen_at(definition, np.array([since_micros], np.int64))
        seen &= block.known[definition.known_at] < known_before(definition, at)[0]
    chosen = np.flatnonzero(used)
    keys = number_keys([block.columns[one.identity].take(chosen) for one in parts.other], [block.columns[one.identity].slice(0, 0) for one in parts.other]).rows  # fmt: skip
    time = block.time[chosen]
    if definition.aggregate is Aggregate.FIRST:
        time = -time  # an earlier row takes the place of a later one
    order = np.lexsort((time, keys))
    used[chosen[order]] = _later(keys[order], time[order], seen[chosen[order]]) < most
    return used


def _rows_taken(definition: JoinDefinition) -> int | None:
    """How many rows an answer is made of; None: of all, or of those that come first until they leave a window."""
    match definition.aggregate:
        case Aggregate.LATEST:
            return 1
        case Aggregate.LAST | Aggregate.AGES:
            return definition.rows
        case Aggregate.FIRST if definition.window_micros is None:
            return 1
    return None


def _later(keys: Array, time: Array, seen: Array) -> Array:
    """Of each row, in order of keys and times, how many seen rows of its key have a later time."""
    ends = np.flatnonzero(np.append((keys[1:] != keys[:-1]) | (time[1:] != time[:-1]), True))
    last_of_time = ends[np.searchsorted(ends, np.arange(len(keys)))]
    key_ends = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))
    last_of_key = key_ends[np.searchsorted(key_ends, np.arange(len(keys)))]
    counted: Array = np.cumsum(seen)
    later: Array = counted[last_of_key] - counted[last_of_time]
    return later
