"""Hashed tables against a slow obvious model, bit for bit."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import same_states
from tests.trainer.tables.stores.hashed.model import Model, flat, states_of, stored
from tests.trainer.tables.test_undo_log import cut_off
from trainer.errors import BadBatch, ConfigError, TornCheckpoint
from trainer.tables import FTRL, SGD, Adagrad, Adam, RowWiseAdagrad, TableSpec
from trainer.tables.engine import RowValues, TableSections
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed.options import HashedTable, bytes_per_row
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, STEPS, shortened

IDS = 24
OPTIMIZERS = (Adagrad(0.1, 0.01), Adam(0.1), SGD(0.5), FTRL(0.1), RowWiseAdagrad(0.1))
options = st.fixed_dictionaries(
    {
        "capacity": st.sampled_from([1, 3, 7, IDS, 100]),
        "admit_after": st.sampled_from([1, 1, 2, 3]),
        "expire_after_steps": st.sampled_from([0, 0, 1, 3]),
        "candidate_steps": st.sampled_from([1, 2, 1000]),
        "candidates": st.just(8000),  # no id takes the place of another one
    }
)


@st.composite
def some_tables(draw, most=4):
    """Tables of other widths and optimizers."""
    count = draw(st.integers(1, most))
    return [
        HashedTable(
            TableSpec(f"table {t}", IDS, draw(st.sampled_from([1, 3, 8, 16, 21])), draw(st.sampled_from(OPTIMIZERS))),
            **draw(options),
        )
        for t in range(count)
    ]


def some_ids(draw, tables):
    return [draw(st.lists(st.integers(0, IDS - 1), max_size=9)) for _ in range(tables)]


def floats(ids, dims, seed):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(len(own), dim)).astype(np.float32) for own, dim in zip(ids, dims, strict=True)]


def joined(parts):
    return np.concatenate([part.reshape(-1) for part in parts])


def step_of_both(data, store, model, seed):
    """One change of both."""
    ids = some_ids(data.draw, len(model.tables))
    rows, counts = flat(ids)
    gradients = floats(ids, model.dims, seed)
    found = store.update_rows([(rows, counts)], [joined(gradients)])
    model.update(ids, gradients)
    assert found.tolist() == [len(set(own)) for own in ids]


def assert_equal(store, model):
    same_states(states_of(store), model.engine.state())
    assert [astuple(one) for one in store.hashed_counts.values()] == model.counts()
    rows, counts = flat([list(range(IDS))[::-1]] * len(model.tables))
    assert store.read_rows(rows, counts).tobytes() == model.engine.read_rows(rows, counts).tobytes()


@pytest.mark.medium
@settings(max_examples=scaled(250))
@given(some_tables(), st.integers(1, 3), st.data())
def test_places_and_values_are_those_of_the_model(tables, threads, data):
    store, model = stored(tables, seed=3, threads=threads), Model(tables, 3)
    for seed in range(data.draw(st.integers(1, 14))):
        step_of_both(data, store, model, seed)
        assert_equal(store, model)
        match data.draw(st.integers(0, 9)):
            case 0:
                store.end_load()
            case 1:
                state = states_of(store)
                counts = [one.rows for one in model.tables]
                store = stored(tables, seed=3, threads=threads)
                store.load_state(state)
                for table, rows in zip(model.tables, counts, strict=True):
                    table.admitted = table.evicted = table.expired = table.unadmitted = table.unplaced = 0
                    assert len(rows) == store.hashed_counts[table.options.spec.name].stored
            case 2:
                with cut_off(store.undo_log):
                    step_of_both(data, store, Model(tables, 3), seed)
                assert_equal(store, model)


@settings(max_examples=scaled(60))
@given(some_tables(), st.data())
def test_parts_of_a_batch_are_added_in_their_order(tables, data):
    store, model = stored(tables, seed=3), Model(tables, 3)
    for seed in range(3):
        parts = [some_ids(data.draw, len(tables)) for _ in range(data.draw(st.integers(1, 3)))]
        gradients = [floats(ids, model.dims, 10 * seed + k) for k, ids in enumerate(parts)]
        store.update_rows([flat(ids) for ids in parts], [joined(one) for one in gradients])
        model.update(
            [[row for own in table for row in own] for table in zip(*parts, strict=True)],
            [np.concatenate(own) for own in zip(*gradients, strict=True)],
        )
        assert_equal(store, model)


@settings(max_examples=scaled(60))
@given(some_tables(), st.data())
def test_a_snapshot_is_of_its_moment(tables, data):
    store, model = stored(tables, seed=3), Model(tables, 3)
    for seed in range(data.draw(st.integers(1, 4))):
        step_of_both(data, store, model, seed)
    before = states_of(store)
    snapshot = replace(store.begin_snapshot(most_bytes=1 << 24), range_bytes=data.draw(st.integers(1, 300)))
    assert snapshot.counts == tuple(len(one.rows) for one in before.values())
    for t, expected in enumerate(before.values()):
        parts = []
        for part in snapshot.table(t):
            parts.append(part)
            step_of_both(data, store, model, 50 + len(parts))
        for name in ("rows", "weights", "slots"):
            assert b"".join(getattr(one, name).tobytes() for one in parts) == getattr(expected, name).tobytes(), name
    assert_equal(store, model)
    store.end_snapshot()


@settings(max_examples=scaled(60))
@given(st.lists(st.lists(st.integers(0, IDS - 1), min_size=1, max_size=12), min_size=1, max_size=8), st.integers(1, 3))
def test_with_a_place_for_every_id_the_bits_are_those_of_a_dense_store(batches, threads):
    """The static-size mode."""
    specs = [TableSpec("one", IDS, 16, Adagrad(0.1, 0.01)), TableSpec("two", IDS, 5, Adam(0.1))]
    store = stored([HashedTable(one, capacity=IDS) for one in specs], seed=3, threads=threads)
    engine = DenseStore(specs, seed=3)
    for seed, own in enumerate(batches):
        ids = [own, own[::-1]]
        rows, counts = flat(ids)
        gradients = joined(floats(ids, (16, 5), seed))
        assert store.read_rows(rows, counts).tobytes() == engine.read_rows(rows, counts).tobytes()
        assert (
            store.update_rows([(rows, counts)], [gradients]).tolist()
            == engine.update_rows([(rows, counts)], [gradients]).tolist()
        )
    same_states(states_of(store), engine.state())
    again = stored([HashedTable(one, capacity=IDS) for one in specs], seed=3)
    again.load_state(engine.state())
    same_states(states_of(again), engine.state())


@settings(max_examples=scaled(30))
@given(st.lists(st.integers(0, 2**63 - 2), min_size=1, max_size=200), st.integers(1, 300))
def test_large_ids_keep_their_values(ids, capacity):
    spec = TableSpec("one", 2**63 - 1, 2, SGD(1.0))
    store = stored([HashedTable(spec, capacity=capacity)], seed=3)
    for row in ids:
        before = store.weights_of("one", [row])[0]
        store.update_rows([flat([[row]])], [np.array([row % 7, 1.0], np.float32)])
        after = store.weights_of("one", [row])[0]
        assert after.tolist() == [before[0] - np.float32(row % 7), before[1] - np.float32(1.0)]
    last = list(dict.fromkeys(reversed(ids)))[:capacity]
    assert states_of(store)["one"].rows.tolist() == sorted(last)


def test_a_part_of_a_table_begins_with_the_values_of_the_whole():
    spec = TableSpec("part", 50, 4, SGD(1.0))
    origin = TableOrigin("whole", row_stride=3, row_first=2, first_column=1)
    store = stored([HashedTable(spec, capacity=5)], seed=3, origins=[origin])
    engine = DenseStore([spec], seed=3, origins=[origin])
    rows = np.array([4, 40, 7], np.int64)
    store.update_rows([(rows[:2], np.array([2]))], [np.zeros(8, np.float32)])
    assert store.weights_of("part", rows).tobytes() == engine.weights_of("part", rows).tobytes()


def test_the_summary_names_what_found_no_place():
    store = stored([HashedTable(TableSpec("words", 2**62, 2, SGD(1.0)), capacity=3)], seed=0)
    store.update_rows([flat([list(range(10))])], [np.ones(20, np.float32)])
    (line,) = [counts.summary(name) for name, counts in store.hashed_counts.items()]
    assert "table words: 3 of 3 rows, 3 ids admitted" in line
    assert "7 updates found no place: a batch has more ids than the table has rows" in line
    assert store.hashed_counts["words"] == HashedCounts(3, 3, 3, 0, 0, 0, 7)
    assert (store.weights_of("words", [9]) != 0).all()


def test_rows_of_one_age_expire_over_some_steps():
    """No step is long because many rows have one age."""
    store = stored([HashedTable(TableSpec("one", 2**62, 1, SGD(1.0)), capacity=1000, expire_after_steps=1)], seed=0)
    store.update_rows([flat([list(range(1000))])], [np.ones(1000, np.float32)])
    left = []
    for _ in range(7):
        store.update_rows([flat([[]])], [np.zeros(0, np.float32)])
        left.append(store.hashed_counts["one"].stored)
    assert left == [1000, 744, 488, 232, 0, 0, 0]


def test_a_candidate_that_was_updated_longest_ago_makes_room():
    """One line of candidates, of eight ids."""
    store = stored(
        [HashedTable(TableSpec("one", 2**62, 1, SGD(1.0)), capacity=10, admit_after=2, candidates=8)], seed=0
    )
    for row in [*range(8), 8, 1, 0]:
        store.update_rows([flat([[row]])], [np.ones(1, np.float32)])
    assert states_of(store)["one"].rows.tolist() == [1]


def test_the_bytes_of_a_row():
    spec = TableSpec("one", 2**62, 16, Adagrad(0.1))
    assert bytes_per_row(HashedTable(spec, capacity=1)) == 128 + 26
    assert bytes_per_row(HashedTable(spec, capacity=1, admit_after=3)) == 128 + 28


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"capacity": 0}, "space for some rows"),
        ({"capacity": -1}, "space for some rows"),
        ({"capacity": 1 << 31}, "space for some rows"),
        ({"capacity": 1, "admit_after": 0}, "admit_after"),
        ({"capacity": 1, "admit_after": 256}, "admit_after"),
        ({"capacity": 1, "expire_after_steps": -1}, "expire_after_steps"),
        ({"capacity": 1, "candidates": -1}, "candidates"),
        ({"capacity": 1, "candidate_steps": 0}, "candidate_steps"),
    ],
)
def test_options_out_of_range_are_refused(given, part):
    with pytest.raises(ConfigError, match=part):
        HashedTable(TableSpec("one", 10, 16, SGD(1.0)), **given)


def test_what_does_not_fit_is_one_error_and_changes_nothing():
    store = stored([HashedTable(TableSpec("one", 10, 2, SGD(1.0)), capacity=3)], seed=0)
    rows, counts, gradients = np.array([1, 2], np.int64), np.array([2]), np.ones(4, np.float32)
    store.update_rows([(rows, counts)], [gradients])
    before, step = states_of(store), store.history(0)[0]
    for asked, flat_gradients in (
        ((np.array([1, 10]), counts), gradients),
        ((np.array([-1, 1]), counts), gradients),
        ((rows, np.array([3])), gradients),
        ((rows, np.array([1, 1])), gradients),
        ((rows.astype(np.float64), counts), gradients),
        ((rows, counts), gradients[:3]),
        ((rows, counts), gradients.astype(np.float64)),
    ):
        with pytest.raises(BadBatch):
            store.update_rows([asked], [flat_gradients])
    with pytest.raises(BadBatch, match="loaded with their ages"):
        store.write_values(rows, counts, RowValues(gradients, np.zeros(0, np.float32)), are_changed=True)
    with pytest.raises(BadBatch):
        store.read_rows(np.array([10]), np.array([1]))
    same_states(states_of(store), before)
    assert store.history(0)[0] == step


def test_states_that_do_not_fit_are_refused():
    store = stored([HashedTable(TableSpec("one", 10, 2, SGD(1.0)), capacity=3)], seed=0)
    store.update_rows([flat([[1, 2]])], [np.ones(4, np.float32)])
    state, none = states_of(store), np.zeros(0, np.uint64)
    for steps, ages in (
        (1, np.zeros(3, np.int64)),
        (1, np.array([0, 1])),
        (5, np.array([0, -1])),
        (-1, np.array([0, 0])),
        (5, np.array([0.0, 1.0])),
    ):
        sections = TableSections(arrays={AGES: ages, STEPS: np.array([steps]), CANDIDATES: none})
        with pytest.raises(TornCheckpoint, match="history"):
            store.load_state({"one": replace(state["one"], sections=sections)})
    same_states(states_of(store), state)


def test_of_a_state_with_more_rows_than_places_those_of_the_newest_use_stay():
    engine = DenseStore([spec := TableSpec("one", 10, 2, SGD(1.0))], seed=0)
    engine.update_rows([flat([[1, 2, 3, 4]])], [np.ones(8, np.float32)])
    store = stored([HashedTable(spec, capacity=3)], seed=0)
    store.load_state(engine.state())
    assert states_of(store)["one"].rows.tolist() == [2, 3, 4]
    assert store.hashed_counts["one"] == HashedCounts(3, 3, 0, 1, 0, 0, 0)


def test_steps_are_left_out_when_a_state_is_loaded():
    """Ages and the 24 bits of candidates' steps stay."""
    assert shortened((5 << 24) + 7, np.array([3, 1 << 24])) == (1 << 24) + 7
    assert shortened(7, np.array([3, 6])) == 7
