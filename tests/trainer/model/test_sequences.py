"""Encoders of sequences against plain references, event by event and place by place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import config
from trainer.errors import ConfigError
from trainer.model.inputs import TypedInput, lay_out
from transforms.types import Dense, DType, Ragged

pytest.importorskip("tensorflow")
import tensorflow as tf

from trainer.model.dense_model import DenseModel
from trainer.model.mlp import SeededLayers
from trainer.model.sequences.din import TargetAttention
from trainer.model.sequences.mean import MeanPooling
from trainer.model.sequences.sasrec import SelfAttention
from trainer.options.sequences import SequenceOptions

LENGTH, WIDTH = 5, 4
COUNTS = [5, 1, 0, 3, 4]
OPTIONS = {
    "mean": {"encoder": "mean"},
    "din": {"encoder": "din", "target": "item", "hidden": [6, 3]},
    "din of shares": {"encoder": "din", "target": "item", "hidden": [6], "softmax": True},
    "sasrec": {"encoder": "sasrec"},
    "sasrec of two heads": {"encoder": "sasrec", "heads": 2, "layers": 3},
}


def encoder_of(kind):
    options = SequenceOptions.read("history", {"length": LENGTH, **OPTIONS[kind]})
    made = SeededLayers(config("run", activation="gelu"), of="sequence history")
    if options.encoder == "din":
        return TargetAttention(made, options, WIDTH)
    return SelfAttention(made, options, WIDTH, 0.5) if options.encoder == "sasrec" else MeanPooling()


def drawn(seed=0, counts=COUNTS):
    """Rows, zeros at places that an event does not have; targets; and which places it has."""
    rng = np.random.default_rng(seed)
    present = (np.arange(LENGTH)[None] < np.array(counts)[:, None]).astype(np.float32)
    rows = rng.normal(size=(len(counts), LENGTH, WIDTH)).astype(np.float32) * present[:, :, None]
    return rows, rng.normal(size=(len(counts), WIDTH)).astype(np.float32), present


def encoded(encoder, rows, target, present):
    return encoder(*map(tf.constant, (rows, target, present)), training=False).numpy()


def gelu(x):
    return np.array(tf.nn.gelu(x))


def reference(kind, variables, rows, target):
    """One event: the rows of the places that it has, the newest one first."""
    if not len(rows):
        return np.zeros(WIDTH)
    if kind == "mean":
        return rows.mean(axis=0)
    if kind.startswith("din"):
        scores = []
        for row in rows:
            hidden = np.concatenate([target, row, target * row])
            *unit, score, score_0 = [*variables, np.zeros(1)] if "shares" in kind else variables
            for kernel, bias in zip(unit[::2], unit[1::2], strict=True):
                hidden = gelu(hidden @ kernel + bias)
            scores.append(float((hidden @ score + score_0)[0]))
        weights = np.exp(scores) / np.exp(scores).sum() if "shares" in kind else scores
        return sum(weight * row for weight, row in zip(weights, rows, strict=True))
    return _sasrec(variables, rows, heads=2 if "two" in kind else 1)


def _sasrec(variables, rows, heads):
    places, *rest, gamma, beta = variables
    hidden = rows + places[: len(rows)]
    size = WIDTH // heads
    while rest:
        norm_1, norm_2 = rest[:2], rest[7:9]
        (query, query_0, key, value, value_0), (inner, inner_0, outer, outer_0) = rest[2:7], rest[9:13]
        rest = rest[13:]
        normed = [_normed(row, *norm_1) for row in hidden]
        after = []
        for place, row in enumerate(hidden):
            parts = []
            for head in (slice(h * size, (h + 1) * size) for h in range(heads)):
                own = (normed[place] @ query + query_0)[head]
                older = normed[place:]  # the newest place is the first one
                scores = [own @ (one @ key)[head] / np.sqrt(size) for one in older]
                shares = np.exp(scores) / np.exp(scores).sum()
                parts.append(sum(s * (one @ value + value_0)[head] for s, one in zip(shares, older, strict=True)))
            row = row + np.concatenate(parts)
            row = row + np.maximum(_normed(row, *norm_2) @ inner + inner_0, 0) @ outer + outer_0
            after.append(row)
        hidden = after
    return _normed(hidden[0], gamma, beta)


def _normed(row, gamma, beta):
    return (row - row.mean()) / np.sqrt(row.var() + 1e-8) * gamma + beta


@pytest.mark.parametrize("kind", OPTIONS)
def test_each_event_is_that_of_a_plain_reference(kind) -> None:
    encoder = encoder_of(kind)
    for variable in encoder.trainable:  # biases and norms would hide behind their first values
        variable.assign(np.random.default_rng(variable.shape[0]).normal(size=variable.shape) * 0.7)
    variables = [np.asarray(one, np.float64) for one in encoder.trainable]
    rows, target, present = drawn()
    found = encoded(encoder, rows, target, present)
    for event, count in enumerate(COUNTS):
        expected = reference(kind, variables, rows[event, :count].astype(np.float64), target[event].astype(np.float64))
        np.testing.assert_allclose(found[event], expected, rtol=2e-4, atol=2e-5, err_msg=f"event {event}")


@pytest.mark.parametrize("kind", OPTIONS)
def test_places_that_an_event_does_not_have_change_nothing(kind) -> None:
    """Neither a value nor a gradient, whatever their rows hold."""
    encoder = encoder_of(kind)
    rows, target, present = drawn()
    noise = np.where(present[:, :, None] > 0, rows, np.float32(1e3) * np.random.default_rng(3).normal(size=rows.shape))
    assert (
        encoded(encoder, noise.astype(np.float32), target, present).tobytes()
        == encoded(encoder, rows, target, present).tobytes()
    )
    with tf.GradientTape() as tape:
        watched = tf.constant(rows)
        tape.watch(watched)
        total = tf.reduce_sum(tf.square(encoder(watched, tf.constant(target), tf.constant(present), training=True)))
    gradients = tape.gradient(total, watched).numpy()
    assert not gradients[present == 0].any()
    assert gradients[present == 1].any()


@pytest.mark.parametrize(("kind", "has_order"), [("mean", False), ("din", False), ("sasrec", True)])
def test_order_matters_to_self_attention_alone(kind, has_order) -> None:
    rows, target, present = drawn(counts=[5, 4])
    turned = rows.copy()
    turned[0], turned[1, :4] = rows[0, ::-1], rows[1, [2, 0, 3, 1]]
    encoder = encoder_of(kind)
    one, other = encoded(encoder, rows, target, present), encoded(encoder, turned, target, present)
    assert np.allclose(one, other, rtol=1e-5, atol=1e-6) != has_order


@pytest.mark.medium
@pytest.mark.parametrize("kind", [pytest.param("din", marks=pytest.mark.slow), "sasrec"])
def test_encoders_compile_for_fixed_shapes(kind) -> None:
    """XLA refuses what has no static shape."""
    encoder = encoder_of(kind)

    def step(rows, target, present):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            out = encoder(rows, target, present, training=True)
            total = tf.reduce_sum(tf.square(out))
        return out, tape.gradient(total, rows)

    inputs = [tf.constant(one) for one in drawn()]
    for one, other in zip(step(*inputs), tf.function(step, jit_compile=True)(*inputs), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-4, atol=2e-5)


INPUTS = [
    TypedInput("history", Ragged(DType.INT64, 50)),
    TypedInput("item", Dense(DType.INT64, 50)),
    TypedInput("ages", Ragged(DType.INT64, 9)),
    TypedInput("price", Dense(DType.FLOAT32)),
]


def model_of(sequence, **options):
    given = config("run", batch_rows=len(COUNTS), sequences={"history": {"length": LENGTH, **sequence}}, **options)
    return DenseModel(lay_out(INPUTS, given), given)


def batch(seed=0, price=0.0):
    rows, target, present = drawn(seed)
    ages = drawn(seed + 1)[0]
    activations = np.concatenate([rows.reshape(len(rows), -1), target, ages.reshape(len(rows), -1)], axis=1)
    dense = np.stack([np.full(len(rows), price), present.sum(axis=1)], axis=1).astype(np.float32)
    labels = (np.arange(len(rows)) % 2).astype(np.float32)
    return activations, np.zeros((len(rows), 0), np.float32), dense, labels, np.ones(len(rows), np.float32)


@pytest.mark.parametrize("network", ["dlrm", "dcn", "fm"])
def test_rows_of_gaps_are_added_before_the_encoder(network) -> None:
    """Rows and ages whose sum is the same give the same logits; lengths are no number of the network."""
    model = model_of({"encoder": "din", "target": "item", "gaps": "ages"}, network=network)
    activations, linear, dense, *_ = batch()
    moved = activations.copy()
    width = LENGTH * WIDTH
    moved[:, :width] += activations[:, -width:]
    moved[:, -width:] = 0
    np.testing.assert_allclose(model.predict(activations, linear, dense), model.predict(moved, linear, dense), rtol=1e-4, atol=1e-6)  # fmt: skip
    assert (
        model.predict(activations, linear, dense).tobytes()
        != model.predict(np.zeros_like(activations), linear, dense).tobytes()
    )


def test_scaling_and_linear_part_leave_lengths_alone() -> None:
    """A length of 5 would be far off the scale of the price."""
    scaled = {"dense_scaling": {"price": [["plain", 2.0, 0.01]]}}
    sequence = {"encoder": "sasrec", "gaps": "ages"}
    plain, other = model_of(sequence, linear=True), model_of(sequence, linear=True, **scaled)
    activations, _, dense, *_ = batch(price=2.0)
    linear = np.zeros((len(COUNTS), 3), np.float32)
    centred = dense - np.array([2.0, 0.0], np.float32)
    assert plain.predict(activations, linear, centred).tobytes() == other.predict(activations, linear, dense).tobytes()
    assert tuple(plain.trainable[-1].shape) == (1, 1)


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["din", pytest.param("sasrec", marks=pytest.mark.slow)])
def test_a_restored_model_goes_on_bit_for_bit(kind) -> None:
    """With dropout, whose random state is a part of the model."""
    sequence = {**OPTIONS[kind], "gaps": "ages"} | ({"dropout": 0.3, "layers": 1} if kind == "sasrec" else {})

    def steps(model, seeds):
        return [model.step(*batch(seed))[0].tobytes() for seed in seeds]

    whole, first, second = (model_of(sequence) for _ in range(3))
    expected = steps(whole, range(6))
    found = steps(first, range(3))
    second.load_state(first.state())
    assert found + steps(second, range(3, 6)) == expected
    assert all(array.tobytes() == second.state()[name].tobytes() for name, array in whole.state().items())


def test_first_weights_depend_on_the_name_of_the_input_alone() -> None:
    """Not on the network behind, whose first weights in turn do not depend on sequences."""
    sequence = {"encoder": "din", "target": "item", "gaps": "ages"}
    one, other = (model_of(sequence, network=network) for network in ("dlrm", "dcn"))
    assert np.array_equal(one.trainable[0].numpy(), other.trainable[0].numpy())
    given = config("run", batch_rows=len(COUNTS), network="dcn")
    plain = DenseModel(lay_out([INPUTS[0], INPUTS[1], INPUTS[3]], given), given)
    assert np.array_equal(plain.trainable[0].numpy(), other.trainable[4].numpy())
    assert not np.array_equal(one.trainable[0].numpy(), model_of(sequence, seed=1).trainable[0].numpy())


def test_hidden_units_of_the_activation_unit_are_counted() -> None:
    sequence = {"encoder": "din", "target": "item", "hidden": [7]}
    model = model_of(sequence, activation="relu", top_mlp=(3,), bottom_mlp=(2,))
    assert model.counted_units == 7 + 2 + 4 + 3


def test_features_with_a_vector_for_each_place_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="comparing features needs one vector of each"):
        model_of({"encoder": "mean"}).vectors(batch()[0])
