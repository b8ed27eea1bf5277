"""A model on a slice predicts there: many batches a call, with the tables where they are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config
from trainer.run.preparation.preparation import prepare_run
from trainer.run.reading.batches import make_batches
from trainer.run.reading.stream import fragment_stream
from trainer.run.weights.frozen_weights import predictor
from trainer.run.weights.run_state import build_weights
from trainer.run.weights.tpu_weights import STEPS_PER_CALL, TpuWeights

pytest.importorskip("tensorflow")

from tests.support.emulated_slice import EmulatedSlice


@pytest.fixture
def scene(tmp_path):
    """A model on a slice of two replicas, and its batches, of which the last one is not full."""
    data = Synthetic(2, 139)
    options = config(tmp_path, engine="tpu", batch_rows=8, linear=True, dropout=0.2)
    prepared = prepare_run(data.solution, options, data.read_labels, on_skip=pytest.fail)
    slice_ = EmulatedSlice(2)
    decoded = fragment_stream(
        prepared.refs(prepared.remaining), data.read, prepared.layout, ahead=1, head=prepared.head
    )
    batches = list(make_batches(decoded, prepared.layout, batch_rows=options.batch_rows))
    return prepared, slice_, TpuWeights(prepared.layout, options, prepared.head, slice_), batches


@pytest.mark.medium
def test_a_slice_predicts_what_a_copy_of_its_weights_predicts_in_few_calls(scene):
    prepared, slice_, weights, batches = scene
    assert STEPS_PER_CALL < len(batches) <= 2 * STEPS_PER_CALL
    weights.begin(batches[:3])()
    before = weights.arrays()
    found = list(predictor(weights, prepared.config)(iter(batches)))
    assert slice_.scored_steps == [STEPS_PER_CALL, len(batches) - STEPS_PER_CALL], "one call of the host for 64 batches"
    assert [batch for batch, _ in found] == batches
    copy = build_weights(prepared.layout, prepared.config, prepared.head)
    copy.load(before)
    for batch, logits in found:
        assert logits.shape[0] == batch.rows
        np.testing.assert_allclose(logits, copy.predict(batch), atol=2e-6)
    after = weights.arrays()
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], err_msg=name)


@pytest.mark.medium
def test_training_goes_on_as_if_nothing_was_predicted(scene):
    prepared, slice_, weights, batches = scene
    other = TpuWeights(prepared.layout, prepared.config, prepared.head, slice_)
    logits = [*weights.begin(batches[:3])()]
    for _ in range(2):
        assert len(list(weights.own_predictor(batches[:5]))) == 5
    logits += weights.begin(batches[3:6])()
    assert [one.tobytes() for one in logits] == [one.tobytes() for one in other.begin(batches[:6])()]
