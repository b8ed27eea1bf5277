"""An engine within a budget: the bits of the whole tables while all rows fit, and the most important rows when they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import batches, same_states
from tests.trainer.tables.stores.pruned.histories import with_histories
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.options.pruning import RESETS, GroupOptions, PruningOptions
from trainer.tables import FTRL, SGD, Adagrad, Adam, CpuEngine, FeatureSpec, Quantization, RowWiseAdagrad, TableSpec
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.spec import tables_of
from trainer.tables.stores.pruned.addresses import NO_PLACE
from trainer.tables.stores.pruned.history import PrunedHistory

ROWS, SEED = 21, 3
ADAGRAD = Adagrad(0.1, 0.01)
FEATURES = (
    FeatureSpec("a", one := TableSpec("one", ROWS, 3, ADAGRAD, "mean")),
    FeatureSpec("b", TableSpec("two", 2 * ROWS, 5, Adam(0.1), "sqrtn")),
    FeatureSpec("c", one, max_sequence_length=2),
    FeatureSpec("d", TableSpec("three", ROWS, 16, RowWiseAdagrad(0.1), "sum")),
    FeatureSpec("e", TableSpec("four", 3, 1, SGD(0.5), "sum")),
    FeatureSpec("f", TableSpec("five", ROWS, 3, ADAGRAD, "sum")),
    FeatureSpec("g", TableSpec("six", ROWS, 5, FTRL(0.1), "sum")),
)
TABLES = tables_of(FEATURES)
#: As in the paper, unless a test says otherwise.
PAPER = {"spare_share": 0.0, "crossing_share": 0.05}
NEVER = {"check_steps": 1 << 30, "decay_steps": 1 << 30}


def pruned(budget=0.5, *, features=FEATURES, threads=2, **options) -> PrunedEngine:
    return PrunedEngine(
        features, PruningOptions.read({"budget": budget, **PAPER, **options}), seed=SEED, threads=threads
    )


def gradients_of(batch, width, seed):
    return np.random.default_rng(seed).normal(size=(batch.rows, width)).astype(np.float32)


def step(engine, batch, seed) -> bytes:
    found = engine.lookup(batch).tobytes()
    engine.apply_gradients(batch, gradients_of(batch, engine.width, seed))
    return found


def popular_batch(seed: int, events: int = 8, features=FEATURES, shift: int = 0):
    """Ids of a power law, other ones after a ``shift``."""
    draw = np.random.default_rng(seed)
    sizes = [one.table.vocabulary_size for one in features]
    return batch_of(
        [[((draw.zipf(1.5, draw.integers(0, 4)) - 1 + shift) % size).tolist() for _ in range(events)] for size in sizes]
    )


@settings(max_examples=scaled(60))
@given(st.lists(batches(FEATURES), min_size=1, max_size=8), st.integers(1, 3))
def test_with_places_for_all_rows_it_has_the_bits_of_whole_tables(trained, threads):
    """Also through rounds of pruning, in which nothing moves. Rows that were only looked up have places, too."""
    whole, engine = CpuEngine(FEATURES, seed=SEED), pruned(1.0, threads=threads, round_steps=2)
    for seed, batch in enumerate(trained):
        assert step(engine, batch, seed) == step(whole, batch, seed)
    for name, found in engine.state().items():
        expected = whole.state()[name]
        changed = np.isin(found.rows, expected.rows)
        assert found.rows[changed].tolist() == expected.rows.tolist()
        assert found.weights[changed].tobytes() == expected.weights.tobytes()
        assert found.slots[changed].tobytes() == expected.slots.tobytes()
        assert found.weights[~changed].tobytes() == whole.weights_of(name, found.rows[~changed]).tobytes()
    assert engine.statistics() == whole.statistics()
    assert (engine.rows.counts.misses, engine.rows.counts.moved_rows, engine.rows.rounds) == (0, 0, len(trained) // 2)


@settings(max_examples=scaled(60))
@given(st.lists(batches(FEATURES), min_size=1, max_size=10), st.floats(0.2, 1.0), st.booleans())
def test_the_most_important_rows_have_places(trained, budget, normalised):
    """By numpy over the importance of all rows; of equal ones the first. In a group with free places nothing moves."""
    engine = pruned(budget, normalised=normalised, **NEVER)
    for seed, batch in enumerate(trained):
        step(engine, batch, seed)
    histories, before, free = engine.rows.histories(), engine.state(), engine.rows.addresses.free_rows.tolist()
    engine.rows.prune()
    for group, has_free in zip(engine.rows.groups, free, strict=True):
        if has_free or group.rows == sum(TABLES[t].vocabulary_size for t in group.tables):
            assert all(
                engine.state()[TABLES[t].name].rows.tolist() == before[TABLES[t].name].rows.tolist()
                for t in group.tables
            )
            continue
        ranked = []
        for position, t in enumerate(group.tables):
            own = np.zeros(TABLES[t].vocabulary_size, np.float32)
            own[histories[TABLES[t].name].rows] = histories[TABLES[t].name].importance
            scale = engine.rows.importance.scale(own)
            ranked += [(-np.float32(value * scale), position, row) for row, value in enumerate(own) if value > 0]
        expected = {(position, row) for _, position, row in sorted(ranked)[: group.rows]}
        kept = {
            (position, row)
            for position, t in enumerate(group.tables)
            for row in engine.state()[TABLES[t].name].rows.tolist()
        }
        assert kept == expected


@settings(max_examples=scaled(60))
@given(st.lists(batches(FEATURES), min_size=1, max_size=6), st.floats(0.2, 1.0), st.sampled_from(["frequency_gradient", "frequency", "gradient"]))  # fmt: skip
def test_importance_is_lookups_times_the_norm_of_the_gradient(trained, budget, metric):
    """Also of rows without a place."""
    engine = pruned(budget, metric=metric, **NEVER)
    expected = {table.name: np.zeros(table.vocabulary_size) for table in TABLES}
    for seed, batch in enumerate(trained):
        step(engine, batch, seed)
        for name, (lookups, sums) in sums_of(batch, gradients_of(batch, engine.width, seed), engine.columns).items():
            norms = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1))
            counted = lookups if "frequency" in metric else lookups > 0
            expected[name] += counted * (norms if "gradient" in metric else 1.0)
    for name, history in engine.rows.histories().items():
        found = np.zeros(len(expected[name]))
        found[history.rows] = history.importance
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5)


def sums_of(batch, gradients, columns):
    """For each table the lookups of each row, and its summed gradient, one id after the other."""
    found = {
        one.name: (np.zeros(one.vocabulary_size), np.zeros((one.vocabulary_size, one.dim), np.float32))
        for one in TABLES
    }
    for f, feature in enumerate(FEATURES):
        lookups, sums = found[feature.table.name]
        for event in range(batch.rows):
            bag = batch.ids[batch.offsets[f, event] : batch.offsets[f, event + 1]]
            own = gradients[event, columns[feature.name]]
            if feature.max_sequence_length:
                bag = bag[: feature.max_sequence_length]
            share = share_of(feature, len(bag), batch, f, event)
            for k, row in enumerate(bag):
                piece = own[k * feature.table.dim : (k + 1) * feature.table.dim] if feature.max_sequence_length else own
                lookups[row] += 1
                sums[row] += piece * share[k]
    return found


def share_of(feature, count, batch, f, event):
    """What each id of a bag counts for."""
    weights = (
        np.ones(count) if batch.weights is None else batch.weights[batch.offsets[f, event] :][:count].astype(np.float64)
    )
    if feature.max_sequence_length or feature.table.combiner == "sum" or not count:
        return weights
    whole = np.ones(count) if batch.weights is None else batch.weights[batch.offsets[f, event] : batch.offsets[f, event + 1]].astype(np.float64)  # fmt: skip
    divisor = whole.sum() if feature.table.combiner == "mean" else np.sqrt((whole**2).sum())
    return weights / divisor if divisor else 0 * weights


@settings(max_examples=scaled(40))
@given(st.lists(batches(FEATURES), min_size=2, max_size=8), st.floats(0.2, 0.9))
def test_threads_change_no_bit(trained, budget):
    engines = [pruned(budget, threads=threads, round_steps=2) for threads in (1, 3)]
    for seed, batch in enumerate(trained):
        assert len({step(engine, batch, seed) for engine in engines}) == 1
    same_states(*(engine.state() for engine in engines))


@settings(max_examples=scaled(40))
@given(
    st.lists(batches(FEATURES), min_size=2, max_size=8),
    st.floats(0.2, 0.9),
    st.integers(0, 7),
    st.sampled_from(RESETS),
    st.sampled_from([0.0, 0.3]),
)
def test_a_run_that_goes_on_equals_one_that_did_not_stop(trained, budget, stop, reset, spare):
    """By the rule ``none`` only without spare places: no state has the values that these keep of other rows."""
    spare = 0.0 if reset == "none" else spare
    options = {"round_steps": 3, "decay_steps": 2, "reset": reset, "spare_share": spare}
    engine = pruned(budget, **options)
    resumed = None
    for seed, batch in enumerate(trained):
        if seed == stop:
            resumed = pruned(budget, **options)
            resumed.load_state(engine.state())
        expected = step(engine, batch, seed)
        assert resumed is None or step(resumed, batch, seed) == expected
    if resumed is not None:
        same_states(resumed.state(), engine.state())
        for name, history in engine.rows.histories().items():
            found = resumed.rows.histories()[name]
            assert (found.rows.tolist(), found.importance.tobytes()) == (
                history.rows.tolist(),
                history.importance.tobytes(),
            )
            assert (found.gain, found.step) == (history.gain, history.step)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_importance_of_single_rows_is_that_of_all_rows_also_at_the_first_place(normalised):
    """What a sample reads before a round; the rows at place 0 of a group are like all others."""
    engine = pruned(0.4, normalised=normalised, **NEVER)
    for seed in range(4):
        step(engine, popular_batch(seed), seed)
    histories, first_places = engine.rows.histories(), 0
    for t, table in enumerate(TABLES):
        places = engine.rows.addresses.of_table(t)
        found, is_kept = engine.rows.importance.of(t, np.arange(table.vocabulary_size))
        expected = np.zeros(table.vocabulary_size, np.float32)
        expected[histories[table.name].rows] = histories[table.name].importance
        assert found.tolist() == expected.tolist()
        assert is_kept.tolist() == (places != NO_PLACE).tolist()
        first_places += int((places == 0).sum())
    assert first_places == len(engine.rows.groups)


TABLE = TableSpec("t", 40, 4, SGD(0.1), "sum")


def one_table(budget=0.25, **options) -> PrunedEngine:
    return pruned(budget, features=[FeatureSpec("f", TABLE)], **{**NEVER, **options})


def touch(engine, rows, gradient=1.0) -> None:
    """An update of rows with equal gradients."""
    batch = batch_of([[[row] for row in rows]])
    engine.lookup(batch)
    engine.apply_gradients(batch, np.full((len(rows), engine.width), gradient, np.float32))


def test_a_row_without_a_place_is_read_as_zeros_and_never_trained():
    engine = one_table()
    touch(engine, range(10))
    touch(engine, range(10, 20))
    batch = batch_of([[[3, 15], [15], []]])
    found = engine.lookup(batch)
    assert found[0].tobytes() == engine.weights_of("t", np.array([3])).tobytes()
    assert not found[1:].any()
    assert engine.state()["t"].rows.tolist() == list(range(10))
    assert (engine.rows.counts.hits, engine.rows.counts.misses) == (11, 12)


def test_a_row_that_becomes_important_takes_the_place_of_one_that_is_not():
    engine = one_table()
    touch(engine, range(10))
    for _ in range(5):
        touch(engine, [30, 31])
    engine.rows.prune()
    assert engine.state()["t"].rows.tolist() == [*range(8), 30, 31], "of rows of equal importance the first stay"
    assert not engine.weights_of("t", np.array([30])).any(), "its weights begin at zero"
    touch(engine, [30])
    np.testing.assert_allclose(engine.weights_of("t", np.array([30])), -0.1, rtol=1e-6)


def test_a_round_leaves_places_for_rows_that_are_looked_up_first_afterwards():
    engine = one_table(spare_share=0.3)
    for _ in range(2):
        touch(engine, range(4, 14))
    for _ in range(2):
        engine.rows.prune()
        assert engine.state()["t"].rows.tolist() == list(range(4, 11)), (
            "3 of 10; a group with free places stays as it is"
        )
    initial = CpuEngine([FeatureSpec("f", TABLE)], seed=SEED).weights_of("t", np.array([20]))
    engine.lookup(batch_of([[[20], [30], [31], [32]]]))
    assert engine.state()["t"].rows.tolist() == [*range(4, 11), 20, 30, 31]
    assert engine.weights_of("t", np.array([20])).tobytes() == initial.tobytes(), "with their initial values"
    engine.rows.prune()
    assert engine.state()["t"].rows.tolist() == list(range(4, 11)), "rows of no importance leave again"
    assert engine.rows.rounds == 3


@pytest.mark.parametrize("reset", ["zero", "initial", "restored", "none"])
def test_the_values_of_a_row_that_comes_are_those_of_the_rule(reset):
    table = TableSpec("t", 8, 2, Adagrad(0.1, 0.5), "sum")
    engine = pruned(0.25, features=[FeatureSpec("f", table)], reset=reset, **NEVER)
    whole = CpuEngine([FeatureSpec("f", table)], seed=SEED)
    initial = whole.weights_of("t", np.arange(8))
    touch(engine, [0, 1])
    before = engine.state()["t"]
    for _ in range(3):
        touch(engine, [2, 3])
    engine.rows.prune()
    after = engine.state()["t"]
    assert after.rows.tolist() == [2, 3]
    expected = {"zero": np.zeros((2, 2)), "initial": initial[2:4], "restored": initial[2:4]}.get(reset)
    if reset == "none":
        assert sorted(after.weights.tolist()) == sorted(before.weights.tolist()), "those of the rows that left"
        assert sorted(after.slots.tolist()) == sorted(before.slots.tolist())
    else:
        assert after.weights.tolist() == expected.tolist()
        assert (after.slots == 0.5).all(), "slots begin where they do in a new table"
    for _ in range(9):
        touch(engine, [0, 1])
    engine.rows.prune()
    if reset == "restored":
        assert engine.state()["t"].weights.tobytes() == before.weights.tobytes()
        assert engine.state()["t"].slots.tobytes() == before.slots.tobytes()


def test_importance_decays():
    """Rows that were important once make room, and no value grows without bound."""
    engine = one_table(decay_steps=1, decay=0.5)
    for _ in range(60):
        touch(engine, range(10))
    for _ in range(3):
        touch(engine, range(20, 30))
    engine.rows.prune()
    assert engine.state()["t"].rows.tolist() == list(range(20, 30))
    assert engine.rows.histories()["t"].gain < 2.0**40
    assert np.isfinite(engine.rows.histories()["t"].importance).all()


def test_a_round_begins_when_rows_have_crossed_the_cut_off():
    engine = one_table(check_steps=10)
    for _ in range(20):
        touch(engine, range(10))
    assert engine.rows.rounds == 0, "nothing has crossed"
    for _ in range(30):
        touch(engine, range(10, 20), gradient=2.0)
    assert engine.rows.rounds > 0
    assert engine.state()["t"].rows.tolist() == list(range(10, 20))


def test_rows_that_fell_below_the_cut_off_lose_their_places():
    """By lookups alone many rows are equally important: rows without a place are at the cut-off, none is above it, and rows with one are below."""
    engine = one_table(check_steps=10, metric="frequency", decay_steps=1 << 30)
    touch(engine, range(10))
    for _ in range(9):
        touch(engine, range(20, 40))
    assert engine.rows.rounds == 1
    assert engine.state()["t"].rows.tolist() == list(range(20, 30))


def test_no_round_begins_while_places_are_free():
    """A row that lacks a place gets a free one at its next lookup, so no row has to leave its place for it."""
    engine = one_table(check_steps=1, spare_share=0.2)
    for _ in range(3):
        touch(engine, range(7))
    assert engine.rows.addresses.free_rows.any()
    for _ in range(3):
        touch(engine, range(20, 23), gradient=2.0)
    assert engine.rows.rounds == 0
    assert engine.state()["t"].rows.tolist() == [*range(7), *range(20, 23)]


def test_rows_may_move_between_a_lookup_and_its_update():
    """The gradient of a row that has lost its place makes it more important, and changes no other row."""
    engine, one = (
        one_table(),
        batch_of(
            [
                [[3]],
            ]
        ),
    )
    touch(engine, range(10))
    for _ in range(3):
        touch(engine, range(20, 30))
    engine.lookup(one)
    engine.rows.prune()
    before, importance = engine.state(), engine.rows.histories()["t"]
    engine.apply_gradients(one, np.ones((1, 4), np.float32))
    same_states(engine.state(), before)
    assert engine.rows.histories()["t"].importance[importance.rows == 3] > importance.importance[importance.rows == 3]


@settings(max_examples=scaled(30))
@given(st.floats(0.2, 0.9), st.integers(0, 100))
def test_a_snapshot_is_of_its_moment_while_rows_lose_their_places(budget, seed):
    assert_snapshot_of_its_moment(pruned(budget, round_steps=2), budget, seed)


def assert_snapshot_of_its_moment(engine, budget, seed):
    """Read table by table, between steps that prune."""
    for k in range(4):
        step(engine, popular_batch(seed + k), k)
    expected = engine.state()
    snapshot = engine.begin_snapshot(most_bytes=1 << 24)
    assert snapshot.counts == tuple(len(one.rows) for one in expected.values())
    for t, table in enumerate(TABLES):
        for k in range(2):
            step(engine, popular_batch(1000 + seed + 2 * t + k, shift=3 * t), k)
        found = list(snapshot.table(t))
        for name in ("rows", "weights", "slots"):
            joined = b"".join(getattr(part, name).tobytes() for part in found)
            assert joined == getattr(expected[table.name], name).tobytes(), name
    assert engine.rows.counts.moved_rows > 0 or budget > 0.5


def test_a_state_of_whole_tables_is_loaded_within_the_budget():
    """The most important rows stay; without a history the first ones."""
    whole = CpuEngine([FeatureSpec("f", TABLE)], seed=SEED)
    touch(whole, range(40))
    engine = one_table()
    engine.load_state(whole.state())
    assert engine.state()["t"].rows.tolist() == list(range(10))
    importance = np.zeros(40, np.float32)
    importance[25:] = 1.0
    history = PrunedHistory(np.flatnonzero(importance), importance[25:], 1.0, 7, 2)
    engine.load_state(with_histories(whole.state(), {"t": history}))
    assert engine.state()["t"].rows.tolist() == list(range(25, 35))
    assert engine.rows.step == 7
    same_states({"t": engine.state()["t"]}, {"t": type(whole.state()["t"])(*(one[25:35] for one in (whole.state()["t"].rows, whole.state()["t"].weights, whole.state()["t"].slots)))})  # fmt: skip


@pytest.mark.parametrize(
    "history",
    [
        PrunedHistory(np.array([40]), np.ones(1, np.float32), 1.0, 0, 0),
        PrunedHistory(np.array([-1]), np.ones(1, np.float32), 1.0, 0, 0),
        PrunedHistory(np.array([3, 3]), np.ones(2, np.float32), 1.0, 0, 0),
        PrunedHistory(np.array([3]), np.array([np.nan], np.float32), 1.0, 0, 0),
        PrunedHistory(np.array([3]), np.array([0.0], np.float32), 1.0, 0, 0),
        PrunedHistory(np.array([3]), np.ones(2, np.float32), 1.0, 0, 0),
        PrunedHistory(np.array([3]), np.ones(1), 1.0, 0, 0),
        PrunedHistory(np.array([3]), np.ones(1, np.float32), float("nan"), 0, 0),
        PrunedHistory(np.array([3]), np.ones(1, np.float32), 1.0, -1, 0),
    ],
)
def test_a_history_that_does_not_fit_is_refused(history):
    engine = one_table()
    with pytest.raises(TornCheckpoint, match=r"the importance of|three finite numbers"):
        engine.load_state(with_histories(engine.state(), {"t": history}))


def test_histories_must_be_of_one_moment():
    engine = pruned()
    step(engine, popular_batch(1), 1)
    histories = engine.rows.histories()
    old = histories["one"]
    histories["one"] = PrunedHistory(old.rows, old.importance, old.gain, old.step + 1, old.rounds)
    with pytest.raises(TornCheckpoint, match="importance of one step"):
        engine.load_state(with_histories(engine.state(), histories))


def test_bad_batches_and_gradients_change_nothing():
    engine = one_table()
    touch(engine, range(10))
    before, histories = engine.state(), engine.rows.histories()
    with pytest.raises(BadBatch):
        engine.lookup(batch_of([[[40]]]))
    good = batch_of([[[3]]])
    for wrong in (np.zeros((1, 3), np.float32), np.zeros((2, 4), np.float32), np.zeros((1, 4))):
        with pytest.raises(BadBatch):
            engine.apply_gradients(good, wrong)
    with pytest.raises(NonFiniteLoss):
        engine.apply_gradients(good, np.full((1, 4), np.nan, np.float32))
    same_states(engine.state(), before)
    assert engine.rows.histories()["t"].importance.tobytes() == histories["t"].importance.tobytes()


@pytest.mark.parametrize(
    ("features", "options", "problem"),
    [
        ([], {}, "at least one feature"),
        (
            [FeatureSpec("f", TableSpec("q", 9, 2, SGD(0.1), quantization=Quantization(8, -1.0, 1.0)))],
            {},
            "not be quantized",
        ),
        (FEATURES, {"budget": 0.01}, "at least one for each of its tables"),
        (FEATURES, {"groups": [{"tables": ["one"]}]}, "must name every table"),
        (FEATURES, {"groups": [{"tables": ["one", "two"]}]}, "one width and one optimizer"),
        (FEATURES, {"groups": [{"tables": ["one"]}, {"tables": ["five", "one"]}]}, "in one group"),
        (FEATURES, {"groups": [{"tables": ["seven"]}]}, "must name tables"),
    ],
)
def test_what_does_not_fit_is_refused(features, options, problem):
    with pytest.raises(ConfigError, match=problem):
        PrunedEngine(features, PruningOptions.read(options), seed=SEED)


def test_groups_and_their_rows_may_be_given():
    names = [["one", "five"], ["two"], ["three"], ["four"], ["six"]]
    engine = pruned(0.5, groups=[{"tables": own, **({"rows": 5} if own == ["three"] else {})} for own in names])
    assert [one.rows for one in engine.rows.groups if one.tables == (2,)] == [5]
    assert {TABLES[t].name for t in engine.rows.groups[0].tables} == {"one", "five"}
    assert isinstance(engine.rows.options.groups[0], GroupOptions)
