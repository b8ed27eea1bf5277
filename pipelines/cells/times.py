"""Parse columns of times to UTC microseconds: counts since 1970, ISO 8601, patterns, local times with their zone.

An ambiguous local time is the first of the two; a skipped one is moved forward by the gap, so 02:30 becomes 03:30.
Digits below a microsecond are dropped, towards the past. All three are counted.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.cells.numbers import holds_x
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.time_formats import FIRST_US, ISO_8601, LAST_US, read_times, time_pattern
from transforms.arrays import Bools, Ints
from transforms.operators.zones import clock_changes

MICROSECONDS = pa.timestamp("us", tz="UTC")
#: How many nanoseconds a unit has.
_UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_FRACTION = "^(?P<sign>-?)(?P<whole>[0-9]{1,19})(?:\\.(?P<part>[0-9]*))?$"

FINER = "times rounded down to microseconds"
SKIPPED = "local times that the clock skipped, moved forward"
TWICE = "local times that the clock showed twice, taken as the first"


def time_cells(text: pa.Array, column: LogColumn, notes: Counter[str]) -> tuple[pa.Array, Bools]:
    """Texts as UTC microseconds, and which could not be parsed (their cells become null)."""
    if column.formats:
        return _pattern_cells(text, column, notes)
    if column.unit == "iso8601":
        return _iso8601_cells(text, column, notes)
    try:
        return epoch_times(_whole_counts(text), str(column.unit), notes), np.zeros(len(text), np.bool_)
    except pa.ArrowInvalid:
        return _fraction_cells(text, str(column.unit), notes)


def _whole_counts(text: pa.Array) -> pa.Array:
    if holds_x(text):
        raise pa.ArrowInvalid("a hexadecimal count")
    return text.cast(pa.int64())


def epoch_times(counts: pa.Array, unit: str, notes: Counter[str] | None = None) -> pa.Array:
    """int64 counts since 1970 as UTC microseconds. Raises ``pa.ArrowInvalid`` outside the years 1 to 9999."""
    per_unit = _UNIT_NS[unit] // 1_000
    if not per_unit:
        return _from_nanoseconds(counts, Counter() if notes is None else notes)
    low, high = -(-FIRST_US // per_unit), LAST_US // per_unit
    inside = pc.all(pc.and_(pc.greater_equal(counts, low), pc.less_equal(counts, high)), min_count=0)
    if not inside.as_py():
        raise pa.ArrowInvalid("a time outside the years 1 to 9999")
    return pc.multiply(counts, per_unit).cast(MICROSECONDS)


def _from_nanoseconds(counts: pa.Array, notes: Counter[str]) -> pa.Array:
    nanoseconds = np.asarray(pc.fill_null(counts, 0))
    _note(notes, FINER, nanoseconds % 1_000 != 0)
    return _times(nanoseconds // 1_000, np.asarray(counts.is_valid()))


def _fraction_cells(text: pa.Array, unit: str, notes: Counter[str]) -> tuple[pa.Array, Bools]:
    """Counts with or without a fraction, computed in integers: no float rounds them."""
    found = pc.extract_regex(text, _FRACTION)
    matched = np.asarray(found.is_valid())
    at = np.flatnonzero(matched)
    sign, whole, part = found.filter(found.is_valid()).flatten()
    whole_ns = np.array([int(digits) * _UNIT_NS[unit] for digits in whole.to_pylist()], object)
    digits = len(str(_UNIT_NS[unit])) - 1
    part = pc.fill_null(part, "")
    lost = np.asarray(pc.match_substring_regex(pc.utf8_slice_codeunits(part, digits, 1 << 20), "[1-9]"))
    kept = pc.utf8_rpad(pc.utf8_slice_codeunits(part, 0, digits), digits, "0") if digits else None
    total = whole_ns + (np.asarray(kept.cast(pa.int64())).astype(object) if kept is not None else 0)
    negative = np.asarray(pc.equal(sign, "-"))
    total = np.where(negative, -total - lost.astype(object), total)
    microseconds = total // 1_000
    inside = (microseconds >= FIRST_US) & (microseconds <= LAST_US)
    inside = inside.astype(np.bool_)
    _note(notes, FINER, inside & (lost | (total % 1_000 != 0).astype(np.bool_)))
    read = np.zeros(len(text), np.bool_)
    read[at[inside]] = True
    values = np.zeros(len(text), np.int64)
    values[at[inside]] = microseconds[inside].astype(np.int64)
    return _times(values, read), _unread(text, read)


def _iso8601_cells(text: pa.Array, column: LogColumn, notes: Counter[str]) -> tuple[pa.Array, Bools]:
    # Arrow casts cells that all carry an offset, or that all lack one; the patterns read these and every other form.
    try:
        times = text.cast(MICROSECONDS)
        epoch_times(times.cast(pa.int64()), "us")  # an offset reaches the year 0 and the year 10000
        return times, np.zeros(len(text), np.bool_)
    except pa.ArrowInvalid:
        pass
    try:
        times = text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return _read_cells(text, column, notes, ISO_8601)
    valid = np.asarray(times.is_valid())
    local = np.asarray(pc.fill_null(times.cast(pa.int64()), 0))
    read = _within_years(local) & valid
    if column.zone:
        local = _from_local(local, read, column.zone, notes)
        read &= _within_years(local)
    return _times(local, read), _unread(text, read)


def _pattern_cells(text: pa.Array, column: LogColumn, notes: Counter[str]) -> tuple[pa.Array, Bools]:
    patterns = tuple(time_pattern(one) for one in column.formats)
    return _read_cells(text, column, notes, patterns)


def _read_cells(text: pa.Array, column: LogColumn, notes: Counter[str], patterns: Any) -> tuple[pa.Array, Bools]:
    times = read_times(text, patterns)
    microseconds, read = times.microseconds, times.read
    if column.zone:
        microseconds = _from_local(microseconds, times.local & read, column.zone, notes)
        read = read & _within_years(microseconds)
    _note(notes, FINER, times.finer & read)
    return _times(microseconds, read), _unread(text, read)


def from_local(microseconds: Ints, zone: str) -> Ints:
    """Wall clock times of an IANA ``zone`` as UTC, both in microseconds since 1970."""
    every = np.ones(len(microseconds), np.bool_)
    return _from_local(microseconds, every, zone, Counter())


@lru_cache(maxsize=32)
def _clock(zone: str) -> tuple[Ints, Ints, Ints]:
    """The local seconds before and after each change of the clock, and the offsets around the changes."""
    starts, offsets = (np.array(each, np.int64) for each in clock_changes(zone))
    return starts + offsets[:-1], starts + offsets[1:], offsets


def _from_local(microseconds: Ints, local: Bools, zone: str, notes: Counter[str]) -> Ints:
    before, after, offsets = _clock(zone)
    seconds = microseconds // 1_000_000
    # The earlier offset applies until both clocks are past the change: in the skipped hour, and in the first of the
    # repeated hours.
    passed = np.searchsorted(np.maximum(before, after), seconds, side="right")
    if len(before):
        near = np.minimum(passed, len(before) - 1)
        inside = local & (passed < len(before)) & (seconds >= np.minimum(before, after)[near])
        forward = after[near] > before[near]
        _note(notes, SKIPPED, inside & forward)
        _note(notes, TWICE, inside & ~forward)
    return np.where(local, microseconds - offsets[passed] * 1_000_000, microseconds)


def _times(microseconds: Ints, valid: Bools) -> pa.Array:
    return pa.array(microseconds, pa.int64(), mask=~valid).cast(MICROSECONDS)


def _within_years(microseconds: Ints) -> Bools:
    inside: Bools = (microseconds >= FIRST_US) & (microseconds <= LAST_US)
    return inside


def _unread(text: pa.Array, read: Bools) -> Bools:
    unread: Bools = np.asarray(text.is_valid()) & ~read
    return unread


def _note(notes: Counter[str], what: str, rows: Bools) -> None:
    count = int(np.count_nonzero(rows))
    if count:
        notes[what] += count
