"""Histograms of any column: every finite number is in one bin, every id is counted."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.checks.histogram import BINS, MOST_VALUES, bins_of, most_frequent
from transforms.types import Dense, Ragged, Vector, Weighted

NUMBERS = st.lists(st.none() | st.floats(width=64, allow_nan=True, allow_infinity=True), max_size=60)


@given(NUMBERS)
def test_every_finite_number_is_in_one_bin(values: list[float | None]) -> None:
    finite = [one for one in values if one is not None and np.isfinite(one)]
    found = bins_of(pa.array(values, pa.float64()), Dense("float64"))
    assert sum(one.count for one in found) == len(finite)
    assert len(found) in (0, 1, BINS)
    if finite:
        assert (found[0].low, found[-1].high) == (min(finite), max(finite))
        assert all(one.low <= one.high for one in found)
        assert all(a.high == b.low for a, b in itertools.pairwise(found))


@given(st.lists(st.lists(st.sampled_from(["a", "b", "cc", "<script>"]), max_size=4), max_size=20))
def test_the_most_frequent_items_of_lists_are_counted(lists: list[list[str]]) -> None:
    counted = Counter(item for items in lists for item in items)
    found = most_frequent(pa.array(lists, pa.list_(pa.string())), Ragged("string"))
    assert {one.value: one.count for one in found} == {repr(key): count for key, count in counted.items()}
    assert [one.count for one in found] == sorted(counted.values(), reverse=True)


def test_ids_are_values_and_numbers_are_bins() -> None:
    ids, numbers = pa.array([[3, 3], [1]], pa.list_(pa.int64())), pa.array([1, 2, 2, None], pa.int64())
    assert bins_of(ids, Ragged("int64", buckets=10)) == ()
    assert [(one.value, one.count) for one in most_frequent(ids, Ragged("int64", buckets=10))] == [("3", 2), ("1", 1)]
    assert most_frequent(numbers, Dense("int64")) == ()
    assert sum(one.count for one in bins_of(numbers, Dense("int64"))) == 3
    flags = pa.array([True, False, True])
    assert bins_of(flags, Dense("bool")) == ()
    assert [one.count for one in most_frequent(flags, Dense("bool"))] == [2, 1]
    vector = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    assert sum(one.count for one in bins_of(vector, Vector("float32", 2))) == 2


def test_weighted_lists_have_ids_and_weights() -> None:
    items = pa.list_(pa.struct([("id", pa.int64()), ("weight", pa.float32())]))
    column = pa.array([[{"id": 1, "weight": 0.5}, {"id": 2, "weight": 1.5}], [{"id": 1, "weight": 1.0}]], items)
    kind = Weighted("int64", buckets=10)
    assert [(one.value, one.count) for one in most_frequent(column, kind)] == [("1", 2), ("2", 1)]
    found = bins_of(column, kind)
    assert (found[0].low, found[-1].high, sum(one.count for one in found)) == (0.5, 1.5, 3)


def test_only_so_many_values_are_listed() -> None:
    column = pa.array([str(k) for k in range(99)])
    assert len(most_frequent(column, Dense("string"))) == MOST_VALUES
    assert most_frequent(pa.array([], pa.string()), Dense("string")) == ()
