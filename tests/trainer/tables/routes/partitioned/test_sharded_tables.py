"""Tables spread over hosts train as the tables of one process do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.support.whole_vectors import all_gather, summed
from tests.support.examples import scaled
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.test_snapshot import ROWS, bags_of, state_of
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import BadBatch, NonFiniteLoss
from trainer.tables import SGD, Adagrad, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables

FEATURES = (
    FeatureSpec("a", one := TableSpec("one", ROWS, 3, Adagrad(0.1, 0.01), "sum")),
    FeatureSpec("b", TableSpec("two", 2 * ROWS, 2, SGD(0.5), "sum")),
    FeatureSpec("c", one),
)


def steps(draw, hosts):
    """Steps of a bag per host and feature, with gradients whose sums have no rounding."""
    found = []
    for seed in range(draw(st.integers(1, 3))):
        bags = [bags_of(draw) for _ in range(hosts)]
        random = np.random.default_rng(seed)
        gradients = [random.integers(-4, 5, (len(one[0]), 8)).astype(np.float32) for one in bags]
        found.append((bags, gradients))
    return found


def train_sharded(hosts, trained):
    def work(exchange):
        tables = ShardedTables(FEATURES, seed=3, exchange=exchange)
        activations = []
        for bags, gradients in trained:
            batch = batch_of(bags[exchange.rank])
            activations.append(tables.lookup(batch))
            tables.apply_gradients(batch, gradients[exchange.rank])
        snapshot = tables.begin_snapshot(most_bytes=1 << 20)
        return activations, tables.state(), state_of(snapshot)

    return on_hosts(hosts, work)


def test_a_gradient_that_is_not_finite_changes_nothing():
    tables = ShardedTables(FEATURES, seed=3, exchange=OneHost())
    batch = batch_of([[[0], [1]], [[2], [3]], [[1], []]])
    gradients = np.ones_like(tables.lookup(batch))
    gradients[1, 3] = np.nan
    with pytest.raises(NonFiniteLoss, match="gradient is NaN") as caught:
        tables.apply_gradients(batch, gradients)
    assert caught.value.where == "feature b, event 1 of the batch"
    assert all(len(one.rows) == 0 for one in tables.state().values())


@settings(max_examples=scaled(25))
@given(st.data(), st.integers(1, 4))
def test_sharded_tables_equal_one_engine(data, hosts):
    trained = steps(data.draw, hosts)
    engine = CpuEngine(FEATURES, seed=3)
    results = train_sharded(hosts, trained)
    for step, (bags, gradients) in enumerate(trained):
        for rank in range(hosts):
            assert results[rank][0][step].tobytes() == engine.lookup(batch_of(bags[rank])).tobytes()
        joined = [[bag for one in bags for bag in one[f]] for f in range(3)]
        engine.apply_gradients(batch_of(joined), np.concatenate(gradients))
    for t, (name, whole) in enumerate(engine.state().items()):
        for rank, (_, state, snapshot) in enumerate(results):
            own = whole.rows % hosts == rank
            expected = (whole.rows[own], whole.weights[own], whole.slots[own])
            found = (state[name].rows, state[name].weights, state[name].slots)
            assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]
            assert [part.tobytes() for part in snapshot[t]] == [part.tobytes() for part in expected]


@settings(max_examples=scaled(10))
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_a_state_moves_to_another_number_of_hosts(data, before, after):
    engine = CpuEngine(FEATURES, seed=3)
    for bags, gradients in steps(data.draw, 1):
        engine.apply_gradients(batch_of(bags[0]), gradients[0])
    whole, bags = engine.state(), bags_of(data.draw)

    def work(exchange):
        tables = ShardedTables(FEATURES, seed=3, exchange=exchange)
        tables.load_state(whole)
        return tables.lookup(batch_of(bags)).tobytes()

    assert set(on_hosts(after, work)) == {engine.lookup(batch_of(bags)).tobytes()}


def test_a_host_without_events_takes_part():
    none = [[], [], []]
    full = [[[1, 2]], [[0]], [[12]]]
    gradients = [np.zeros((0, 8), np.float32), np.ones((1, 8), np.float32)]
    results = train_sharded(2, [([none, full], gradients)])
    assert results[0][0][0].shape == (0, 8)
    assert [len(one["one"].rows) for _, one, _ in results] == [2, 1]


def test_gradients_of_other_rows_are_refused():
    engine = CpuEngine(FEATURES[:2], seed=3).store
    rows, counts = np.array([1, 2, 3]), np.array([2, 1])
    read = engine.read_rows(rows, counts)
    for wrong in (read[:-1], read.astype(np.float64)):
        with pytest.raises(BadBatch, match="gradients must be float32, one per column of each row"):
            engine.update_rows([(rows, counts)], [wrong])
    for held in (np.array([2, 2]), np.array([1, 1])):
        with pytest.raises(BadBatch, match="the number of rows must be"):
            engine.read_rows(rows, held)
    with pytest.raises(BadBatch, match="must lie in its table"):
        engine.read_rows(np.array([1, 2, 2 * ROWS]), counts)


def test_sums_are_equal_on_all_hosts():
    random = np.random.default_rng(1)
    vectors = random.normal(size=(3, 50)).astype(np.float32)
    results = on_hosts(3, lambda exchange: summed(exchange, vectors[exchange.rank]))
    assert {one.tobytes() for one in results} == {((vectors[0] + vectors[1]) + vectors[2]).tobytes()}
    assert summed(OneHost(), vectors[0]).tobytes() == vectors[0].tobytes()
    one = vectors[1]
    assert all_gather(OneHost(), [one])[0][0] is one
