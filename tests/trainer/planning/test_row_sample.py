"""Samples of rows by hash: merges are those of all counts, and damaged documents are one error."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.row_frequencies import HEAD_ROWS
from trainer.planning.row_sample import MOST_SAMPLE_ROWS, RowSample, row_hashes
from trainer.tables.statistics.row_sketch import _hash
from transforms.derived_documents import document_of

COUNTS = st.dictionaries(st.integers(0, 2**63 - 1), st.integers(1, 50), max_size=60)


def of_counts(counts):
    return RowSample.of_counts(0, float(sum(counts.values())), {row: (float(n), 1.0) for row, n in counts.items()})


def test_the_hash_is_that_of_the_sketch():
    rows = np.random.default_rng(3).integers(0, 2**63 - 1, 500)
    assert row_hashes(rows).tolist() == [int(_hash(row)) for row in rows]


@settings(max_examples=scaled(60))
@given(COUNTS, COUNTS)
def test_a_merge_knows_a_row_from_both_samples(one, other):
    merged = of_counts(one).merged(of_counts(other), 1.0)
    expected = {row: (one.get(row, 0) + other.get(row, 0), (row in one) + (row in other)) for row in one | other}
    assert {row: (ids, batches) for row, ids, batches in merged.rows} == expected
    assert merged.ids == sum(one.values()) + sum(other.values())
    at_once = of_counts(one).merged(of_counts(other), 1.0, is_same_time=True)
    assert all(batches == 1.0 for _, _, batches in at_once.rows)


@pytest.mark.medium
@settings(max_examples=scaled(20))
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_merged_samples_of_many_rows_have_the_exact_counts_of_the_chosen_ones(parts, seed):
    rng = np.random.default_rng(seed)
    total: dict[int, float] = {}
    merged = RowSample()
    for _ in range(parts):
        rows, counts = np.unique(rng.zipf(1.2, 4000) % 100_000, return_counts=True)
        part = dict(zip(rows.tolist(), counts.tolist(), strict=True))
        total = {row: total.get(row, 0) + part.get(row, 0) for row in total | part}
        merged = merged.merged(of_counts(part), 1.0)
    assert merged.level > 0
    assert len(merged.rows) <= MOST_SAMPLE_ROWS
    assert len(merged.heavy) == HEAD_ROWS
    mask = (1 << merged.level) - 1
    chosen = {row for row in total if int(row_hashes(np.array([row]))[0]) & mask == 0}
    assert {row: ids for row, ids, _ in merged.rows} == {row: total[row] for row in chosen}
    assert all(ids <= total[row] for row, ids, _ in merged.heavy)
    document = json.loads(json.dumps(document_of(merged)))
    assert OPEN.read(RowSample, DocumentField(document, "s")) == merged


def test_old_counts_fade_away():
    merged = of_counts({1: 4}).merged(of_counts({2: 4}), 2.0**-13)
    assert [row for row, _, _ in merged.rows] == [2]


@pytest.mark.parametrize(
    "damage",
    [
        {"level": 63},
        {"level": 4},  # which does not choose these rows
        {"ids": 3.0},
        {"ids": 2.0**63},
        {"rows": [[5, 2.0, 1.0], [5, 2.0, 1.0]]},
        {"rows": [[5, 2.0, 3.0]]},
        {"rows": [[5, 2.0, 0.0]]},
        {"rows": [[2**63 - 1, 2.0, 1.0], [5, 2.0, 1.0]]},
        {"rows": [[5, 2.0]]},
        {"heavy": [[5, 2.0, 1.0]]},  # which is chosen
        {"rows": [[row, 1.0, 1.0] for row in range(MOST_SAMPLE_ROWS + 1)]},
    ],
)
def test_a_damaged_sample_is_one_error(damage):
    document = {**document_of(of_counts({5: 2, 9: 2})), **damage}
    with pytest.raises(TornCheckpoint, match="must"):
        OPEN.read(RowSample, DocumentField(document, "s"))


def test_impossible_counts_are_refused():
    with pytest.raises(ConfigError):
        RowSample(0, 1.0, ((-1, 1.0, 1.0),))
