"""Row frequencies: expected distinct rows, power laws, samples and merges."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.row_frequencies import HEAD_ROWS, RowFrequencies
from transforms.derived_documents import document_of

SAMPLES = st.dictionaries(st.integers(0, 4999), st.integers(1, 10_000), min_size=1, max_size=600).map(
    lambda counts: RowFrequencies.of_counts(5000, counts)
)
LAWS = st.builds(RowFrequencies.power_law, st.integers(1, 10**9), st.floats(0.0, 3.0))
FREQUENCIES = SAMPLES | LAWS
IDS = st.floats(0.0, 1e12)


@given(FREQUENCIES, IDS, IDS)
def test_distinct_rows_are_monotone_and_bounded(frequencies, first, second):
    fewer, more = sorted([first, second])
    few, many = frequencies.distinct(fewer), frequencies.distinct(more)
    assert 0.0 <= few <= many * (1 + 1e-12)
    assert few <= fewer
    assert many <= frequencies.rows
    assert many <= frequencies.distinct_rows * (1 + 1e-9)


@given(FREQUENCIES)
def test_the_shares_are_those_of_all_ids(frequencies):
    assert frequencies.total_share == pytest.approx(1.0)
    assert frequencies.distinct(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("rows", [1, 200, 256, 257, 5000, 20_000])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9, 1.0, 1.2, 2.0])
def test_a_power_law_has_the_distinct_rows_of_exact_sums(rows, exponent):
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    shares = weights / weights.sum()
    found = RowFrequencies.power_law(rows, exponent)
    for (row, share), exact in zip(found.head, shares[:HEAD_ROWS], strict=True):
        assert share == pytest.approx(exact, rel=1e-9), row
    for ids in [1, 10, 100, 4096, 100_000, 10_000_000]:
        with np.errstate(divide="ignore"):
            exact = -np.expm1(ids * np.log1p(-shares)).sum()
        assert found.distinct(ids) == pytest.approx(exact, rel=0.025)


def test_a_power_law_of_300_million_rows_is_made_at_once():
    started = time.monotonic()
    found = RowFrequencies.power_law(300_000_000, 1.05)
    assert time.monotonic() - started < 1.0
    assert found.distinct_rows == 300_000_000
    assert len(found.classes) <= 64
    assert found.share_of_hottest(300_000_000) == pytest.approx(1.0)


def test_a_sample_tells_the_distinct_rows_of_a_batch():
    rng = np.random.default_rng(7)
    rows, exponent = 200_000, 1.05
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    drawn = rng.choice(rows, 400_000, p=weights / weights.sum())
    ids, counts = np.unique(drawn, return_counts=True)
    found = RowFrequencies.of_counts(rows, dict(zip(ids.tolist(), counts.tolist(), strict=True)))
    truth = RowFrequencies.power_law(rows, exponent)
    for batch, error in [(1000, 0.01), (16_384, 0.02), (100_000, 0.05)]:
        assert found.distinct(batch) == pytest.approx(truth.distinct(batch), rel=error)


def test_rows_that_a_sample_has_not_are_estimated():
    drawn = np.random.default_rng(3).integers(0, 100_000, 50_000)
    ids, counts = np.unique(drawn, return_counts=True)
    found = RowFrequencies.of_counts(10**9, dict(zip(ids.tolist(), counts.tolist(), strict=True)))
    assert found.distinct_rows == pytest.approx(100_000, rel=0.1)


@given(SAMPLES)
def test_merging_with_itself_changes_little(frequencies):
    merged = frequencies.merged(frequencies, 1.0, 2.0)
    assert dict(merged.head) == pytest.approx(dict(frequencies.head))
    for ids in [10.0, 1000.0, 1e6]:
        assert merged.distinct(ids) == pytest.approx(frequencies.distinct(ids), rel=0.05)


@given(SAMPLES, SAMPLES, st.floats(0.0, 1e6), st.floats(0.001, 1e6))
def test_a_merge_has_all_ids(first, second, own_weight, other_weight):
    merged = first.merged(second, own_weight, other_weight)
    assert merged.total_share == pytest.approx(1.0, abs=1e-6)
    assert merged.distinct_rows <= merged.rows * (1 + 1e-6)


@given(st.lists(SAMPLES, min_size=2, max_size=8))
@settings(max_examples=scaled(30))
def test_many_merges_stay_valid(several):
    merged = several[0]
    for one in several[1:]:
        merged = merged.merged(one, 3.0, 1.0)
    assert merged.total_share == pytest.approx(1.0, abs=1e-5)


def test_a_merge_with_weight_zero_is_the_other():
    one, other = RowFrequencies.power_law(1000, 1.0), RowFrequencies.power_law(1000, 0.5)
    assert one.merged(other, 0.0, 1.0) == other
    assert one.merged(other, 1.0, 0.0) == one
    assert RowFrequencies(1000).merged(other, 1.0, 1.0) == other


def test_a_merge_averages_the_shares_of_a_row():
    one, other = RowFrequencies.of_counts(10, {1: 3, 2: 1}), RowFrequencies.of_counts(10, {1: 1, 3: 1})
    merged = one.merged(other, 1.0, 1.0)
    assert dict(merged.head) == pytest.approx({1: 0.625, 3: 0.25, 2: 0.125})


def test_no_ids_are_no_rows():
    assert RowFrequencies.of_counts(10, {}).distinct(5.0) == 0.0
    assert RowFrequencies.of_counts(10, {4: 5}).distinct(5.0) == pytest.approx(1.0)


@given(FREQUENCIES)
def test_a_document_gives_the_same_frequencies(frequencies):
    assert OPEN.read(RowFrequencies, DocumentField(document_of(frequencies), "f")) == frequencies


@pytest.mark.parametrize(
    ("rows", "head", "classes"),
    [
        (0, (), ()),
        (10, ((10, 0.5),), ()),
        (10, ((1, 0.5), (1, 0.2)), ()),
        (10, ((1, 1.5),), ()),
        (10, ((1, 0.0),), ()),
        (10, ((1, math.nan),), ()),
        (10, (), ((math.inf, 0.1),)),
        (10, (), ((math.nan, 0.1),)),
        (10, (), ((11.0, 0.01),)),
        (10, ((1, 0.9),), ((2.0, 0.1),)),
        (1000, tuple((row, 1e-4) for row in range(257)), ()),
    ],
)
def test_impossible_frequencies_are_refused(rows, head, classes):
    with pytest.raises(ConfigError):
        RowFrequencies(rows, head, classes)
    document = {"rows": rows, "head": [list(item) for item in head], "classes": [list(item) for item in classes]}
    with pytest.raises(TornCheckpoint):
        OPEN.read(RowFrequencies, DocumentField(document, "f"))


def test_an_impossible_power_law_is_refused():
    with pytest.raises(ConfigError):
        RowFrequencies.power_law(0, 1.0)
    with pytest.raises(ConfigError):
        RowFrequencies.power_law(5, math.nan)
