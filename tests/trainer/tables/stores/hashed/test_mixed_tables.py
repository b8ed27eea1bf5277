"""Tables of row numbers beside hashed ones: one transaction changes all of them, and a process that takes the memory over goes on."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from trainer.errors import BadBatch, ServerLost
from trainer.tables import Adagrad, Adam, TableSpec
from trainer.tables.engine import ChangedRows
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.memory import SharedMemory
from trainer.tables.kernels.undo_log import Found, UndoLog
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.mixed_tables import MixedTables

TABLES = (
    TableSpec("plain", 40, 3, Adagrad(0.1, 0.5), "sum"),
    TableSpec("ids", 2**62, 4, Adam(0.1), "sum"),
    TableSpec("last", 9, 2, Adagrad(0.1, 0.5), "sum"),
)
DIMS = np.array([one.dim for one in TABLES])


def tables_in(folder) -> MixedTables:
    memory = SharedMemory(folder)
    log = UndoLog(memory, 2, "test")
    return MixedTables(TABLES, {"ids": TableLimits(12)}, seed=3, threads=1, memory=memory, undo_log=log)


def update(tables: MixedTables, seed: int, *, number: int | None = None) -> None:
    draw = np.random.default_rng(seed)
    counts = draw.integers(1, 6, len(TABLES))
    rows = [np.sort(draw.choice(size, count, replace=False)) for size, count in zip((40, 60, 9), counts, strict=True)]
    rows[1] = rows[1] * (2**56)
    gradients = draw.normal(size=int((counts * DIMS).sum())).astype(np.float32)
    with tables.undo_log.transaction() as words:
        tables.update_rows([(np.concatenate(rows), counts)], [gradients])
        if number is not None:
            words[0] = number


def saved(tables: MixedTables) -> list[bytes]:
    snapshot = tables.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)
    found = []
    for t, size in enumerate(snapshot.sizes.tolist()):
        rows, ages = snapshot.read(t, 0, size), snapshot.ages(t, 0, size)
        found += [rows.rows.tobytes(), rows.weights.tobytes(), rows.slots.tobytes()]
        if ages is not None:
            found += [ages.tobytes(), str(snapshot.history(t).step)]
    snapshot.close()
    return found


def test_a_transaction_that_is_cut_off_is_undone_in_all_tables(tmp_path):
    folder, cut = tmp_path / "memory", tmp_path / "cut"
    folder.mkdir()
    tables = tables_in(folder)
    for seed in range(10):
        update(tables, seed, number=seed)
    before, counts = saved(tables), tables.hashed_counts
    assert counts["ids"].evicted
    with tables.undo_log.transaction() as words:
        update(tables, 99)
        words[0] = 99
        shutil.copytree(folder, cut)  # what the next process finds of one that is killed here
    other = tables_in(cut)
    assert other.undo_log.found is Found.UNDONE
    assert other.undo_log.words[0] == 9
    assert saved(other) == before
    assert other.hashed_counts == counts
    update(other, 99)
    assert saved(other) == saved(tables)


def test_an_error_inside_a_transaction_undoes_all_tables(tmp_path):
    tables = tables_in(tmp_path)
    for seed in range(5):
        update(tables, seed)
    before = saved(tables)

    def fail() -> None:
        with tables.undo_log.transaction():
            update(tables, 9)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert saved(tables) == before


def test_the_next_process_goes_on_with_a_snapshot(tmp_path):
    tables = tables_in(tmp_path)
    for seed in range(8):
        update(tables, seed)
    expected = saved(tables)
    snapshot = tables.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)
    first = snapshot.read(1, 0, 4)
    snapshot.leave(1, 4)
    for seed in range(8, 16):
        update(tables, seed)
    other = tables_in(tmp_path)
    resumed = other.resume_snapshot(patience_secs=9.0)
    for seed in range(16, 20):
        update(other, seed)
    rest = resumed.read(1, 4, int(resumed.sizes[1]))
    assert first.rows.tobytes() + rest.rows.tobytes() == expected[3]
    assert first.weights.tobytes() + rest.weights.tobytes() == expected[4]
    assert resumed.ages(1, 0, int(resumed.sizes[1])).tobytes() == expected[6]
    plain = resumed.read(0, 0, 40)
    assert [plain.rows.tobytes(), plain.weights.tobytes(), plain.slots.tobytes()] == expected[:3]
    resumed.leave(1, 6)
    with pytest.raises(ServerLost, match="in their order"):
        resumed.read(1, 2, 6)
    resumed.close()
    assert tables_in(tmp_path).resume_snapshot(patience_secs=9.0) is None


def test_a_snapshot_without_its_ids_is_left(tmp_path):
    """Its process was killed between the snapshot of values and the copy of ids."""
    tables = tables_in(tmp_path)
    update(tables, 1)
    tables.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)
    (tmp_path / "snapshot_is_ready").write_bytes(bytes(8))
    assert tables_in(tmp_path).resume_snapshot(patience_secs=9.0) is None


@pytest.mark.parametrize("counts", [[0, 1, 0], [1, 1, 0]])
def test_ids_outside_their_table_change_nothing(tmp_path, counts):
    tables = tables_in(tmp_path)
    update(tables, 1)
    before = saved(tables)
    rows = np.array([3, 2**62][2 - sum(counts) :])
    values = np.ones(int((np.array(counts) * DIMS).sum()), np.float32)
    with pytest.raises(BadBatch, match="must lie in its table"):
        tables.update_rows([(rows, np.array(counts))], [values])
    assert saved(tables) == before


def loaded(tables: MixedTables, ids: list[int], ages: list[int]) -> None:
    count = len(ids)
    rows = ChangedRows(np.array(ids), np.ones((count, 4), np.float32), np.ones((count, 8), np.float32))
    tables.load_rows(1, rows, np.array(ages))


def test_rows_are_loaded_in_pieces_with_their_ages(tmp_path):
    tables = tables_in(tmp_path)
    update(tables, 1)
    with tables.undo_log.filling():
        tables.clear()
        tables.load_history(1, KeptHistory(9, np.zeros(0, np.uint64), 5))
        loaded(tables, [3, 7], [8, 0])
        for ids, ages, problem in (
            ([7], [0], "must ascend"),
            ([9, 8], [0, 0], "must ascend"),
            ([2**62], [0], "must ascend"),
            ([9], [9], "the age of a row"),
            ([9], [-1], "the age of a row"),
            (list(range(10, 21)), [0] * 11, "must fit its capacity"),
        ):
            with pytest.raises(BadBatch, match=problem):
                loaded(tables, ids, ages)
        with pytest.raises(BadBatch, match="as many as it has"):
            tables.load_history(1, KeptHistory(9, np.zeros(1, np.uint64)))
        loaded(tables, [2**61], [3])
        tables.end_load()
    found = tables.begin_kept_snapshot(most_bytes=1 << 20, patience_secs=9.0)
    assert found.read(1, 0, 3).rows.tolist() == [3, 7, 2**61]
    assert found.ages(1, 0, 3).tolist() == [8, 0, 3]
    assert found.history(1).step == 9
    assert tables.hashed_counts["ids"].stored == 3
    assert tables.hashed_counts["ids"].evicted == 5
