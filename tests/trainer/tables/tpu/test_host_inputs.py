"""The inputs of replicas hold what the cpu engine would combine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.test_engine import batch_of
from trainer.tables import SGD, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.tpu.host_inputs import gains_of, replica_inputs

ROWS, REPLICAS = 20, 2


@st.composite
def batches(draw, features=2):
    """A batch for two replicas, with weights or without, some of which add up to 0."""
    events = REPLICAS * draw(st.integers(1, 4))
    bag = st.lists(st.integers(0, ROWS - 1), max_size=5)
    batch = batch_of(
        draw(st.lists(st.lists(bag, min_size=events, max_size=events), min_size=features, max_size=features))
    )
    values = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0])
    weights = draw(st.lists(values, min_size=len(batch.ids), max_size=len(batch.ids)))
    return replace(batch, weights=np.array(weights, np.float32) if draw(st.booleans()) else None)


def summed(one, rows):
    """[bags, dim]: each bag's rows times what they count for."""
    out = np.zeros((len(one.splits) - 1, rows.shape[1]), np.float32)
    np.add.at(out, np.repeat(np.arange(len(out)), np.diff(one.splits)), one.gains[:, None] * rows[one.ids])
    return out


@settings(max_examples=scaled(100))
@given(batch=batches(), combiner=st.sampled_from(["sum", "mean", "sqrtn"]), length=st.integers(0, 3))
def test_sums_of_inputs_are_the_lookups_of_the_cpu_engine(batch, combiner, length):
    table = TableSpec("t", ROWS, 3, SGD(1.0), combiner)
    engine = CpuEngine([FeatureSpec("a", table), FeatureSpec("b", table, length)], seed=0)
    rows, events = engine.weights_of("t", np.arange(ROWS)), batch.rows // REPLICAS
    for replica in range(REPLICAS):
        inputs = replica_inputs(batch, engine.features, replica, events)
        found = [summed(one, rows).reshape(events, -1) for one in inputs]
        expected = engine.lookup(batch)[replica * events : (replica + 1) * events]
        np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-5, atol=1e-6)


def test_sqrtn_divides_by_the_root_of_the_squared_weights():
    splits = np.array([0, 2, 2, 3])
    np.testing.assert_allclose(gains_of("sqrtn", splits, None), [0.5**0.5, 0.5**0.5, 1.0])
    np.testing.assert_allclose(gains_of("sqrtn", splits, np.array([3, 4, 0], np.float32)), [0.6, 0.8, 0.0], rtol=1e-6)


@settings(max_examples=scaled(100))
@given(batch=batches(), length=st.integers(1, 4))
def test_a_sequence_has_a_bag_for_each_of_its_first_ids(batch, length):
    features = [
        FeatureSpec("a", TableSpec("t", ROWS, 3, SGD(1.0)), length),
        FeatureSpec("b", TableSpec("t", ROWS, 3, SGD(1.0))),
    ]
    events = batch.rows // REPLICAS
    for replica in range(REPLICAS):
        one = replica_inputs(batch, features, replica, events)[0]
        assert len(one.splits) == events * length + 1
        for event in range(events):
            first, last = batch.offsets[0, replica * events + event : replica * events + event + 2]
            ids = batch.ids[first:last][:length]
            weights = np.ones(len(ids)) if batch.weights is None else batch.weights[first:last][:length]
            for place in range(length):
                start, end = one.splits[event * length + place : event * length + place + 2]
                assert list(one.ids[start:end]) == list(ids[place : place + 1])
                assert list(one.gains[start:end]) == list(weights[place : place + 1])


def test_ids_and_unweighted_sums_are_not_copied():
    batch = batch_of([[[1, 2], [3]], [[4], [5, 6]]])
    batch = replace(batch, weights=np.ones(len(batch.ids), np.float32))
    table = TableSpec("t", ROWS, 3, SGD(1.0), "sum")
    one, two = replica_inputs(batch, [FeatureSpec("a", table), FeatureSpec("b", table)], 1, 1)
    for made in (one, two):
        assert np.shares_memory(made.ids, batch.ids)
        assert np.shares_memory(made.gains, batch.weights)
