"""Sampled statistics of features against exact counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.planning.feature_statistics import pooled
from trainer.planning.row_frequencies import HEAD_ROWS, RowFrequencies
from trainer.planning.row_sample import MOST_SAMPLE_ROWS, RowSample
from trainer.tables.batches import IdBatch
from trainer.tables.optimizers import Adagrad
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.statistics.batch_sampler import BatchSampler, is_sampled
from trainer.tables.statistics.row_sketch import SKETCH_BYTES, IdCounter, RowSketch


def feature(name: str, rows: int) -> FeatureSpec:
    return FeatureSpec(name, TableSpec(name, rows, 4, Adagrad(0.1)))


def zipf(rows: int, exponent: float, ids: int, seed: int) -> np.ndarray:
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    return np.random.default_rng(seed).choice(rows, ids, p=weights / weights.sum())


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows_of_table", [300, 2**40])
def test_distinct_ids_are_counted(dtype, rows_of_table):
    ids = np.random.default_rng(1).integers(0, 300, 2000).astype(dtype)
    counter = IdCounter(rows_of_table)
    counter.count(ids[:1500])  # the memory is used again
    rows, counts = counter.count(ids)
    expected = np.unique(ids, return_counts=True)
    order = np.argsort(rows)
    np.testing.assert_array_equal(rows[order], expected[0])
    np.testing.assert_array_equal(counts[order], expected[1])
    assert len(counter.count(ids[:0])[0]) == 0
    everyone = counter.count(np.arange(256, dtype=dtype))
    assert (everyone[0].tolist(), set(everyone[1].tolist())) == (list(range(256)), {1})


def test_a_small_table_is_sketched_exactly():
    ids = zipf(700, 1.0, 20_000, 2)
    sketch = RowSketch(700)
    counter = IdCounter(700)
    for part in np.array_split(ids, 7):
        sketch.add(*counter.count(part), np.zeros(64, np.int64))
    rows, counts = np.unique(ids, return_counts=True)
    exact = RowFrequencies.of_counts(700, dict(zip(rows.tolist(), counts.tolist(), strict=True)))
    found = sketch.frequencies()
    assert dict(found.head) == pytest.approx(dict(exact.head))
    assert found.classes == tuple(pytest.approx(one) for one in exact.classes)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.05, 1.3])
def test_a_sketch_tells_the_distinct_rows_of_a_batch(exponent):
    rows = 500_000
    ids = zipf(rows, exponent, 1_000_000, 3)
    sketch = RowSketch(rows)
    counter = IdCounter(rows)
    for part in np.array_split(ids, 60):
        sketch.add(*counter.count(part), np.zeros(64, np.int64))
    found, truth = sketch.frequencies(), RowFrequencies.power_law(rows, exponent)
    assert found.total_share == pytest.approx(1.0, abs=1e-3)
    for batch in [1000, 16_384]:
        assert found.distinct(batch) == pytest.approx(truth.distinct(batch), rel=0.04)
    if exponent > 1.0:
        for row, share in truth.head[:20]:
            assert dict(found.head)[row] == pytest.approx(share, rel=0.1)


def test_a_sketch_has_bounded_memory():
    sketch = RowSketch(2**40)
    for k in range(50):
        rows = np.arange(k * 20_000, (k + 1) * 20_000)
        sketch.add(rows, np.ones(len(rows), np.int64), np.zeros(64, np.int64))
    kept = sum(one.nbytes for one in vars(sketch).values() if isinstance(one, np.ndarray))
    assert kept == SKETCH_BYTES
    assert not sketch.frequencies().head or sketch.frequencies().head[0][1] < 1e-3
    assert sketch.frequencies().distinct(1000.0) == pytest.approx(1000.0, rel=0.01)


def test_the_sample_of_a_sketch_has_exact_counts():
    """Also of a sketch that has thinned its rows; heavy rows have at most their ids."""
    ids = zipf(300_000, 0.9, 60_000, 5)
    sketch, counter = RowSketch(300_000), IdCounter(300_000)
    counts: dict[int, list[int]] = {}
    for part in np.array_split(ids, 30):
        sketch.add(*counter.count(part), np.zeros(64, np.int64))
        for row, count in zip(*(one.tolist() for one in np.unique(part, return_counts=True)), strict=True):
            known = counts.setdefault(row, [0, 0])
            known[0], known[1] = known[0] + count, known[1] + 1
    sample = sketch.sample()
    assert sample.ids == len(ids)
    assert sample.level > 2
    assert MOST_SAMPLE_ROWS // 3 < len(sample.rows) <= MOST_SAMPLE_ROWS
    assert all([of_row, batches] == counts[row] for row, of_row, batches in sample.rows)
    assert len(sample.heavy) == HEAD_ROWS
    assert all(of_row <= counts[row][0] for row, of_row, _ in sample.heavy)
    assert {row for row, _, _ in sample.heavy} >= set(range(5)) - {row for row, _, _ in sample.rows}


def test_three_percent_of_the_batches_are_sampled():
    sampled = [step for step in range(20_000) if is_sampled(7, step, 0.03)]
    assert len(sampled) == pytest.approx(600, rel=0.15)
    assert sampled != [step for step in range(20_000) if is_sampled(8, step, 0.03)]
    assert all(is_sampled(7, step, 1.0) for step in range(100))
    assert not any(is_sampled(7, step, 0.0) for step in range(100))


def test_statistics_are_those_of_the_sampled_batches():
    features = [feature("a", 100), feature("b", 10)]
    sampler = BatchSampler(features, share=1.0, seed=0)
    ids = np.array([5, 5, 69, 1, 2, 2, 3, 9], np.int32)
    sampler.add(0, IdBatch(ids, np.array([[0, 3, 3, 4], [4, 5, 7, 7]])), 2)  # the third event is padding
    found = sampler.take()
    a, b = found["a"], found["b"]
    assert (a.events, a.batches, a.ids, a.longest_bag, a.distinct_rows) == (2.0, 1.0, 3.0, 3, 2.0)
    assert (b.ids, b.longest_bag, b.most_distinct_rows) == (3.0, 2, 2)
    assert a.ids_by_residue[5] == 3.0  # 5, 5 and 69
    assert a.bags_by_valency[:4] == (1.0, 0.0, 0.0, 1.0)
    assert dict(a.frequencies.head) == pytest.approx({5: 2 / 3, 69: 1 / 3})
    assert sampler.take() == {}


def batch_of(ids: np.ndarray, sizes: np.ndarray) -> IdBatch:
    return IdBatch(ids, np.concatenate([[0], np.cumsum(sizes)])[None])


@settings(max_examples=scaled(40))
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, HEAD_ROWS), st.randoms(use_true_random=False))
def test_hosts_together_sample_what_one_process_does(hosts, steps, rows, random):
    rng = np.random.default_rng(random.randrange(2**32))
    one = BatchSampler([feature("a", rows)], share=0.6, seed=3)
    each = [BatchSampler([feature("a", rows)], share=0.6, seed=3) for _ in range(hosts)]
    for step in range(steps):
        for host in each:
            sizes = rng.integers(0, 5, 6)
            batch = batch_of(rng.integers(0, rows, sizes.sum()), sizes)
            one.add(step, batch, 6)
            host.add(step, batch, 6)
    whole, parts = one.take(), [found["a"] for host in each if (found := host.take())]
    if not parts:
        assert whole == {}
        return
    together = pooled(parts)
    left_out = {"frequencies": RowFrequencies(rows), "sample": RowSample()}
    assert replace(together, **left_out) == replace(whole["a"], **left_out)
    ids = [{row: of_row for row, of_row, _ in one.sample.rows} for one in (together, whole["a"])]
    assert ids[0] == ids[1]
    assert dict(together.frequencies.head) == pytest.approx(dict(whole["a"].frequencies.head))
    assert not whole["a"].ids or together.frequencies.total_share == pytest.approx(1.0)


def test_hosts_together_estimate_a_large_table_as_one_process_does():
    rows, events = 200_000, 4096
    one = BatchSampler([feature("a", rows)], share=1.0, seed=0)
    each = [BatchSampler([feature("a", rows)], share=1.0, seed=0) for _ in range(4)]
    for step in range(8):
        for h, host in enumerate(each):
            batch = batch_of(zipf(rows, 1.1, 4 * events, 10 * step + h), np.full(events, 4))
            one.add(step, batch, events)
            host.add(step, batch, events)
    whole, together = one.take()["a"], pooled([host.take()["a"] for host in each])
    assert together.mean_distinct_rows == whole.mean_distinct_rows
    for ids in (1000, 16_384):
        assert together.frequencies.distinct(ids) == pytest.approx(whole.frequencies.distinct(ids), rel=0.03)
    assert together.frequencies.share_of_hottest(100) == pytest.approx(
        whole.frequencies.share_of_hottest(100), rel=0.03
    )
