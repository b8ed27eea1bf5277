"""Rows in memory outlive their process with the numbers beside them, or are said to be others."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.servers.requests import TABLES, all_rows, apply_to, engine_alone, held, random_update
from tests.trainer.tables.table_states import assert_same
from trainer.errors import BadBatch, DamagedMemory, ServerLost
from trainer.servers.held_rows import HeldRows
from trainer.tables.engine import ChangedRows
from trainer.tables.routes.servers.row_messages import RowNumbers


def opened(folder: Path | None, seed: int = 3, attempt: int = 0) -> HeldRows:
    rows = HeldRows(folder)
    rows.open(held(seed), attempt)
    return rows


def updated(rows: HeldRows, seeds) -> None:
    for seed in seeds:
        rows.update([(0, random_update(seed), seed)], seed + 1)


def some_rows(rows: int = 2) -> ChangedRows:
    return ChangedRows(np.arange(rows), np.ones((rows, 4), np.float32), np.ones((rows, 4), np.float32))


@pytest.mark.medium
@pytest.mark.parametrize("is_shared", [False, True])
def test_rows_are_those_of_an_engine(tmp_path, is_shared):
    rows, alone = opened(tmp_path if is_shared else None), engine_alone()
    updated(rows, range(5))
    for seed in range(5):
        apply_to(alone, [random_update(seed)])
    assert_same(rows.engine.state(), alone.state())
    wanted = all_rows()
    assert rows.fetch(wanted).tobytes() == alone.read_rows(wanted.rows, wanted.counts).tobytes()
    assert rows.applied(3) == [5, 0, 0]
    assert (rows.dims.tolist(), rows.slot_dims.tolist(), rows.sizes.tolist()) == ([4, 3, 1], [4, 6, 0], [30, 50, 9])


@pytest.mark.parametrize("is_shared", [False, True])
def test_rows_whose_update_fails_are_undone_in_a_folder_and_lost_without_one(tmp_path, is_shared):
    rows, alone = opened(tmp_path if is_shared else None), engine_alone()
    updated(rows, range(2))
    for seed in range(2):
        apply_to(alone, [random_update(seed)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows.changed, "note", lambda *of: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rows.update([(0, random_update(2), 2)], 3)
    assert rows.applied(1) == [2]
    if not is_shared:
        with pytest.raises(ServerLost, match="loaded again"):
            rows.fetch(all_rows())
        with pytest.raises(ServerLost, match="loaded again"):
            rows.update([(0, random_update(2), 2)], 3)
        rows.begin_load()
        rows.end_load()
        updated(rows, range(1))
        return
    rows.update([(0, random_update(2), 2)], 3)
    apply_to(alone, [random_update(2)])
    assert_same(rows.engine.state(), alone.state())


def test_before_tables_there_is_nothing(tmp_path):
    rows = HeldRows(tmp_path)
    assert (rows.is_open, rows.digest, rows.generation, rows.attempt, rows.applied(2)) == (False, "", 0, 0, [0, 0])
    with pytest.raises(ServerLost, match="opened first"):
        rows.fetch(all_rows())


@pytest.mark.medium
def test_the_next_process_has_the_rows_and_their_numbers(tmp_path):
    rows = opened(tmp_path, attempt=7)
    rows.update([(0, random_update(0), 0), (2, random_update(1), 1)], 1)
    again = HeldRows(tmp_path)
    assert again.is_open
    assert (again.digest, again.generation, again.attempt) == (rows.digest, rows.generation, 7)
    assert again.applied(3) == [1, 0, 1]
    assert_same(again.engine.state(), rows.engine.state())
    again.open(held(), 3)
    assert again.attempt == 7
    assert_same(again.engine.state(), rows.engine.state())


def test_rows_of_a_process_end_with_it():
    rows = opened(None)
    generation = rows.generation
    assert generation > 0
    assert opened(None).generation not in (0, generation)


@pytest.mark.slow
def test_other_tables_replace_the_rows(tmp_path):
    rows = opened(tmp_path)
    updated(rows, range(3))
    generation = rows.generation
    rows.open(held(seed=4), 1)
    assert rows.generation != generation
    assert rows.applied(1) == [0]
    assert not any(len(state.rows) for state in rows.engine.state().values())
    again = HeldRows(tmp_path)
    assert (again.digest, again.generation) == (held(seed=4).digest, rows.generation)


@pytest.mark.slow
def test_a_process_killed_while_tables_are_replaced_leaves_no_rows_of_neither(tmp_path, monkeypatch):
    """At every file that is removed: either the old tables with all rows, or none."""
    unlink, reached = Path.unlink, True
    for moment in count():
        folder = tmp_path / str(moment)
        folder.mkdir()
        rows = opened(folder)
        updated(rows, range(3))
        state, generation, left = rows.engine.state(), rows.generation, [moment]

        def killed(path, missing_ok=False, left=left):
            if left[0] == 0:
                raise ZeroDivisionError
            left[0] -= 1
            unlink(path, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", killed)
        try:
            rows.open(held(seed=4), 1)
            reached = False
        except ZeroDivisionError:
            pass
        monkeypatch.setattr(Path, "unlink", unlink)
        again = HeldRows(folder)
        if not reached:
            assert again.digest == held(seed=4).digest
            break
        if again.is_open:
            assert again.generation == generation
            assert_same(again.engine.state(), state)
    assert moment > 3


@pytest.mark.medium
@pytest.mark.parametrize("name", ["weights", "slots", "row_state", "undo_header"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_memory_that_lost_a_file_is_of_another_generation(tmp_path, name, is_cut):
    """Such as one that a cleaner of temporary files has removed: a client must not go on with these rows."""
    rows = opened(tmp_path)
    updated(rows, range(3))
    generation = rows.generation
    if is_cut:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-64])
    else:
        (tmp_path / name).unlink()
    again = HeldRows(tmp_path)
    assert again.generation not in (0, generation)
    assert again.applied(1) == [0]
    assert not any(len(state.rows) for state in again.engine.state().values())


@pytest.mark.medium
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"seed":3,"tables":[]}', b"[" * 100_000, b"\xff"])
def test_a_damaged_document_of_tables_is_one_error(tmp_path, content):
    opened(tmp_path)
    (tmp_path / "tables.json").write_bytes(content)
    with pytest.raises(DamagedMemory, match="those that were written"):
        HeldRows(tmp_path)


@pytest.mark.medium
def test_an_update_happens_whole_or_not_at_all(tmp_path):
    rows = opened(tmp_path)
    updated(rows, range(2))
    state = rows.engine.state()
    bad = random_update(2)
    bad.numbers.rows[-1] = 1 << 40
    with pytest.raises(BadBatch):
        rows.update([(0, random_update(3), 3), (1, bad, 4)], 3)
    assert rows.applied(2) == [2, 0]
    assert_same(rows.engine.state(), state)
    assert_same(HeldRows(tmp_path).engine.state(), state)


def test_rows_outside_a_part_are_refused():
    rows = opened(None)
    for row in (-1, 30, 1 << 40, -(1 << 63)):
        bad = RowNumbers(np.array([row]), np.array([1, 0, 0]))
        with pytest.raises(BadBatch):
            rows.fetch(bad)
        with pytest.raises(BadBatch):
            rows.check(bad)


@pytest.mark.medium
def test_a_load_replaces_all_rows_and_begins_a_generation(tmp_path):
    rows = opened(tmp_path)
    updated(rows, range(3))
    generation = rows.generation
    rows.begin_load()
    rows.load(0, some_rows())
    rows.end_load()
    assert rows.generation != generation
    assert rows.applied(1) == [0]
    state = rows.engine.state()
    assert state["one"].rows.tolist() == [0, 1]
    assert (state["one"].weights == 1).all()
    assert not len(state["two"].rows)
    again = HeldRows(tmp_path)
    assert again.generation == rows.generation
    assert_same(again.engine.state(), state)


@pytest.mark.medium
def test_a_load_that_begins_again_forgets_what_was_loaded(tmp_path):
    rows = opened(tmp_path)
    rows.begin_load()
    rows.load(0, some_rows(5))
    rows.begin_load()
    rows.load(0, some_rows(1))
    rows.end_load()
    assert rows.engine.state()["one"].rows.tolist() == [0]


@pytest.mark.medium
def test_a_process_killed_in_a_load_leaves_fresh_rows_of_another_generation(tmp_path):
    rows = opened(tmp_path)
    updated(rows, range(3))
    generation = rows.generation
    rows.begin_load()
    rows.load(0, some_rows())
    again = HeldRows(tmp_path)
    assert again.generation not in (0, generation)
    assert not any(len(state.rows) for state in again.engine.state().values())
    third = HeldRows(tmp_path)
    assert third.generation == again.generation


@pytest.mark.medium
def test_rows_are_not_used_while_they_are_loaded(tmp_path):
    """Nor is the mark of a load lost, by which a killed process is found out."""
    rows = opened(tmp_path)
    rows.begin_load()
    for use in (lambda: rows.fetch(all_rows()), lambda: rows.update([(0, random_update(0), 0)], 1)):
        with pytest.raises(ServerLost, match="before their load"):
            use()
    generation = rows.generation
    assert HeldRows(tmp_path).generation != generation


@pytest.mark.medium
@pytest.mark.parametrize("seed", [3, 4])
def test_tables_that_are_opened_in_a_load_have_initial_values(tmp_path, seed):
    """The client that loaded them has gone, and another attempt begins."""
    rows = opened(tmp_path)
    generation = rows.generation
    rows.begin_load()
    rows.load(0, some_rows())
    rows.open(held(seed), 1)
    assert rows.generation != generation
    updated(rows, range(2))
    assert rows.applied(1) == [2]
    with pytest.raises(ServerLost, match="begun first"):
        rows.load(0, some_rows())
    assert_same(HeldRows(tmp_path).engine.state(), rows.engine.state())


def test_a_load_must_be_begun():
    rows = opened(None)
    generation = rows.generation
    for step in (lambda: rows.load(0, some_rows()), rows.end_load):
        with pytest.raises(ServerLost, match="begun first"):
            step()
    assert rows.generation == generation


def test_rows_of_a_load_lie_in_their_part():
    rows = opened(None)
    rows.begin_load()
    outside = ChangedRows(np.array([30]), np.ones((1, 4), np.float32), np.ones((1, 4), np.float32))
    with pytest.raises(BadBatch):
        rows.load(0, outside)
    rows.end_load()
    assert not len(rows.engine.state()["one"].rows)


@pytest.mark.medium
def test_the_document_of_tables_is_that_of_the_wire(tmp_path):
    opened(tmp_path)
    assert json.loads((tmp_path / "tables.json").read_bytes()) == held().to_document()
    assert [one["name"] for one in held().to_document()["tables"]] == [one.name for one in TABLES]
