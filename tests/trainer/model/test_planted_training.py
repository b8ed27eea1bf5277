"""Training on logs with a known best prediction: no documented rate may end in a network that is off."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.support.planted_logs import planted_log
from trainer.model.idle_units import IdleUnits
from trainer.model.metrics import auc
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import make_batches

pytest.importorskip("tensorflow")

from trainer.run.weights.run_state import build_weights

#: What the rules choose for a new run of ids alone.
NEW = {"activation": "leaky_relu", "dense_bias": True, "batch_rows": 256, "initial_bias": -0.7, "deterministic": False}


def trained(log, **options):
    """The model and its logits of the last fifth of the events, after one pass over the others."""
    config = TrainConfig("run", **{**NEW, **options})
    layout = log.layout(config)
    weights, at = build_weights(layout, config), len(log.fragments) * 4 // 5
    for batch in make_batches(log.fragments[:at], layout, batch_rows=config.batch_rows):
        weights.train(batch)
    logits = [
        weights.predict(batch) for batch in make_batches(log.fragments[at:], layout, batch_rows=config.batch_rows)
    ]
    return weights, np.concatenate(logits)


@pytest.fixture(scope="module")
def product():
    return planted_log("two ids")


@pytest.mark.parametrize(("embedding", "dense"), [(0.05, 0.01), (0.1, 0.01)])
def test_a_network_beside_a_linear_part_finds_the_product_of_two_ids(product, embedding, dense):
    rates = {"embedding_learning_rate": embedding, "dense_learning_rate": dense, "linear_learning_rate": 0.05}
    _, logits = trained(product, linear=True, **rates)
    assert auc(product.labels[-len(logits) :], logits) > 0.81, (
        "the linear part alone has 0.595, the best possible is 0.835"
    )


def test_a_factorization_machine_finds_the_product_of_two_ids(product):
    rates = {"embedding_learning_rate": 0.05, "dense_learning_rate": 0.01, "embedding_initial_stddev": 0.1}
    _, logits = trained(product, linear=True, network="fm", **rates)
    assert auc(product.labels[-len(logits) :], logits) > 0.81


@pytest.mark.parametrize("network", ["dlrm", "dcn", "fm"])
@pytest.mark.parametrize("linear", [False, True])
def test_the_first_gradient_reaches_every_weight_and_every_table(network, linear):
    log = planted_log("two ids", rows=2000)
    config = TrainConfig("run", **{**NEW, "network": network, "linear": linear, "batch_rows": 512})
    layout = log.layout(config)
    weights = build_weights(layout, config)
    batch = next(iter(make_batches(log.fragments, layout, batch_rows=512)))
    found = weights.look_up(batch)
    logits, deep, _, flat = weights.dense.gradients(found.deep, found.linear, batch.dense, batch.labels, batch.weights)
    at = 0
    for size in weights.dense.sizes:
        assert np.count_nonzero(flat[at : at + size]) == size, "a weight without a gradient learns nothing"
        at += size
    assert np.count_nonzero(deep) == deep.size
    assert np.isfinite(logits).all()


@pytest.mark.medium
def test_units_that_are_off_for_all_events_are_counted():
    log = planted_log("two ids", rows=6000)
    weights, _ = trained(log, activation="relu", linear=True)
    assert weights.idle_units.off < 48
    state = weights.dense.state()
    for name, array in state.items():
        if name.startswith("weights/") and array.ndim == 1 and array.size > 1:
            array.fill(-1000)  # the biases of hidden layers
    weights.dense.load_state(state)
    config = TrainConfig("run", **{**NEW, "activation": "relu", "linear": True})
    batch = next(iter(make_batches(log.fragments, log.layout(config), batch_rows=config.batch_rows)))
    for _ in range(1000):
        weights.train(batch)
    assert weights.idle_units == IdleUnits(96, 96, 1000)
    assert trained(log)[0].idle_units is None, "a leaky unit is never off"


def test_rows_are_trained_from_the_step_on_that_admits_them():
    log = planted_log("two ids", rows=2560, fragments=10)
    config = TrainConfig("run", **{**NEW, "batch_rows": 256, "admit_after": 3, "linear": True})
    layout = log.layout(config)
    weights = build_weights(layout, config)
    batches = list(make_batches(log.fragments, layout, batch_rows=256))
    before = weights.look_up(batches[0])
    for batch in batches[:2]:
        weights.train(batch)
    np.testing.assert_array_equal(weights.look_up(batches[0]).deep, before.deep)
    assert not weights.look_up(batches[0]).linear.any()
    weights.train(batches[2])
    assert (weights.look_up(batches[0]).deep != before.deep).any()


def test_dropped_embeddings_change_training_and_no_prediction():
    log = planted_log("two ids", rows=2000)
    config = TrainConfig("run", **{**NEW, "embedding_dropout": 0.5, "batch_rows": 512})
    layout = log.layout(config)
    weights = build_weights(layout, config)
    batch = next(iter(make_batches(log.fragments, layout, batch_rows=512)))
    first = weights.predict(batch)
    np.testing.assert_array_equal(first, weights.predict(batch))
    np.testing.assert_array_equal(weights.train(batch), first)  # the logits before a step are without dropout
    assert any(name.startswith("dense/random") for name in weights.arrays())
