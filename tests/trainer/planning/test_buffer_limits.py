"""Limits of request buffers: sampled batches keep them, and they are not much larger than what batches need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.planning.buffer_limits import limits_of
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.tables.batches import IdBatch
from trainer.tables.optimizers import Adagrad
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.statistics.batch_sampler import BatchSampler


def bags(rng: np.random.Generator, rows: int, exponent: float, valency: float, events: int) -> list[np.ndarray]:
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    sizes = np.minimum(rng.geometric(1.0 / valency, events), 60)
    ids = rng.choice(rows, int(sizes.sum()), p=weights / weights.sum())
    return np.split(ids, np.cumsum(sizes)[:-1])


def sampled(batches: list[list[np.ndarray]], rows: int) -> FeatureStatistics:
    sampler = BatchSampler([FeatureSpec("a", TableSpec("a", rows, 8, Adagrad(0.1)))], share=1.0, seed=0)
    for step, batch in enumerate(batches):
        offsets = np.concatenate([[0], np.cumsum([len(bag) for bag in batch])])[None]
        sampler.add(step, IdBatch(np.concatenate(batch), offsets), len(batch))
    return sampler.take()["a"]


def most_asked(batch: list[np.ndarray], partitions: int) -> tuple[int, int]:
    """The most distinct pairs of an event and an id, and the most rows, that a partition asks another one for."""
    ids = rows = 0
    for own in np.array_split(np.arange(len(batch)), partitions):
        pairs = np.concatenate([np.unique(batch[event]) for event in own] or [np.zeros(0, np.int64)])
        ids = max(ids, int(np.bincount(pairs % partitions, minlength=partitions).max(initial=0)))
        rows = max(rows, int(np.bincount(np.unique(pairs) % partitions, minlength=partitions).max(initial=0)))
    return ids, rows


@settings(max_examples=scaled(25))
@given(
    st.integers(1, 20_000), st.floats(0.0, 1.4), st.floats(1.0, 12.0), st.sampled_from([1, 2, 4, 16]),
    st.integers(16, 512), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_batches_like_the_sample_keep_the_limits(rows, exponent, valency, partitions, events, seed):
    rng = np.random.default_rng(seed)
    statistics = sampled([bags(rng, rows, exponent, valency, events) for _ in range(6)], rows)
    limits = limits_of({"s": [statistics]}, events, partitions)["s"]
    for _ in range(6):
        ids, distinct = most_asked(bags(rng, rows, exponent, valency, events), partitions)
        assert ids <= limits.ids
        assert distinct <= limits.rows


def test_limits_are_not_much_larger_than_what_batches_need():
    rng = np.random.default_rng(1)
    batches = [bags(rng, 50_000, 1.05, 8.0, 4096) for _ in range(4)]
    limits = limits_of({"s": [sampled(batches, 50_000)]}, 4096, 4)["s"]
    needed = [most_asked(batch, 4) for batch in batches]
    assert limits.ids <= 2.0 * max(ids for ids, _ in needed)
    assert limits.rows <= 2.0 * max(rows for _, rows in needed)


def test_a_stack_of_two_tables_needs_the_sum_of_both():
    rng = np.random.default_rng(2)
    one = sampled([bags(rng, 5000, 1.0, 4.0, 512) for _ in range(4)], 5000)
    alone, both = limits_of({"s": [one]}, 512, 4)["s"], limits_of({"s": [one, one]}, 512, 4)["s"]
    assert alone.ids < both.ids <= 2 * alone.ids
    assert alone.rows < both.rows <= 2 * alone.rows


@pytest.mark.parametrize("options", [(0, 1), (1, 0)])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ConfigError):
        limits_of({}, *options)
