"""A snapshot holds the rows of its moment, whatever is trained while it is read."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import ServerLost
from trainer.tables import SGD, Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import TableState
from trainer.tables.stores.dense.snapshot import EngineSnapshot

ROWS = 13


def engine_of(optimizer=None):
    one = TableSpec("one", ROWS, 3, optimizer or Adagrad(0.1, 0.01), "mean")
    two = TableSpec("two", 2 * ROWS, 2, SGD(0.5), "sum")
    return CpuEngine([FeatureSpec("a", one), FeatureSpec("b", two), FeatureSpec("c", one)], seed=3)


def train(engine, bags, seed=0):
    batch = batch_of(bags)
    gradients = np.random.default_rng(seed).normal(size=(batch.rows, engine.width)).astype(np.float32)
    engine.apply_gradients(batch, gradients)


def state_of(snapshot: EngineSnapshot, dims=((3, 3), (2, 0))):
    """All tables, read to their ends."""
    found = []
    for t, (dim, slot_dim) in enumerate(dims):
        parts = list(snapshot.table(t))
        none = TableState(np.zeros(0, np.int64), np.zeros((0, dim), np.float32), np.zeros((0, slot_dim), np.float32))
        found.append(
            [np.concatenate([getattr(part, name) for part in (none, *parts)]) for name in ("rows", "weights", "slots")]
        )
    return found


def same(found, state):
    assert [len(rows) for rows, _, _ in found] == [len(table.rows) for table in state.values()]
    for (rows, weights, slots), table in zip(found, state.values(), strict=True):
        assert np.array_equal(rows, table.rows)
        assert weights.tobytes() == table.weights.tobytes()
        assert slots.tobytes() == table.slots.tobytes()


def bags_of(draw):
    events = draw(st.integers(1, 3))

    def feature(rows):
        return draw(st.lists(st.lists(st.integers(0, rows - 1), max_size=4), min_size=events, max_size=events))

    return [feature(ROWS), feature(2 * ROWS), feature(ROWS)]


@settings(max_examples=scaled(80))
@given(st.data())
def test_a_snapshot_is_of_its_moment(data):
    """Batches are trained before the snapshot, and between any two ranges that are read."""
    engine, undisturbed = engine_of(), engine_of()
    for seed in range(data.draw(st.integers(0, 4))):
        bags = bags_of(data.draw)
        train(engine, bags, seed)
        train(undisturbed, bags, seed)
    before = engine.state()
    snapshot = EngineSnapshot(
        engine.store.layout,
        engine.store.values,
        most_bytes=1 << 20,
        range_bytes=data.draw(st.integers(1, 200)),
    )
    engine.store._snapshot = snapshot
    assert snapshot.counts == tuple(len(table.rows) for table in before.values())
    found = []
    for t in range(2):
        parts = []
        for part in snapshot.table(t):
            parts.append(part)
            if data.draw(st.booleans()):
                bags = bags_of(data.draw)
                train(engine, bags, 9)
                train(undisturbed, bags, 9)
        found.append(parts)
    for parts, table in zip(found, before.values(), strict=True):
        for name in ("rows", "weights", "slots"):
            whole = getattr(table, name)
            pieces = [getattr(part, name) for part in parts]
            assert np.concatenate([whole[:0], *pieces]).tobytes() == whole.tobytes()
    assert snapshot.is_done
    train(engine, [[[1]], [[2]], [[3]]])
    train(undisturbed, [[[1]], [[2]], [[3]]])
    after, expected = engine.state(), undisturbed.state()
    assert all(after[name].weights.tobytes() == expected[name].weights.tobytes() for name in expected)


def test_training_waits_when_too_much_is_put_aside():
    engine = engine_of()
    every = [[list(range(ROWS))], [list(range(2 * ROWS))], [[]]]
    train(engine, every)
    before = engine.state()
    snapshot = engine.begin_snapshot(most_bytes=40)
    trained = threading.Event()

    def go_on():
        train(engine, every, 1)
        trained.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    time.sleep(0.05)
    assert not trained.is_set()
    same(state_of(snapshot), before)
    thread.join(PATIENCE_SECS)
    assert trained.is_set()
    assert snapshot.aside_bytes <= 40


def test_a_closed_snapshot_lets_training_go_on():
    engine = engine_of()
    every = [[list(range(ROWS))], [list(range(2 * ROWS))], [[]]]
    train(engine, every)
    snapshot = engine.begin_snapshot(most_bytes=0)
    snapshot.close()
    train(engine, every, 1)
    assert snapshot.aside_bytes == 0


def test_rows_that_were_put_aside_for_a_closed_snapshot_are_refused():
    """Another thread may close a snapshot whose reader was slow: its rows are lost, and no values take their place."""
    engine = engine_of()
    every = [[list(range(ROWS))], [list(range(2 * ROWS))], [[]]]
    train(engine, every)
    snapshot = engine.begin_snapshot(most_bytes=1 << 20)
    train(engine, every, 1)
    snapshot.read(0, 0, ROWS)
    snapshot.close()
    for read in (lambda: snapshot.read(0, 0, ROWS), lambda: snapshot.read_some(0, np.arange(ROWS))):
        with pytest.raises(ServerLost, match="a snapshot must be read before it ends"):
            read()


@pytest.mark.parametrize("seed", range(3))
def test_reading_beside_training(seed):
    """Real threads: one trains all the time while snapshots are read."""
    rng = np.random.default_rng(seed)
    engine = CpuEngine([FeatureSpec("a", TableSpec("one", 20_000, 8, Adagrad(0.1, 0.01), "sum"))], seed=1)
    stop = threading.Event()
    batches = 0

    def batch():
        ids = rng.zipf(1.3, 2_000) % 20_000
        return IdBatch(ids.astype(np.int64), np.arange(2_001, dtype=np.int64)[None])

    def step():
        engine.apply_gradients(batch(), rng.normal(size=(2_000, 8)).astype(np.float32))

    def keep_training():
        nonlocal batches
        while not stop.is_set():
            step()
            batches += 1

    for _ in range(20):
        step()
    for _ in range(3):
        before = engine.state()
        snapshot = EngineSnapshot(engine.store.layout, engine.store.values, most_bytes=1 << 30, range_bytes=20_000)
        engine.store._snapshot = snapshot
        thread = threading.Thread(target=keep_training)
        thread.start()
        found = state_of(snapshot, ((8, 8),))
        stop.set()
        thread.join(PATIENCE_SECS)
        stop.clear()
        same(found, before)
    assert batches, "training went on beside at least one of them"


def test_a_range_is_not_captured_after_its_kept_rows_are_gone():
    engine = engine_of()
    train(engine, [[[0, 3], [5]], [[1], []], [[], [2]]])
    snapshot = engine.begin_snapshot(most_bytes=1 << 20)
    train(engine, [[[3], []], [[], []], [[], []]], seed=1)
    engine.end_snapshot()
    with pytest.raises(ServerLost, match="before it ends"):
        snapshot.capture(0, 0, ROWS)
