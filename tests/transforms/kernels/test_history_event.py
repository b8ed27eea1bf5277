"""What one event sees, against a plain reference: equal times, rows without a value, filtered ones, ones that become known late, and several windows."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import reduce
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.kept_kernels import with_bounds_checks
from transforms.joins.ranks import LEAST as NAN_RANK
from transforms.kernels.history_event import (
    FLOATS,
    NO_VALUES,
    TRUTHS,
    WHOLE,
    first_from,
    new_path,
    seen_rows,
    write_event_states,
    write_tile_states,
)
from transforms.kernels.history_states import COUNT, MOST, SUM, decay
from transforms.kernels.history_states import LEAST as LEAST_RANK
from transforms.kernels.history_tiles import tiles_of
from transforms.kernels.spans import frozen

#: Few times, so that many rows share one; and any.
TIMES = st.integers(0, 3) | st.integers(0, 20) | st.integers(-(2**62), 2**62)
FLOAT = st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, -0.0, 0.0]) | st.floats(width=64)
KINDS = st.sampled_from([NO_VALUES, WHOLE, FLOATS, TRUTHS])


class Row(NamedTuple):
    time: int
    value: Any
    is_valid: bool
    is_used: bool
    known: int


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Row]]:
    """The kind of values, and rows in order of time."""
    kind = draw(KINDS)
    value = {NO_VALUES: st.none(), WHOLE: st.integers(-(2**63), 2**63 - 1), FLOATS: FLOAT, TRUTHS: st.booleans()}[kind]
    often = st.integers(0, 4).map(bool)
    rows = draw(st.lists(st.builds(Row, TIMES, value, often, often, st.integers(0, 5)), max_size=30))
    return kind, sorted(rows, key=lambda row: row.time)


def _rank(value: Any) -> int:
    """As numbers in the order of values."""
    if isinstance(value, float):
        bits = int(np.float64(value).view(np.int64))
        return bits ^ (2**63 - 1) if bits < 0 else bits
    return int(value or 0)


def _folded(rows: list[tuple[int, float]], combine: Any) -> tuple[int, float]:
    """Time and number along the trie over the bits of times; rows of one time in order."""
    low, high = rows[0][0], rows[-1][0]
    if low == high:
        return reduce(combine, rows)
    bit = 1 << (((low + 2**63) ^ (high + 2**63)).bit_length() - 1)
    parts = [[one for one in rows if bool((one[0] + 2**63) & bit) == is_far] for is_far in (False, True)]
    return combine(*(_folded(part, combine) for part in parts))  # type: ignore[no-any-return]


def _bits(number: float) -> Any:
    return "nan" if math.isnan(number) else np.float64(number).tobytes()


def _expected(kind: int, rows: list[Row], half_life: float) -> list[Any]:
    """The count, sum, least and greatest rank of rows that are seen."""
    if not rows:
        return [0, _bits(0.0), 0, 0]
    ranked = sorted(rows, key=lambda row: (row.time, _rank(row.value)))
    numbers = [(row.time, 1.0 if kind == NO_VALUES else float(row.value)) for row in ranked]

    def combine(a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        factor = decay((b[0] - a[0]) / half_life) if half_life else 1.0
        return b[0], a[1] * factor + b[1]

    with np.errstate(all="ignore"):
        total = _folded(numbers, combine)[1]
    ranks = [_rank(row.value) for row in ranked]
    low = [NAN_RANK if isinstance(row.value, float) and math.isnan(row.value) else rank for row, rank in zip(ranked, ranks, strict=True)]  # fmt: skip
    return [len(rows), _bits(total), min(low), max(row.time for row in rows) if half_life else max(ranks)]


def _arrays(kind: int, rows: list[Row]) -> tuple[Any, ...]:
    """The values, and which rows have one and are used; empty where all are."""
    dtype = {FLOATS: np.float64}.get(kind, np.int64)
    whole = np.array([row.value for row in rows] if kind in (WHOLE, FLOATS) else [], dtype).view(np.int64)
    sides = [[row.value for row in rows] if kind == TRUTHS else [], [row.is_valid for row in rows], [row.is_used for row in rows]]  # fmt: skip
    truths, valid, used = (np.packbits(np.array([] if place and all(one) else one, bool), bitorder="little") for place, one in enumerate(sides))  # fmt: skip
    return tuple(frozen(one) for one in (whole, truths, valid, used))


def _times(rows: list[Row], before: int | None) -> tuple[Any, Any]:
    """The times of rows, and from when on they are known, empty without ``before``."""
    known = [] if before is None else [row.known for row in rows]
    return frozen(np.array([row.time for row in rows], np.int64)), frozen(np.array(known, np.int64))


def _seen(rows: list[Row], low: int, last: int, before: int | None) -> list[int]:
    return [k for k, row in enumerate(rows) if low <= row.time <= last and row.is_valid and row.is_used and (before is None or row.known < before)]  # fmt: skip


BOUNDS = st.lists(TIMES, min_size=1, max_size=5).map(lambda lows: sorted(lows, reverse=True))


@given(
    histories(),
    BOUNDS,
    TIMES,
    st.none() | st.integers(0, 6),
    st.sampled_from([0.0, 2.0, 1e18]),
    st.integers(1, 3),
    st.integers(1, 6),
    TIMES,
)
def test_states_are_those_of_the_rows_that_each_window_holds(made, lows, last, before, half_life, least, most, middle):
    """With states of tiles of any size beside the rows, which come in two calls."""
    kind, rows = made
    time, known = _times(rows, before)
    whole, truths, valid, used = _arrays(kind, rows)
    columns = kind, whole, truths, valid, used, known, half_life
    bounds = frozen(tiles_of(np.array([0, len(rows)]), time, 0, least, most)[0])
    states, seen = np.zeros((len(bounds), 4), np.int64), np.zeros(0 if before is None else len(bounds), np.int64)
    write_tile_states(bounds, time, *columns, states, seen)
    out, path = np.zeros((len(lows), 4), np.int64), new_path()
    cut = int(np.searchsorted(time, middle))
    of_calls = (cut, len(rows), int(np.sum(bounds[:, 0] < cut)), len(bounds)), (0, cut, 0, int(np.sum(bounds[:, 1] <= cut)))  # fmt: skip
    for start, stop, begin, end in of_calls:
        write_event_states(time, start, stop, *columns, np.array(lows, np.int64), last, before or 0, bounds, begin, end, frozen(states), frozen(seen), path, not start, out)  # fmt: skip
    expected = [_expected(kind, [rows[k] for k in _seen(rows, low, last, before)], half_life) for low in lows]
    if kind == NO_VALUES and not half_life and not len(valid):  # only how many there are is asked for
        assert out[:, COUNT].tolist() == [one[0] for one in expected]
        return
    sums = out.view(np.float64)[:, SUM].tolist()
    found = [[state[COUNT], _bits(total), state[LEAST_RANK], state[MOST]] for state, total in zip(out.tolist(), sums, strict=True)]  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("values", list(permutations([0.1, 0.3, 1e16, -1e16])))
def test_rows_of_one_time_are_summed_in_the_order_of_their_values(values):
    whole = frozen(np.array(values).view(np.int64))
    none = frozen(np.empty(0, np.uint8))
    out, no_states = np.zeros((1, 4), np.int64), frozen(np.zeros((0, 4), np.int64))
    write_event_states(frozen(np.zeros(4, np.int64)), 0, 4, FLOATS, whole, none, none, none, whole[:0], 0.0, np.zeros(1, np.int64), 0, 0, frozen(np.zeros((0, 2), np.int64)), 0, 0, no_states, whole[:0], new_path(), True, out)  # fmt: skip
    assert out.view(np.float64)[0, SUM] == ((-1e16 + 0.1) + 0.3) + 1e16


@pytest.mark.parametrize("half_life", [0.0, 50.0])
def test_calls_over_parts_of_the_rows_change_no_bit(half_life):
    draw = np.random.default_rng(1)
    time = frozen(np.sort(draw.integers(0, 300, 200)))
    whole, none = frozen(draw.normal(size=200).view(np.int64)), frozen(np.empty(0, np.uint8))
    columns = FLOATS, whole, none, none, none, time[:0], half_life
    bounds = frozen(tiles_of(np.array([0, 200]), time, 0, 2, 4)[0])
    states, seen = np.zeros((len(bounds), 4), np.int64), np.zeros(0, np.int64)
    write_tile_states(bounds, time, *columns, states, seen)

    def found(cuts: list[int], *, are_tiled: bool) -> list[list[int]]:
        out, path = np.zeros((4, 4), np.int64), new_path()
        for start, stop in reversed(list(pairwise([0, *cuts, 200]))):
            begin, end = int(np.sum(bounds[:, 0] < start)), int(np.sum(bounds[:, 1] <= stop)) if are_tiled else 0
            write_event_states(time, start, stop, *columns, np.array([250, 131, 40, -1]), 280, 0, bounds, begin, end, frozen(states), frozen(seen), path, not start, out)  # fmt: skip
        return out.tolist()

    expected = found([], are_tiled=False)
    assert len({tuple(one) for one in expected}) == 4
    firsts = np.flatnonzero(np.diff(time)) + 1
    for _ in range(20):
        cuts = np.sort(draw.choice(firsts, 3, replace=False)).tolist()
        assert found(cuts, are_tiled=False) == found(cuts, are_tiled=True) == expected


@given(histories(), TIMES, TIMES, st.none() | st.integers(0, 6), st.integers(1, 20), st.booleans(), st.integers(1, 3))
def test_rows_are_the_first_or_last_that_are_seen_and_those_of_the_same_time(made, low, last, before, most, from_end, size):  # fmt: skip
    kind, rows = made
    time, known = _times(rows, before)
    whole, truths, valid, used = _arrays(kind, rows)
    bounds = frozen(tiles_of(np.array([0, len(rows)]), time, 0, 1, size)[0])
    states, seen_from = np.zeros((len(bounds), 4), np.int64), np.zeros(0 if before is None else len(bounds), np.int64)
    write_tile_states(bounds, time, kind, whole, truths, valid, used, known, 0.0, states, seen_from)
    found, is_tied = seen_rows(time, 0, len(rows), valid, used, known, low, last, before or 0, bounds, 0, len(bounds), frozen(states), most, from_end)  # fmt: skip
    seen = _seen(rows, low, last, before)
    taken = seen[-most:] if from_end else seen[:most]
    border = {rows[k].time for k in (taken[:1] if from_end else taken[-1:])}
    assert found.tolist() == sorted({*taken, *(k for k in seen if rows[k].time in border)})
    assert is_tied == (len({rows[k].time for k in found}) < len(found))


@given(st.lists(st.integers(-3, 3), max_size=9).map(sorted), st.integers(-5, 5), st.data())
def test_the_first_row_from_a_time_on(times, bound, data):
    start = data.draw(st.integers(0, len(times)))
    stop = data.draw(st.integers(start, len(times)))
    found = first_from(frozen(np.array(times, np.int64)), start, stop, bound)
    assert found == start + sum(time < bound for time in times[start:stop])


@pytest.mark.slow
def test_no_place_outside_of_an_array_is_read() -> None:
    """The tests above where numba checks bounds."""
    environment = with_bounds_checks(os.environ) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", __file__]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
