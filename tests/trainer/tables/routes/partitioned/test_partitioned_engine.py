"""Simulated cores give the activations of one engine, and keep the contract of SparseCore."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.test_snapshot import state_of
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.tables import SGD, Adagrad, Adam, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.partitioned.core_threads import CoreThreads
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.static_buffers import NO_ROW, PADDING, limits_from, stacks_of
from trainer.tables.sparse_core import SparseCoreSettings
from transforms.errors import DataError

ROWS = 21
FEATURES = (
    FeatureSpec("a", one := TableSpec("one", ROWS, 3, Adagrad(0.1, 0.01), "sum")),
    FeatureSpec("b", two := TableSpec("two", 2 * ROWS, 5, Adagrad(0.1, 0.01), "sum")),
    FeatureSpec("c", one, max_sequence_length=2),
    FeatureSpec("d", TableSpec("three", ROWS, 2, Adam(0.1), "sum")),
)
WIDTH = 3 + 5 + 6 + 2
MIXED = (
    FeatureSpec("a", replace(one, combiner="mean")),
    FeatureSpec("b", replace(two, combiner="sqrtn")),
    *FEATURES[3:],
)


def batches(features):
    """Batches of ids, int32 or int64, with or without weights that are small whole numbers."""

    @st.composite
    def draw_one(draw):
        count = draw(st.integers(1, 7))
        bags = []
        for feature in features:
            ids = st.integers(0, feature.table.vocabulary_size - 1)
            bags.append(draw(st.lists(st.lists(ids, max_size=6), min_size=count, max_size=count)))
        batch = batch_of(bags)
        weights = None
        if draw(st.booleans()):
            weights = np.random.default_rng(len(batch.ids)).integers(1, 4, len(batch.ids)).astype(np.float32)
        return IdBatch(batch.ids.astype(draw(st.sampled_from([np.int32, np.int64]))), batch.offsets, weights)

    return draw_one()


def same_states(one, other):
    assert list(one) == list(other)
    for name, table in one.items():
        for part in ("rows", "weights", "slots"):
            assert getattr(table, part).tobytes() == getattr(other[name], part).tobytes(), (name, part)


def train_without_rounding(whole, parted, trained):
    """Train batches with gradients whose sums have no rounding: activations, states and statistics must be equal."""
    for seed, batch in enumerate(trained):
        found = parted.lookup(batch)
        assert found.tobytes() == whole.lookup(batch).tobytes()
        gradients = np.random.default_rng(seed).integers(-4, 5, found.shape).astype(np.float32)
        whole.apply_gradients(batch, gradients)
        parted.apply_gradients(batch, gradients)
        same_states(whole.state(), parted.state())
    assert whole.statistics() == parted.statistics()


@settings(max_examples=scaled(60))
@given(st.lists(batches(FEATURES), min_size=1, max_size=3), st.integers(1, 5))
def test_cores_equal_one_engine_where_sums_have_no_rounding(trained, cores):
    whole = CpuEngine(FEATURES, seed=3)
    parted = PartitionedEngine(FEATURES, seed=3, cores=cores)
    train_without_rounding(whole, parted, trained)


@settings(max_examples=scaled(40))
@given(st.lists(batches(MIXED), min_size=2, max_size=3), st.integers(2, 5))
def test_activations_are_equal_and_updates_repeat(trained, cores):
    whole = CpuEngine(MIXED, seed=3)
    engines = [PartitionedEngine(MIXED, seed=3, cores=cores) for _ in range(2)]
    for seed, batch in enumerate(trained):
        for engine in engines:
            engine.load_state(whole.state())
            assert engine.lookup(batch).tobytes() == whole.lookup(batch).tobytes()
        gradients = np.random.default_rng(seed).normal(size=(batch.rows, whole.width)).astype(np.float32)
        for engine in (whole, *engines):
            engine.apply_gradients(batch, gradients)
        same_states(*(engine.state() for engine in engines))
        for one, other in zip(whole.state().values(), engines[0].state().values(), strict=True):
            assert np.array_equal(one.rows, other.rows)
            np.testing.assert_allclose(other.weights, one.weights, rtol=1e-4, atol=1e-5)


def test_two_batches_are_in_flight():
    """The lookup of the next batch comes before the update of this one, as with a staleness of 1."""
    whole, parted = CpuEngine(FEATURES, seed=3), PartitionedEngine(FEATURES, seed=3, cores=3)
    first, second = (batch_of([[[k, k + 1], [2]]] * 4) for k in (1, 2))
    gradients = np.ones((2, WIDTH), np.float32)
    for engine in (whole, parted):
        engine.lookup(first)
        engine.lookup(second)
        engine.apply_gradients(first, gradients)
        engine.apply_gradients(second, gradients)
    same_states(whole.state(), parted.state())
    parted.apply_gradients(third := batch_of([[[7], [8]]] * 4), gradients)  # without a lookup of its own
    whole.apply_gradients(third, gradients)
    same_states(whole.state(), parted.state())
    rows = np.array([20, 0, 7, 8, 2])
    assert parted.weights_of("one", rows).tobytes() == whole.weights_of("one", rows).tobytes()


@settings(max_examples=scaled(20))
@given(batches(FEATURES), st.integers(1, 4), st.integers(1, 4))
def test_a_state_moves_to_another_number_of_cores(batch, before, after):
    parted = PartitionedEngine(FEATURES, seed=3, cores=before)
    parted.apply_gradients(batch, np.ones((batch.rows, WIDTH), np.float32))
    moved = PartitionedEngine(FEATURES, seed=3, cores=after)
    moved.load_state(parted.state())
    same_states(parted.state(), moved.state())
    assert moved.lookup(batch).tobytes() == parted.lookup(batch).tobytes()


@settings(max_examples=scaled(20))
@given(st.lists(batches(FEATURES), min_size=2, max_size=4), st.integers(1, 4))
def test_a_snapshot_is_of_its_moment(trained, cores):
    engine = PartitionedEngine(FEATURES, seed=3, cores=cores)
    gradients = [np.full((batch.rows, WIDTH), 2.0, np.float32) for batch in trained]
    engine.apply_gradients(trained[0], gradients[0])
    before = engine.state()
    snapshot = engine.begin_snapshot(most_bytes=1 << 20)
    for batch, one in zip(trained[1:], gradients[1:], strict=True):
        engine.apply_gradients(batch, one)
    assert snapshot.counts == tuple(len(table.rows) for table in before.values())
    found = state_of(snapshot, [(3, 3), (5, 5), (2, 4)])
    for parts, table in zip(found, before.values(), strict=True):
        assert [part.tobytes() for part in parts] == [table.rows.tobytes(), table.weights.tobytes(), table.slots.tobytes()]  # fmt: skip


def expected_counts(batch, features, cores):
    """(ids, rows) from each core to each owner by table, the slow obvious way."""
    ids, rows = {}, {}
    for core in range(cores):
        events = range(batch.rows * core // cores, batch.rows * (core + 1) // cores)
        entries = set()
        for f, feature in enumerate(features):
            for b in events:
                bag = batch.ids[batch.offsets[f, b] : batch.offsets[f, b + 1]].tolist()
                length = feature.max_sequence_length
                for k, row in enumerate(bag[:length] if length else bag):
                    entries.add((feature.table.name, row, f, b, k if length else 0))
        for name, row, *_ in entries:
            key = (core, row % cores, name)
            ids[key] = ids.get(key, 0) + 1
        for name, row in {(name, row) for name, row, *_ in entries}:
            key = (core, row % cores, name)
            rows[key] = rows.get(key, 0) + 1
    return ids, rows


@settings(max_examples=scaled(60))
@given(st.lists(batches(FEATURES), min_size=1, max_size=2), st.integers(1, 4))
def test_counters_are_those_of_the_buffers(looked_up, cores):
    engine = PartitionedEngine(FEATURES, seed=3, cores=cores)
    stack_of = {"one": "one_two", "two": "one_two", "three": "three"}
    totals = {name: [0, 0, 0, 0] for name in engine.traffic}
    for batch in looked_up:
        engine.lookup(batch)
        for k, counts in enumerate(expected_counts(batch, FEATURES, cores)):
            by_stack = {}
            for (core, owner, table), count in counts.items():
                key = (core, owner, stack_of[table])
                by_stack[key] = by_stack.get(key, 0) + count
            for (_, _, name), count in by_stack.items():
                totals[name][k] += count
                totals[name][2 + k] = max(totals[name][2 + k], count)
    for name, one in engine.traffic.items():
        assert [one.ids, one.rows, one.most_ids, one.most_rows] == totals[name]
        assert one.batches == len(looked_up)
        assert one.buffer_rows >= max(one.most_rows, 1)
        assert one.buffer_rows % PADDING == 0
        assert one.growths < len(looked_up)
        if len(looked_up) == 1:
            assert one.padding_rows == cores**2 * one.buffer_rows - one.rows
    # Limits that were taken from the counters admit the same batches, and the tightest ones too.
    for spare in (1.0, 1.25):
        limited = PartitionedEngine(FEATURES, seed=3, cores=cores, settings=limits_from(engine.traffic, spare=spare))
        for batch in looked_up:
            assert limited.lookup(batch).tobytes() == engine.lookup(batch).tobytes()
        assert all(one.growths == 0 for one in limited.traffic.values())


def test_a_batch_beyond_a_limit_is_refused_and_nothing_changes():
    batch = batch_of([[[0, 2, 4, 6], [1]], [[1], [1]], [[0], [0]], [[], []]])
    gradients = np.ones((2, WIDTH), np.float32)
    cases = [
        ({"max_unique_ids_per_table": {"one_two": 3}}, "from max_unique_ids_per_table", 4),
        ({"max_ids_per_table": {"one_two": 4}}, "from max_ids_per_table", 5),
    ]
    for limits, said, needed in cases:
        engine = PartitionedEngine(FEATURES, seed=3, cores=2, settings=SparseCoreSettings(**limits))
        for attempt in (lambda e=engine: e.lookup(batch), lambda e=engine: e.apply_gradients(batch, gradients)):
            with pytest.raises(BadBatch) as caught:
                attempt()
            assert caught.value.where == "stack one_two, from core 0 to core 0"
            assert caught.value.value == needed
            assert said in str(caught.value)
            assert f"to at least {needed}" in str(caught.value)
        assert all(not len(table.rows) for table in engine.state().values())
        assert all(one.batches == 0 for one in engine.traffic.values())
        small = batch_of([[[1], [2]], [[1], [1]], [[0], [0]], [[3], []]])
        assert engine.lookup(small).tobytes() == CpuEngine(FEATURES, seed=3).lookup(small).tobytes()


def test_buffers_grow_without_a_limit():
    engine, whole = PartitionedEngine(FEATURES, seed=3, cores=2), CpuEngine(FEATURES, seed=3)
    for count in (3, 20, 21):
        batch = batch_of([[list(range(count)), []], [[1], [1]], [[0], [0]], [[], []]])
        assert engine.lookup(batch).tobytes() == whole.lookup(batch).tobytes()
    assert engine.traffic["one_two"].growths == 1
    assert engine.traffic["one_two"].buffer_rows == 16
    assert engine.traffic["three"].growths == 0


def test_stacks_have_one_width_optimizer_and_quantization():
    tables = [one, two, replace(one, name="four", dim=9), replace(two, name="five"), FEATURES[3].table]
    assert [stack.name for stack in stacks_of(tables, None)] == ["one_two_five", "four", "three"]
    alone = SparseCoreSettings(disable_table_stacking=True)
    assert [stack.tables for stack in stacks_of(tables, alone)] == [(t,) for t in range(5)]


def test_a_message_that_says_more_than_it_has_is_refused():
    engine = PartitionedEngine(FEATURES, seed=3, cores=1)
    engine.lookup(batch_of([[[1, 2]], [[3]], [[4]], [[5]]]))
    buffer = np.full(16, NO_ROW, np.int64)
    buffer[:3] = 1
    with pytest.raises(DataError, match="the number of rows that it states"):
        engine._buffers.unpack([buffer, np.array([2, 2, 0])])


def test_bad_input_changes_nothing():
    engine = PartitionedEngine(FEATURES, seed=3, cores=2)
    batch = batch_of([[[1], [2]], [[3], [4]], [[5], [6]], [[7], [8]]])
    gradients = np.ones((2, WIDTH), np.float32)
    for wrong in (gradients[:1], gradients.astype(np.float64)):
        with pytest.raises(BadBatch, match="shape of the activations"):
            engine.apply_gradients(batch, wrong)
    gradients[1, 4] = np.inf
    with pytest.raises(NonFiniteLoss) as caught:
        engine.apply_gradients(batch, gradients)
    assert caught.value.where == "feature b, event 1 of the batch"
    with pytest.raises(BadBatch, match="must lie in its table"):
        engine.lookup(batch_of([[[1], [ROWS]], [[3], [4]], [[5], [6]], [[7], [8]]]))
    with pytest.raises(TornCheckpoint):
        engine.load_state(CpuEngine(FEATURES[:2], seed=3).state())
    assert all(not len(table.rows) for table in engine.state().values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cores": 0}, "cores"),
        ({"cores": 1025}, "cores"),
        ({"cores": 2, "settings": SparseCoreSettings(max_ids_per_table={"x": 1})}, "must name a stack"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        PartitionedEngine(FEATURES, seed=3, **options)


def test_an_engine_without_features_is_refused():
    with pytest.raises(ConfigError, match="at least one feature"):
        PartitionedEngine([], seed=3, cores=2)
    with pytest.raises(ConfigError, match="spare"):
        limits_from({}, spare=0.5)


def test_an_error_of_one_core_ends_the_wait_of_the_others():
    threads = CoreThreads(3, patience_secs=PATIENCE_SECS)

    def work(core):
        if core == 1:
            raise ValueError("this core failed")
        return threads.exchanges[core].all_to_all([[np.zeros(0)]] * 3)

    with pytest.raises(ValueError, match="this core failed"):
        threads.run(work)
    assert threads.run(lambda core: len(threads.exchanges[core].all_to_all([[np.zeros(0)]] * 3))) == [3, 3, 3]


def test_the_threads_of_an_engine_end_with_it():
    engine = PartitionedEngine([FeatureSpec("a", TableSpec("t", 5, 2, SGD(0.1)))], seed=3, cores=4)
    engine.lookup(batch_of([[[1], [2], [3], [4]]]))
    own = [one for one in threading.enumerate() if one in engine._threads._pool._threads]
    assert len(own) == 4
    del engine
    for one in own:
        one.join(PATIENCE_SECS)
        assert not one.is_alive()
