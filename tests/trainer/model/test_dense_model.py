from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import config
from trainer.errors import ConfigError, TornCheckpoint
from trainer.model.inputs import TypedInput, lay_out
from transforms.types import Dense, DType

pytest.importorskip("tensorflow")

from trainer.model.dense_model import DenseModel

NUMBERS = [TypedInput("x", Dense(DType.FLOAT32)), TypedInput("y", Dense(DType.FLOAT32))]
NO_LINEAR = np.zeros((6, 0), np.float32)
IDS = [TypedInput(name, Dense(DType.INT64, 10)) for name in ("a", "b", "c")]


def model_of(inputs, **options):
    options = config("run", batch_rows=6, **options)
    return DenseModel(lay_out(inputs, options), options)


def batch_for(inputs, width=4, seed=0):
    rng = np.random.default_rng(seed)
    embedded = sum(item.type.buckets is not None for item in inputs)
    activations = rng.normal(size=(6, embedded * width)).astype(np.float32)
    dense = rng.normal(size=(6, len(inputs) - embedded)).astype(np.float32)
    return activations, dense, (rng.random(6) < 0.5).astype(np.float32)


def relu_mlp(x, layers):
    for kernel, bias in layers:
        x = np.maximum(x @ kernel + bias, 0.0)
    return x


def test_logits_equal_the_paper_written_out_in_numpy():
    model = model_of([*IDS, *NUMBERS])
    activations, dense, _ = batch_for([*IDS, *NUMBERS])
    weights = [array.astype(np.float64) for name, array in model.state().items() if name.startswith("weights/")]
    pairs = list(zip(weights[0::2], weights[1::2], strict=True))
    bottom = relu_mlp(dense, pairs[:2])
    vectors = [*np.split(activations, 3, axis=1), bottom]
    dots = [(vectors[i] * vectors[j]).sum(axis=1) for i in range(4) for j in range(i)]
    hidden = relu_mlp(np.concatenate([bottom, np.stack(dots, axis=1)], axis=1), pairs[2:3])
    (kernel, bias) = pairs[3]
    np.testing.assert_allclose(
        model.predict(activations, NO_LINEAR, dense), (hidden @ kernel + bias)[:, 0], rtol=1e-4, atol=1e-5
    )


def mean_loss(model, activations, dense, labels, weights):
    logits = model.predict(activations, NO_LINEAR, dense).astype(np.float64)
    losses = np.logaddexp(0.0, logits) - labels * logits
    return (losses * weights).sum() / weights.sum()


def crossed(first, layers, rank):
    x = first
    for layer in layers:
        if rank:
            down, up, bias = layer
            x = first * (x @ down @ up + bias) + x
        else:
            kernel, bias = layer
            x = first * (x @ kernel + bias) + x
    return x


@pytest.mark.parametrize("rank", [0, 3, 100])
@pytest.mark.parametrize("structure", ["stacked", "parallel"])
def test_cross_layers_equal_the_paper_written_out_in_numpy(rank, structure):
    """DCN-v2, equations 1 and 2; a rank that is not below the width is a full matrix."""
    model = model_of([*IDS, *NUMBERS], network="dcn", cross_layers=2, cross_rank=rank, cross_structure=structure)
    activations, dense, _ = batch_for([*IDS, *NUMBERS])
    weights = [array.astype(np.float64) for name, array in model.state().items() if name.startswith("weights/")]
    low = rank if rank < 14 else 0
    size = 3 if low else 2
    layers = [weights[size * k : size * k + size] for k in range(2)]
    assert layers[0][0].shape == ((14, low) if low else (14, 14))
    kernel, bias, logit, logit_bias = weights[2 * size :]
    first = np.concatenate([activations, dense], axis=1).astype(np.float64)
    across = crossed(first, layers, low)
    deep = relu_mlp(across if structure == "stacked" else first, [(kernel, bias)])
    last = deep if structure == "stacked" else np.concatenate([across, deep], axis=1)
    expected = (last @ logit + logit_bias)[:, 0]
    np.testing.assert_allclose(model.predict(activations, NO_LINEAR, dense), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("network", ["dlrm", "dcn"])
@pytest.mark.parametrize("inputs", [[*IDS, *NUMBERS], IDS, IDS[:1], [*IDS[:1], *NUMBERS]])
def test_activation_gradients_equal_central_differences(inputs, network):
    model = model_of(inputs, network=network)
    activations, dense, labels = batch_for(inputs)
    weights = np.array([1, 1, 1, 1, 1, 0], np.float32)
    numeric = np.zeros(activations.shape)
    for at in np.ndindex(activations.shape):
        up, down = activations.copy(), activations.copy()
        up[at] += 1e-3
        down[at] -= 1e-3
        ends = [mean_loss(model, moved, dense, labels, weights) for moved in (up, down)]
        numeric[at] = (ends[0] - ends[1]) / (up[at] - down[at])
    _, gradients, _ = model.step(activations, NO_LINEAR, dense, labels, weights)
    np.testing.assert_allclose(gradients, numeric, atol=3e-3)
    assert np.abs(gradients[:5]).max() > 1e-3
    assert not gradients[5].any()


@pytest.mark.medium
@pytest.mark.parametrize("inputs", [[*IDS, *NUMBERS], IDS, IDS[:1], NUMBERS, [*IDS[:1], *NUMBERS]])
@pytest.mark.parametrize(
    "options", [{"dense_optimizer": "adam"}, {"dense_optimizer": "adagrad"}, {"dense_optimizer": "sgd"}, {"dense_optimizer": "newton"}, {"network": "dcn"},
                {"network": "dcn", "cross_rank": 2, "cross_structure": "parallel", "dims": {}}])  # fmt: skip
def test_steps_lower_the_loss(inputs, options):
    model = model_of(inputs, **options, dense_learning_rate=0.05)
    activations, dense, labels = batch_for(inputs, seed=3)
    ones = np.ones(6, np.float32)
    before = mean_loss(model, activations, dense, labels, ones)
    logits, _, _ = model.step(activations, NO_LINEAR, dense, labels, ones)
    fresh = model_of(inputs, **options, dense_learning_rate=0.05)
    np.testing.assert_array_equal(logits, fresh.predict(activations, NO_LINEAR, dense))  # from before the update
    for _ in range(30):
        model.step(activations, NO_LINEAR, dense, labels, ones)
    assert mean_loss(model, activations, dense, labels, ones) < before


def test_an_input_of_another_width_is_projected():
    model = model_of([*IDS, *NUMBERS], dims={"b": 7})
    rng = np.random.default_rng(0)
    _, dense, labels = batch_for([*IDS, *NUMBERS])
    activations = rng.normal(size=(6, 4 + 7 + 4)).astype(np.float32)
    _, gradients, _ = model.step(activations, NO_LINEAR, dense, labels, np.ones(6, np.float32))
    assert gradients.shape == (6, 15)
    assert model.state()["weights/000"].shape == (7, 4)


@pytest.mark.medium
@pytest.mark.parametrize("network", ["dlrm", "dcn"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_restored_model_continues_bit_for_bit(dropout, network):
    def run(model, steps):
        for seed in steps:
            activations, dense, labels = batch_for([*IDS, *NUMBERS], seed=seed)
            model.step(activations, NO_LINEAR, dense, labels, np.ones(6, np.float32))
        return model

    straight = run(model_of([*IDS, *NUMBERS], dropout=dropout, network=network), range(8)).state()
    second = model_of([*IDS, *NUMBERS], dropout=dropout, network=network, seed=9)
    second.load_state(run(model_of([*IDS, *NUMBERS], dropout=dropout, network=network), range(4)).state())
    resumed = run(second, range(4, 8)).state()
    assert resumed.keys() == straight.keys()
    assert any(name.startswith("random/") for name in straight) == bool(dropout)
    for name, expected in straight.items():
        assert resumed[name].tobytes() == expected.tobytes(), name


@pytest.mark.medium
def test_dropout_is_off_where_events_are_predicted():
    model = model_of([*IDS, *NUMBERS], dropout=0.5)
    activations, dense, labels = batch_for([*IDS, *NUMBERS])
    expected = model.predict(activations, NO_LINEAR, dense)
    logits, _, _ = model.step(activations, NO_LINEAR, dense, labels, np.ones(6, np.float32))
    np.testing.assert_array_equal(logits, expected)


def test_seeds_decide_the_first_weights():
    one, same, other = (model_of(IDS, seed=seed).state()["weights/000"] for seed in (1, 1, 2**31 - 1))
    assert one.tobytes() == same.tobytes() != other.tobytes()


def test_weights_of_another_model_are_refused():
    with pytest.raises(TornCheckpoint) as caught:
        model_of(IDS).load_state(model_of([*IDS, *NUMBERS]).state())
    assert "weights/000: float32 [2, 8]" in caught.value.value
    assert "weights/000: float32 [3, 8]" in str(caught.value.allowed)


@pytest.mark.medium
def test_the_linear_part_adds_a_weight_for_every_id_and_number():
    model = model_of([*IDS, *NUMBERS], linear=True, initial_bias=-2.0)
    activations, dense, labels = batch_for([*IDS, *NUMBERS])
    linear = np.random.default_rng(3).normal(size=(6, 3)).astype(np.float32)
    logits = model.predict(activations, linear, dense)
    of_network = model.predict(activations, np.zeros_like(linear), dense) + 2.0
    assert of_network.all(), "the first gradient reaches the network"
    np.testing.assert_allclose(logits, -2.0 + of_network + linear.sum(axis=1), rtol=1e-4, atol=1e-6)
    _, _, by_linear = model.step(activations, linear, dense, labels, np.ones(6, np.float32))
    expected = (1 / (1 + np.exp(-logits)) - labels) / 6
    np.testing.assert_allclose(by_linear, np.repeat(expected[:, None], 3, axis=1), rtol=1e-4, atol=1e-7)


def test_a_linear_model_has_no_mlps():
    model = model_of([*IDS, *NUMBERS], linear=True, deep=False)
    none, dense = np.zeros((6, 0), np.float32), batch_for([*IDS, *NUMBERS])[1]
    assert sum(name.startswith("weights/") for name in model.state()) == 2
    np.testing.assert_array_equal(model.predict(none, np.ones((6, 3), np.float32), dense), np.full(6, 3.0, np.float32))


def test_features_are_compared_at_one_width():
    """A DLRM projects another width; a DCN compares activations as they are, so that they must be equally wide."""
    activations = np.random.default_rng(0).normal(size=(5, 4 + 7 + 4)).astype(np.float32)
    dlrm = model_of([*IDS, *NUMBERS], dims={"b": 7})
    found = dlrm.vectors(activations)
    assert found.shape == (5, 3, 4)
    np.testing.assert_array_equal(found[:, 0], activations[:, :4])
    np.testing.assert_allclose(found[:, 1], activations[:, 4:11] @ dlrm.state()["weights/000"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[:, 2], activations[:, 11:])
    equal = model_of(IDS, network="dcn").vectors(activations[:, :12])
    np.testing.assert_array_equal(equal.reshape(5, 12), activations[:, :12])
    with pytest.raises(ConfigError, match="needs equal widths"):
        model_of([*IDS, *NUMBERS], network="dcn", dims={"b": 7}).vectors(activations)
    with pytest.raises(ConfigError, match="needs a model with a network"):
        model_of(IDS, deep=False, linear=True).vectors(activations[:, :0])
