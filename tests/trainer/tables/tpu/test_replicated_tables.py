"""Tables that each device of a slice has whole: their formulas, inputs, states, and where they are in a pipelined loop."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.optimizer_formulas import reference
from tests.trainer.tables.table_states import assert_same, random_states
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.tpu.engines import EVENTS, elements_of, engine_on, features
from trainer.errors import BadBatch, ConfigError, UnsupportedSetting
from trainer.tables import FTRL, SGD, Adagrad, AdagradMomentum, Adam, CpuEngine, FeatureSpec, RowWiseAdagrad, TableSpec
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import Quantization, tables_of
from trainer.tables.tpu.replicated_tables import NO_ID
from trainer.tables.tpu.stepped_tables import SteppedTables

pytest.importorskip("tensorflow")

import tensorflow as tf

from tests.support.emulated_slice import EmulatedSlice
from tests.trainer.tables.tpu.test_training_loop import PASSES, functions_of
from trainer.tables.tpu.row_updates import updated_rows

WHOLE = SparseCoreSettings(replicated={"one": 2, "ftrl": 1, "not there": 3})

OPTIMIZERS = st.one_of(
    st.builds(SGD, st.just(0.1)),
    st.builds(Adagrad, st.just(0.1), st.floats(0.01, 1)),
    st.builds(
        AdagradMomentum, st.just(0.1), st.floats(0, 0.9), st.booleans(), st.sampled_from([1.5, 2.0]), st.sampled_from([0.9, 1.0]),
        st.sampled_from([1e-10, 1e-3]),
    ),
    st.builds(Adam, st.just(0.1), st.floats(0, 0.9), st.floats(0.5, 0.99), st.just(1e-4), sum_inside_sqrt=st.booleans()),
    st.builds(
        FTRL, st.just(0.1), st.sampled_from([-0.5, -0.7]), st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 1), st.floats(0.01, 1),
        st.booleans(),
    ),
)  # fmt: skip


@settings(max_examples=scaled(60))
@given(optimizer=OPTIMIZERS, seed=st.integers(0, 2**32))
def test_an_update_is_that_of_the_formulas(optimizer, seed):
    source = np.random.default_rng(seed)
    rows, gradients = source.normal(size=(4, 3)), source.normal(size=(4, 3))
    slots = [source.uniform(0.05, 1, (4, 3)) for _ in optimizer.own_slots]
    found = updated_rows(optimizer, 0.1, *(tf.constant(one, tf.float32) for one in (rows,)),
                         [tf.constant(one, tf.float32) for one in slots], tf.constant(gradients, tf.float32))  # fmt: skip
    weights, after = reference(optimizer, rows, np.concatenate([np.zeros((4, 0)), *slots], axis=1), gradients, 0.1)
    expected = [weights, *np.split(after, max(len(slots), 1), axis=1)][: 1 + len(slots)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4)


def test_an_optimizer_without_a_formula_is_refused():
    with pytest.raises(UnsupportedSetting, match="an optimizer must be one of TPUs"):
        updated_rows(RowWiseAdagrad(0.1), 0.1, tf.zeros([1, 1]), [tf.zeros([1, 1])], tf.zeros([1, 1]))


def test_replicated_tables_have_a_place_of_their_own_and_no_buffer():
    engine = engine_on(2, settings=WHOLE)
    places = engine.places()
    assert list(places) == [one.name for one in tables_of(features())]
    assert {name for name, place in places.items() if place.stack == f"replicated/{name}"} == {"one", "ftrl"}
    assert "one" not in places["two"].stack
    with pytest.raises(ConfigError, match="limits of SparseCore must name a stack"):
        engine_on(2, settings=replace(WHOLE, max_ids_per_table={"replicated/one": 4}))
    planned = engine_on(2, settings=replace(WHOLE, stacks=(("two", "one"), ("three", "ftrl"))))
    assert planned.places()["two"].stack == "two", "a stack of the plan without its replicated table"
    rows = np.arange(100)
    plain = engine_on(2)
    assert engine.weights_of("one", rows).tobytes() == plain.weights_of("one", rows).tobytes(), "equal initial values"


def test_states_move_between_spread_and_replicated_tables():
    states = random_states(tables_of(features()))
    engine = engine_on(2, settings=WHOLE)
    for _ in range(2):
        engine.load_state(states)
        assert_same(engine.state(), states)
        moved = engine.state()
        engine = engine_on(4)
        engine.load_state(moved)
        assert_same(engine.state(), states)
        engine = engine_on(8, settings=SparseCoreSettings(replicated={"two": 1, "adam": 4}))


@pytest.mark.parametrize(
    ("replicated", "problem"),
    [
        ({"one": 0}, "replicated"),
        (
            {one.name: 2 for one in tables_of(features())},
            "a slice must have a table that is not replicated",
        ),
    ],
)
def test_settings_that_no_slice_can_have_are_refused(replicated, problem):
    with pytest.raises(ConfigError, match=problem):
        engine_on(2, settings=SparseCoreSettings(replicated=replicated))


def bags_of_all(own):
    """``own``: of feature a; the others have one id in each event."""
    return [own if one.name == "a" else [[0]] * len(own) for one in features()]


def test_an_event_with_more_ids_than_a_bag_has_places_is_refused():
    engine = engine_on(2, settings=WHOLE)
    events = 2 * EVENTS
    engine.check_step(batch_of(bags_of_all([[1, 2]] * events)))
    with pytest.raises(BadBatch, match="at most as many ids as a replicated table takes") as caught:
        engine.check_step(batch_of(bags_of_all([[1, 2, 3], *[[1]] * (events - 1)])))
    assert (caught.value.where, caught.value.value, caught.value.allowed) == ("feature a", 3, "<= 2")


def test_elements_have_arrays_of_fixed_width_for_replicated_tables():
    engine = engine_on(2, settings=WHOLE)
    own = [[event, event + 1][: event % 3] for event in range(2 * EVENTS)]
    batch = replace(batch_of(bags_of_all(own)), weights=None)
    drawn = list(elements_of(engine, [(batch, ())]))
    for replica, ((ids, gains), _) in enumerate(drawn):
        mine = own[replica * EVENTS : (replica + 1) * EVENTS]
        assert ids[0].dtype == tf.int32
        assert ids[0].numpy().tolist() == [bag + [NO_ID] * (2 - len(bag)) for bag in mine]
        assert gains[0].numpy().tolist() == [[1.0] * len(bag) + [0.0] * (2 - len(bag)) for bag in mine], "a sum"
        assert isinstance(ids[1], tf.RaggedTensor)


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_rows_change_that_a_batch_has_an_id_of_and_no_others(weight):
    """Adam moves each row by its momenta, also without a gradient: rows outside the batch must keep theirs."""
    made_of = [
        FeatureSpec("few", TableSpec("few", 7, 4, Adam(0.1), "sum", quantization=Quantization(5, -1.0, 1.0))),
        FeatureSpec("other", TableSpec("other", 50, 4, SGD(0.1))),
    ]
    slice_ = EmulatedSlice(2, settings=SparseCoreSettings(replicated={"few": 3}))
    found = SteppedTables(slice_.make_engine(made_of, seed=1, events_per_replica=8, pipelined=False), slice_)
    cpu = CpuEngine(made_of, seed=1)
    for step, ids in enumerate(([0, 1, 1], [1, 2], [5])):
        batch = batch_of([[ids] * 16, [[step]] * 16])
        batch = replace(batch, weights=np.full(len(batch.ids), weight, np.float32))
        gradients = np.random.default_rng(step).uniform(0.5, 1, (16, 8)).astype(np.float32)
        np.testing.assert_allclose(found.lookup(batch), cpu.lookup(batch), rtol=1e-5, atol=1e-6)
        for engine in (found, cpu):
            engine.apply_gradients(batch, gradients)
    states = found.state()["few"], cpu.state()["few"]
    assert states[0].rows.tolist() == ([0, 1, 2, 5] if weight else [])
    if weight:
        np.testing.assert_allclose(states[0].weights, states[1].weights, rtol=1e-4)
        np.testing.assert_allclose(states[0].slots, states[1].slots, rtol=1e-4)


def test_a_pipelined_loop_reads_and_updates_them_with_the_dense_part():
    """Under TensorFlow's real pipelining pass: a lookup of a replicated table misses no update."""
    from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
    from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
    from trainer.tables.tpu.training_loop import training_loop

    made_of = [
        FeatureSpec("few", TableSpec("few", 7, 4, Adagrad(0.1), "sum")),
        FeatureSpec("other", TableSpec("other", 50, 4, Adagrad(0.1))),
    ]
    with planned_strategy(PlannedSlice(2), on_cpu=True).scope():
        engine = SparseCoreEngine(made_of, seed=0, events_per_replica=EVENTS, pipelined=True,
                                  settings=SparseCoreSettings(replicated={"few": 1}))  # fmt: skip
        engine.build()
    batch = batch_of([[[1]] * 2 * EVENTS] * 2)
    loop = training_loop(engine, lambda activations: 2.0 * activations)
    traced = loop.get_concrete_function(iter(elements_of(engine, [(batch, ())] * 2)), tf.TensorSpec([], tf.int32))
    module = tf.mlir.experimental.convert_function(traced, pass_pipeline="")
    functions = functions_of(tf.mlir.experimental.run_pass_pipeline(module, PASSES))
    (main,) = (text for text in functions.values() if "tf_device.cluster_func" in text)
    start = main.index('"tf.WhileRegion"')
    names = re.findall(r'"tf_device.cluster_func".*?func = @([\w.]+)', main[start:])
    body = functions[names[0]]
    assert '"tf.XlaSparseDenseMatmulGradWith' in body
    reads, sums = body.index('"tf.GatherV2"'), body.index('"tf.UnsortedSegmentSum"')
    assert reads < sums, "one program reads the rows of a step, then updates them"
    assert len(re.findall('"tf.GatherV2"', body)) == len(re.findall('"tf.UnsortedSegmentSum"', body)) == 1
