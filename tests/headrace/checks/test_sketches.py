"""Sketches of values: merged ones are those of all values, and documents are checked."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.checks.column_sketch import ColumnSketch, merged_sketches, read_sketch, sketch_column
from headrace.checks.id_sketch import SAMPLED, IdSketch, merged_ids, new_share, sketch_ids
from headrace.checks.number_sketch import merged_numbers, sketch_numbers
from tests.support.examples import scaled
from tests.support.mutations import mutated
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError
from transforms.types import Dense, Ragged, Weighted

NUMBERS = st.lists(st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.0, 5e-324, -1e308]), max_size=60)
IDS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=40)


@given(st.lists(NUMBERS, min_size=1, max_size=5))
@settings(max_examples=scaled(100))
def test_merged_numbers_are_the_sketch_of_all(parts):
    whole = sketch_numbers(np.array([one for part in parts for one in part]))
    assert merged_numbers([sketch_numbers(np.array(part)) for part in parts]) == whole


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=200), st.floats(0, 1))
@settings(max_examples=scaled(100))
def test_a_quantile_is_within_one_per_cent_of_a_value(values, share):
    found = sketch_numbers(np.array(values)).quantile(share)
    below = np.quantile(values, share, method="inverted_cdf")
    assert abs(found - below) <= 0.0101 * abs(below)


@given(st.lists(IDS, min_size=1, max_size=5))
@settings(max_examples=scaled(100))
def test_merged_ids_are_the_sketch_of_all_but_for_the_most_frequent(parts):
    whole = sketch_ids(pa.array([one for part in parts for one in part], pa.int64()))
    merged = merged_ids([sketch_ids(pa.array(part, pa.int64())) for part in parts])
    exact = ("classes", "threshold", "sample", "counts", "values", "distinct")
    assert [getattr(merged, name) for name in exact] == [getattr(whole, name) for name in exact]


def test_merged_samples_of_many_ids_are_those_of_all_in_any_order():
    ids = np.random.default_rng(3).integers(0, 5000, 20_000)
    parts = [sketch_ids(pa.array(part)) for part in np.array_split(ids, 7)]
    whole = sketch_ids(pa.array(ids))
    nested = merged_ids([merged_ids(parts[:3]), merged_ids(parts[3:])])
    for merged in (merged_ids(parts), merged_ids(parts[::-1]), nested):
        assert (merged.classes, merged.threshold, merged.sample, merged.counts) == (
            whole.classes,
            whole.threshold,
            whole.sample,
            whole.counts,
        )
    assert len(whole.sample) == SAMPLED
    assert abs(whole.distinct / len(set(ids.tolist())) - 1) < 0.2


def test_the_share_of_new_ids_is_exact_for_few_and_within_its_errors_for_many():
    few = [sketch_ids(pa.array(values)) for values in (["a", "b"], ["b", "c", "c", None])]
    assert new_share(*few) == (2 / 3, 0.0)
    assert new_share(few[0], IdSketch()) is None
    random, inside = np.random.default_rng(5), 0
    for _ in range(40):
        old, new = random.integers(0, 20_000, 30_000), random.integers(5_000, 25_000, 3_000)
        share, error = new_share(sketch_ids(pa.array(old)), sketch_ids(pa.array(new)))
        inside += abs(share - np.isin(new, old, invert=True).mean()) <= 2 * error
    assert inside >= 34


@pytest.mark.parametrize(
    ("values", "column_type", "parts"),
    [
        ([1.5, None, float("nan")], Dense("float64"), {"numbers"}),
        ([True, None, False], Dense("bool"), {"ids"}),
        (["a", None, "b"], Dense("string"), {"ids"}),
        ([3, None, 4], Dense("int64", 100), {"ids"}),
        ([[1, 2], [], None], Ragged("int64", 100), {"lengths", "ids"}),
        ([[0.5], [], None], Ragged("float32"), {"lengths", "numbers"}),
        ([[{"id": 1, "weight": 0.5}], None, []], Weighted("int64", 10), {"lengths", "numbers", "ids"}),
        ([None, None], Dense("string"), {"ids"}),
        ([], Ragged("int64", 10), {"lengths", "ids"}),
    ],
)
def test_a_sketch_of_each_type_has_its_parts_and_comes_back_from_its_bytes(values, column_type, parts):
    found = sketch_column(pa.array(values, arrow_type(column_type)), column_type)
    assert {name for name in ("lengths", "numbers", "ids") if getattr(found, name) is not None} == parts
    assert found.rows == len(values)
    assert found.empty == sum(one is None or one == [] for one in values)
    assert read_sketch(found.to_bytes(), "here") == found
    assert merged_sketches([found, found]).rows == 2 * found.rows


@pytest.mark.parametrize(
    ("values", "share"), [([True, False, None, True], 2 / 3), ([0, 1, 1, 1], 3 / 4), ([0, 2], None), ([None], None)]
)
def test_the_rate_of_a_label_is_that_of_true_or_one(values, share):
    column = pa.array(values, pa.bool_() if True in values and values[0] is True else pa.int64())
    found = sketch_column(column, Dense("bool" if pa.types.is_boolean(column.type) else "int64"))
    assert found.true_share == share


SKETCH = sketch_column(pa.array([[7, 8], [], [7]], arrow_type(Ragged("int64", 10))), Ragged("int64", 10))


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(2000))
def test_a_damaged_sketch_is_a_sketch_or_one_error(seed):
    random = Random(seed)
    text = mutated(zlib.decompress(SKETCH.to_bytes()), random, (b"-1", b"1e999", b"null", b"[", b"9" * 30))
    content = zlib.compress(text) if random.random() < 0.8 else mutated(SKETCH.to_bytes(), random)
    try:
        found = read_sketch(content, "the sketch of this test")
    except DataError as error:
        text = str(error)
    else:
        assert isinstance(found, ColumnSketch)
        merged_sketches([found, SKETCH])
        return
    assert "the sketch of this test" in text


def test_a_sketch_that_grows_without_bound_is_refused():
    with pytest.raises(DataError, match="whole document"):
        read_sketch(zlib.compress(b" " * (1 << 26)), "here")
