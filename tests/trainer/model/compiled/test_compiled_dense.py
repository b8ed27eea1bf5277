"""The compiled dense part trains as Keras's layers and optimizers do, from the same weights, and their checkpoints are each other's."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.trainer.synthetic import config
from trainer.errors import ConfigError, TornCheckpoint
from trainer.model.compiled.compiled_dense import CompiledDense, is_compiled
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.task_heads import TaskHeads
from trainer.options.config import ACTIVATIONS, DENSE_OPTIMIZERS
from transforms.types import Dense, DType, Ragged

pytest.importorskip("tensorflow")

from trainer.model.dense_model import DenseModel

HEADS = {
    "binary": BINARY,
    "classes": Head("multiclass", 4),
    "number": Head("regression", center=2.0, scale=3.0),
    "several": TaskHeads(
        (("click", BINARY), ("stars", Head("multiclass", 3)), ("secs", Head("regression", scale=2.0)))
    ),
}


@st.composite
def cases(draw):
    """A layout, options, a head and a seed."""
    ids = draw(st.integers(0, 4))
    numbers = draw(st.integers(0 if ids else 1, 3))
    inputs = [TypedInput(f"id_{k}", Dense(DType.INT64, 10)) for k in range(ids)]
    inputs += [TypedInput(f"number_{k}", Dense(DType.FLOAT32)) for k in range(numbers)]
    deep = draw(st.booleans())
    network = draw(st.sampled_from(["dlrm", "dcn", "fm"]))
    head = draw(st.sampled_from(sorted(HEADS)))
    options = {
        "deep": deep,
        "linear": draw(st.booleans()) if deep else True,
        "network": network,
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "dense_optimizer": draw(st.sampled_from(DENSE_OPTIMIZERS)),
        "dense_learning_rate": 0.02,
        "bottom_mlp": tuple(draw(st.lists(st.integers(1, 20), max_size=2))),
        "top_mlp": tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=2))),
        "dense_bias": draw(st.booleans()),
        "dim": draw(st.sampled_from([1, 3, 4])),
        "cross_rank": draw(st.sampled_from([0, 2])),
        "cross_structure": draw(st.sampled_from(["stacked", "parallel"])),
        "seed": draw(st.integers(0, 5)),
        "initial_bias": -0.5,
        "dropout": draw(st.sampled_from([0.0, 0.3])),
        "embedding_dropout": draw(st.sampled_from([0.0, 0.25])),
    }
    if ids and network != "dcn" and draw(st.booleans()):
        options["dims"] = {"id_0": 2}
    if numbers and draw(st.booleans()):
        options["dense_scaling"] = {"number_0": (draw(st.sampled_from([("plain", 0.5, 2.0), ("log", 0.1, 0.7)])),)}
    if head == "several" and network != "fm" and draw(st.booleans()):
        options["task_mlp"] = (5,)
    if head == "several":
        options["task_weights"] = {"stars": 0.5}
    return inputs, config("run", batch_rows=draw(st.sampled_from([1, 6, 300])), **options), HEADS[head]


def batch_of(layout, options, head, draw):
    """Activations of both parts, numbers, labels and weights."""
    rows = options.batch_rows
    deep = sum(one.width for one in layout.features) if options.deep else 0
    linear = len(layout.features) * head.width if options.linear else 0
    activations, weights_of_ids = (draw.normal(size=(rows, width)).astype(np.float32) for width in (deep, linear))
    dense = (draw.normal(size=(rows, layout.dense_width)) * 3).astype(np.float32)
    columns = []
    for _, one in head.each:
        own = draw.integers(0, one.classes, rows) if one.task != "regression" else draw.normal(size=rows)
        columns.append(np.asarray(own, np.float32))
    labels = np.stack(columns, axis=1)
    if len(head.each) == 1:
        labels = labels[:, 0]
    else:
        labels[draw.random(labels.shape) < 0.2] = np.nan
    weights = (draw.random(rows) < 0.9).astype(np.float32)
    weights[0] = 1.0
    return activations, weights_of_ids, dense, labels, weights


def assert_close(ours, theirs, scale=1.0):
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5 * scale)


@pytest.mark.medium
@settings(max_examples=40)
@given(cases())
def test_steps_are_those_of_keras(case):
    inputs, options, head = case
    layout = lay_out(inputs, options)
    theirs, ours = DenseModel(layout, options, head), CompiledDense(layout, options, head)
    first, second = theirs.state(), ours.state()
    assert {name: (one.shape, one.dtype) for name, one in first.items()} == {
        name: (one.shape, one.dtype) for name, one in second.items()
    }
    for name, one in first.items():
        np.testing.assert_allclose(second[name], one, rtol=0, atol=2e-6, err_msg=name)
    ours.load_state(first)
    draw = np.random.default_rng(options.seed)
    for step in range(3):
        batch = batch_of(layout, options, head, draw)
        assert_close(ours.predict(*batch[:3]), theirs.predict(*batch[:3]))
        found, expected = ours.gradients(*batch), theirs.gradients(*batch)
        for mine, keras in zip(found, expected, strict=True):
            assert mine.shape == keras.shape
            assert_close(mine, keras)
        # The same gradients from here on: a small one of Adam's first step moves a weight by the whole rate, whatever its sign.
        ours.apply(expected[3])
        theirs.apply(expected[3])
        for name, one in theirs.state().items():
            np.testing.assert_allclose(ours.state()[name], one, rtol=1e-4, atol=1e-5, err_msg=f"{name}, step {step}")
        ours.load_state(theirs.state())
    if theirs.idle_units is not None:
        assert ours.idle_units == theirs.idle_units
    assert ours.sizes == theirs.sizes
    assert ours.gradient_norms.total == pytest.approx(theirs.gradient_norms.total, rel=1e-4)
    assert_close(ours.in_tensorflow().predict(*batch[:3]), ours.predict(*batch[:3]))


def parts_of(**options):
    """A model over two ids and two numbers, its layout and its options."""
    inputs = [*(TypedInput(f"id_{k}", Dense(DType.INT64, 10)) for k in range(2)), TypedInput("x", Dense(DType.FLOAT32))]
    given = config("run", batch_rows=512, **options)
    layout = lay_out(inputs, given)
    return CompiledDense(layout, given), layout, given


def test_one_seed_gives_one_training_bit_for_bit():
    def trained():
        model, layout, given = parts_of(linear=True, dropout=0.2, embedding_dropout=0.1, threads=2)
        draw = np.random.default_rng(0)
        for _ in range(5):
            model.step(*batch_of(layout, given, BINARY, draw))
        return model.state()

    first, second = trained(), trained()
    assert all(array.tobytes() == second[name].tobytes() for name, array in first.items())


def test_threads_change_rounding_alone():
    draw = np.random.default_rng(0)
    model, layout, given = parts_of(network="dcn", linear=True)
    shared, _, _ = parts_of(network="dcn", linear=True, threads=3)
    batch = batch_of(layout, given, BINARY, draw)
    for one, other in zip(model.gradients(*batch), shared.gradients(*batch), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


def test_dropout_goes_on_where_it_was():
    model, layout, given = parts_of(dropout=0.4)
    draw = np.random.default_rng(0)
    batches = [batch_of(layout, given, BINARY, draw) for _ in range(4)]
    for batch in batches[:2]:
        model.step(*batch)
    resumed, _, _ = parts_of(dropout=0.4)
    resumed.load_state(model.state())
    for batch in batches[2:]:
        for one, other in zip(model.step(*batch), resumed.step(*batch), strict=True):
            assert one.tobytes() == other.tobytes()


def test_a_state_of_other_shapes_is_refused_and_changes_nothing():
    model, _, _ = parts_of()
    other, _, _ = parts_of(top_mlp=(9,))
    before = model.state()
    with pytest.raises(TornCheckpoint, match="must have the shapes of the model's"):
        model.load_state(other.state())
    assert all(array.tobytes() == before[name].tobytes() for name, array in model.state().items())


@pytest.mark.parametrize(
    "options", [{"sequences": {"words": {"length": 3, "encoder": "mean"}}}, {"tower_modules": {"towers": [["id_0"], ["words"]], "compression": 2}}]
)  # fmt: skip
def test_other_models_are_in_tensorflow(options):
    inputs = [TypedInput("id_0", Dense(DType.INT64, 10)), TypedInput("words", Ragged(DType.INT64, 10))]
    given = config("run", **options)
    assert not is_compiled(lay_out(inputs, given), given)
    plain = config("run")
    assert is_compiled(lay_out(inputs, plain), plain)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"top_mlp": (), "task_mlp": (3,)}, "a DLRM with task_mlp must have top_mlp"),
        ({"network": "fm", "task_mlp": (3,)}, "task_mlp must be absent with network fm"),
    ],
)
def test_options_that_do_not_fit_are_refused_as_in_tensorflow(options, match):
    inputs = [TypedInput("id_0", Dense(DType.INT64, 10))]
    given = config("run", **options)
    for build in (CompiledDense, DenseModel):
        with pytest.raises(ConfigError, match=match):
            build(lay_out(inputs, given), given, HEADS["several"])


def test_training_needs_no_tensorflow():
    """A process that trains a small network does not import it."""
    source = """
import sys
import subprocess
import sys

import numpy as np
from trainer.model.inputs import TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.weights.run_state import build_weights
from transforms.types import Dense, DType, Ragged
config = TrainConfig("run", batch_rows=4, linear=True)
weights = build_weights(lay_out([TypedInput("a", Dense(DType.INT64, 9))], config), config)
weights.arrays()
assert not {"tensorflow", "keras"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", source], check=True, cwd=ROOT)
