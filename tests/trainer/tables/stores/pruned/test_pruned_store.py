"""Pruned tables in shared memory: wherever a process is killed, an update with its round happens once or not at all."""

from __future__ import annotations

import shutil
from itertools import count
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import same_states
from tests.trainer.tables.test_undo_log import run_apart
from trainer.errors import BadBatch, DamagedMemory
from trainer.options.pruning import PruningOptions
from trainer.tables import SGD, Adagrad, Adam, TableSpec
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.memory import PrivateMemory, SharedMemory
from trainer.tables.kernels.undo_log import Found, UndoLog
from trainer.tables.snapshot_states import state_of
from trainer.tables.stores.pruned.history import kept_numbers
from trainer.tables.stores.pruned.store import PrunedStore

_ADAGRAD = Adagrad(0.1, 0.25)
TABLES = (
    TableSpec("one", 300, 16, _ADAGRAD),
    TableSpec("two", 60, 3, Adam(0.1)),
    TableSpec("three", 200, 16, _ADAGRAD),
    TableSpec("four", 40, 1, SGD(0.5)),
)
DIMS = np.array([one.dim for one in TABLES])
#: Rounds, free places after each, and so much decay that all importance is divided now and then.
OPTIONS = {"budget": 0.3, "round_steps": 3, "spare_share": 0.2, "decay": 0.001, "decay_steps": 2}


def store_in(memory, **options) -> PrunedStore:
    read = PruningOptions.read({**OPTIONS, **options})
    return PrunedStore(TABLES, read, seed=3, threads=1, memory=memory, undo_log=UndoLog(memory, 2, "test"))


def restored_in(memory) -> PrunedStore:
    return store_in(memory, reset="restored")


def asked_of(seed):
    """Distinct rows of each table by a power law that drifts, their numbers and lookups."""
    draw = np.random.default_rng(seed)
    rows = [np.unique((draw.zipf(1.3, draw.integers(0, 40)) + seed // 4) % one.vocabulary_size) for one in TABLES]
    counts = np.array([len(one) for one in rows])
    numbers = np.concatenate(rows).astype(np.int64)
    gradients = draw.normal(size=int((counts * DIMS).sum())).astype(np.float32)
    return numbers, counts, gradients, draw.integers(1, 5, len(numbers)).astype(np.int32)


def update(store, seed) -> None:
    rows, counts, gradients, lookups = asked_of(seed)
    store.update_rows([(rows, counts)], [gradients], lookups=[lookups])


def change(store, seed) -> None:
    """Updates, as one transaction that counts itself."""
    with store.undo_log.transaction() as words:
        for number in range(3):
            update(store, 3 * seed + number)
        words[0] = seed + 1
        words[1] = -seed


def same_stores(one, two) -> None:
    """Values, also those of free places; importance, and the order of free places."""
    same_states(one.state(), two.state())
    for name, history in one.histories().items():
        other = two.histories()[name]
        assert (history.gain, history.step, history.rounds) == (other.gain, other.step, other.rounds)
        assert history.rows.tobytes() == other.rows.tobytes()
        assert history.importance.tobytes() == other.importance.tobytes()
        assert (history.left is None) == (other.left is None)
        if history.left is not None:
            same_states({"left": history.left}, {"left": other.left})
    assert one.addresses.address.tobytes() == two.addresses.address.tobytes()
    for g, free in enumerate(one.addresses.free_rows.tolist()):
        assert two.addresses.free_rows[g] == free
        assert one.addresses.free(g).tolist() == two.addresses.free(g).tolist()
    for own, other in zip(one.places.values, two.places.values, strict=True):
        assert own.tobytes() == other.tobytes()


def change_once(store, seed) -> None:
    """An update that counts itself, every third one with a round."""
    with store.undo_log.transaction() as words:
        update(store, seed)
        words[0] = seed + 1


class Killed(BaseException):
    """In place of a signal."""


def kill_at_writes(monkeypatch, store_of, alone, change, same, seeds, at_each):
    """Change stores of one memory that are killed before or after a write of the log, and ``alone``, which is not; returns the kills.

    The log is open then, as after a signal, and the next process undoes it. ``at_each``: the seeds whose changes are killed at each write.
    """
    kills, undone, write, undo = 0, 0, UndoLog.append_to, UndoLog.undo
    for seed in seeds:
        for moment in count() if seed in at_each else (1 << 30,):
            store, left = store_of(), [moment]

            def killed(log, end, left=left):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                write(log, end)
                if left[0] == 0:
                    raise Killed
                left[0] -= 1

            with monkeypatch.context() as patched:
                patched.setattr(UndoLog, "append_to", killed)
                patched.setattr(UndoLog, "undo", lambda log: None)
                try:
                    change(store, seed)
                    break
                except Killed:
                    kills += 1
            assert UndoLog.undo is undo
            again = store_of()
            undone += again.undo_log.found is Found.UNDONE
            assert again.undo_log.words[0] == seed
            same(again, alone)
        change(alone, seed)
        same(store, alone)
    assert undone == kills
    return kills


@pytest.mark.medium
@pytest.mark.parametrize(
    "reset", ["zero", "restored", *(pytest.param(one, marks=pytest.mark.slow) for one in ("initial", "none"))]
)
def test_a_process_killed_at_any_write_of_the_log_leaves_the_update_before(tmp_path, monkeypatch, reset):
    alone = store_in(PrivateMemory(), reset=reset)
    kills = kill_at_writes(
        monkeypatch, lambda: store_in(SharedMemory(tmp_path), reset=reset), alone, change, same_stores, range(3), {2}
    )
    assert kills > 20
    assert alone.counts.moved_rows
    assert alone.rounds == 3


@pytest.mark.medium
@pytest.mark.parametrize("make", ["store_in", "restored_in"])
def test_an_update_of_a_killed_process_happens_once(tmp_path, make):
    run_apart(f"""
from pathlib import Path
from tests.trainer.tables.stores.pruned import test_pruned_store as own
from tests.trainer.tables.test_undo_log import killed_updates
killed_updates(Path({str(tmp_path)!r}), {scaled(60)}, own.{make}, own.change_once, same=own.same_stores)
""")


def test_a_store_goes_on_from_its_memory(tmp_path):
    alone = store_in(PrivateMemory())
    for seed in range(8):
        change(alone, seed)
        store = store_in(SharedMemory(tmp_path))
        assert store.undo_log.found is (Found.WHOLE if seed else Found.EMPTY)
        change(store, seed)
        same_stores(store, alone)


@settings(max_examples=scaled(30))
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.sampled_from(["initial", "zero"]), st.floats(0.1, 1.0)
)
def test_reading_changes_nothing_and_shows_what_an_update_will_find(seeds, reset, budget):
    """A row that gets a place with the update of its batch was read with its initial values, and another one as zeros."""
    store = store_in(PrivateMemory(), reset=reset, budget=budget)
    whole = store_in(PrivateMemory(), budget=1.0)
    read_before = zeros_before = 0
    for seed in seeds:
        rows, counts, gradients, lookups = asked_of(seed)
        before = store.places.values.weights.tobytes(), store.addresses.address.tobytes()
        found = store.read_rows(rows, counts).copy()
        assert before == (store.places.values.weights.tobytes(), store.addresses.address.tobytes())
        had = [store.addresses.of_table(t)[own].copy() for t, own in enumerate(np.split(rows, np.cumsum(counts)[:-1]))]
        counted, rounds = (store.counts.hits, store.counts.misses), store.options.round_steps
        if (store.step + 1) % rounds == 0:
            store._set_number(0, store.step + 1)  # no round: which places this update gives is looked at below
        store.update_rows([(rows, counts)], [gradients], lookups=[lookups])
        at, zeros = 0, 0
        for t, own in enumerate(np.split(rows, np.cumsum(counts)[:-1])):
            zeros += int((store.addresses.of_table(t)[own] < 0).sum())
            for k, row in enumerate(own.tolist()):
                values = found[at : at + DIMS[t]]
                at += DIMS[t]
                if had[t][k] < 0:
                    is_placed = store.addresses.of_table(t)[row] >= 0
                    expected = whole.starts.initial(t, np.array([row])).weights[0]
                    assert values.tobytes() == (expected if is_placed else np.zeros_like(expected)).tobytes()
        assert counted == (read_before + len(rows) - zeros, zeros_before + zeros)
        zeros_before += zeros
        read_before += len(rows) - zeros


def test_updates_of_several_parts_are_those_of_one_client_and_readers_do_not_matter():
    """Whoever reads first: parts come in their order, and lookups of a row are added."""
    one, two = store_in(PrivateMemory()), store_in(PrivateMemory())
    for seed in range(12):
        parts = [asked_of(100 * seed + k) for k in range(3)]
        for k in Random(seed).sample(range(3), 3):
            two.read_rows(*parts[k][:2])
        for store in (one, two):
            asked, values, lookups = (
                [part[:2] for part in parts],
                [part[2] for part in parts],
                [part[3] for part in parts],
            )
            store.update_rows(asked, values, lookups=lookups)
    same_stores(one, two)


def loaded_from(snapshot, store) -> PrunedStore:
    """Another store, with what a snapshot has, as a server loads it."""
    other = store_in(PrivateMemory(), reset=store.options.reset)
    with other.undo_log.filling():
        other.clear()
        for t in range(len(TABLES)):
            other.load_history(t, snapshot.history(t))
        for p, part in enumerate(store.saved_parts):
            for first in range(0, part.rows, 7):
                found = snapshot.read(p, first, min(first + 7, part.rows))
                again = snapshot.read(p, first, min(first + 7, part.rows))
                assert (again.rows.tobytes(), again.weights.tobytes()) == (
                    found.rows.tobytes(),
                    found.weights.tobytes(),
                )
                other.load_rows(p, found)
        other.end_load()
    return other


@pytest.mark.parametrize("reset", ["zero", "restored"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_kept_snapshot_is_of_its_moment(tmp_path, reset, is_resumed):
    store = store_in(SharedMemory(tmp_path), reset=reset)
    for seed in range(9):
        update(store, seed)
    expected, histories = store.state(), store.histories()
    snapshot = store.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=1.0)
    for seed in range(9, 14):
        update(store, seed)
    if is_resumed:
        store = store_in(SharedMemory(tmp_path), reset=reset)
        assert store.undo_log.found is Found.WHOLE
        snapshot = store.resume_snapshot(patience_secs=1.0)
    for seed in range(14, 20):
        update(store, seed)
    assert store.counts.moved_rows
    by_rows = ("importance", "left") if reset == "restored" else ("importance",)
    sections = [expected[one.name].sections.by_rows[section] for section in by_rows for one in TABLES]
    assert snapshot.counts == (*(len(expected[one.name].rows) for one in TABLES), *(len(one.rows) for one in sections))
    other = loaded_from(snapshot, store)
    snapshot.close()
    same_states(other.state(), expected)
    for name, history in other.histories().items():
        assert history.importance.tobytes() == histories[name].importance.tobytes()
        assert (history.gain, history.step, history.rounds) == (histories[name].gain, 9, 3)
    assert store.resume_snapshot(patience_secs=1.0) is None


def test_a_snapshot_that_was_not_copied_whole_is_forgotten(tmp_path, monkeypatch):
    store = store_in(SharedMemory(tmp_path))
    update(store, 0)
    store.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=1.0).close()
    with monkeypatch.context() as patched:
        patched.setattr(PrunedStore, "histories", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=1.0)
    again = store_in(SharedMemory(tmp_path))
    assert again.resume_snapshot(patience_secs=1.0) is None
    update(again, 1)


def test_a_load_that_is_cut_off_leaves_empty_tables(tmp_path, monkeypatch):
    store = store_in(SharedMemory(tmp_path))
    for seed in range(5):
        update(store, seed)
    state = store.state()
    with monkeypatch.context() as patched:
        patched.setattr(PrunedStore, "end_load", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.load_state(state)
    again = store_in(SharedMemory(tmp_path))
    assert again.undo_log.found is Found.EMPTY
    assert not any(len(one.rows) for one in again.state().values())
    assert not any(len(one.rows) for one in again.histories().values())
    again.load_state(state)
    whole = store_in(SharedMemory(tmp_path))
    assert whole.undo_log.found is Found.WHOLE
    same_states(whole.state(), state)


def test_a_snapshot_in_this_process_is_that_of_a_server():
    store = store_in(PrivateMemory())
    for seed in range(9):
        update(store, seed)
    expected = store.state()
    snapshot = store.begin_snapshot(most_bytes=1 << 20)
    same_states({one.name: state_of(snapshot, t, one) for t, one in enumerate(TABLES)}, expected)


def test_what_a_store_does_not_have_is_refused():
    store = store_in(PrivateMemory())
    rows, counts = np.array([1]), np.array([1, 0, 0, 0])
    none = RowValues(np.zeros(16, np.float32), np.zeros(16, np.float32))
    with pytest.raises(BadBatch, match="loaded with their importance"):
        store.read_values(rows, counts)
    with pytest.raises(BadBatch, match="loaded with their importance"):
        store.write_values(rows, counts, none, are_changed=True)
    with pytest.raises(BadBatch):
        store.read_rows(np.array([300]), counts)
    many = ChangedRows(np.arange(200), np.ones((200, 16), np.float32), np.ones((200, 16), np.float32))
    with pytest.raises(BadBatch, match="at most its places"):
        store.load_rows(0, many)
    with pytest.raises(BadBatch, match="must lie in its table"):
        store.load_rows(3, ChangedRows(np.array([40]), np.ones((1, 1), np.float32), np.ones((1, 0), np.float32)))
    with pytest.raises(BadBatch, match="above 0"):
        store.load_rows(4, ChangedRows(np.array([4]), np.zeros((1, 1), np.float32), np.ones((1, 0), np.float32)))
    good = kept_numbers(2.0, 3, 1)
    for wrong in (kept_numbers(0.5, 3, 1), kept_numbers(float("nan"), 3, 1), KeptHistory(3, good.candidates[:1]),
                  KeptHistory(3, good.candidates, 1)):  # fmt: skip
        with pytest.raises(BadBatch, match="its gain, step and rounds"):
            store.load_history(0, wrong)


@pytest.mark.parametrize("name", ["address", "free", "free_rows", "pruning_numbers", "gain", "undo_header"])
def test_damaged_memory_is_one_error_or_none(tmp_path, name):
    """Whatever its bytes are, nothing outside the arrays is read or written."""
    (tmp_path / "whole").mkdir()
    store = store_in(SharedMemory(tmp_path / "whole"))
    for seed in range(3):
        change(store, seed)
    content = (tmp_path / "whole" / name).read_bytes()
    random, refused = Random(name), 0
    for _ in range(scaled(60)):
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
        damaged = mutated(content, random)
        (tmp_path / "damaged" / name).write_bytes(damaged)
        try:
            again = store_in(SharedMemory(tmp_path / "damaged"))
            change(again, 3)
            again.state()
        except DamagedMemory:
            refused += 1
    if name in ("address", "free", "free_rows", "gain"):
        assert refused
