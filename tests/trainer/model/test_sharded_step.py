"""The update that devices share out, against a whole one on each: on emulated devices, for every optimizer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import config
from trainer.model.inputs import TypedInput, lay_out
from transforms.types import Dense, DType, Ragged

pytest.importorskip("tensorflow")

import tensorflow as tf

from tests.support.emulated_slice import EmulatedSlice
from trainer.model.dense_step import DensePart
from trainer.model.heads import BINARY
from trainer.model.sharded_step import ShardedStep, pays
from trainer.run.weights.slice_step import SliceStep

EVENTS = 4
INPUTS = [TypedInput("words", Ragged(DType.INT64, 9)), TypedInput("price", Dense(DType.FLOAT32))]


def dense_part(tmp_path, **options):
    options = config(tmp_path, engine="tpu", network="dlrm", dropout=0.0, linear=True, **options)
    layout = lay_out(INPUTS, options)
    return DensePart.build(layout, options, BINARY), layout


def trained(slice_, step, dense, layout, steps):
    """The whole state after some steps, by the given way of updating, and the logits and units of each."""
    state = step.new_state()
    columns = dense.deep_columns + len(layout.features)
    notes = []
    for number in range(steps):
        source = np.random.default_rng(number)
        inputs = [
            tuple(
                tf.constant(one, tf.float32)
                for one in (source.normal(size=(EVENTS, columns)), source.normal(size=(EVENTS, 1)), source.integers(0, 2, EVENTS),
                            np.ones(EVENTS))
            )
            for _ in range(slice_.replicas)
        ]  # fmt: skip

        def replica(given, state=state):
            found = step.step(state.read(), *given)
            state.write(found.state)
            return found.logits.numpy(), found.gradients.numpy(), found.units_on.numpy()

        notes.append(slice_._run(replica, inputs))
    return state.values(), notes


@pytest.mark.parametrize(
    ("optimizer", "replicas"), [("adagrad", 2), ("adam", 8), ("newton", 3), ("lamb", 4), ("lars", 4), ("lamb", 3)]
)
def test_an_update_in_segments_is_the_whole_one(tmp_path, optimizer, replicas):
    """To the last digits: sums along two sides are in another order than one sum."""
    slice_ = EmulatedSlice(replicas)
    dense, layout = dense_part(tmp_path, dense_optimizer=optimizer, batch_rows=EVENTS * replicas)
    whole, in_segments = SliceStep(dense, slice_), SliceStep(dense, slice_, sharded_bytes=0)
    assert (whole.is_sharded, in_segments.is_sharded) == (False, True)
    expected, notes = trained(slice_, whole, dense, layout, 2)
    found, own_notes = trained(slice_, in_segments, dense, layout, 2)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(np.abs(other).max(initial=0.0), 1.0))
    for mine, theirs in zip(tf.nest.flatten(own_notes), tf.nest.flatten(notes), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert int(found["updates"]) == 2


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_states_of_devices_are_the_whole_one_in_parts(tmp_path, replicas):
    dense, _ = dense_part(tmp_path, dense_optimizer="adam")
    step = ShardedStep(dense, EmulatedSlice(replicas).mesh)
    source = np.random.default_rng(0)
    whole = tf.nest.map_structure(lambda one: source.random(np.shape(one), np.float32), dense.read_state())
    states = step.states_of(whole)
    specs = step.state_specs()
    for state in states:
        assert [one.shape for one in tf.nest.flatten(state)] == [tuple(one.shape) for one in tf.nest.flatten(specs)]
    slots = sum(one.size for one in tf.nest.flatten(whole["slots"]))
    assert sum(one.nbytes for one in states[0]["slots"]) == pytest.approx(4 * slots / replicas, rel=0.05)
    for one, other in zip(tf.nest.flatten(step.whole_state(states)), tf.nest.flatten(whole), strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_pays_for_many_weights_with_slots_on_several_devices():
    weights = [tf.zeros([1024, 1024])] * 8
    assert pays("adam", weights, 2)
    assert not pays("adam", weights, 1)
    assert not pays("sgd", weights, 2)
    assert not pays("adam", weights[:7], 2)
    assert not pays("adam", weights, 2, 1 << 40)
