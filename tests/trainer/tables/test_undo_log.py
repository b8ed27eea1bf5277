"""Updates of tables in shared memory happen once or not at all, wherever their process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.tables.table_states import assert_same
from trainer.errors import BadBatch, ConfigError, DamagedMemory, TornCheckpoint
from trainer.tables import FTRL, SGD, Adagrad, Adam, TableSpec
from trainer.tables.engine import RowValues
from trainer.tables.kernels.memory import PrivateMemory, SharedMemory
from trainer.tables.kernels.undo_log import Found, UndoLog
from trainer.tables.optimizers import slot_width
from trainer.tables.stores.dense.dense_store import DenseStore

TABLES = (
    TableSpec("one", 300, 16, Adagrad(0.1, 0.25)),
    TableSpec("two", 60, 3, Adam(0.1)),
    TableSpec("three", 40, 1, SGD(0.5)),
    TableSpec("four", 90, 20, FTRL(0.1)),
)
WIDTHS = [(table.dim, slot_width(table.optimizer, table.dim)) for table in TABLES]


def engine_in(memory, words=2):
    log = UndoLog(memory, words)
    return DenseStore(TABLES, seed=3, threads=1, memory=memory, undo_log=log)


def drawn_rows(seed):
    """Distinct rows of each table, and their numbers."""
    draw = np.random.default_rng(seed)
    rows = [
        draw.choice(one.vocabulary_size, draw.integers(0, one.vocabulary_size // 2), replace=False) for one in TABLES
    ]
    return np.concatenate(rows).astype(np.int64), np.array([len(own) for own in rows], np.int64)


def change(engine, seed):
    """An update, a write of values and an update, as one transaction that counts itself."""
    draw = np.random.default_rng(seed)
    with engine.undo_log.transaction() as words:
        for number in range(3):
            rows, counts = drawn_rows(3 * seed + number)
            floats = [sum(int(n) * width[k] for n, width in zip(counts, WIDTHS, strict=True)) for k in range(2)]
            if number == 1:
                values = RowValues(*(draw.normal(size=one).astype(np.float32) for one in floats))
                engine.write_values(rows, counts, values, are_changed=bool(seed % 2))
            else:
                engine.update_rows([(rows, counts)], [draw.normal(size=floats[0]).astype(np.float32)])
        words[0] = seed + 1
        words[1] = -seed


@contextmanager
def cut_off(log):
    """A transaction with an error at its end."""
    with suppress(ZeroDivisionError), log.transaction() as words:
        yield words
        raise ZeroDivisionError


def test_an_error_undoes_a_transaction_at_once():
    engine, alone = engine_in(PrivateMemory()), engine_in(PrivateMemory())
    change(engine, 0)
    change(alone, 0)
    with cut_off(engine.undo_log) as words:
        change(engine, 1)
        assert words.tolist() == [2, -1]
    assert engine.undo_log.words.tolist() == [1, 0]
    assert_same(engine.state(), alone.state())
    change(engine, 1)
    change(alone, 1)
    assert_same(engine.state(), alone.state())


@settings(max_examples=scaled(60))
@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), st.data())
def test_items_beside_tables_are_undone(seeds, data):
    """Some items are kept more than once, between changes: their first values come back."""
    memory = PrivateMemory()
    log = UndoLog(memory)
    log.beside = [np.arange(20, dtype=kind) for kind in (np.uint8, np.int32, np.int64, np.float32)]
    DenseStore([TABLES[2]], seed=3, memory=memory, undo_log=log)
    with cut_off(log):
        for seed in seeds:
            array, size = seed % 4, data.draw(st.integers(1, 3))
            starts = np.array(data.draw(st.lists(st.integers(0, 20 - size), max_size=9)), np.int64)
            log.keep(3 + array, starts, size)
            for start in starts:
                log.beside[array][start : start + size] = seed
    for one in log.beside:
        assert one.tolist() == list(range(20))


def test_without_kept_rows_an_error_undoes_nothing_but_words():
    """Before rows change it costs nothing; while they change it leaves tables that must be loaded again."""
    memory = PrivateMemory()
    log = UndoLog(memory, 2, keeps_rows=False)
    engine, alone = DenseStore(TABLES, seed=3, threads=1, memory=memory, undo_log=log), engine_in(PrivateMemory())
    change(engine, 0)
    change(alone, 0)
    with suppress(BadBatch), log.transaction() as words:
        words[0] = 9
        engine.update_rows([(np.zeros(3, np.int64), np.zeros(4, np.int64))], [np.zeros(0, np.float32)])
    assert log.words[0] == 1, "and no row has changed"
    assert_same(engine.state(), alone.state())
    change(engine, 1)
    change(alone, 1)
    assert_same(engine.state(), alone.state())
    with cut_off(log):
        change(engine, 2)
    assert log.words.tolist() == [2, -1]
    with pytest.raises(ConfigError, match="loaded before they change"):
        change(engine, 2)
    state = alone.state()
    for one in (engine, alone):
        one.load_state(state)
        change(one, 2)
    assert_same(engine.state(), alone.state())


def test_tables_are_not_loaded_inside_a_transaction():
    engine = engine_in(PrivateMemory())
    with pytest.raises(ConfigError, match="outside a transaction"), engine.undo_log.transaction():
        engine.load_state(engine.state())


def test_a_load_that_is_cut_off_leaves_fresh_tables(tmp_path, monkeypatch):
    engine = engine_in(SharedMemory(tmp_path))
    assert engine.undo_log.found is Found.EMPTY
    change(engine, 0)
    state = engine.state()
    with pytest.raises(TornCheckpoint):
        engine.load_state({})
    assert engine_in(SharedMemory(tmp_path)).undo_log.found is Found.WHOLE
    monkeypatch.setattr(engine, "_views", lambda t: (_ for _ in ()).throw(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        engine.load_state(state)
    with pytest.raises(ConfigError, match="loaded before they change"):
        change(engine, 1)
    again = engine_in(SharedMemory(tmp_path))
    assert again.undo_log.found is Found.EMPTY
    assert not any(len(table.rows) for table in again.state().values())
    again.load_state(state)
    whole = engine_in(SharedMemory(tmp_path))
    assert whole.undo_log.found is Found.WHOLE
    assert_same(whole.state(), state)


def test_memory_of_another_identity_is_not_used(tmp_path):
    def attached(identity):
        log = UndoLog(SharedMemory(tmp_path), 2, identity)
        return DenseStore(TABLES, seed=3, memory=SharedMemory(tmp_path), undo_log=log)

    change(attached("one"), 0)
    assert attached("one").undo_log.words[0] == 1
    other = attached("two")
    assert other.undo_log.found is Found.EMPTY
    assert other.undo_log.words[0] == 0
    assert not any(len(table.rows) for table in other.state().values())


def same_values(engine, other):
    assert_same(engine.state(), other.state())


def killed_updates(folder: Path, kills: int, make=engine_in, change=change, same=None) -> None:
    """Kill a child at random moments, attach, and compare with tables that were never disturbed; run in a process of its own.

    Children inherit compiled kernels, so that most of them change tables within milliseconds. On a busy machine most may end before
    their first change: there are more of them then.
    """
    change(make(PrivateMemory()), 0)
    random, alone, changes, undone, killed = Random(0), make(PrivateMemory()), 0, 0, 0
    while killed < kills or (killed < 20 * kills and not (undone and changes > killed)):
        killed += 1
        child = os.fork()
        if not child:
            engine = make(SharedMemory(folder))
            while True:
                change(engine, int(engine.undo_log.words[0]))
        time.sleep(random.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        engine = make(SharedMemory(folder))
        undone += engine.undo_log.found is Found.UNDONE
        for done in range(changes, changes := int(engine.undo_log.words[0])):
            change(alone, done)
        (same or same_values)(engine, alone)
        change(engine, changes)
    print(f"{killed} kills, {changes} changes, {undone} undone")
    assert undone
    assert changes > killed


def run_apart(call: str) -> str:
    """The output of a call of this suite in a process without other threads, which may fork."""
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_an_update_of_a_killed_process_happens_once(tmp_path):
    run_apart(f"""
from pathlib import Path
from tests.trainer.tables.test_undo_log import killed_updates
killed_updates(Path({str(tmp_path)!r}), {scaled(150)})
""")


@pytest.mark.slow
def test_a_damaged_log_is_one_error_or_none(tmp_path):
    """Whatever the bytes of an open log are, nothing outside the tables is written."""
    engine = engine_in(SharedMemory(tmp_path))
    with cut_off(engine.undo_log):
        change(engine, 0)
        whole = {path.name: path.read_bytes() for path in tmp_path.glob("undo_*")}
    refused = 0
    for seed in range(scaled(600)):
        random = Random(seed)
        for name, content in whole.items():
            (tmp_path / name).write_bytes(content)
        name = random.choice(list(whole))
        end = random.choice((64, 200, len(whole[name])))
        changed = mutated(whole[name][:end], random) + whole[name][end:]
        (tmp_path / name).write_bytes(changed)
        try:
            again = engine_in(SharedMemory(tmp_path))
        except DamagedMemory:
            refused += 1
        else:
            with pytest.raises(BadBatch):
                again.update_rows([(np.zeros(3, np.int64), np.zeros(4, np.int64))], [np.zeros(0, np.float32)])
    assert refused
