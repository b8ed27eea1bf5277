"""The dense model with several labels: losses, weights, MLPs and labels that are missing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import config
from trainer.errors import ConfigError
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.task_heads import TaskHeads
from transforms.types import Dense, DType

pytest.importorskip("tensorflow")

from trainer.model.dense_model import DenseModel

NAN = float("nan")
ITEMS = [TypedInput("a", Dense(DType.INT64, 10)), TypedInput("b", Dense(DType.INT64, 10)),
         TypedInput("x", Dense(DType.FLOAT32))]  # fmt: skip
HEADS = TaskHeads(
    (("click", BINARY), ("grade", Head("multiclass", 3)), ("price", Head("regression", center=1.0, scale=2.0)))
)
LABELS = np.array([[1, 2, 3.5], [0, NAN, 0], [NAN, 0, NAN], [1, NAN, NAN], [NAN, NAN, 1], [0, 1, 2]], np.float32)
ONES = np.ones(6, np.float32)


def model_of(head=HEADS, **options):
    given = config("run", batch_rows=6, **options)
    return DenseModel(lay_out(ITEMS, given), given, head)


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    linear = np.zeros((6, 0), np.float32)
    return rng.normal(size=(6, 8)).astype(np.float32), linear, rng.normal(size=(6, 1)).astype(np.float32)


def loss_written_out(logits, labels, weights):
    total = np.zeros(6)
    for row in range(6):
        click, grade, price = labels[row]
        if not np.isnan(click):
            total[row] += weights["click"] * (np.logaddexp(0, logits[row, 0]) - click * logits[row, 0])
        if not np.isnan(grade):
            own = logits[row, 1:4]
            total[row] += weights["grade"] * (np.log(np.exp(own).sum()) - own[int(grade)])
        if not np.isnan(price):
            total[row] += weights["price"] * (logits[row, 4] - (price - 1.0) / 2.0) ** 2
    return total.mean()


@pytest.mark.parametrize("network", ["dlrm", "dcn", "tests.trainer.model.networks:functional"])
@pytest.mark.parametrize("task_mlp", [(), (5,)])
def test_the_gradient_is_that_of_the_weighted_sum_of_the_losses_that_an_event_has(network, task_mlp):
    if task_mlp and ":" in network:
        pytest.skip("a network of the user has its own layers")
    weights = {"click": 1.0, "grade": 0.5, "price": 3.0}
    model = model_of(network=network, task_mlp=task_mlp, task_weights={"grade": 0.5, "price": 3.0})
    activations, linear, dense = inputs()
    assert model.predict(activations, linear, dense).shape == (6, 5)
    numeric = np.zeros(activations.shape)
    for at in np.ndindex(activations.shape):
        ends = []
        for step in (1e-2, -1e-2):
            moved = activations.copy()
            moved[at] += step
            ends.append(loss_written_out(model.predict(moved, linear, dense).astype(np.float64), LABELS, weights))
        numeric[at] = (ends[0] - ends[1]) / 2e-2
    _, gradients, _, flat = model.gradients(activations, linear, dense, LABELS, ONES)
    np.testing.assert_allclose(gradients, numeric, atol=5e-3)
    assert np.isfinite(flat).all()


def test_a_task_without_labels_in_a_batch_leaves_its_own_layers_as_they_are():
    model = model_of(task_mlp=(4,), dense_optimizer="sgd")
    before = model.state()
    labels = LABELS.copy()
    labels[:, 2] = NAN
    model.step(*inputs(), labels, ONES)
    after = model.state()
    price = [f"weights/{k:03d}" for k in (10, 11, 16, 17)]  # its MLP, and its logits
    assert [before[name].shape[-1] for name in price] == [4, 4, 1, 1]
    assert all(np.array_equal(before[name], after[name]) for name in price)
    assert not np.array_equal(before["weights/004"], after["weights/004"])


def test_two_equal_tasks_of_half_the_weight_train_the_shared_layers_as_one():
    twice = TaskHeads((("one", BINARY), ("other", BINARY)))
    alone, both = (
        model_of(BINARY, dense_optimizer="sgd"),
        model_of(twice, dense_optimizer="sgd", task_weights={"one": 0.5, "other": 0.5}),
    )
    single, double = alone.state(), both.state()
    shared = [name for name in single if name.startswith("weights/") and single[name].shape == double[name].shape]
    kernel = single["weights/006"]
    both.load_state({**double, **{name: single[name] for name in shared}, "weights/006": np.hstack([kernel, kernel])})
    labels = (np.arange(6) % 2).astype(np.float32)
    _, expected, _ = alone.step(*inputs(), labels, ONES)
    _, found, _ = both.step(*inputs(), np.stack([labels, labels], axis=1), ONES)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_initial_biases_are_the_first_logits():
    model = model_of(linear=True, deep=False, initial_biases={"click": -2.0, "price": 1.0})
    _, _, dense = inputs()
    none = np.zeros((6, 0), np.float32)
    logits = model.predict(none, np.zeros((6, 2 * 5), np.float32), dense)
    np.testing.assert_allclose(logits, np.tile([-2.0, 0, 0, 0, 1.0], (6, 1)))


def test_mlps_of_tasks_need_a_shared_one_in_a_dlrm():
    with pytest.raises(ConfigError, match="must have top_mlp"):
        model_of(task_mlp=(4,), top_mlp=())


@pytest.mark.medium
def test_a_restored_model_continues_bit_for_bit():
    def run(model, seeds):
        for seed in seeds:
            model.step(*inputs(seed), LABELS, ONES)
        return model

    options = {"task_mlp": (4,), "dropout": 0.3}
    straight = run(model_of(**options), range(6)).state()
    second = model_of(**options, seed=5)
    second.load_state(run(model_of(**options), range(3)).state())
    resumed = run(second, range(3, 6)).state()
    assert all(straight[name].tobytes() == resumed[name].tobytes() for name in straight)
