"""Rows of every width: columns in vectors of 16, 8, 4 and 1, and rows that are read for the first time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.test_optimizers import OPTIMIZERS, reference, update
from trainer.tables import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    Constant,
    CpuEngine,
    FeatureSpec,
    IdBatch,
    Quantization,
    TableSpec,
    TableState,
    Uniform,
)
from trainer.tables.kernels.memory import LINE_FLOATS, small_tables
from trainer.tables.optimizers import slot_width

ROWS = 9
widths = st.one_of(st.integers(1, 48), st.sampled_from([64, 76, 92, 380]))
bags_lists = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=9), min_size=1, max_size=6)


def shares_of_bag(combiner, weights):
    """float64 shares of the ids of one bag."""
    divisor = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return weights / divisor


@given(
    bags_lists,
    widths,
    st.sampled_from(["sum", "mean", "sqrtn"]),
    st.booleans(),
    st.sampled_from([0, 1, 3]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_rows_of_every_width_are_those_of_float64(bags, dim, combiner, has_weights, length, threads, seed):
    """A pooled feature, and one of sequences of at most ``length`` ids unless that is 0, over one table."""
    table = TableSpec("t", ROWS, dim, SGD(1.0), combiner, Uniform(-1.0, 1.0))
    engine = CpuEngine([FeatureSpec("a", table), FeatureSpec("b", table, length)], seed=seed, threads=threads)
    rng, batch = np.random.default_rng(seed), batch_of([bags, bags[::-1]])
    weights = np.ones(len(batch.ids))
    if has_weights:
        weights = rng.uniform(0.1, 2, len(batch.ids)).astype(np.float32)
        batch = IdBatch(batch.ids, batch.offsets, weights)
    rows = engine.weights_of("t", np.arange(ROWS)).astype(np.float64)
    gradients = rng.normal(size=(len(bags), engine.width)).astype(np.float32)
    expected, after = np.zeros((len(bags), engine.width)), rows.copy()
    for f, (name, own) in enumerate((("a", bags), ("b", bags[::-1]))):
        start = engine.columns[name].start
        for b, bag in enumerate(own):
            shares = weights[batch.offsets[f, b] : batch.offsets[f, b + 1]].astype(np.float64)
            is_sequence = name == "b" and length > 0
            if bag and not is_sequence:
                shares = shares_of_bag(combiner, shares)
            for k, row in enumerate(bag[:length] if is_sequence else bag):
                columns = slice(start + k * dim * is_sequence, start + (k * is_sequence + 1) * dim)
                expected[b, columns] += shares[k] * rows[row]
                after[row] -= shares[k] * gradients[b, columns]
    np.testing.assert_allclose(engine.lookup(batch), expected, rtol=1e-5, atol=1e-5)
    engine.apply_gradients(batch, gradients)
    np.testing.assert_allclose(engine.weights_of("t", np.arange(ROWS)), after, rtol=1e-4, atol=1e-4)


@given(OPTIMIZERS, widths, st.integers(0, 2**32 - 1))
def test_updates_of_every_width_are_those_of_float64(optimizer, dim, seed):
    rng = np.random.default_rng(seed)
    weights, gradient = (rng.normal(0, 0.3, dim).astype(np.float32) for _ in range(2))
    slots = np.full(slot_width(optimizer, dim), 0.1, np.float32)
    expected = reference(
        optimizer, weights.astype(np.float64), slots.astype(np.float64), gradient.astype(np.float64), 0.1
    )
    found = update(optimizer, weights, slots, gradient)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.1),
        Adagrad(0.1),
        AdagradMomentum(0.1, 0.9, True, 3.0, 0.9, 0.01),
        Adam(0.1),
        FTRL(0.1),
        FTRL(0.1, -0.8),
        SGD(0.1, clip_gradient_max=0.2, clip_weight_min=-0.3, weight_decay_factor=0.01),
    ],
    ids=["sgd", "adagrad", "momentum", "adam", "ftrl", "ftrl of a power", "limits and decay"],
)
def test_a_column_has_the_same_bits_in_vectors_of_every_width(optimizer):
    """A row of 48 columns has vectors of 16 only; its first columns alone are a narrower row."""
    rng, most = np.random.default_rng(0), 48
    quantization = Quantization(64, -1.0, 1.0)
    slots = slot_width(optimizer, most) // most
    weights = rng.normal(0, 0.5, (ROWS, most)).astype(np.float32)
    held = rng.uniform(0.1, 1.0, (ROWS, slots, most)).astype(np.float32)
    batch = batch_of([[[0, 1, 1, 2], [], [8], [8, 3, 0]], [[5, 5], [6, 0, 1], [2], []]])
    gradients = rng.normal(size=(4, 2, most)).astype(np.float32)

    def train(dim):
        """Activations before and after one update, and the table after it."""
        table = TableSpec("t", ROWS, dim, optimizer, "mean", quantization=quantization)
        engine = CpuEngine([FeatureSpec("a", table), FeatureSpec("b", table)], seed=0, threads=2)
        own = np.ascontiguousarray(held[:, :, :dim]).reshape(ROWS, slots * dim)
        engine.load_state({"t": TableState(np.arange(ROWS), np.ascontiguousarray(weights[:, :dim]), own)})
        before = engine.lookup(batch)
        engine.apply_gradients(batch, np.ascontiguousarray(gradients[:, :, :dim]).reshape(4, 2 * dim))
        state = engine.state()["t"]
        parts = before, engine.lookup(batch), state.weights, state.slots
        return [part.reshape(-1, dim) for part in parts]

    wide = train(most)
    for dim in range(1, most):
        for part, whole in zip(train(dim), wide, strict=True):
            assert part.tobytes() == whole[:, :dim].tobytes(), dim


@pytest.mark.parametrize("dim", [1, 5, 16])
@pytest.mark.parametrize("initial", [Constant(0.0), Uniform(-1.0, 1.0)], ids=["zeros", "uniform"])
def test_a_row_whose_last_weight_is_zero_keeps_its_values(dim, initial):
    """The last weight tells a row that was read from one that was not, unless it is zero."""
    table = TableSpec("t", ROWS, dim, SGD(1.0), "sum", initial)
    engine = CpuEngine([FeatureSpec("f", table)], seed=0)
    batch = batch_of([[[row] for row in range(ROWS)]])
    gradients = engine.lookup(batch).copy()
    np.testing.assert_array_equal(gradients, engine.weights_of("t", np.arange(ROWS)))
    if dim > 1:
        gradients[:, 0] -= 3.0
    engine.apply_gradients(batch, gradients)
    expected = np.zeros((ROWS, dim))
    if dim > 1:
        expected[:, 0] = 3.0
    np.testing.assert_allclose(engine.lookup(batch), expected, atol=1e-6)
    np.testing.assert_array_equal(engine.lookup(batch)[:, -1], expected[:, -1])


def test_threads_that_read_new_rows_at_once_find_whole_rows():
    table = TableSpec("t", 3000, 37, SGD(1.0), "sum", Uniform(-1.0, 1.0))
    features = [FeatureSpec("f", table)]
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(3000), 4))
    batch = IdBatch(ids, np.arange(len(ids) + 1)[None])
    expected = CpuEngine(features, seed=1, threads=1).weights_of("t", np.arange(3000))[ids]
    for _ in range(5):
        found = CpuEngine(features, seed=1, threads=4).lookup(batch)
        assert found.tobytes() == expected.tobytes()


def test_every_table_begins_a_cache_line():
    tables = [TableSpec(f"t{dim}", 7, dim, Adagrad(0.1)) for dim in (3, 8, 16, 21)]
    engine = CpuEngine([FeatureSpec(f"f{t}", table) for t, table in enumerate(tables)], seed=0)
    values, layout = engine.store.values, engine.store.layout
    assert values.weights.ctypes.data % (4 * LINE_FLOATS) == values.slots.ctypes.data % (4 * LINE_FLOATS) == 0
    assert not (layout.weight_base % LINE_FLOATS).any()
    assert not (layout.slot_base % LINE_FLOATS).any()


def test_only_small_tables_have_huge_pages():
    large = 65 << 20
    starts = np.array([0, 300 + large, 100, 300 + 2 * large, 200, 300])
    sizes = np.array([100, large, 100, 50, 100, large])
    assert list(small_tables(starts, sizes)) == [(0, 300), (300 + 2 * large, 350 + 2 * large)]
    assert list(small_tables(starts[1:2], sizes[1:2])) == []


def test_a_large_table_costs_its_used_rows():
    table = TableSpec("t", 200_000_000, 16, SGD(1.0))
    before = resident_bytes()
    engine = CpuEngine([FeatureSpec("f", table)], seed=0)
    ids = np.random.default_rng(0).integers(0, 200_000_000, 2000)
    engine.lookup(IdBatch(ids, np.arange(2001)[None]))
    # A page for the row and one for its state, and the tables of pages; with huge pages these rows take gigabytes.
    assert resident_bytes() - before < 200 << 20


def resident_bytes():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])
