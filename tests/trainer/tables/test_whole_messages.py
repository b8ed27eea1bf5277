"""The rows of a message in one compiled call: the bits of one call for each table, and of the loops over bags."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.servers.random_batches import random_batch
from tests.trainer.tables.table_states import assert_same
from trainer.errors import BadBatch
from trainer.tables import FTRL, SGD, Adagrad, Adam, FeatureSpec, TableSpec
from trainer.tables.kernels.layout import feature_layout, packed_layout, table_layout, unpacked
from trainer.tables.kernels.memory import PrivateMemory
from trainer.tables.kernels.noted_intervals import note_rows
from trainer.tables.kernels.threads import Team
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.kernels.updates import RowUpdates
from trainer.tables.kernels.whole_messages import sizes_of
from trainer.tables.optimizers import AdagradMomentum, RowWiseAdagrad
from trainer.tables.routes.partitioned.requests import RequestMaker
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.stacked_plan import stacked_plan, width_order
from trainer.tables.spec import Constant, tables_of
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.store import HashedStore
from transforms.kernels.compiled import compiled

OPTIMIZERS = (
    SGD(0.5),
    Adagrad(0.1, 0.25),
    Adam(0.1),
    FTRL(0.1),
    AdagradMomentum(0.1, 0.9),
    RowWiseAdagrad(0.1),
    Adagrad(0.1, 0.25, clip_gradient_min=-0.5, clip_gradient_max=0.5),
    SGD(0.5, weight_decay_factor=0.1),
)
TABLES = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([1, 3, 4, 8, 15, 16, 17, 32]), st.sampled_from(range(len(OPTIMIZERS))), st.booleans()),
    min_size=1,
    max_size=6,
).map(
    lambda drawn: tuple(
        TableSpec(f"t{k}", rows, dim, OPTIMIZERS[which], initializer=Constant(0.0) if is_zero else None)
        for k, (rows, dim, which, is_zero) in enumerate(drawn)
    )
)  # fmt: skip


def store_of(tables, *, is_logged=True):
    memory = PrivateMemory()
    return DenseStore(tables, seed=3, threads=1, memory=memory, undo_log=UndoLog(memory, 1) if is_logged else None)


def drawn_message(tables, draw, most=60, dtype=np.int64):
    """Rows of each table, some of them more than once, and none of some tables; their numbers, and gradients."""
    counts = np.where(draw.random(len(tables)) < 0.3, 0, draw.integers(0, most, len(tables)))
    rows = [draw.integers(0, one.vocabulary_size, count) for one, count in zip(tables, counts, strict=True)]
    floats = int((counts * np.array([one.dim for one in tables])).sum())
    return (
        np.concatenate(rows).astype(dtype),
        counts.astype(np.int64),
        draw.standard_normal(floats).astype(np.float32),
    )


def by_table(tables, rows, counts, gradients):
    """The message of each table alone."""
    row = first = 0
    for t, (count, table) in enumerate(zip(counts.tolist(), tables, strict=True)):
        own = np.zeros_like(counts)
        own[t] = count
        yield rows[row : row + count], own, gradients[first : first + count * table.dim]
        row, first = row + count, first + count * table.dim


def update_by_bags(store, rows, counts, gradients):
    """An update as large messages are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowUpdates, "takes_message", lambda self, floats, most_floats: False)
        return store.update_rows([(rows, counts)], [gradients])


@settings(max_examples=scaled(60))
@given(TABLES, st.integers(0, 500), st.sampled_from([np.int32, np.int64]), st.booleans())
def test_a_message_has_the_bits_of_one_call_for_each_table(tables, seed, dtype, is_logged):
    whole, parted, draw = store_of(tables, is_logged=is_logged), store_of(tables), np.random.default_rng(seed)
    rates = draw.uniform(0.01, 0.2, len(tables)).astype(np.float32)
    for _ in range(3):
        rows, counts, gradients = drawn_message(tables, draw, dtype=dtype)
        read = whole.read_rows(rows, counts)
        distinct = whole.update_rows([(rows, counts)], [gradients], rates)
        parts = list(by_table(tables, rows, counts, gradients))
        assert read.tobytes() == b"".join(parted.read_rows(own, numbers).tobytes() for own, numbers, _ in parts)
        for t, (own, numbers, flat) in enumerate(parts):
            assert parted.update_rows([(own, numbers)], [flat], rates)[t] == distinct[t] == len(np.unique(own))
    assert_same(whole.state(), parted.state())


@settings(max_examples=scaled(60))
@given(TABLES, st.integers(0, 500))
def test_a_message_has_the_bits_of_bags(tables, seed):
    whole, stepped, draw = store_of(tables), store_of(tables), np.random.default_rng(seed)
    for _ in range(4):
        rows, counts, gradients = drawn_message(tables, draw)
        distinct = whole.update_rows([(rows, counts)], [gradients])
        assert update_by_bags(stepped, rows, counts, gradients).tolist() == distinct.tolist()
    assert_same(whole.state(), stepped.state())


@settings(max_examples=scaled(60))
@given(TABLES, st.integers(0, 500), st.integers(1, 3))
def test_a_message_is_undone(tables, seed, messages):
    """Rows of several messages in one transaction, some of them in more than one, have their first values again."""
    store, draw = store_of(tables), np.random.default_rng(seed)
    rows, counts, gradients = drawn_message(tables, draw)
    store.update_rows([(rows, counts)], [gradients])
    before = store.state()
    every = [(one.name, np.arange(one.vocabulary_size)) for one in tables]
    weights = [store.weights_of(*one).tobytes() for one in every]
    with suppress(ZeroDivisionError), store.undo_log.transaction() as words:
        for _ in range(messages):
            rows, counts, gradients = drawn_message(tables, draw)
            store.update_rows([(rows, counts)], [gradients])
        words[0] = 7
        raise ZeroDivisionError
    assert store.undo_log.words[0] == 0
    assert_same(store.state(), before)
    assert [store.weights_of(*one).tobytes() for one in every] == weights


def test_the_log_has_space_for_messages_that_outgrow_it():
    tables = (TableSpec("one", 3000, 16, Adagrad(0.1, 0.25)), TableSpec("two", 50, 3, Adam(0.1)))
    store, alone, draw = store_of(tables), store_of(tables, is_logged=False), np.random.default_rng(0)
    for most in (5, 50, 2000):
        rows, counts, gradients = drawn_message(tables, draw, most)
        rows[counts[0] :] %= 50
        for one in (store, alone):
            one.update_rows([(rows, counts)], [gradients])
    assert_same(store.state(), alone.state())


@settings(max_examples=scaled(40))
@given(st.integers(0, 500))
def test_a_message_of_hashed_tables_has_the_bits_of_bags(seed):
    """Their rows have places, which one compiled call updates as it does those of other tables."""
    tables = (TableSpec("ids", 1 << 40, 5, Adam(0.1)), TableSpec("rows", 30, 16, Adagrad(0.1, 0.25)))
    draw = np.random.default_rng(seed)
    stores = [HashedStore(tables, {"ids": TableLimits(12)}, seed=3, threads=1) for _ in range(2)]
    for _ in range(4):
        counts = draw.integers(0, 9, 2)
        rows = np.concatenate([draw.integers(0, 40, counts[0]) * 12345, draw.integers(0, 30, counts[1])])
        gradients = draw.standard_normal(int(counts @ [5, 16])).astype(np.float32)
        stores[0].update_rows([(rows, counts)], [gradients])
        update_by_bags(stores[1], rows, counts, gradients)
    for t in range(2):
        one, other = (store.table_state(t) for store in stores)
        assert_same({"t": one}, {"t": other})


@given(st.lists(st.integers(-2, 4), max_size=4), st.lists(st.integers(-3, 12), max_size=8))
def test_sizes_are_those_of_right_messages_alone(counts, rows):
    tables = tuple(TableSpec(f"t{k}", 10, k + 1, SGD(0.5)) for k in range(3))
    rows, counts = np.array(rows, np.int64), np.array(counts, np.int64)
    dims = np.array([1, 2, 3])
    floats, most_rows, most_floats = sizes_of(rows, counts, np.full(3, 10), dims)
    is_right = len(counts) == 3 and (counts >= 0).all() and counts.sum() == len(rows) and ((rows >= 0) & (rows < 10)).all()  # fmt: skip
    store = store_of(tables)
    if is_right:
        own = (counts * dims).tolist()
        assert (floats, most_rows, most_floats) == (sum(own), int(counts.max()), max(own))
        assert len(store.read_rows(rows, counts)) == floats
        return
    assert floats == -1
    for call in (
        lambda: store.read_rows(rows, counts),
        lambda: store.update_rows([(rows, counts)], [np.zeros(0, np.float32)]),
    ):
        with pytest.raises((BadBatch, ValueError)):
            call()
    assert not any(len(one.rows) for one in store.state().values())


@given(TABLES)
def test_a_packed_layout_is_that_of_its_tables(tables):
    features = tuple(FeatureSpec(one.name, one) for one in tables)
    layout = table_layout(feature_layout(features, tables), tables, 7)
    found = _unpacked(*packed_layout(layout))
    for name, own in zip(layout._fields[2:], found, strict=True):
        expected = getattr(layout, name)
        assert own.dtype == expected.dtype, name
        assert own.tobytes() == expected.tobytes(), name


@compiled
def _unpacked(numbers, parameters, slot_start):
    layout = unpacked(numbers, parameters, slot_start)
    return (
        layout.vocabulary, layout.trained, layout.dims, layout.slot_dims, layout.row_base, layout.weight_base, layout.slot_base,
        layout.optimizer, layout.parameters, layout.slot_start, layout.first_slot, layout.keys, layout.kinds, layout.init_a,
        layout.init_b, layout.row_stride, layout.row_first, layout.first_column,
    )  # fmt: skip


@settings(max_examples=scaled(60))
@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from([1, 4, 16, 17]), st.integers(0, 3)), min_size=1, max_size=5),
    st.integers(1, 4), st.integers(0, 500), st.booleans(), st.booleans(),
)  # fmt: skip
def test_requests_in_one_call_are_those_in_steps(drawn, owners, seed, deduplicates, ascending):
    features = [
        FeatureSpec(f"f{k}", TableSpec(f"t{k}", rows, dim, SGD(0.5)), length)
        for k, (rows, dim, length) in enumerate(drawn)
    ]
    features.append(FeatureSpec("again", features[0].table))
    tables = tables_of(features)
    stacked = tuple(tables[t] for t in width_order(tables))
    parts, of_features = TableParts(stacked, owners, stacked_plan(stacked, owners)), feature_layout(features, stacked)
    layout, batch = table_layout(of_features, stacked, 3), random_batch(features, seed, events=seed % 9)
    at_once, in_steps = (
        RequestMaker(features, of_features, layout, parts=parts, core=0, team=Team(threads), deduplicates=deduplicates, ascending=ascending)
        for threads in (1, 2)
    )  # fmt: skip
    one, other = at_once.make(batch), in_steps.make(batch)  # the team of two divides the smallest batch in these tests
    for name in ("rows", "places", "counts", "ids", "ends"):
        assert getattr(one.reads, name).tolist() == getattr(other.reads, name).tolist(), name
    assert one.updates is one.reads
    for found, expected in zip((*one.bags, *one.layout, *one.part_values), (*other.bags, *other.layout, *other.part_values), strict=True):  # fmt: skip
        assert found.tolist() == expected.tolist()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(0, 500))
def test_changed_rows_are_noted_at_their_places(sizes, seed):
    """A table without places is left out."""
    draw, sizes = np.random.default_rng(seed), np.array(sizes)
    counts = draw.integers(0, 10, len(sizes))
    rows = np.concatenate([draw.integers(0, max(size, 1), count) for size, count in zip(sizes, counts, strict=True)])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    found, expected = np.zeros(int(sizes.sum()), np.uint16), np.zeros(int(sizes.sum()), np.uint16)
    note_rows(rows, counts, starts, sizes > 0, 9, found)
    noted = np.repeat(sizes > 0, counts)
    expected[(np.repeat(starts[:-1], counts) + rows)[noted]] = 9
    assert found.tolist() == expected.tolist()
