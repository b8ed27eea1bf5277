"""A memory folder without space: tables, updates and snapshots that it cannot hold are refused with one error, and no process is killed."""

from __future__ import annotations

import mmap
import shutil
import threading
import time
from functools import partial

import numpy as np
import pytest

from tests.support.parameter_servers import ThreadServer
from tests.support.processes import PATIENCE_SECS
from tests.support.small_folders import free_bytes_in, small_folder
from tests.trainer.tables.table_states import assert_same
from trainer.errors import MemoryFull
from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.servers.held_rows import HeldRows
from trainer.servers.table_space import space_by_table, table_space
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.engine import ChangedRows
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.row_messages import RowGradients, RowNumbers
from trainer.tables.routes.servers.table_documents import held_pruning, held_tables
from trainer.tables.stores.hashed.limits import TableLimits

MIB, DIM = 1 << 20, 16


def table(rows: int, name: str = "one") -> TableSpec:
    return TableSpec(name, rows, DIM, Adagrad(0.1, 0.25), "sum")


def held(*tables: TableSpec, limits=None):
    return held_tables([(one, TableOrigin(one.name)) for one in tables], 3, limits)


def change(rows: HeldRows, first: int, count: int, number: int) -> None:
    numbers = RowNumbers(np.arange(first, first + count), np.array([count]))
    rows.update([(0, RowGradients(numbers, np.ones(1, np.float32), np.ones(count * DIM, np.float32)), 0)], number)


@pytest.mark.medium
@pytest.mark.parametrize("limits", [{}, {"1": TableLimits(5_000, admit_after=2)}])
def test_the_room_of_pruned_tables_is_what_their_memory_takes(tmp_path, limits):
    """Also of groups of which one has many more places than the others, and beside hashed tables."""
    sizes, groups = [9_000, *[64] * 30], [RowGroup((0,), 8_000), *(RowGroup((k,), 8) for k in range(1, 31))]
    tables = [(table(size, str(k)), TableOrigin(str(k))) for k, size in enumerate(sizes)]
    numbered = [one for one in groups if str(one.tables[0]) not in limits]
    pruned = held_tables(tables, 3, limits, held_pruning(PruningOptions(0.5), numbered))
    rows = HeldRows(tmp_path)
    rows.open(pruned, 1)
    fixed = ("undo", "made_updates", "tables.json")
    taken = sum(one.stat().st_size for one in tmp_path.iterdir() if not one.name.startswith(fixed))
    needed = sum(space_by_table(pruned).values())
    files = len(list(tmp_path.iterdir()))
    assert 0.7 * needed < taken < needed + files * mmap.PAGESIZE


@pytest.mark.medium
def test_tables_without_room_are_refused_with_what_they_need_and_smaller_ones_are_opened(tmp_path):
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        rows = HeldRows(folder)
        large = held(table(50_000), table(9, "two"))
        with pytest.raises(MemoryFull, match="memory folder of a parameter server must have space") as raised:
            rows.open(large, 1)
        needed = sum(table_space(one) for one in large.tables)
        assert raised.value.value == f"{needed:,} bytes needed, {4 * MIB:,} bytes free"
        assert raised.value.where.startswith(f"{folder}: table one, 50,000 rows of 16 columns")
        assert not rows.is_open
        assert (list(folder.iterdir()), free_bytes_in(folder)) == ([], 4 * MIB)
        rows.open(held(table(20_000)), 2)
        change(rows, 0, 100, 1)
        again = HeldRows(folder)
        assert_same(again.engine.state(), rows.engine.state())


@pytest.mark.medium
def test_tables_that_the_folder_has_almost_room_for_leave_nothing_of_them(tmp_path):
    """Where other files take the space between the look and the files."""
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        rows, exact = HeldRows(folder), held(table(32_240))
        assert 4 * MIB - 10_000 < table_space(exact.tables[0]) < 4 * MIB
        with pytest.raises(MemoryFull, match="bytes free"):
            rows.open(exact, 1)
        assert (rows.is_open, list(folder.iterdir())) == (False, [])


@pytest.mark.slow
def test_where_a_page_is_missing_nothing_of_the_tables_stays(tmp_path):
    """With ever more space, each file of the folder is once the one that has none: the last one describes the tables."""
    with small_folder(tmp_path / "small", 4 * MIB) as disk:
        folder, other, asked, opened = disk / "memory", disk / "other", held(table(500)), 0
        folder.mkdir(mode=0o700)
        HeldRows(folder).open(asked, 1)
        used = 4 * MIB - free_bytes_in(disk)
        shutil.rmtree(folder)
        for free in range(4096, used + 3 * 4096, 4096):
            folder.mkdir(mode=0o700)
            other.write_bytes(bytes(4 * MIB - free))
            rows = HeldRows(folder)
            try:
                rows.open(asked, 1)
            except MemoryFull:
                assert (rows.is_open, list(folder.iterdir())) == (False, []), free
            else:
                opened += 1
            shutil.rmtree(folder)
            other.unlink()
        assert opened


@pytest.mark.medium
def test_the_room_of_hashed_tables_is_that_of_their_places(tmp_path):
    unbounded, limits = table((1 << 62) - 1), TableLimits(10_000, admit_after=2)
    with small_folder(tmp_path / "small", MIB) as folder:
        with pytest.raises(MemoryFull, match="must have space") as raised:
            HeldRows(folder).open(held(unbounded, limits={"one": limits}), 1)
        assert "10,000 rows" in raised.value.where
    with small_folder(tmp_path / "large", 4 * MIB) as folder:
        tables = held(unbounded, limits={"one": limits})
        rows = HeldRows(folder)
        rows.open(tables, 1)
        used = 4 * MIB - free_bytes_in(folder)
        assert 0.8 * used < table_space(tables.tables[0]) < 1.3 * used
        snapshot = rows.engine.begin_kept_snapshot(most_bytes=MIB, patience_secs=1.0)
        snapshot.close()


@pytest.mark.medium
def test_a_load_takes_the_room_of_the_rows_before(tmp_path):
    """Twice, since a run that goes on loads its tables each time."""
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        rows = HeldRows(folder)
        rows.open(held(table(25_000)), 1)
        for k in range(2):
            change(rows, 0, 500, k + 1)
            rows.begin_load()
            weights, slots = np.full((9, DIM), k, np.float32), np.ones((9, DIM), np.float32)
            rows.load(0, ChangedRows(np.arange(9), weights, slots))
            rows.end_load()
            state = rows.engine.state()["one"]
            assert (state.rows.tolist(), state.weights.tobytes()) == (list(range(9)), weights.tobytes())


@pytest.mark.medium
def test_an_update_for_whose_log_there_is_no_room_changes_nothing(tmp_path):
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        rows = HeldRows(folder)
        rows.open(held(table(20_000)), 1)
        change(rows, 0, 10, 1)
        before = rows.engine.state()
        with pytest.raises(MemoryFull, match="array undo_"):
            change(rows, 0, 20_000, 2)
        assert_same(rows.engine.state(), before)
        assert rows.applied(1) == [1]
        change(rows, 5, 10, 2)
        again = HeldRows(folder)
        assert again.applied(1) == [2]
        assert_same(again.engine.state(), rows.engine.state())


def test_training_waits_for_a_snapshot_that_has_no_room_for_changed_rows(tmp_path):
    """Rows that are put aside get space as they come; without it training goes on when the snapshot is read."""
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        rows = HeldRows(folder)
        rows.open(held(table(20_000)), 1)
        for k in range(10):
            change(rows, 2_000 * k, 2_000, k + 1)
        before = rows.engine.state()
        snapshot = rows.engine.begin_kept_snapshot(most_bytes=64 * MIB, patience_secs=None)
        (folder / "other").write_bytes(bytes(free_bytes_in(folder) - MIB))
        changes = [partial(change, rows, 2_000 * k, 2_000, 11 + k) for k in range(10)]
        training = threading.Thread(target=lambda: [one() for one in changes], daemon=True)
        training.start()
        until = time.monotonic() + PATIENCE_SECS
        while rows.applied(1) == [10] and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
        assert 0 < snapshot.aside_bytes < MIB
        assert training.is_alive()
        found = list(snapshot.table(0))
        training.join(PATIENCE_SECS)
        assert not training.is_alive()
        assert np.concatenate([part.weights for part in found]).tobytes() == before["one"].weights.tobytes()
        assert rows.applied(1) == [20]


@pytest.mark.medium
def test_a_client_gets_the_error_of_its_server(tmp_path):
    features = [FeatureSpec("f", table(50_000))]
    with small_folder(tmp_path / "small", 2 * MIB) as folder:
        server = ThreadServer(folder)
        try:
            with pytest.raises(MemoryFull, match="must have space") as raised:
                PsEngine(features, seed=3, servers=[server.connect()])
            assert raised.value.where.startswith(f"{server.address}: {folder}: table one")
            assert "value:   '6,500,000 bytes needed, 2,097,152 bytes free'\n" in str(raised.value)
            small = [FeatureSpec("f", table(5_000))]
            engine, alone = PsEngine(small, seed=3, servers=[server.connect()]), CpuEngine(small, seed=3)
            assert_same(engine.state(), alone.state())
            engine.close()
        finally:
            server.close()
