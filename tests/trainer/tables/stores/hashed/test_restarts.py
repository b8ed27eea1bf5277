"""Hashed tables in shared memory: killed processes, and memory with other bytes than were written."""

from __future__ import annotations

import shutil
from random import Random

import numpy as np
import pytest

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import same_states
from tests.trainer.tables.stores.hashed.model import flat, states_of, stored
from tests.trainer.tables.test_undo_log import cut_off, run_apart
from trainer.errors import ConfigError, DamagedMemory
from trainer.tables import FTRL, SGD, Adagrad, Adam, TableSpec
from trainer.tables.kernels.memory import PrivateMemory, SharedMemory
from trainer.tables.kernels.undo_log import Found, UndoLog
from trainer.tables.stores.hashed import index_layout as columns
from trainer.tables.stores.hashed.options import HashedTable

TABLES = (
    HashedTable(TableSpec("one", 5000, 16, Adagrad(0.1, 0.25)), capacity=300),
    HashedTable(TableSpec("two", 2**63 - 1, 3, Adam(0.1)), capacity=60, expire_after_steps=2),
    HashedTable(TableSpec("three", 400, 1, SGD(0.5)), capacity=400, admit_after=2, candidates=80),
    HashedTable(
        TableSpec("four", 90, 20, FTRL(0.1)), capacity=50, admit_after=3, expire_after_steps=4, candidate_steps=3
    ),
)
DIMS = (16, 3, 1, 20)


def store_in(memory):
    return stored(TABLES, seed=3, threads=1, memory=memory, undo_log=UndoLog(memory, 2, "test"))


def change(store, seed):
    """Updates, as one transaction that counts itself."""
    draw = np.random.default_rng(seed)
    with store.undo_log.transaction() as words:
        for _ in range(3):
            ids = [
                draw.permutation(table.spec.vocabulary_size % 5001)[: draw.integers(0, 80)].tolist() for table in TABLES
            ]
            rows, counts = flat(ids)
            gradients = draw.normal(size=int((counts * DIMS).sum())).astype(np.float32)
            store.update_rows([(rows, counts)], [gradients])
        words[0] = seed + 1
        words[1] = -seed


def assert_same_stores(one, two):
    same_states(states_of(one), states_of(two))
    assert one.hashed_counts == two.hashed_counts
    for t in range(len(TABLES)):
        own, other = (store.table_state(t).sections.arrays for store in (one, two))
        assert {name: array.tobytes() for name, array in own.items()} == {
            name: array.tobytes() for name, array in other.items()
        }


def test_a_store_goes_on_from_its_memory(tmp_path):
    alone = store_in(PrivateMemory())
    for seed in range(6):
        change(alone, seed)
        store = store_in(SharedMemory(tmp_path))
        assert store.undo_log.found is (Found.WHOLE if seed else Found.EMPTY)
        assert store.undo_log.words[0] == seed
        change(store, seed)
        assert_same_stores(store, alone)


@pytest.mark.medium
def test_an_update_of_a_killed_process_happens_once(tmp_path):
    run_apart(f"""
from pathlib import Path
from tests.trainer.tables.stores.hashed import test_restarts as own
from tests.trainer.tables.test_undo_log import killed_updates
killed_updates(Path({str(tmp_path)!r}), {scaled(150)}, own.store_in, own.change, same=own.assert_same_stores)
""")


def test_an_index_whose_entries_did_not_fit_the_log_is_rebuilt(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.tables.stores.hashed.changes.entries_kept", lambda changed: 3)
    alone, store = store_in(PrivateMemory()), store_in(SharedMemory(tmp_path))
    for seed in range(4):
        change(alone, seed)
        change(store, seed)
    with cut_off(store.undo_log):
        change(store, 4)
    assert_same_stores(store, alone)
    left_open = store.undo_log.transaction()
    left_open.__enter__()
    change(store, 4)
    again = store_in(SharedMemory(tmp_path))
    assert again.undo_log.found is Found.UNDONE
    assert_same_stores(again, alone)
    for seed in range(4, 8):
        change(alone, seed)
        change(again, seed)
    assert_same_stores(again, alone)


def _fail():
    raise ZeroDivisionError


def test_a_load_that_is_cut_off_leaves_empty_tables(tmp_path, monkeypatch):
    store = store_in(SharedMemory(tmp_path))
    for seed in range(3):
        change(store, seed)
    state = states_of(store)
    with monkeypatch.context() as patched:
        patched.setattr(store._index, "rebuild", _fail)
        with pytest.raises(ZeroDivisionError):
            store.load_state(state)
    again = store_in(SharedMemory(tmp_path))
    assert again.undo_log.found is Found.EMPTY
    assert not any(len(table.rows) for table in states_of(again).values())
    assert not any(one.stored for one in again.hashed_counts.values())
    again.load_state(state)
    whole = store_in(SharedMemory(tmp_path))
    assert whole.undo_log.found is Found.WHOLE
    same_states(states_of(whole), state)


@pytest.mark.parametrize(
    "name",
    [
        "index_records",
        "index_entries",
        "index_words",
        "index_candidates",
        "index_marks",
        "undo_header",
    ],
)
def test_damaged_memory_is_one_error_or_none(tmp_path, name):
    """Whatever its bytes are, nothing outside the arrays is read or written, and nothing runs without an end."""
    (tmp_path / "whole").mkdir()
    store = store_in(SharedMemory(tmp_path / "whole"))
    for seed in range(3):
        change(store, seed)
    content = (tmp_path / "whole" / name).read_bytes()
    random, refused = Random(name), 0
    for _ in range(scaled(120)):
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
        (tmp_path / "damaged" / name).write_bytes(_damaged(content, random))
        try:
            again = store_in(SharedMemory(tmp_path / "damaged"))
            change(again, 3)
            again.end_load()
            change(again, 4)
            states_of(again)
        except DamagedMemory:
            refused += 1
        except ConfigError as error:
            if "restored after so many steps" not in str(error):
                raise
    if name in ("index_records", "index_words"):
        assert refused


def _damaged(content, random):
    """Some of the numbers are others; the size mostly stays."""
    changed = bytearray(content)
    if random.random() < 0.1:
        return mutated(content, random)
    for _ in range(random.choice((1, 3, 30, 300))):
        at = 4 * random.randrange(len(changed) // 4)
        value = random.choice(
            (0, 1, 2, 49, 50, 51, 300, 301, 1 << 31, (1 << 32) - 1, random.randrange(1 << 32), random.randrange(400))
        )
        changed[at : at + 4] = value.to_bytes(4, "little")
    return bytes(changed)


def test_a_rebuilt_index_is_that_of_the_updates():
    rows = 200_000
    store = stored([HashedTable(TableSpec("one", 2**62, 1, SGD(1.0)), capacity=rows)], seed=0, threads=1)
    ids = np.random.default_rng(0).permutation(4 * rows)[:rows].astype(np.int64)
    for part in np.split(ids, 10):
        store.update_rows([(part, np.array([len(part)]))], [np.ones(len(part), np.float32)])
    before, entries = store.ages_of(0), store._index.values.entries.copy()
    links = store._index.records(0).copy()
    store.end_load()
    assert np.array_equal(store._index.records(0), links), "the list is that of the updates"
    assert np.array_equal(np.sort(store._index.values.entries), np.sort(entries))
    assert np.array_equal(store.ages_of(0), before)
    assert store._index.words[0, columns.STORED] == rows
