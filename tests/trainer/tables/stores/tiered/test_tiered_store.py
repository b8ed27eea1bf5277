"""A store of two tiers gives the bits of one, whichever rows are hot and however they move."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import batches, same_states
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.test_snapshot import same, state_of
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.tables import FTRL, SGD, Adagrad, Adam, CpuEngine, FeatureSpec, Quantization, RowWiseAdagrad, TableSpec
from trainer.tables.engine import RowValues
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.tiered.tiered_store import TieredStore

ROWS = 21
FEATURES = (
    FeatureSpec("a", one := TableSpec("one", ROWS, 3, Adagrad(0.1, 0.01), "mean")),
    FeatureSpec("b", TableSpec("two", 2 * ROWS, 5, Adam(0.1), "sqrtn", quantization=Quantization(64, -1.0, 1.0))),
    FeatureSpec("c", one, max_sequence_length=2),
    FeatureSpec("d", TableSpec("three", ROWS, 16, RowWiseAdagrad(0.1), "sum")),
    FeatureSpec("e", TableSpec("four", 3, 1, SGD(0.5), "sum")),
)
TABLES = tables_of(FEATURES)
SAVED = [(table.dim, slot_width(table.optimizer, table.dim)) for table in TABLES]
some_hot = st.fixed_dictionaries(
    {}, optional={table.name: st.integers(0, table.vocabulary_size + 1) for table in TABLES}
)
prices = st.sampled_from([0.0, 1.0])


def hybrid(hot_rows, *, features=FEATURES, held=2, **options):
    store = TieredStore(tables_of(features), seed=3, hot_rows=hot_rows, **options)
    return ShardedTables(features, seed=3, exchange=OneHost(), store=store, held=held)


def gradients_of(batch, width, seed):
    return np.random.default_rng(seed).normal(size=(batch.rows, width)).astype(np.float32)


def train(engine, batch, seed):
    engine.apply_gradients(batch, gradients_of(batch, engine.width, seed))


@pytest.mark.medium
@settings(max_examples=scaled(100))
@given(st.lists(batches(FEATURES), min_size=1, max_size=8), some_hot, prices, st.integers(1, 3))
def test_placement_changes_no_bit(trained, hot_rows, price, threads):
    whole, tiers = CpuEngine(FEATURES, seed=3), hybrid(hot_rows, move_lookups=price, threads=threads)
    for seed, batch in enumerate(trained):
        assert tiers.lookup(batch).tobytes() == whole.lookup(batch).tobytes()
        train(tiers, batch, seed)
        train(whole, batch, seed)
        for table in TABLES:
            hot = tiers.store.hot_rows[table.name]
            assert len(set(hot.tolist())) == len(hot) <= hot_rows.get(table.name, 0)
    same_states(tiers.state(), whole.state())
    assert tiers.statistics() == whole.statistics()
    for table in TABLES:
        rows = np.arange(table.vocabulary_size)[::-1]
        assert tiers.store.weights_of(table.name, rows).tobytes() == whole.weights_of(table.name, rows).tobytes()


@pytest.mark.medium
@settings(max_examples=scaled(40))
@given(st.lists(batches(FEATURES), min_size=2, max_size=8), some_hot)
def test_a_lookup_may_run_ahead_of_updates(trained, hot_rows):
    """As with a staleness of 1: rows move between a lookup and its update."""
    whole, tiers = CpuEngine(FEATURES, seed=3), hybrid(hot_rows, move_lookups=0.0)
    for engine in (whole, tiers):
        engine.lookup(trained[0])
    for seed, (batch, ahead) in enumerate(zip(trained, [*trained[1:], trained[0]], strict=True)):
        assert tiers.lookup(ahead).tobytes() == whole.lookup(ahead).tobytes()
        train(tiers, batch, seed)
        train(whole, batch, seed)
    same_states(tiers.state(), whole.state())


@pytest.mark.medium
@settings(max_examples=scaled(60))
@given(st.lists(batches(FEATURES), min_size=2, max_size=6), some_hot)
def test_a_snapshot_is_of_its_moment_while_rows_move(trained, hot_rows):
    tiers = hybrid(hot_rows, move_lookups=0.0)
    train(tiers, trained[0], 0)
    before, found = tiers.state(), []
    snapshot = tiers.begin_snapshot(most_bytes=1 << 24)
    assert snapshot.counts == tuple(len(table.rows) for table in before.values())
    for t in range(len(TABLES)):
        for seed, batch in enumerate(trained[1:]):
            train(tiers, batch, seed)
        found.append(list(snapshot.table(t)))
    for parts, table in zip(found, before.values(), strict=True):
        for name in ("rows", "weights", "slots"):
            joined = b"".join(getattr(part, name).tobytes() for part in parts)
            assert joined == getattr(table, name).tobytes(), name
    again = tiers.begin_snapshot(most_bytes=1 << 24)
    same(state_of(again, SAVED), tiers.state())


def test_a_snapshot_is_read_beside_training():
    """A thread trains batches whose rows drift, while another one reads snapshots: each is a state between two batches."""
    table = TableSpec("t", 5_000, 8, SGD(1.0), "sum")
    tiers = hybrid({"t": 300}, features=[FeatureSpec("f", table)])
    stop, source = threading.Event(), np.random.default_rng(0)

    def go_on():
        step = 0
        while not stop.is_set():
            rows = (step * 20 + source.permutation(600)) % 5_000
            batch = batch_of([[[int(row)] for row in rows]])
            tiers.lookup(batch)
            tiers.apply_gradients(batch, np.ones((600, 8), np.float32))
            step += 1

    for _ in range(3):
        stop.clear()
        snapshot = tiers.begin_snapshot(most_bytes=1 << 24)
        expected = tiers.store.cold.state()
        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        found = state_of(snapshot, [(8, 0)])
        stop.set()
        thread.join(PATIENCE_SECS)
        same(found, expected)
    assert tiers.store.counts.rows_out > 0


@pytest.mark.medium
@settings(max_examples=scaled(30))
@given(st.lists(batches(FEATURES), min_size=2, max_size=6), some_hot, some_hot)
def test_a_state_is_that_of_any_engine(trained, before, after):
    tiers, whole = hybrid(before), CpuEngine(FEATURES, seed=3)
    for seed, batch in enumerate(trained):
        train(tiers, batch, seed)
    others = [hybrid(after, move_lookups=0.0), CpuEngine(FEATURES, seed=3)]
    for other in others:
        train(other, trained[-1], 9)  # hot rows of another state
        other.load_state(tiers.state())
        train(other, trained[0], 5)
    whole.load_state(tiers.state())
    train(tiers, trained[0], 5)
    train(whole, trained[0], 5)
    for other in others:
        same_states(other.state(), tiers.state())
        assert other.lookup(trained[0]).tobytes() == whole.lookup(trained[0]).tobytes()
        assert other.statistics()["a"].batches == 1


def test_errors_come_before_anything_changes():
    tiers = hybrid({"one": 2, "two": 5})
    batch = batch_of([[[1, 2], [3]], [[4], [5]], [[6], [7]], [[1], [2]], [[0], []]])
    train(tiers, batch, 0)
    before, counts = tiers.state(), tiers.store.counts
    bad = batch_of([[[1, 2], [3]], [[4], [5]], [[6], [7]], [[1], [2]], [[0], [3]]])
    gradients = gradients_of(batch, tiers.width, 1)
    broken = gradients.copy()
    broken[1, 4] = np.nan
    with pytest.raises(BadBatch, match="must lie in its table"):
        tiers.lookup(bad)
    for call, error in (
        (lambda: tiers.apply_gradients(bad, gradients), BadBatch),
        (lambda: tiers.apply_gradients(batch, gradients[:1]), BadBatch),
        (lambda: tiers.apply_gradients(batch, broken), NonFiniteLoss),
        (lambda: tiers.load_state({}), TornCheckpoint),
    ):
        with pytest.raises(error):
            call()
    same_states(tiers.state(), before)
    assert tiers.store.counts == replace(
        counts, rows_out=tiers.store.counts.rows_out, moved_bytes=tiers.store.counts.moved_bytes
    )


def test_counts_of_moves_and_hits():
    table = TableSpec("t", 100, 4, Adagrad(0.1), "sum")
    tiers = hybrid({"t": 2}, features=[FeatureSpec("f", table)])
    batch = batch_of([[[1, 1, 2], [1]]])
    for _ in range(2):
        tiers.lookup(batch)
        train(tiers, batch, 0)
    found = tiers.store.counts
    assert (found.hits, found.misses, found.distinct_hits, found.distinct_misses) == (4, 4, 2, 2)
    assert (found.rows_in, found.rows_out, found.moved_bytes) == (2, 0, 2 * 32)
    assert found.hit_rate == 0.5
    assert found.decision_secs > 0 < found.move_secs
    assert tiers.store.hot_rows["t"].tolist() == [1, 2]
    other = batch_of([[[7] * 30, [8] * 30]])
    tiers.lookup(other)
    train(tiers, other, 0)
    assert tiers.store.hot_rows["t"].tolist() == [8, 7] or tiers.store.hot_rows["t"].tolist() == [7, 8]
    assert (tiers.store.counts.rows_in, tiers.store.counts.rows_out) == (4, 2)


def test_an_unchanged_row_is_not_written_back():
    """A state writes changed rows back; rows that have not changed since leave for nothing."""
    tiers = hybrid({"t": 1}, features=[FeatureSpec("f", TableSpec("t", 9, 2, SGD(0.1), "sum"))], move_lookups=0.0)
    train(tiers, batch_of([[[1]]]), 0)
    train(tiers, batch_of([[[1]]]), 0)
    tiers.state()
    written = tiers.store.counts.rows_out
    tiers.state()
    train(tiers, batch_of([[[2, 2, 2, 2]]]), 0)
    assert tiers.store.hot_rows["t"].tolist() == [2]
    assert tiers.store.counts.rows_out == written == 1


def test_another_cold_tier_takes_the_place():
    cold = DenseStore(TABLES, seed=3)
    tiers, whole = hybrid({"one": 4}, cold=cold), CpuEngine(FEATURES, seed=3)
    batch = batch_of([[[1, 2], [3]], [[4], [5]], [[6], [7]], [[1], [2]], [[0], []]])
    for engine in (tiers, whole):
        train(engine, batch, 0)
        train(engine, batch, 1)
    tiers.state()
    same_states(cold.state(), whole.state())
    with pytest.raises(ConfigError, match="the cold tier must have the tables of the features"):
        hybrid({}, features=FEATURES[:1], cold=cold)


def test_values_that_do_not_fit_are_refused():
    """By the tier that they are written to, before anything changes."""
    cold, counts = DenseStore([TableSpec("t", 9, 2, Adagrad(0.1, 0.5), "sum")], seed=3), np.array([2])
    values = cold.read_values(np.array([1, 8]), counts)
    assert (values.weights.shape, values.slots.tolist(), values.nbytes) == ((4,), [0.5] * 4, 32)
    for rows, wrong in (
        ([1, 9], values),
        ([1], values),
        ([1, 8], RowValues(values.weights[:2], values.slots)),
        ([1, 8], RowValues(values.weights, values.slots[:2])),
    ):
        with pytest.raises(BadBatch):
            cold.write_values(np.array(rows), counts, wrong, are_changed=True)
    assert not len(cold.state()["t"].rows)
    cold.write_values(np.array([8, 1]), counts, values, are_changed=True)
    assert cold.are_changed(np.array([0, 1, 8]), np.array([3])).tolist() == [False, True, True]
    assert cold.weights_of("t", np.array([8, 1])).ravel().tolist() == values.weights.tolist()


@pytest.mark.parametrize("hot_rows", [{"none": 1}, {"one": -1}, {"one": 1.5}, {"one": True}])
def test_impossible_hot_rows_are_refused(hot_rows):
    with pytest.raises(ConfigError):
        hybrid(hot_rows)
    with pytest.raises(ConfigError, match="at least one feature"):
        TieredStore([], seed=0, hot_rows={})


def test_an_optimizer_with_a_bad_rate_changes_nothing():
    tiers = hybrid({"t": 1}, features=[FeatureSpec("f", TableSpec("t", 9, 2, FTRL(lambda: -1.0), "sum"))])
    with pytest.raises(ConfigError):
        train(tiers, batch_of([[[1]]]), 0)
    assert not len(tiers.state()["t"].rows)
