"""Visible rows against a plain reference: any keys, equal times, rows that become known late, and windows of any length."""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.joins.ranks import LEAST as NAN_RANK
from transforms.joins.ranks import number_ranks, values_of
from transforms.kernels.histories import Trie, trie_of
from transforms.kernels.history_order import equal_rows, order_by_key, rows_before
from transforms.kernels.history_rows import known_rows
from transforms.kernels.history_states import COUNT, LEAST, MOST, SUM, Values, new_climbs, node_states, write_states

I64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 6) | st.integers(2, 8) | st.integers(0, 12) | I64
#: With one NaN, as columns have it: another one may have a sign, and the rank of a number below all others.
VALUES = st.floats(width=64, allow_nan=False) | st.just(math.nan) | st.sampled_from([0.0, -0.0, 1e16, 1.0, 0.1])


class Row(NamedTuple):
    key: int
    time: int
    late: int
    value: float | None


ROWS = st.lists(
    st.builds(Row, st.integers(0, 2), TIMES, st.integers(0, 4), VALUES | st.none()),
    min_size=3,
    max_size=25,
)
EVENTS = st.lists(st.tuples(st.integers(-1, 2), TIMES, st.integers(0, 20) | st.integers(0, 2**63 - 1)), min_size=4, max_size=12)  # fmt: skip


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


class Made(NamedTuple):
    """A history, and the events that see it: their key's root, window, and the time before which rows must be known."""

    trie: Trie
    values: Values
    first: Any
    end: Any
    root: Any
    before: Any
    event_order: Any


def _made(rows: list[Row], events: list[tuple[int, int, int]]) -> Made:
    starts = np.searchsorted([row.key for row in rows], np.arange(4)).astype(np.int64)
    time = np.array([row.time for row in rows], np.int64)
    trie = trie_of(starts, time, np.array([_known(row) for row in rows], np.int64))
    numbers = pa.array([row.value for row in rows], pa.float64())
    filled, high = np.asarray(numbers.fill_null(0.0)), number_ranks(numbers)
    values = Values(filled, np.where(np.isnan(filled), NAN_RANK, high), high, np.asarray(numbers.is_valid(), bool))
    keys, at = np.array([key for key, _, _ in events], np.int64), np.array([at for _, at, _ in events], np.int64)
    order, event_starts, _ = order_by_key(keys, at, 3)
    low = np.array([max(at - window, -(2**63)) for _, at, window in events], np.int64)[order]
    # Windows of one length are ascending; these are not, so each event is an own key of the same rows.
    first, end = (np.array([rows_before(starts[key : key + 2], time, np.array([0, 1]), np.array([bound]), 0, 0)[0] for key, bound in zip(keys[order], bounds, strict=True)], np.int64) for bounds in (low, at[order]))  # fmt: skip
    assert event_starts[-1] == len(order)
    return Made(trie, values, first, np.maximum(first, end), trie.roots[keys[order]], at[order], order)


def _states(made: Made, climbs: Any = None) -> Any:
    out = np.zeros((len(made.first), 4), np.int64)
    write_states(made.trie, made.values, node_states(made.trie, made.values), new_climbs(len(out)) if climbs is None else climbs, made.first, made.end, made.root, made.before, 0, len(out), np.arange(len(out)), out)  # fmt: skip
    return out


def _shown(out: Any) -> list[list[Any]]:
    """Count, sum, least and greatest of each event, as bits."""
    empty = out[:, COUNT] == 0
    least, most = (values_of(out[:, column], empty, pa.float64()).to_numpy(zero_copy_only=False) for column in (LEAST, MOST))  # fmt: skip
    return [out[:, COUNT].tolist(), _bits(out.view(np.float64)[:, SUM]), _bits(least), _bits(most)]


def _bits(values: Any) -> list[bytes]:
    return [b"nan" if math.isnan(one) else np.float64(one).tobytes() for one in values]


@given(ROWS, EVENTS)
def test_states_are_those_of_the_visible_rows_to_the_last_bit(
    rows: list[Row], events: list[tuple[int, int, int]]
) -> None:
    rows.sort(key=lambda row: row[:2])
    made = _made(rows, events)
    seen = [[(rows[k].time, _number(rows[k])) for k in _visible(rows, events[event])] for event in made.event_order]
    with np.errstate(all="ignore"):
        sums = _bits([_folded(one, lambda a, b: a + b) if one else 0.0 for one in seen])
    extremes = [_bits([_folded(one, of) if one else math.nan for one in seen]) for of in (_least, _most)]
    assert _shown(_states(made)) == [[len(one) for one in seen], sums, *extremes]


@given(ROWS, EVENTS, st.integers(1, 4), st.booleans())
def test_first_and_last_rows_are_visible_ones(
    rows: list[Row], events: list[tuple[int, int, int]], most: int, from_end: bool
) -> None:
    rows.sort(key=lambda row: row[:2])
    made = _made(rows, events)
    offsets, taken = known_rows(made.trie, made.values.valid, made.first, made.end, made.root, made.before, most, from_end=from_end)  # fmt: skip
    found = [taken[begin:end].tolist() for begin, end in pairwise(offsets)]
    seen = [_visible(rows, events[event]) for event in made.event_order]
    assert [sorted(one) for one in found] == [one[-most:] if from_end else one[:most] for one in seen]
    assert not from_end or found == [sorted(one) for one in found]


@given(ROWS, EVENTS)
def test_rows_that_are_not_visible_change_no_bit(rows: list[Row], events: list[tuple[int, int, int]]) -> None:
    """A leak would show: whatever an event does not see may be gone, or have another value."""
    rows.sort(key=lambda row: row[:2])
    for event in events:
        kept = [rows[k] for k in _visible(rows, event)]
        assert _shown(_states(_made(rows, [event]))) == _shown(_states(_made(kept, [event])))


@given(st.lists(st.tuples(st.integers(-1, 3), TIMES), max_size=40))
def test_rows_are_in_the_order_of_key_time_and_place(rows: list[tuple[int, int]]) -> None:
    keys, time = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
    order, starts, ordered = order_by_key(keys, time, 4)
    assert ordered.tolist() == time[order].tolist()
    expected = sorted((k for k, row in enumerate(rows) if row[0] >= 0), key=lambda k: rows[k])
    assert order.tolist() == expected
    assert starts.tolist() == np.searchsorted(keys[order], np.arange(5)).tolist()
    tied, groups = equal_rows(starts, time[order])
    of_group = [
        [k for k in range(len(order)) if rows[order[k]] == each] for each in dict.fromkeys(rows[k] for k in order)
    ]
    assert tied.tolist() == [k for each in of_group if len(each) > 1 for k in each]
    assert groups.tolist() == [k for k, each in enumerate(one for one in of_group if len(one) > 1) for _ in each]


@given(st.lists(TIMES, max_size=20), st.lists(TIMES, min_size=1, max_size=20), st.integers(-(2**60), 2**60) | st.integers(-5, 5), st.integers(0, 7))  # fmt: skip
def test_bounds_are_shifted_and_moved_back(times: list[int], at: list[int], shift: int, hop: int) -> None:
    times, at = sorted(times), sorted(at)
    found = rows_before(np.array([0, len(times)]), np.array(times, np.int64), np.array([0, len(at)]), np.array(at, np.int64), shift, hop)  # fmt: skip
    least = -(2**63)
    bounds = [min(max(one + shift, least), 2**63 - 1) for one in at]
    if hop:
        bounds = [max(one, least + hop) // hop * hop for one in bounds]
    assert found.tolist() == [sum(time < bound for time in times) for bound in bounds]


@pytest.mark.parametrize("seed", range(20))
def test_climbs_of_other_windows_change_no_bit(seed: int) -> None:
    """Shorter and longer ones before, in any order."""
    rng = np.random.default_rng(seed)
    rows = sorted(Row(int(rng.integers(2)), int(rng.integers(40)), int(rng.integers(3)), float(rng.normal())) for _ in range(60))  # fmt: skip
    events = [(int(rng.integers(2)), int(rng.integers(60))) for _ in range(20)]
    climbs = new_climbs(len(events))
    for window in rng.integers(0, 45, 5).tolist():
        made = _made(rows, [(key, at, window) for key, at in events])
        assert _shown(_states(made, climbs)) == _shown(_states(made))
