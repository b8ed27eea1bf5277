"""Accumulators: merge laws, and results equal to TensorFlow's, tf.Transform's and plain Python's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from pipelines.analysis.accumulators import Accumulator, new_accumulator
from pipelines.analysis.batch import Batch
from pipelines.analysis.moments import Moments, moments_of, ordered_sum
from pipelines.analysis.terms import TermSums
from transforms.errors import DataError

Event = tuple[list[str], int | None, float | None]
WORDS = ["red", "blue", "", "shoe", "line\nbreak", "né", "global_y_count_sentinel", "\x00"]
EVENTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), unique=True, max_size=4),
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.integers(0, 40).map(lambda eighths: eighths / 8)),
    ),
    max_size=40,
)
KINDS = ("vocabulary_ids", "weighted_vocabulary_ids", "labelled_vocabulary_ids", "weighted_labelled_vocabulary_ids")


def batch_of(operator: str, events: Sequence[Event]) -> Batch:
    terms, labels, weights = (list(column) for column in zip(*events, strict=True)) if events else ([], [], [])
    return Batch(
        pa.array(terms, pa.list_(pa.string())),
        pa.array(labels, pa.int64()) if "labelled" in operator else None,
        pa.array(weights, pa.float64()) if "weighted" in operator else None,
    )


def accumulated(operator: str, events: Sequence[Event]) -> Accumulator:
    accumulator = new_accumulator(operator)
    if events:
        accumulator.add(batch_of(operator, events))
    return accumulator


def params(operator: str, **given: Any) -> dict[str, Any]:
    least = 0 if operator == "weighted_vocabulary_ids" else 1
    return {"top_k": 0, "min_frequency": least, "min_diff_from_avg": 0.0, **given}


@pytest.mark.parametrize("operator", KINDS)
@given(events=EVENTS, cut=st.integers(0, 40))
@settings(max_examples=scaled(40))
def test_partitions_of_any_size_give_the_vocabulary_of_the_whole(operator: str, events: list[Event], cut: int) -> None:
    whole = accumulated(operator, events).extract(params(operator))
    merged = new_accumulator(operator)
    for part in (events[:cut], [], events[cut:]):
        merged.merge(accumulated(operator, part).contribution())
    assert merged.extract(params(operator)) == whole
    assert merged.extract(params(operator, top_k=2)) == whole[:2]


@given(events=EVENTS)
@settings(max_examples=scaled(40))
def test_weights_of_one_change_nothing(events: list[Event]) -> None:
    events = [(terms, label, 1.0) for terms, label, _ in events]
    for plain, weighted in (KINDS[:2], KINDS[2:]):
        found = accumulated(plain, events).extract(params(plain))
        assert accumulated(weighted, events).extract(params(weighted)) == found


def test_equal_terms_are_added_up_before_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.analysis.terms._WAITING_ROWS", 10)
    schema = pa.schema({"term": pa.binary(), "count": pa.int64()})
    sums, most = TermSums(["term"], ["count"]), 0
    for number in range(1_000):
        sums.add(pa.record_batch([[b"a", b"b", b"%d" % (number % 7)], [1, 2, 3]], schema=schema))
        most = max(most, sums._waiting)
    whole = sums.whole(schema)
    assert sorted(zip(*whole.to_pydict().values(), strict=True))[-2:] == [(b"a", 1_000), (b"b", 2_000)]
    assert most <= 10 + 9 + 3, "as many rows as there are distinct terms wait, and a few"


def test_a_label_that_is_no_class_and_a_range_without_terms() -> None:
    with pytest.raises(DataError, match="a label must be a class"):
        accumulated("labelled_vocabulary_ids", [(["a"], -1, None)])
    empty = accumulated("labelled_vocabulary_ids", [])
    assert len(empty.extract(params("labelled_vocabulary_ids"))) == 0
    assert empty.contribution().num_rows == 0


def test_what_a_label_says_of_a_constant_is_nothing() -> None:
    events: list[Event] = [(["always", "then"] if label else ["always"], label, None) for label in (0, 1, 0, 1)]
    found = accumulated("labelled_vocabulary_ids", events)
    assert found.extract(params("labelled_vocabulary_ids")).to_pylist() == [b"then", b"always"]
    assert found.extract(params("labelled_vocabulary_ids", min_information=0.5)).to_pylist() == [b"then"]


def test_terms_are_put_in_the_order_of_their_fingerprints_after_the_cut() -> None:
    events: list[Event] = [(["hello", "world"], None, None), (["hello"], None, None), (["rare"], None, None)]
    found = accumulated("vocabulary_ids", [*events, (["world"], None, None)])
    shuffled = params("vocabulary_ids", top_k=2, fingerprint_shuffle=True)
    assert found.extract(shuffled).to_pylist() == [b"world", b"hello"]  # SHA-1 7c21... and aaf4...


NUMBERS = st.lists(st.floats(-1e9, 1e9, width=64), max_size=60).map(lambda values: np.array(values, np.float64))


@given(values=NUMBERS, cut=st.integers(0, 60))
@settings(max_examples=scaled(60))
def test_moments_are_those_of_all_numbers(values: np.ndarray, cut: int) -> None:
    found = moments_of(values[:cut]).merge(Moments()).merge(moments_of(values[cut:]))
    assert found.count == len(values)
    if len(values):
        assert found.mean == pytest.approx(values.mean(), rel=1e-9, abs=1e-3)
        assert found.variance == pytest.approx(values.var(), rel=1e-9, abs=1e-3)


def test_numbers_that_overflow_stay_numbers() -> None:
    found = moments_of(np.full(3, 1.5e308))
    assert np.isfinite([found.mean, found.variance]).all()
    assert found.merge(Moments()) == found


@pytest.mark.parametrize("count", [1, 3, 15, 16, 17, 100, 1_023, 4_095, 4_096, 4_097, 20_001])
def test_sums_have_the_bits_of_tensorflows(count: int) -> None:
    import tensorflow as tf

    random = np.random.default_rng(count)
    values = random.normal(0, 1, count) * 10.0 ** random.integers(-6, 7, count)
    assert ordered_sum(values) == float(tf.reduce_sum(tf.constant(values)))


def test_quantiles_of_no_numbers_are_none_and_damaged_ones_an_error() -> None:
    accumulator = new_accumulator("quantile_buckets")
    accumulator.add(Batch(pa.array([[], [1.0, 2.0], []], pa.list_(pa.float64()))))
    assert accumulator.extract({"n": 2}).to_pylist() in ([1.0], [2.0])
    none = new_accumulator("quantile_buckets")
    assert none.extract({"n": 4}).to_pylist() == []
    accumulator = new_accumulator("quantile_buckets")
    accumulator.merge(new_accumulator("quantile_buckets").contribution())
    with pytest.raises(DataError, match="must be a sketch"):
        accumulator.merge(pa.record_batch({"sketch": pa.array([b"not a sketch"])}))


def test_quantiles_fall_within_a_ten_thousandth_of_their_rank() -> None:
    values = np.random.default_rng(5).lognormal(0, 2, 200_000)
    merged = new_accumulator("quantile_buckets")
    for part in np.array_split(values, 40):
        accumulator = new_accumulator("quantile_buckets")
        accumulator.add(Batch(pa.array([part])))
        merged.merge(accumulator.contribution())
    ranks = np.searchsorted(np.sort(values.astype(np.float32)), merged.extract({"n": 20}).to_numpy()) / len(values)
    assert np.abs(ranks - np.arange(1, 20) / 20).max() <= 1e-4
