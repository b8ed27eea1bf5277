"""Hashed and pruned tables in one memory: each has the bits that it has alone, and one transaction changes all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import same_states
from tests.trainer.tables.stores.pruned.test_pruned_store import OPTIONS, Killed, kill_at_writes
from tests.trainer.tables.test_undo_log import run_apart
from trainer.errors import BadBatch, ConfigError, ServerLost
from trainer.options.pruning import PruningOptions
from trainer.tables import SGD, Adagrad, Adam, TableSpec
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.kernels.memory import PrivateMemory, SharedMemory
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.snapshot_states import state_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.store import HashedStore
from trainer.tables.stores.joined.joined_store import JoinedStore
from trainer.tables.stores.open_store import RowKinds, open_store
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.stores.pruned.store import PrunedStore

_ADAGRAD = Adagrad(0.1, 0.25)
#: Pruned ones and hashed ones in turn.
TABLES = (
    TableSpec("one", 300, 16, _ADAGRAD),
    TableSpec("ids", 2**63 - 1, 3, Adam(0.1)),
    TableSpec("two", 60, 3, Adam(0.1)),
    TableSpec("three", 200, 16, _ADAGRAD),
    TableSpec("words", 2**62, 4, SGD(0.5)),
)
DIMS = np.array([one.dim for one in TABLES])
LIMITS = {"ids": TableLimits(40, expire_after_steps=3), "words": TableLimits(50, admit_after=2, candidates=16)}
HASHED, PRUNED = [1, 4], [0, 2, 3]


def store_in(memory, **options) -> JoinedStore:
    pruning = PruningOptions.read({**OPTIONS, **options})
    kinds = RowKinds(LIMITS, pruning, groups_of(TABLES, pruning, LIMITS))
    origins = [TableOrigin(one.name) for one in TABLES]
    found = open_store(TABLES, kinds, seed=3, threads=1, origins=origins, answers=2, memory=memory, undo_log=UndoLog(memory, 2, "test"))  # fmt: skip
    assert isinstance(found, JoinedStore)
    return found


def restored_in(memory) -> JoinedStore:
    return store_in(memory, reset="restored")


def apart() -> tuple[HashedStore, PrunedStore]:
    """The same tables in a store of each kind."""
    pruning = PruningOptions.read(OPTIONS)
    return (
        HashedStore([TABLES[t] for t in HASHED], LIMITS, seed=3, threads=1),
        PrunedStore([TABLES[t] for t in PRUNED], pruning, seed=3, threads=1),
    )


def asked_of(seed):
    """Distinct rows and ids of each table by a power law that drifts, their numbers and lookups."""
    draw = np.random.default_rng(seed)
    rows = [
        np.unique((draw.zipf(1.3, draw.integers(0, 40)) + seed // 4) % min(one.vocabulary_size, 3000)) for one in TABLES
    ]
    rows[4] = rows[4] * 2**50
    counts = np.array([len(one) for one in rows])
    gradients = draw.normal(size=int((counts * DIMS).sum())).astype(np.float32)
    return np.concatenate(rows).astype(np.int64), counts, gradients, draw.integers(1, 5, counts.sum()).astype(np.int32)


def update(store, seed) -> None:
    rows, counts, gradients, lookups = asked_of(seed)
    store.update_rows([(rows, counts)], [gradients], lookups=[lookups])


def change_once(store, seed) -> None:
    """An update that counts itself, every third one with a round."""
    with store.undo_log.transaction() as words:
        update(store, seed)
        words[0] = seed + 1


def states_of(store) -> dict:
    return {one.name: store.table_state(t) for t, one in enumerate(TABLES)}


def same_stores(one, two) -> None:
    """Values, and all that tables have beside them."""
    own, other = states_of(one), states_of(two)
    same_states(own, other)
    assert one.hashed_counts == two.hashed_counts
    for name, state in own.items():
        sections, expected = state.sections, other[name].sections
        same_states(sections.by_rows, expected.by_rows)
        assert {key: array.tobytes() for key, array in sections.arrays.items()} == {
            key: array.tobytes() for key, array in expected.arrays.items()
        }


def part_of(values, counts, tables):
    ends = np.concatenate([[0], np.cumsum(counts)])
    return np.concatenate([values[ends[t] : ends[t + 1]] for t in tables])


def test_each_table_has_the_bits_that_it_has_in_a_store_of_its_kind():
    joined, (hashed, pruned) = store_in(PrivateMemory()), apart()
    for seed in range(12):
        rows, counts, gradients, lookups = asked_of(seed)
        found = joined.read_rows(rows, counts)
        distinct = joined.update_rows([(rows, counts)], [gradients], lookups=[lookups])
        for store, tables in ((hashed, HASHED), (pruned, PRUNED)):
            own = part_of(rows, counts, tables)
            expected = store.read_rows(own, counts[tables])
            assert part_of(found, counts * DIMS, tables).tobytes() == expected.tobytes()
            floats = part_of(gradients, counts * DIMS, tables)
            of_own = store.update_rows(
                [(own, counts[tables])], [floats], lookups=[part_of(lookups, counts, tables)] if store.needs_lookups else ()
            )  # fmt: skip
            assert distinct[tables].tolist() == of_own.tolist()
    assert joined.needs_lookups
    assert joined.hashed_counts == hashed.hashed_counts
    assert joined.hashed_counts["ids"].evicted
    assert pruned.rounds == 4
    for store, tables in ((hashed, HASHED), (pruned, PRUNED)):
        for k, t in enumerate(tables):
            own, expected = joined.table_state(t), store.table_state(k)
            same_states({"one": own}, {"one": expected})
            assert joined.section_names(t) == store.section_names(k)
            assert set(own.sections.arrays) == set(expected.sections.arrays)
            some = expected.rows[:3]
            assert joined.weights_of(TABLES[t].name, some).tobytes() == expected.weights[:3].tobytes()


@pytest.mark.parametrize("reset", ["zero", "restored"])
def test_a_process_killed_at_any_write_of_the_log_leaves_the_update_before(tmp_path, monkeypatch, reset):
    """In all tables."""
    alone = store_in(PrivateMemory(), reset=reset)
    kills = kill_at_writes(
        monkeypatch,
        lambda: store_in(SharedMemory(tmp_path), reset=reset),
        alone,
        change_once,
        same_stores,
        range(6),
        {2, 5},
    )
    assert kills > 20


@pytest.mark.medium
@pytest.mark.parametrize("make", ["store_in", "restored_in"])
def test_an_update_of_a_killed_process_happens_once(tmp_path, make):
    run_apart(f"""
from pathlib import Path
from tests.trainer.tables.stores.joined import test_joined_store as own
from tests.trainer.tables.test_undo_log import killed_updates
killed_updates(Path({str(tmp_path)!r}), {scaled(60)}, own.{make}, own.change_once, same=own.same_stores)
""")


def test_an_error_inside_a_transaction_undoes_all_tables(tmp_path):
    store, alone = store_in(SharedMemory(tmp_path)), store_in(PrivateMemory())
    for seed in range(4):
        change_once(store, seed)
        change_once(alone, seed)

    def fail_after_an_update() -> None:
        with store.undo_log.transaction():
            update(store, 4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_an_update()
    same_stores(store, alone)
    for seed in range(4, 9):
        change_once(store, seed)
        change_once(alone, seed)
    same_stores(store, alone)


def test_a_batch_with_a_row_outside_its_table_changes_no_table():
    store, alone = store_in(PrivateMemory()), store_in(PrivateMemory())
    counts = np.array([1, 1, 0, 0, 0])
    with pytest.raises(BadBatch):
        store.update_rows([(np.array([300, 7]), counts)], [np.zeros(19, np.float32)], lookups=[np.ones(2, np.int32)])
    same_stores(store, alone)


def test_a_saved_state_is_loaded_into_both_kinds():
    store, other = store_in(PrivateMemory()), store_in(PrivateMemory())
    for seed in range(7):
        update(store, seed)
    other.load_state(states_of(store))
    for seed in range(7, 14):
        update(store, seed)
        update(other, seed)
    same_states(states_of(store), states_of(other))


def saved(snapshot) -> list[bytes]:
    found = []
    for part, size in enumerate(snapshot.sizes.tolist()):
        rows, ages = snapshot.read(part, 0, size), snapshot.ages(part, 0, size)
        found += [rows.rows.tobytes(), rows.weights.tobytes(), rows.slots.tobytes()]
        found += [] if ages is None else [ages.tobytes()]
    for t in range(len(TABLES)):
        kept = snapshot.history(t)
        found += [str(kept.step).encode(), kept.candidates.tobytes()]
    return found


@pytest.mark.parametrize("reset", ["zero", "restored"])
def test_a_kept_snapshot_has_one_moment_and_outlives_its_process(tmp_path, reset):
    store, twin = store_in(SharedMemory(tmp_path), reset=reset), store_in(PrivateMemory(), reset=reset)
    for seed in range(7):
        update(store, seed)
        update(twin, seed)
    expected = saved(twin.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0))
    snapshot = store.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)
    assert len(snapshot.counts) == len(snapshot.sizes) == len(TABLES) + len(PRUNED) * (2 if reset == "restored" else 1)
    for seed in range(7, 12):
        update(store, seed)
    again = store_in(SharedMemory(tmp_path), reset=reset)
    resumed = again.resume_snapshot(patience_secs=9.0)
    update(again, 12)
    assert saved(resumed) == expected
    resumed.leave(0, 300)
    with pytest.raises(ServerLost):
        resumed.read(0, 0, 300)
    resumed.close()
    assert resumed.is_done
    assert store_in(SharedMemory(tmp_path), reset=reset).resume_snapshot(patience_secs=9.0) is None


def test_a_snapshot_that_one_kind_has_not_begun_is_none(tmp_path, monkeypatch):
    """Of a process that was killed between the two, also where an earlier snapshot of the other kind is there."""
    store = store_in(SharedMemory(tmp_path))
    update(store, 0)
    store.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)

    def killed(*_args, **_kwargs):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(PrunedStore, "begin_kept_snapshot", killed)
        with pytest.raises(Killed):
            store.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)
    again = store_in(SharedMemory(tmp_path))
    assert again.resume_snapshot(patience_secs=9.0) is None
    update(again, 1)
    assert store_in(SharedMemory(tmp_path)).resume_snapshot(patience_secs=9.0) is None


def test_a_snapshot_of_a_process_is_the_state_of_its_moment():
    store = store_in(PrivateMemory())
    for seed in range(7):
        update(store, seed)
    expected = states_of(store)
    snapshot = store.begin_snapshot(most_bytes=1 << 20)
    assert snapshot.counts == tuple(len(one.rows) for one in expected.values())
    for seed in range(7, 12):
        update(store, seed)
    found = {one.name: state_of(snapshot, t, one) for t, one in enumerate(TABLES)}
    same_states(found, expected)
    for name, state in expected.items():
        same_states(found[name].sections.by_rows, state.sections.by_rows)
        assert {key: array.tobytes() for key, array in found[name].sections.arrays.items()} == {
            key: array.tobytes() for key, array in state.sections.arrays.items()
        }
    store.end_snapshot()


def test_frozen_tables_read_ids_as_new_and_rows_without_places_as_zeros():
    store = store_in(PrivateMemory())
    rows, counts = np.array([5, 6, 7, 8, 9]), np.ones(5, np.int64)
    before = store.read_rows(rows, counts).copy()
    assert all(part_of(before, DIMS, [t]).any() for t in range(5))
    store.freeze()
    after = store.read_rows(rows, counts)
    assert part_of(after, DIMS, HASHED).tobytes() == part_of(before, DIMS, HASHED).tobytes()
    assert not part_of(after, DIMS, PRUNED).any()


def test_values_are_read_and_written_with_what_is_known_of_rows_alone():
    store = store_in(PrivateMemory())
    with pytest.raises(BadBatch, match="must be loaded with"):
        store.read_values(np.zeros(0, np.int64), np.zeros(5, np.int64))
    with pytest.raises(BadBatch, match="must be loaded with"):
        store.write_values(np.zeros(0, np.int64), np.zeros(5, np.int64), RowValues(*np.zeros((2, 0), np.float32)), are_changed=True)  # fmt: skip
    with pytest.raises(BadBatch, match="must ascend"):
        store.load_rows(1, ChangedRows(np.array([3, 2]), *np.zeros((2, 2, 3), np.float32)), np.zeros(2, np.int64))


def test_a_run_of_hashed_tables_alone_has_nothing_to_prune():
    with pytest.raises(ConfigError, match="must have a table that is not hashed"):
        groups_of([TABLES[1]], PruningOptions.read(OPTIONS), LIMITS)
