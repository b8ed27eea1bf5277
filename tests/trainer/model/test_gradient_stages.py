"""Gradients are handed on in the order of the backward pass, before those of the next group are computed, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tests.trainer.job.host.training_ways import NETWORKS, ROWS, batches_of, config_of  # noqa: E402
from trainer.model.gradient_stages import hand_on_in_stages  # noqa: E402
from trainer.run.weights.run_state import build_weights  # noqa: E402


def ancestors(operation):
    """All operations that an operation waits for."""
    found, left = set(), [operation]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [tensor.op for tensor in one.inputs]
            left += one.control_inputs
    return found


def traced(groups, layers=5, hand_on=lambda number, gradients: None):
    """The graph of an MLP's gradients, their operations, and those of the results."""
    weights = [tf.Variable(np.full((4, 4), 0.1 * k, np.float32)) for k in range(1, layers + 1)]
    kept = {}

    def differentiate(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            hidden = inputs
            for one in weights:
                hidden = tf.nn.relu(tf.matmul(hidden, one))
            loss = tf.reduce_sum(hidden * hidden)
        by_inputs, *gradients = tape.gradient(loss, [inputs, *weights])
        hand_on_in_stages(gradients, groups, [by_inputs], hand_on)
        kept["gradients"], kept["results"] = [one.op for one in gradients], by_inputs.op
        return by_inputs

    function = tf.function(differentiate, input_signature=[tf.TensorSpec((3, 4))], autograph=False)
    graph = function.get_concrete_function()
    return graph, kept["gradients"], kept["results"]


def test_each_group_waits_for_the_call_of_the_group_before():
    groups = [(4, 3), (2,), (1, 0)]
    graph, gradients, results = traced(groups)
    calls = [one for one in graph.graph.get_operations() if one.type in ("PyFunc", "PyFuncStateless", "EagerPyFunc")]
    assert len(calls) == 3
    for number, group in enumerate(groups):
        for place in group:
            waits = ancestors(gradients[place])
            assert [call in waits for call in calls] == [k < number for k in range(3)]
    assert all(call in ancestors(results) for call in calls)


def test_groups_are_handed_on_in_order_at_every_call():
    found = []

    def keep(number, gradients):
        found.append((number, [one.copy() for one in gradients]))

    graph, _, _ = traced([(4, 3), (2,), (1, 0)], hand_on=keep)
    for _ in range(3):
        graph(tf.ones((3, 4)))
    assert [number for number, _ in found] == [0, 1, 2] * 3
    assert [len(gradients) for _, gradients in found] == [2, 1, 2] * 3


@pytest.mark.medium
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_stages_change_no_bit_of_a_network(tmp_path, name):
    """Each variable is a group of its own; random state goes on as without stages."""
    options = config_of(tmp_path, name)
    prepared, batches = batches_of(options)
    plain, staged = (build_weights(prepared.layout, options, prepared.head) for _ in range(2))
    sizes = plain.dense.sizes
    found = {}
    groups = [(place,) for place in reversed(range(len(sizes)))]
    differentiate = staged.dense.gradients_in_stages(
        groups, lambda number, gradients: found.update({groups[number][0]: gradients[0].copy()})
    )
    rng = np.random.default_rng(1)
    for batch in batches[:3]:
        looked_up = plain.look_up(batch)
        inputs = looked_up.deep, looked_up.linear, batch.dense, batch.labels, rng.random(ROWS).astype(np.float32)
        *expected, flat = plain.dense.gradients(*inputs)
        for one, other in zip(differentiate(*inputs), expected, strict=True):
            assert one.tobytes() == other.tobytes()
        assert np.concatenate([found[place].ravel() for place in range(len(sizes))]).tobytes() == flat.tobytes()
        for model in (plain.dense, staged.dense):
            model.apply(flat)
    for key, array in plain.dense.state().items():
        assert array.tobytes() == staged.dense.state()[key].tobytes(), key
