"""The engine of SparseCore under a planned strategy: construction, layouts, initial values, states across slices and engines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.tables.table_states import assert_same, random_states
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.tpu.engines import EVENTS, engine_on, features
from trainer.errors import BadBatch, ConfigError, TornCheckpoint, UnsupportedSetting
from trainer.tables import SGD, Adagrad, CpuEngine, FeatureSpec, TableSpec, TableState
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine, clear_overflow

tf = pytest.importorskip("tensorflow")

STACK = "one_three_two"


@pytest.fixture(scope="module")
def four():
    return engine_on(4)


def test_tables_of_one_width_and_optimizer_are_stacked(four):
    places = four.places()
    assert {place.stack for name, place in places.items() if name in ("one", "two", "three")} == {STACK}
    assert {places[name].stack for name in ("momentum", "adam", "ftrl", "sgd")} == {"momentum", "adam", "ftrl", "sgd"}
    assert all(place.shards == 16 for place in places.values())
    assert len({places[name].rotation for name in ("one", "two", "three")}) == 3
    apart = engine_on(4, settings=SparseCoreSettings(disable_table_stacking=True))
    assert all(place.stack == name for name, place in apart.places().items())


def test_rows_begin_with_the_values_of_the_cpu_engine(four):
    plain = [FeatureSpec(one.name, replace(one.table, combiner="sum", optimizer=SGD(1.0))) for one in features()]
    cpu = CpuEngine(plain, seed=3)
    for table in four.tables:
        rows = np.arange(table.vocabulary_size)
        assert four.weights_of(table.name, rows).tobytes() == cpu.weights_of(table.name, rows).tobytes()
    assert all(not len(state.rows) for state in engine_on(2).state().values())


def test_states_with_slots_survive_other_numbers_of_chips(four):
    """4 chips to 2, to 8, to 4 with 2 SparseCores each: every stack has other shards, no value changes."""
    states = random_states(four.tables)
    four.load_state(states)
    assert_same(four.state(), states)
    moved = four.state()
    for replicas, sparse_cores in ((2, 4), (8, 4), (4, 2)):
        engine = engine_on(replicas, sparse_cores=sparse_cores)
        engine.load_state(moved)
        moved = engine.state()
        assert_same(moved, states)
    unstacked = engine_on(2, settings=SparseCoreSettings(disable_table_stacking=True))
    unstacked.load_state(moved)
    assert_same(unstacked.state(), states)


def test_a_loaded_state_replaces_all_rows(four):
    four.load_state(random_states(four.tables, seed=1))
    four.load_state(random_states(four.tables, seed=2))
    assert_same(four.state(), random_states(four.tables, seed=2))


def test_a_run_moves_from_the_cpu_engine_and_back():
    tables = [TableSpec("t", 50, 6, Adagrad(0.1), "sum"), TableSpec("u", 90, 8, Adagrad(0.1), "sum")]
    made_of = [FeatureSpec(table.name, table) for table in tables]
    source = np.random.default_rng(0)
    batches = [batch_of([[source.integers(0, 50, 3).tolist() for _ in range(8)] for _ in range(2)]) for _ in range(4)]

    def train(engine, some):
        for batch in some:
            engine.apply_gradients(batch, engine.lookup(batch) + np.float32(0.1))

    straight, first, last = (CpuEngine(made_of, seed=3) for _ in range(3))
    train(straight, batches)
    train(first, batches[:2])
    between = engine_on(2, made_of=made_of)
    between.load_state(first.state())
    last.load_state(between.state())
    train(last, batches[2:])
    assert_same(last.state(), straight.state())


def test_tensorflows_own_checkpoint_has_the_rows(four, tmp_path):
    """What we write into the stacks is where TensorFlow looks for it: its unstacking gives the same tables."""
    embedding = tf.tpu.experimental.embedding
    four.load_state(random_states(four.tables))
    path = tf.train.Checkpoint(tables=four.embedding).save(str(tmp_path / "checkpoint"))
    configs = {
        table.name: embedding.FeatureConfig(
            embedding.TableConfig(table.vocabulary_size, table.dim, name=table.name, optimizer=embedding.SGD(0.1))
        )
        for table in four.tables
    }
    serving = embedding.TPUEmbeddingForServing(configs, embedding.SGD(0.1))
    tf.train.Checkpoint(tables=serving).restore(path).expect_partial()
    serving.build()
    for config, variable in serving.embedding_tables.items():
        rows = np.arange(config.vocabulary_size)
        np.testing.assert_array_equal(variable.numpy(), four.weights_of(config.name, rows))


@pytest.mark.parametrize(
    "damage",
    [
        lambda states: {**states, "other": states["one"]},
        lambda states: {name: state for name, state in states.items() if name != "one"},
        lambda states: {**states, "one": replace(states["one"], slots=states["one"].slots[:, :-1])},
        lambda states: {**states, "one": replace(states["one"], rows=states["one"].rows[::-1].copy())},
        lambda states: {**states, "one": replace(states["one"], rows=states["one"].rows + 99)},
        lambda states: {**states, "one": replace(states["one"], weights=states["one"].weights.astype(np.float64))},
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(four, damage):
    states = random_states(four.tables, seed=5)
    four.load_state(states)
    with pytest.raises(TornCheckpoint):
        four.load_state(damage(random_states(four.tables, seed=6)))
    assert_same(four.state(), states)


def test_activations_have_the_columns_of_the_cpu_engine(four):
    plain = [FeatureSpec(one.name, replace(one.table, combiner="sum", optimizer=SGD(1.0))) for one in features()[:2]]
    assert engine_on(1, made_of=plain).columns == CpuEngine(plain, seed=0).columns
    assert four.columns["c"] == slice(12, 36)
    assert four.width == sum(feature.width for feature in features())


def test_learning_rates_that_are_functions_are_set_before_a_step():
    rates = iter([0.5, 0.25, 0.125])
    rate = lambda: next(rates)  # noqa: E731 - one function for both tables, so that they can be stacked
    made_of = [FeatureSpec(name, TableSpec(name, 50, 8, Adagrad(rate))) for name in "ab"]
    engine = engine_on(2, made_of=made_of)
    assert len(engine.embedding.variables) == 1
    ((_, variable, _),) = engine._rates._variables.values()
    assert float(variable.numpy()) == 0.5
    engine.update_learning_rates()
    assert float(variable.numpy()) == 0.25


def test_errors_name_the_thing(four):
    table = TableSpec("t", 10, 4, SGD(0.1))
    with pytest.raises(ConfigError, match="scope of a TPUStrategy"):
        SparseCoreEngine([FeatureSpec("f", table)], seed=0, events_per_replica=8)
    with pytest.raises(UnsupportedSetting, match="clip_weight_max"):
        engine_on(1, made_of=[FeatureSpec("f", replace(table, optimizer=SGD(0.1, clip_weight_max=1.0)))])
    with pytest.raises(ConfigError, match="must name a stack") as caught:
        engine_on(2, settings=SparseCoreSettings(max_ids_per_table={"one": 3}))
    assert STACK in caught.value.allowed
    with pytest.raises(ConfigError, match="multiple of its SparseCores"), four.strategy.scope():
        SparseCoreEngine([FeatureSpec("f", table)], seed=0, events_per_replica=6)
    with pytest.raises(ConfigError, match="one of the engine's"):
        four.weights_of("none", np.arange(1))
    with pytest.raises(BadBatch, match="a row must lie in its table"):
        four.weights_of("one", np.array([100]))
    with pytest.raises(BadBatch, match="a step of all replicas"):
        four.check_step(batch_of([[[1]] * EVENTS] * 8))


def test_more_ids_than_a_buffer_holds_become_a_clear_error():
    told = RuntimeError(
        "Sparse core 0 gets 535 ids while the max ids per sparse core is set to be 256 for table t0_t4. More"
    )
    error = clear_overflow(told)
    assert isinstance(error, BadBatch)
    assert (error.value, error.where) == (535, "stack t0_t4")
    assert "max_ids_per_table['t0_t4'] to at least 535" in error.next_step
    unique = clear_overflow(
        RuntimeError(
            "Sparse core 3 gets 99 unique ids while the max unique ids per sparse core is set to be 8 for table a"
        )
    )
    assert isinstance(unique, BadBatch)
    assert "max_unique_ids_per_table['a'] to at least 99" in unique.next_step
    assert clear_overflow(RuntimeError("another")) is None


def test_a_state_may_be_empty():
    engine = engine_on(1, made_of=[FeatureSpec("f", TableSpec("t", 10, 4, SGD(0.1)))])
    empty = {"t": TableState(np.zeros(0, np.int64), np.zeros((0, 4), np.float32), np.zeros((0, 0), np.float32))}
    engine.load_state(empty)
    assert_same(engine.state(), empty)
