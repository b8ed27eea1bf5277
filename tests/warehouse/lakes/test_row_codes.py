"""Codes of rows and their pairs."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from warehouse.lakes.pairing import pair_equal, pair_rows
from warehouse.lakes.row_codes import row_codes, value_codes

_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-3, 3)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "ab", "b", "ü"])),
    (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0"])),
    (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5])),
    (pa.float32(), st.sampled_from([0.0, -0.0, math.nan, 0.25])),
    (pa.timestamp("us", "UTC"), st.integers(0, 3)),
    (pa.decimal128(5, 2), st.sampled_from([0, 1, 2]).map(lambda one: __import__("decimal").Decimal(one))),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y"])),
    (pa.null(), st.none()),
]


def _nested(
    kind: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    leaf, values = kind
    if pa.types.is_dictionary(leaf):
        return st.just(kind)
    lists = st.lists(st.none() | values, max_size=3)
    return st.sampled_from(
        [
            kind,
            (pa.list_(leaf), lists),
            (pa.large_list(leaf), lists),
            (pa.list_(pa.list_(leaf)), st.lists(st.none() | lists, max_size=2)),
            (pa.struct([("p", leaf), ("q", pa.int8())]), st.fixed_dictionaries({"p": st.none() | values, "q": st.none() | st.integers(0, 1)})),
            (pa.list_(pa.struct([("p", leaf)])), st.lists(st.none() | st.fixed_dictionaries({"p": st.none() | values}), max_size=2)),
        ]
    )  # fmt: skip


@st.composite
def arrays(draw: st.DrawFn) -> tuple[pa.Array, list[Any]]:
    kind, values = draw(st.sampled_from(_LEAVES).flatmap(_nested))
    listed = draw(st.lists(st.none() | values, max_size=12))
    before = draw(st.integers(0, min(2, len(listed))))
    return pa.array(listed, kind)[before:], listed[before:]


def _key(value: Any) -> str:
    """A text that is equal for equal values: NaN equals NaN, and 0.0 is not -0.0."""
    return repr(
        sorted(value.items())
        if isinstance(value, dict)
        else [_key(item) for item in value]
        if isinstance(value, list)
        else value
    )


@pytest.mark.medium
@settings(max_examples=scaled(200))
@given(arrays())
def test_equal_codes_are_equal_values(made: tuple[pa.Array, list[Any]]) -> None:
    array, listed = made
    codes = value_codes(array).tolist()
    for one, first in enumerate(listed):
        for other, second in enumerate(listed):
            assert (codes[one] == codes[other]) == (_key(first) == _key(second)), (first, second)


@given(st.data(), st.integers(0, 10))
def test_rows_are_equal_by_all_columns(data: st.DataObject, rows: int) -> None:
    columns = [data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)) for _ in range(3)]
    codes = row_codes([pa.array(column, pa.int64()) for column in columns], rows).tolist()
    listed = list(zip(*columns, strict=True))
    for one in range(rows):
        for other in range(rows):
            assert (codes[one] == codes[other]) == (listed[one] == listed[other])


_CODES = st.lists(st.integers(0, 4), max_size=30).map(lambda codes: np.array(codes, np.int64))


@given(_CODES, _CODES)
def test_as_many_rows_as_can_be_are_paired_each_once(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> None:
    first, second = pair_equal(old, new)
    assert len(set(first.tolist())) == len(set(second.tolist())) == len(first)
    assert old[first].tolist() == new[second].tolist()
    assert len(first) == (Counter(old.tolist()) & Counter(new.tolist())).total()


_ROW = st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from([0.0, 1.0, None]), st.sampled_from(["a", "b"]))


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    kinds = [pa.int64(), pa.timestamp("us"), pa.float64(), pa.string()]
    return pa.table([pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)], names=["id", "time", "label", "text"])  # fmt: skip


@pytest.mark.medium
@settings(max_examples=scaled(200))
@given(st.lists(_ROW, max_size=12), st.lists(_ROW, max_size=12), st.booleans())
def test_pairs_keep_partition_and_key_and_every_row_is_accounted_for(
    old: list[tuple[Any, ...]], new: list[tuple[Any, ...]], has_keys: bool
) -> None:
    partitions = (np.array([row[1] for row in old], np.int64), np.array([row[1] for row in new], np.int64))
    found = pair_rows(_table(old), _table(new), partitions, keys=["id"] if has_keys else [], time_column="time")
    olds = [*found.same[0], *found.updated[0], *found.deleted]
    news = [*found.same[1], *found.updated[1], *found.appended]
    assert sorted(olds) == list(range(len(old)))
    assert sorted(news) == list(range(len(new)))
    assert all(old[one] == new[other] for one, other in zip(*found.same, strict=True))
    assert len(found.same[0]) == (Counter(old) & Counter(new)).total()
    for one, other in zip(*found.updated, strict=True):
        assert old[one][1] == new[other][1]
        if has_keys:
            assert old[one][0] == new[other][0]
    if has_keys:
        rest = Counter((old[one][0], old[one][1]) for one in found.deleted) & Counter(
            (new[one][0], new[one][1]) for one in found.appended
        )
        assert not rest


def test_an_update_of_a_column_needs_no_key_and_an_exchange_of_events_is_none() -> None:
    old = _table([(1, 0, 0.0, "a"), (2, 1, 0.0, "a"), (3, 2, 0.0, "b")])
    updated = _table([(3, 2, 1.0, "b"), (1, 0, 0.0, "a"), (2, 1, 1.0, "a")])
    places = np.zeros(3, np.int64)
    found = pair_rows(old, updated, (places, places), keys=[], time_column="time")
    assert (found.same[0].tolist(), found.same[1].tolist()) == ([0], [1])
    assert sorted(zip(found.updated[0].tolist(), found.updated[1].tolist(), strict=True)) == [(1, 2), (2, 0)]
    others = _table([(1, 0, 0.0, "a"), (2, 1, 0.0, "a"), (4, 3, 0.0, "c")])
    found = pair_rows(old, others, (places, places), keys=[], time_column="time")
    assert (found.deleted.tolist(), found.appended.tolist()) == ([2], [2])
    null_keys = pair_rows(_table([(1, 0, None, "a")]), _table([(1, 0, None, "b")]), (places[:1], places[:1]), keys=["label"], time_column="time")  # fmt: skip
    assert len(null_keys.updated[0]) == 0
