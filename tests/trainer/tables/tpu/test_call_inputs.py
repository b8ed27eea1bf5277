"""The four arrays of a call: what replicas read of them is what they read of the batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.tpu.engines import EVENTS, engine_on, features, ragged_inputs
from trainer.errors import BadBatch
from trainer.tables import IdBatch
from trainer.tables.tpu.call_inputs import CallInputs

tf = pytest.importorskip("tensorflow")

WIDTH = 3


@pytest.fixture(scope="module")
def engine():
    return engine_on(4)


def random_batch(draw: np.random.Generator, rows: int, *, wide: bool, weighted: bool, most: int) -> IdBatch:
    lengths = draw.integers(0, most + 1, (len(features()), rows))
    offsets = np.zeros((len(lengths), rows + 1), np.int64)
    offsets[:, 1:] = np.cumsum(lengths).reshape(lengths.shape)
    offsets[1:, 0] = offsets[:-1, -1]
    bounds = tuple(one.table.vocabulary_size for one in features())
    ids = np.concatenate(
        [draw.integers(0, bound, count) for bound, count in zip(bounds, lengths.sum(axis=1), strict=True)]
    )
    weights = draw.normal(size=len(ids)).astype(np.float32) if weighted else None
    return IdBatch(ids.astype(np.int64 if wide else np.int32), offsets, weights)


@settings(max_examples=scaled(30))
@given(
    seed=st.integers(0, 2**32), steps=st.integers(0, 3), machines=st.sampled_from([1, 2, 4]), most=st.integers(0, 4),
    wide=st.booleans(), weighted=st.booleans(),
)  # fmt: skip
@pytest.mark.medium
def test_each_replica_reads_its_part_of_each_step(engine, seed, steps, machines, most, wide, weighted):
    draw, rows = np.random.default_rng(seed), EVENTS * engine.replicas
    batches = [
        (random_batch(draw, rows, wide=wide, weighted=weighted, most=most),
         (draw.normal(size=(rows, WIDTH)).astype(np.float32), draw.normal(size=rows).astype(np.float32)))
        for _ in range(steps)
    ]  # fmt: skip
    inputs = CallInputs(engine, (tf.TensorSpec([EVENTS, WIDTH]), tf.TensorSpec([EVENTS])), machines=machines)
    packed = inputs.pack(batches)
    assert len(packed) == machines
    drawn = [list(inputs.elements(arrays)) for arrays in packed]
    per = engine.replicas // machines
    for step, (ids, (dense, labels)) in enumerate(batches):
        expected = ragged_inputs(engine, ids)
        for replica in range(engine.replicas):
            (found_ids, found_gains), (found_dense, found_labels) = drawn[replica // per][step * per + replica % per]
            for one, other in zip(
                (*found_ids, *found_gains), (part for kind in expected[replica] for part in kind), strict=True
            ):
                assert one.dtype == other.dtype
                assert one.row_splits.numpy().tobytes() == other.row_splits.numpy().tobytes()
                assert one.values.numpy().tobytes() == other.values.numpy().tobytes()
            own = slice(replica * EVENTS, (replica + 1) * EVENTS)
            assert found_dense.numpy().tobytes() == dense[own].tobytes()
            assert found_labels.numpy().tobytes() == labels[own].tobytes()
    assert all(len(elements) == steps * per for elements in drawn)


def test_a_call_is_four_arrays_a_machine_whose_bytes_are_those_of_its_batches(engine):
    """However many steps: ids of 4 bytes, a gain for each, a length of 4 bytes for each bag, and the other arrays."""
    batch = random_batch(np.random.default_rng(0), EVENTS * engine.replicas, wide=False, weighted=False, most=3)
    for steps in (1, 64):
        (arrays,) = CallInputs(engine, (tf.TensorSpec([EVENTS]),)).pack(
            [(batch, (np.zeros(batch.rows, np.float32),))] * steps
        )
        looked_up, bags = len(arrays.ids) // steps, arrays.lengths.shape[1] * engine.replicas
        assert arrays.nbytes == steps * (8 * looked_up + 4 * bags + 4 * batch.rows)
        assert arrays.ids.dtype == np.int32


def test_a_batch_of_another_size_than_a_step_is_refused(engine):
    small = random_batch(np.random.default_rng(0), EVENTS, wide=False, weighted=False, most=3)
    with pytest.raises(BadBatch, match="the events of a step of all replicas"):
        CallInputs(engine, ()).pack([(small, ())])
