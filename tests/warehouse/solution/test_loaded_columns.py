"""The columns of a merged fragment's memo files in memory."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import model, work
from warehouse import Warehouse, read_fragment, read_solution, submit_model
from warehouse.maintenance.compact_table import compact_table
from warehouse.solution.loaded_columns import Columns, LoadedColumns


class Loads:
    """Counts loads."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Columns:
        self.count += 1
        return {"a": pa.array([self.count])}


def test_columns_are_loaded_once_and_released_after_the_last_reader() -> None:
    loaded, load = LoadedColumns({"unit": 3}), Loads()
    assert [loaded.get("unit", "file", load)["a"][0].as_py() for _ in range(3)] == [1, 1, 1]
    assert not loaded._held
    assert loaded.get("unit", "file", load)["a"][0].as_py() == 2
    loaded.get("other", "file", load)
    assert loaded.get("unit", "file", load)["a"][0].as_py() == 4, "columns of another owner replace them"


def test_columns_of_a_failed_load_are_loaded_again() -> None:
    def fail() -> Columns:
        raise OSError("gone")

    loaded, load = LoadedColumns({"unit": 2}), Loads()
    with pytest.raises(OSError, match="gone"):
        loaded.get("unit", "file", fail)
    loaded.get("unit", "file", load)
    loaded.get("unit", "file", load)
    assert (load.count, dict(loaded._held)) == (1, {})


def test_only_readers_of_the_same_columns_wait_for_a_load() -> None:
    loaded = LoadedColumns({"unit": 2})
    began, may_end = threading.Event(), threading.Event()

    def slow() -> Columns:
        began.set()
        assert may_end.wait(PATIENCE_SECS)
        return {"a": pa.array([7])}

    found: list[Columns] = []
    readers = [threading.Thread(target=lambda: found.append(loaded.get("unit", "slow", slow))) for _ in range(2)]
    readers[0].start()
    assert began.wait(PATIENCE_SECS)
    readers[1].start()
    other = in_time(lambda: loaded.get("unit", "other", Loads()))
    another = in_time(lambda: loaded.get("another unit", "file", Loads()))
    may_end.set()
    for reader in readers:
        reader.join()
    assert (len(other), len(another), len(found)) == (1, 1, 2)


def in_time(get: Callable[[], Columns]) -> list[Columns]:
    """The result of ``get`` in a thread; empty if it does not end."""
    found: list[Columns] = []
    reader = threading.Thread(target=lambda: found.append(get()), daemon=True)
    reader.start()
    reader.join(PATIENCE_SECS)
    return found


@pytest.mark.usefixtures("log")
def test_a_solution_that_was_read_can_be_copied(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    compact_table(warehouse, "log")
    solution = read_solution(warehouse, "ctr")
    first, *_ = solution.fragments
    expected = read_fragment(warehouse.storage, solution, first)
    for copied in (pickle.loads(pickle.dumps(solution)), copy.deepcopy(solution)):
        assert copied == solution == read_solution(warehouse, "ctr")
        assert not copied.loaded._held
        assert read_fragment(warehouse.storage, copied, first) == expected
