"""A stream of clicks in time order, and features of each click's past.

A value at time t depends only on clicks before t (for the hourly window, before t's hour). A property test checks that
removing later clicks changes no earlier value.

Users and items are codes from 0, times are int64 microseconds. Nothing loops over rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from transforms.arrays import Bools, Ints
from transforms.errors import DataError

Floats = np.ndarray[Any, np.dtype[np.float32]]

HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Clicks:
    """Clicks as arrays ``user``, ``item``, ``time_us``, sorted by time; ``users`` and ``items`` are the numbers of codes."""

    user: Ints
    item: Ints
    time_us: Ints
    users: int = field(default=0)
    items: int = field(default=0)

    def __post_init__(self) -> None:
        if len(self.time_us) and np.any(np.diff(self.time_us) < 0):
            raise DataError("clicks must be in time order", next_step="sort them by time")
        object.__setattr__(self, "users", int(self.user.max(initial=-1)) + 1)
        object.__setattr__(self, "items", int(self.item.max(initial=-1)) + 1)

    def __len__(self) -> int:
        return len(self.user)

    @cached_property
    def hour(self) -> Ints:
        """The hour of each click, in whole hours since 1970."""
        return np.floor_divide(self.time_us, HOUR_US)

    @cached_property
    def first_time_us(self) -> Ints:
        """The time of each item's first click."""
        first = np.zeros(self.items, np.int64)
        items, positions = np.unique(self.item, return_index=True)
        first[items] = self.time_us[positions]
        return first

    @cached_property
    def _item_times(self) -> tuple[Ints, Ints]:
        return _sorted_pairs(self.item, self.time_us, self.items)

    @cached_property
    def _pair_firsts(self) -> tuple[Ints, Ints]:
        """The distinct (user, item) pairs as sorted keys, and the first click of each."""
        keys, firsts = np.unique(self.user * np.int64(self.items) + self.item, return_index=True)
        return keys, firsts.astype(np.int64)

    def clicked_before(self, event: Ints, item: Ints) -> Bools:
        """Whether the user of click ``event`` clicked ``item`` at that click or before it (by position)."""
        keys, firsts = self._pair_firsts
        wanted = self.user[event] * np.int64(self.items) + item
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return (keys[found] == wanted) & (firsts[found] <= event)

    def clicks_between(self, item: Ints, start_us: Ints, end_us: Ints) -> Ints:
        """The clicks of ``item`` in ``[start_us, end_us)``, for each entry of the three arrays."""
        keys, (origin, span) = self._item_times[0], self._item_times[1].tolist()
        low = np.clip(start_us - origin, 0, span - 1) + item * span
        high = np.clip(end_us - origin, 0, span - 1) + item * span
        return np.searchsorted(keys, high) - np.searchsorted(keys, low)

    def clicks_in_hours_before(self, event: Ints, item: Ints, hours: int) -> Ints:
        """The clicks of ``item`` in the ``hours`` whole hours before the hour of click ``event``."""
        end = self.hour[event] * HOUR_US
        return self.clicks_between(item, end - hours * HOUR_US, end)

    def clicks_in_secs_before(self, event: Ints, item: Ints, secs: int) -> Ints:
        """The clicks of ``item`` in the last ``secs`` seconds before the time of click ``event``."""
        end = self.time_us[event]
        return self.clicks_between(item, end - secs * 1_000_000, end)

    def item_age_hours(self, event: Ints, item: Ints) -> tuple[Floats, Bools]:
        """Hours since ``item``'s first click, and whether there was one before the time of click ``event``."""
        age = (self.time_us[event] - self.first_time_us[item]) / HOUR_US
        return np.where(age > 0, age, 0).astype(np.float32), age > 0


def _sorted_pairs(group: Ints, time_us: Ints, groups: int) -> tuple[Ints, Ints]:
    """Keys that sort by (group, time), and the (origin, span) that make them: key = time - origin + group * span."""
    if not len(time_us):
        return np.zeros(0, np.int64), np.array([0, 1], np.int64)
    origin, span = int(time_us[0]), int(time_us[-1] - time_us[0]) + 2
    if groups * span >= 1 << 63:
        raise DataError("items times hours of the stream must fit in 64 bits", value=(groups, span // HOUR_US),
                        next_step="prepare fewer files at a time")  # fmt: skip
    return np.sort(time_us - origin + group * np.int64(span)), np.array([origin, span], np.int64)


@dataclass(frozen=True, slots=True)
class Past:
    """For each click, the clicks of its group (a user, a session) strictly before its time.

    ``count``: the number of them. ``last``: the position in the stream of the latest one, or -1.
    """

    count: Ints
    last: Ints
    _order: Ints
    _end: Ints

    def latest(self, most: int) -> tuple[Ints, Ints]:
        """The positions of the latest clicks, newest first, at most ``most``: (offsets, positions), ragged by click."""
        lengths = np.minimum(self.count, most)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        steps = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return offsets, self._order[np.repeat(self._end, lengths) - 1 - steps]


def past_of(group: Ints, time_us: Ints) -> Past:
    """The :class:`Past` of every click; ``group`` is any int64, times are sorted. Clicks of equal time ignore each other."""
    order = np.argsort(group, kind="stable").astype(np.int64)
    groups, times = group[order], time_us[order]
    position = np.arange(len(order))
    new_group = np.diff(groups, prepend=groups[:1] - 1) != 0
    new_time = new_group | (np.diff(times, prepend=times[:1] - 1) != 0)
    group_start = np.maximum.accumulate(np.where(new_group, position, 0))
    end = np.maximum.accumulate(np.where(new_time, position, 0))
    count, last, ends = (np.empty(len(order), np.int64) for _ in range(3))
    count[order] = end - group_start
    last[order] = np.where(end > group_start, order[np.maximum(end - 1, 0)], -1) if len(order) else 0
    ends[order] = end
    return Past(count, last, order, ends)
