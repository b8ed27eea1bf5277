"""Visible rows against a plain reference: any keys, equal times, rows that become known late, and windows of any length."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transforms.kernels.histories import first_rows, folds, history, last_rows, latest_rows, window_states

I64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 12) | I64
VALUES = st.floats(width=64, allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 1e16, 1.0, 0.1])


class Row(NamedTuple):
    key: int
    time: int
    late: int
    value: float | None


ROWS = st.lists(st.builds(Row, st.integers(0, 2), TIMES, st.integers(0, 6), st.none() | VALUES), max_size=25)
EVENTS = st.lists(st.tuples(st.integers(-1, 2), TIMES, st.integers(0, 20) | st.integers(0, 2**63 - 1)), min_size=1, max_size=12)  # fmt: skip


def _known(row: Row) -> int:
    return min(row.time + row.late, 2**63 - 1)


def _number(row: Row) -> float:
    assert row.value is not None
    return row.value


def _visible(rows: list[Row], event: tuple[int, int, int]) -> list[int]:
    """The rows by place that an event sees, by time and place."""
    key, at, window = event
    return [k for k, row in enumerate(rows) if row.key == key and at - window <= row.time < at and _known(row) < at and row.value is not None]  # fmt: skip


def _folded(rows: list[tuple[int, float]], combine: Any) -> float:
    """Along the trie over the bits of times: the halves of a set by the highest bit that differs; rows of one time in order."""
    times = [time for time, _ in rows]
    low, high = min(times), max(times)
    if low == high:
        return float(reduce(combine, (value for _, value in rows)))
    bit = 1 << (((low + 2**63) ^ (high + 2**63)).bit_length() - 1)
    near = [one for one in rows if not (one[0] + 2**63) & bit]
    far = [one for one in rows if (one[0] + 2**63) & bit]
    return float(combine(_folded(near, combine), _folded(far, combine)))


def _least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return (a if math.copysign(1, a) < 0 else b) if a == b else min(a, b)


def _most(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return (b if math.copysign(1, a) < 0 else a) if a == b else max(a, b)


def _made(rows: list[Row]) -> tuple[Any, Any, Any]:
    starts = np.searchsorted([row.key for row in rows], np.arange(4)).astype(np.int64)
    made = history(starts, np.array([row.time for row in rows], np.int64), np.array([_known(row) for row in rows], np.int64))  # fmt: skip
    valid = np.array([row.value is not None for row in rows], bool)
    return (
        made,
        folds(made, np.array([0.0 if row.value is None else row.value for row in rows], np.float64), valid),
        valid,
    )


def _bounds(events: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    key = np.array([key for key, _, _ in events], np.int64)
    low = np.array([max(at - window, -(2**63)) for _, at, window in events], np.int64)
    return key, low, np.array([at for _, at, _ in events], np.int64)


def _bits(values: Any) -> list[bytes]:
    return [b"nan" if math.isnan(one) else np.float64(one).tobytes() for one in values]


@given(ROWS, EVENTS)
def test_states_are_those_of_the_visible_rows_to_the_last_bit(
    rows: list[Row], events: list[tuple[int, int, int]]
) -> None:
    rows.sort(key=lambda row: row[:2])
    made, states, _ = _made(rows)
    count, total, least, most = window_states(made, states, *_bounds(events))
    seen = [[(rows[k].time, _number(rows[k])) for k in _visible(rows, event)] for event in events]
    assert count.tolist() == [len(one) for one in seen]
    with np.errstate(all="ignore"):
        assert _bits(total) == _bits([_folded(one, lambda a, b: a + b) if one else 0.0 for one in seen])
    assert _bits(least) == _bits([_folded(one, _least) if one else math.nan for one in seen])
    assert _bits(most) == _bits([_folded(one, _most) if one else math.nan for one in seen])


@given(ROWS, EVENTS, st.integers(1, 4))
def test_first_latest_and_last_rows_are_visible_ones(
    rows: list[Row], events: list[tuple[int, int, int]], most: int
) -> None:
    rows.sort(key=lambda row: row[:2])
    made, _, valid = _made(rows)
    seen = [_visible(rows, event) for event in events]
    assert latest_rows(made, valid, *_bounds(events)).tolist() == [one[-1] if one else -1 for one in seen]
    assert first_rows(made, valid, *_bounds(events)).tolist() == [one[0] if one else -1 for one in seen]
    lengths, taken = last_rows(made, valid, *_bounds(events), most)
    ends = np.cumsum(lengths)
    found = [taken[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
    assert found == [one[::-1][:most] for one in seen]


@given(ROWS, EVENTS)
def test_rows_that_are_not_visible_change_no_bit(rows: list[Row], events: list[tuple[int, int, int]]) -> None:
    """A leak would show: whatever an event does not see may be gone, or have another value."""
    rows.sort(key=lambda row: row[:2])
    made, states, _ = _made(rows)
    for event in events:
        kept = [rows[k] for k in _visible(rows, event)]
        alone, alone_states, _ = _made(kept)
        ours, theirs = (window_states(h, f, *_bounds([event])) for h, f in ((made, states), (alone, alone_states)))
        assert ours[0].tolist() == theirs[0].tolist()
        assert [_bits(one) for one in ours[1:]] == [_bits(one) for one in theirs[1:]]
