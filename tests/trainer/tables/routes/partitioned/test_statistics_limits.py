"""Limits by statistics: an engine's own batches keep them, and a sentence says where a limit comes from."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.errors import ConfigError
from trainer.tables import SGD, Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.statistics_limits import (
    choose_limits,
    limits_by_stack,
    settings_by_statistics,
    without_statistics,
)
from trainer.tables.statistics.batch_sampler import BatchSampler

FEATURES = (
    FeatureSpec("a", TableSpec("one", 500, 8, Adagrad(0.1))),
    FeatureSpec("b", TableSpec("two", 90, 8, Adagrad(0.1))),
    FeatureSpec("c", TableSpec("three", 60, 8, SGD(0.1))),
)
EVENTS, CORES = 64, 4


def batch(seed):
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.geometric(0.4, (len(FEATURES), EVENTS)), 20)
    offsets = np.zeros((len(FEATURES), EVENTS + 1), np.int64)
    flat = np.cumsum(sizes, axis=1)
    start = np.concatenate([[0], np.cumsum(sizes.sum(axis=1))])[:-1]
    offsets[:, 0], offsets[:, 1:] = start, start[:, None] + flat
    ids = [rng.integers(0, one.table.vocabulary_size, int(sizes[f].sum())) for f, one in enumerate(FEATURES)]
    return IdBatch(np.concatenate(ids).astype(np.int64), offsets)


@pytest.fixture(scope="module")
def statistics():
    sampler = BatchSampler(FEATURES, share=1.0, seed=0)
    for step in range(20):
        sampler.add(step, batch(step), EVENTS)
    return sampler.take()


def test_an_engine_keeps_the_limits_of_its_statistics(statistics):
    """Those of a plan's stacks too; buffers have their size from the first batch on."""
    for stacks in ((), (("one",), ("two",))):
        settings = settings_by_statistics(FEATURES, statistics, batch_events=EVENTS, cores=CORES, stacks=stacks)
        if not stacks:
            engine = PartitionedEngine(FEATURES, seed=0, cores=CORES, settings=settings)
            sizes = {name: one.buffer_rows for name, one in engine.traffic.items()}
            assert set(sizes) == {"one_two", "three"} == set(settings.max_ids_per_table)
            for seed in range(100, 130):
                engine.lookup(batch(seed))
            assert {name: one.buffer_rows for name, one in engine.traffic.items()} == sizes
        else:
            assert set(settings.max_unique_ids_per_table) == {"one", "two", "three"}


def test_limits_of_stacks_are_those_of_their_features(statistics):
    found = limits_by_stack(
        FEATURES, statistics, batch_events=EVENTS, partitions=CORES, stacks=(("three", "one", "other"),)
    )
    assert list(found) == [("three", "one"), ("two",)]
    assert found[("three", "one")].ids > found[("two",)].ids
    with pytest.raises(ConfigError, match="limits from statistics need the statistics of every feature"):
        limits_by_stack(FEATURES, {"a": statistics["a"]}, batch_events=EVENTS, partitions=CORES)


def test_a_sentence_says_where_limits_come_from(statistics):
    options = {"batch_events": EVENTS, "partitions": CORES}
    by_all = choose_limits(FEATURES, statistics, **options)
    most = limits_by_stack(FEATURES, statistics, **options).values()
    assert (by_all.ids, by_all.unique_ids) == (max(one.ids for one in most), max(one.rows for one in most))
    assert by_all.reason.endswith("by the statistics of all features")
    given = choose_limits(FEATURES, {}, **options, max_ids=3, max_unique_ids=2)
    assert (given.ids, given.unique_ids, given.reason[-12:]) == (3, 2, "as they are given"[-12:])
    one = choose_limits(FEATURES, statistics, **options, max_unique_ids=2)
    assert (one.ids, one.unique_ids) == (by_all.ids, 2)
    assert one.reason.endswith("by the statistics of all features, but for the distinct ids, which are given")
    other = {**statistics, "b": statistics["c"]}  # of another number of rows
    unknown = choose_limits(FEATURES, other, **options)
    assert (unknown.ids, unknown.unique_ids) == (256, 256)
    assert unknown.reason.endswith("TensorFlow's, for there are no statistics of b")
    assert without_statistics(FEATURES, {}) == ("a", "b", "c")
