"""Scores of partitions whose fragments are merged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from pipelines.runners.runner import RunnerOptions
from pipelines.scoring import (
    KEYS,
    PREDICTION,
    Score,
    ScoringConfig,
    fragment_keys,
    partition_groups,
    score_partitions,
    written_names,
)
from tests.warehouse.scenes import FREE_READS, events, model, work, write_log, write_partition
from transforms import Model
from warehouse import Warehouse, WarehouseConfig, read_solution, register_table, submit_model
from warehouse.changes.deletion import delete_rows
from warehouse.maintenance.compact_table import compact_table
from warehouse.maintenance.small_fragments import MergePolicy
from warehouse.reading import reader
from warehouse.tables.table import Fragment

HOURS = 12


def load_zeros() -> Score:
    def zeros(table: pa.Table) -> np.ndarray[Any, np.dtype[Any]]:
        return np.zeros(table.num_rows, np.float32)

    return zeros


@pytest.mark.medium
@pytest.mark.parametrize("workers", [1, 4])
def test_memos_of_a_merged_fragment_are_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    write_log(tmp_path / "log", hours=HOURS)
    config = WarehouseConfig(str(tmp_path / "home"), rates=FREE_READS)
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        submit_model(warehouse, model(inputs=1))
        work(warehouse)
        merged = compact_table(warehouse, "log", policy=MergePolicy(most_rows=HOURS * 20 // 2))
        assert (merged.merged, merged.fragments_after) == (2, 2)
        solution = read_solution(warehouse, "ctr")
    assert partition_groups(solution.partitions) == [[*range(6)], [*range(6, 12)]]
    read_memo_file, loads = reader.read_memo_file, []

    def counted(storage: Any, path: str, *args: Any, **options: Any) -> Any:
        loads.append(path)
        return read_memo_file(storage, path, *args, **options)

    monkeypatch.setattr(reader, "read_memo_file", counted)
    scoring = ScoringConfig(str(tmp_path / "home"), str(tmp_path / "scores"), "source", load_zeros)
    steps: list[tuple[int, int]] = []
    done = score_partitions(
        solution, scoring, RunnerOptions(workers=workers), lambda count, total, _: steps.append((count, total))
    )
    assert (done.partitions, done.files, done.rows, done.failures) == (HOURS, HOURS, HOURS * 20, ())
    assert steps[-1] == (HOURS, HOURS)
    assert len(loads) == len(set(loads)) == 2
    again = score_partitions(solution, scoring, RunnerOptions(workers=workers))
    assert (again.files, again.known_files) == (0, HOURS)


def load_inputs() -> Score:
    """Scores that say whether the function has been given each input once, and not the raw column of its name."""

    def scores(table: pa.Table) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        assert len(set(table.column_names)) == len(table.column_names)
        return {"row": table.column("title").to_numpy().astype(np.float32)}

    return scores


def test_a_raw_column_with_the_name_of_an_input_is_written_beside_the_scores(tmp_path: Path) -> None:
    """The column is not the input: both are read, each once. Names of the output's own columns are theirs."""
    for hour in range(2):
        times = [datetime(2026, 1, 1, hour, minute) for minute in range(20)]
        write_partition(tmp_path / "log", hour, events(20, hour, time=pa.array(times, pa.timestamp("us"))))
    made = Model("ctr", client="search", label="clicked", table="log")
    made.input("title", hr.text("title").length())
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"), time_column="time")
        submit_model(warehouse, made)
        solution = read_solution(warehouse, "ctr")
    home, output = str(tmp_path / "home"), tmp_path / "scores"
    scoring = ScoringConfig(home, str(output), "source", load_inputs, ("title", "price", "time"), "time")
    done = score_partitions(solution, scoring)
    assert (done.files, done.rows, done.failures) == (2, 40, ())
    keys = set()
    for partition in solution.partitions:
        (file,) = (output / partition.key).glob("scores-*.parquet")
        table = pq.read_table(file, partitioning=None)
        assert table.column_names == [*KEYS, "title", "price", "prediction_row"]
        assert table.column("prediction_row").to_pylist() == [len(one) for one in table.column("title").to_pylist()]
        assert table.column("row").to_pylist() == list(range(20))
        assert set(table.column("partition").to_pylist()) == {partition.key}
        assert all(
            partition.start <= one.replace(tzinfo=UTC) < partition.end for one in table.column("time").to_pylist()
        )
        keys |= set(zip(*(table.column(name).to_pylist() for name in KEYS[:3]), strict=True))
    assert len(keys) == 40, "partition, fragment and row are a key"
    without_time = ScoringConfig(home, str(tmp_path / "untimed"), "source", load_inputs)
    assert score_partitions(solution, without_time).failures == ()
    untimed = pq.read_table(next((tmp_path / "untimed").rglob("scores-*.parquet")), partitioning=None)
    assert untimed.column("time").null_count == 20


@pytest.mark.medium
def test_the_row_of_a_score_is_that_of_the_stored_event(tmp_path: Path) -> None:
    """Deleted events have no scores, and the rows of the others do not change."""
    write_log(tmp_path / "log", hours=1)
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        submit_model(warehouse, model(inputs=1))
        delete_rows(warehouse, "log", where=[("price", "4")])
        solution = read_solution(warehouse, "ctr")
    scoring = ScoringConfig(str(tmp_path / "home"), str(tmp_path / "scores"), "source", load_zeros)
    assert score_partitions(solution, scoring).failures == ()
    rows = pq.read_table(next((tmp_path / "scores").rglob("scores-*.parquet")), partitioning=None).column("row")
    assert rows.to_pylist() == [*range(4), *range(5, 20)]


@pytest.mark.parametrize(
    ("columns", "written"),
    [
        (("price", "time"), ("price", "raw_time")),
        (("row", "raw_row"), ("raw_raw_row", "raw_row")),
        (("prediction", "partition", "query"), ("raw_prediction", "raw_partition", "query")),
    ],
)
def test_raw_columns_do_not_take_the_names_of_keys_and_predictions(
    columns: tuple[str, ...], written: tuple[str, ...]
) -> None:
    assert tuple(written_names(columns, {*KEYS, PREDICTION}).values()) == written


def test_copies_of_a_file_have_keys_of_their_own() -> None:
    one = Fragment("abc", "a", (0,), 2, 10, {})
    assert fragment_keys([one, replace(one, path="b"), replace(one, fragment_id="d", path="c")]) == [
        "abc",
        "abc-2",
        "d",
    ]
