"""Negatives for logs of clicks only: items that the user could have clicked and did not.

For a click in hour h a negative is another item, drawn with a probability proportional to its clicks in the window of
whole hours before h, and never one that this user has already clicked. Popular items are thus equally frequent among
positives and negatives (the usual correction of popularity bias).

Every draw is a function of (seed, position of the click, number of the draw, attempt): a counter-based generator.
Equal seeds give equal rows, and later clicks cannot change earlier draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.formats.clicks import Clicks
from transforms.arrays import Ints

_ATTEMPTS = 64
_HOW_MANY, _WHICH = 0, 1

Words = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Negatives:
    """Drawn negatives.

    Attributes:
        event: the click of each negative, ascending.
        item: the drawn items.
        not_drawn: draws without an item: no click in the window, or all items already clicked.
    """

    event: Ints
    item: Ints
    not_drawn: int


def draw_negatives(clicks: Clicks, per_positive: float, window_hours: int, seed: int) -> Negatives:
    """Draw ``per_positive`` negatives per click on average, rounded up or down for each click."""
    event, draw = _wanted(len(clicks), per_positive, seed)
    item = np.full(len(event), -1, np.int64)
    bounds = np.searchsorted(clicks.hour[event], _hours(clicks))
    for (candidates, cumulated), start, end in zip(
        _windows(clicks, window_hours), bounds, [*bounds[1:], len(event)], strict=True
    ):
        if len(candidates):
            item[start:end] = _draw_hour(clicks, event[start:end], draw[start:end], candidates, cumulated, seed)
    drawn = item >= 0
    return Negatives(event[drawn], item[drawn], int(np.count_nonzero(~drawn)))


def _wanted(clicks: int, per_positive: float, seed: int) -> tuple[Ints, Ints]:
    """The click and the number of every draw to make."""
    position = np.arange(clicks, dtype=np.int64)
    whole = int(per_positive)
    counts = whole + (uniform(seed, _HOW_MANY, position, np.zeros_like(position)) < per_positive - whole)
    event = np.repeat(position, counts)
    return event, np.arange(len(event)) - np.repeat(np.cumsum(counts) - counts, counts)


def _hours(clicks: Clicks) -> Ints:
    return np.unique(clicks.hour)


def _windows(clicks: Clicks, window_hours: int) -> Iterator[tuple[Ints, Ints]]:
    """For each hour with clicks, the items clicked in the window before it and their cumulated click counts."""
    hours = _hours(clicks)
    ends = np.searchsorted(clicks.hour, hours)
    starts = np.searchsorted(clicks.hour, hours - window_hours)
    counts, done_start, done_end = np.zeros(clicks.items, np.int64), 0, 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        counts += np.bincount(clicks.item[done_end:end], minlength=clicks.items)
        counts -= np.bincount(clicks.item[done_start:start], minlength=clicks.items)
        done_start, done_end = start, end
        candidates = np.flatnonzero(counts)
        yield candidates, np.cumsum(counts[candidates])


def _draw_hour(clicks: Clicks, event: Ints, draw: Ints, candidates: Ints, cumulated: Ints, seed: int) -> Ints:
    """One item for each draw, or -1 if every attempt drew an item that the user had clicked."""
    item = np.full(len(event), -1, np.int64)
    open_draws = np.arange(len(event))
    for attempt in range(_ATTEMPTS):
        events, counter = event[open_draws], draw[open_draws] * _ATTEMPTS + attempt
        ticket = np.floor(uniform(seed, _WHICH, events, counter) * cumulated[-1]).astype(np.int64)
        found = candidates[np.searchsorted(cumulated, ticket, side="right")]
        fits = ~clicks.clicked_before(events, found)
        item[open_draws[fits]] = found[fits]
        open_draws = open_draws[~fits]
        if not len(open_draws):
            break
    return item


def uniform(seed: int, purpose: int, position: Ints, counter: Ints) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers in [0, 1), a function of the four arguments alone: SplitMix64 (Steele, Lea and Flood, 2014) over them."""
    word = _mix(np.full(len(position), np.uint64(seed * 2 + purpose), np.uint64))
    word = _mix(word ^ position.astype(np.uint64))
    word = _mix(word ^ counter.astype(np.uint64))
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(word: Words) -> Words:
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
