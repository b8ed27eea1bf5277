"""What every embedding engine does, the same for all: lookups, updates, states, snapshots, statistics, and the refusal of bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.reference_tables import ReferenceTables, counts_of
from tests.trainer.tables.table_states import assert_same, random_states
from tests.trainer.tables.test_engine import batch_of

pytest.importorskip("tensorflow")

from tests.contracts.embedding_engines import EVENTS, KINDS, MOST_IDS, SEED, EngineKind
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.tables import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    FeatureSpec,
    TableSpec,
    TableState,
    Uniform,
)
from transforms.errors import InputError

ROWS = 11
FEATURES = (
    FeatureSpec("a", one := TableSpec("one", ROWS, 5, Adagrad(0.1, 0.25), "sum")),
    FeatureSpec("b", TableSpec("two", 3 * ROWS, 7, Adagrad(0.1, 0.25), "mean", Uniform(-1.0, 1.0))),
    FeatureSpec("c", TableSpec("three", ROWS, 8, Adagrad(0.1, 0.25), "sqrtn")),
    FeatureSpec("sequence", one, 3),
    FeatureSpec("d", TableSpec("sgd", ROWS, 1, SGD(0.5), "mean")),
    FeatureSpec("e", TableSpec("momentum", ROWS, 12, AdagradMomentum(0.1, 0.9), "sum")),
    FeatureSpec("f", TableSpec("adam", ROWS, 16, Adam(0.1), "sqrtn")),
    FeatureSpec("g", TableSpec("ftrl", ROWS, 3, FTRL(0.1), "mean")),
)
EMPTY = {
    table.name: TableState(
        np.zeros(0, np.int64), np.zeros((0, table.dim), np.float32), np.zeros((0, slots), np.float32)
    )
    for table, slots in (
        (feature.table, len(feature.table.optimizer.slots) * feature.table.dim) for feature in FEATURES
    )
}


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def kind(request) -> EngineKind:
    return request.param


@pytest.fixture(scope="module")
def made(kind):
    """One engine for all tests of a kind: :func:`fresh` gives it its initial state again."""
    return kind.make(FEATURES)


@pytest.fixture
def engine(made):
    made.load_state(EMPTY)
    return made


@st.composite
def batches(draw, least=1):
    """Bags of up to 5 ids, some empty, some with an id twice; with positive weights or without."""
    events = draw(st.integers(least, EVENTS))
    source = np.random.default_rng(draw(st.integers(0, 2**32)))
    longest = draw(st.sampled_from([0, 1, MOST_IDS]))
    bags = [
        [
            source.integers(0, feature.table.vocabulary_size, source.integers(0, longest + 1)).tolist()
            for _ in range(events)
        ]
        for feature in FEATURES
    ]
    batch = batch_of(bags)
    if draw(st.booleans()):
        batch = replace(batch, weights=source.uniform(0.25, 2.0, len(batch.ids)).astype(np.float32))
    return batch if draw(st.booleans()) else replace(batch, ids=batch.ids.astype(np.int32))


def gradients_of(batch, seed=0):
    """Positive gradients: sums that nearly cancel would have no accuracy to compare."""
    return (
        np.random.default_rng(seed)
        .uniform(0.5, 1.5, (batch.rows, sum(one.width for one in FEATURES)))
        .astype(np.float32)
    )


def some_batch(events=EVENTS, seed=0):
    source = np.random.default_rng(seed)
    return batch_of([
        [source.integers(0, feature.table.vocabulary_size, 3).tolist() for _ in range(events)] for feature in FEATURES
    ])  # fmt: skip


def train(engine, batch, seed=0):
    engine.lookup(batch)
    engine.apply_gradients(batch, gradients_of(batch, seed))


def snapshot_of(snapshot):
    """The state that a snapshot has, read to its end."""
    found = {}
    for t, (name, none) in enumerate(EMPTY.items()):
        parts = [none, *snapshot.table(t)]
        found[name] = TableState(
            *(np.concatenate([getattr(part, array) for part in parts]) for array in ("rows", "weights", "slots"))
        )
    return found


@settings(max_examples=scaled(15))
@given(batch=batches())
def test_a_lookup_is_the_combination_of_each_bag(made, batch):
    made.load_state(EMPTY)
    assert made.width == sum(feature.width for feature in FEATURES)
    found = made.lookup(batch)
    assert (found.dtype, found.shape) == (np.float32, (batch.rows, made.width))
    np.testing.assert_allclose(found, ReferenceTables(FEATURES, SEED).lookup(batch), rtol=1e-5, atol=1e-6)


@settings(max_examples=scaled(6))
@given(steps=st.lists(batches(), min_size=1, max_size=3))
def test_updates_are_those_of_float64(made, steps):
    made.load_state(EMPTY)
    expected, trained = ReferenceTables(FEATURES, SEED), []
    for seed, batch in enumerate(steps):
        np.testing.assert_allclose(made.lookup(batch), expected.lookup(batch), rtol=2e-4, atol=2e-5)
        made.apply_gradients(batch, gradients_of(batch, seed))
        expected.apply_gradients(batch, gradients_of(batch, seed))
        trained.append(batch)
    for name, state in made.state().items():
        assert state.rows.tolist() == sorted(expected.changed[name])
        np.testing.assert_allclose(state.weights, expected.weights[name][state.rows], rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(state.slots, expected.slots[name][state.rows], rtol=2e-4, atol=1e-5)


def test_an_update_needs_no_lookup_before(engine, kind):
    other = kind.make(FEATURES)
    batch = some_batch()
    train(engine, batch)
    other.apply_gradients(batch, gradients_of(batch))
    assert_same(other.state(), engine.state())


def test_between_a_lookup_and_its_update_another_batch_may_be_looked_up(engine):
    first, second = some_batch(seed=1), some_batch(seed=2)
    expected = ReferenceTables(FEATURES, SEED)
    for k, batch in enumerate((first, second)):
        np.testing.assert_allclose(engine.lookup(batch), expected.lookup(batch), rtol=1e-5, atol=1e-6, err_msg=str(k))
    for batch in (first, second):
        engine.apply_gradients(batch, gradients_of(batch))
        expected.apply_gradients(batch, gradients_of(batch))
    np.testing.assert_allclose(engine.lookup(first), expected.lookup(first), rtol=2e-4, atol=2e-5)


def test_a_state_is_restored_bit_for_bit(engine, kind):
    states = random_states(engine.tables)
    engine.load_state(states)
    assert_same(engine.state(), states)
    train(engine, some_batch())
    after = engine.state()
    other = kind.make(FEATURES)
    other.load_state(states)
    train(other, some_batch())
    assert_same(other.state(), after)
    engine.load_state(EMPTY)
    assert_same(engine.state(), EMPTY)
    np.testing.assert_allclose(
        engine.lookup(some_batch()), ReferenceTables(FEATURES, SEED).lookup(some_batch()), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("origin", KINDS[1:], ids=lambda kind: kind.name)
def test_a_state_moves_between_all_engines(engine, origin):
    check_move(origin.make(FEATURES), engine)


def test_a_state_moves_to_and_from_the_first_engine(engine):
    """States are arrays: what moves to one engine and back moves between any two."""
    check_move(KINDS[0].make(FEATURES), engine)
    engine.load_state(EMPTY)
    check_move(engine, KINDS[0].make(FEATURES))


def check_move(before, engine):
    train(before, some_batch(seed=1))
    engine.load_state(before.state())
    assert_same(engine.state(), before.state())
    for one in (before, engine):
        train(one, some_batch(seed=2), 2)
    for name, state in engine.state().items():
        expected = before.state()[name]
        assert state.rows.tolist() == expected.rows.tolist()
        np.testing.assert_allclose(state.weights, expected.weights, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.slots, expected.slots, rtol=1e-4, atol=1e-5)


def test_a_snapshot_is_the_state_of_its_moment(engine):
    train(engine, some_batch(seed=1))
    before = engine.state()
    snapshot = engine.begin_snapshot(most_bytes=1 << 20)
    assert snapshot.counts == tuple(len(state.rows) for state in before.values())
    train(engine, some_batch(seed=2), 2)
    assert_same(snapshot_of(snapshot), before)
    engine.end_snapshot()
    after = engine.state()
    assert_same(snapshot_of(engine.begin_snapshot(most_bytes=1 << 20)), after)
    engine.end_snapshot()
    engine.end_snapshot()


def test_a_snapshot_that_is_ended_does_not_hold_training_up(engine):
    train(engine, some_batch(seed=1))
    engine.begin_snapshot(most_bytes=0)
    engine.end_snapshot()
    train(engine, some_batch(seed=2))
    assert {one.batches for one in engine.statistics().values()} == {2}


@settings(max_examples=scaled(4))
@given(steps=st.lists(batches(least=3), max_size=3))
def test_statistics_count_the_trained_batches(made, kind, steps):
    made.load_state(EMPTY)
    for batch in steps:
        made.lookup(batch)
        train(made, batch)
    assert made.statistics() == counts_of(FEATURES, steps)
    made.load_state(made.state())
    assert made.statistics() == counts_of(FEATURES, [])


def test_a_batch_without_ids_changes_nothing(engine):
    batch = batch_of([[[]] * 3 for _ in FEATURES])
    assert not engine.lookup(batch).any()
    engine.apply_gradients(batch, gradients_of(batch))
    assert_same(engine.state(), EMPTY)


GOOD = some_batch(events=6)


def with_ids(place, value):
    ids = GOOD.ids.copy()
    ids[place] = value
    return replace(GOOD, ids=ids)


def with_offsets(change):
    offsets = GOOD.offsets.copy()
    change(offsets)
    return replace(GOOD, offsets=offsets)


@pytest.mark.parametrize(
    ("batch", "problem", "where"),
    [
        (with_ids(0, ROWS), "an embedding id must lie in its table", "feature a, table one"),
        (with_ids(-1, -1), "an embedding id must lie in its table", "feature g, table ftrl"),
        (with_ids(1, 2**40), "an embedding id must lie in its table", "feature a, table one"),
        (with_offsets(lambda offsets: offsets.__setitem__((1, 2), 0)), "offsets must ascend", "feature b, event 2"),
        (with_offsets(lambda offsets: offsets.__setitem__((-1, -1), 2**40)), "offsets must ascend", "feature g, event 6"),
        (with_offsets(lambda offsets: offsets.__setitem__((0, 0), 1)), "offsets must ascend", "feature a, event 0"),
        (replace(GOOD, ids=GOOD.ids.astype(np.float32)), "ids must be int32 or int64", ""),
        (replace(GOOD, offsets=GOOD.offsets[:-1]), "offsets for every feature", ""),
        (replace(GOOD, weights=np.ones(len(GOOD.ids))), "float32 weight for every id", ""),
        (replace(GOOD, weights=np.ones(2, np.float32)), "float32 weight for every id", ""),
    ],
)  # fmt: skip
def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing(engine, batch, problem, where):
    train(engine, GOOD)
    before, counts = engine.state(), engine.statistics()
    for call in (engine.lookup, lambda one: engine.apply_gradients(one, gradients_of(GOOD))):
        with pytest.raises(BadBatch, match=problem) as caught:
            call(batch)
        assert where in (caught.value.where or "")
    assert_same(engine.state(), before)
    assert engine.statistics() == counts
    train(engine, GOOD)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(engine, bad):
    train(engine, GOOD)
    before, counts = engine.state(), engine.statistics()
    gradients = gradients_of(GOOD)
    gradients[0, 6] = bad
    with pytest.raises(NonFiniteLoss, match="gradient is NaN or infinite") as caught:
        engine.apply_gradients(GOOD, gradients)
    assert caught.value.where == "feature b, event 0 of the batch"
    assert_same(engine.state(), before)
    assert engine.statistics() == counts
    train(engine, GOOD)


@pytest.mark.parametrize("wrong", [lambda found: found[:, 1:], lambda found: found.astype(np.float64)])
def test_gradients_of_another_shape_or_type_are_refused(engine, wrong):
    with pytest.raises(BadBatch, match="gradients must have the shape of the activations"):
        engine.apply_gradients(GOOD, wrong(gradients_of(GOOD)))
    assert_same(engine.state(), EMPTY)


@pytest.mark.parametrize(
    "damage",
    [
        lambda states: {**states, "other": states["one"]},
        lambda states: {name: state for name, state in states.items() if name != "one"},
        lambda states: {**states, "one": replace(states["one"], weights=states["one"].weights[:, :-1])},
        lambda states: {**states, "one": replace(states["one"], slots=states["one"].slots[:, :-1])},
        lambda states: {**states, "one": replace(states["one"], rows=states["one"].rows[::-1].copy())},
        lambda states: {**states, "one": replace(states["one"], rows=states["one"].rows + ROWS)},
        lambda states: {**states, "one": replace(states["one"], weights=states["one"].weights.astype(np.float64))},
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(engine, damage):
    states = random_states(engine.tables, seed=5)
    engine.load_state(states)
    with pytest.raises(TornCheckpoint, match="embedding table") as caught:
        engine.load_state(damage(random_states(engine.tables, seed=6)))
    assert caught.value.allowed
    assert_same(engine.state(), states)


def test_features_that_cannot_be_served_are_refused(kind):
    table = TableSpec("t", ROWS, 4, SGD(0.1))
    with pytest.raises(ConfigError, match="at least one feature"):
        kind.make([])
    with pytest.raises(ConfigError, match="feature names must be unique"):
        kind.make([FeatureSpec("f", table), FeatureSpec("f", table)])
    with pytest.raises(ConfigError, match="different tables must have different names") as caught:
        kind.make([FeatureSpec("f", table), FeatureSpec("g", replace(table, dim=8))])
    assert caught.value.where == "feature g"


def test_a_setting_that_an_engine_does_not_have_is_refused_by_name(kind):
    table = TableSpec("t", ROWS, 4, SGD(0.1, use_gradient_accumulation=False))
    if kind.name.startswith("TPUEmbedding"):
        kind.make([FeatureSpec("f", table)])  # it has it
        return
    with pytest.raises(InputError, match="use_gradient_accumulation must be True") as caught:
        kind.make([FeatureSpec("f", table)])
    assert caught.value.where == "table t"
