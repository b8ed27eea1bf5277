"""Scores of partitions whose fragments are merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.runners.runner import RunnerOptions
from pipelines.scoring import Score, ScoringConfig, partition_groups, score_partitions
from tests.warehouse.scenes import FREE_READS, model, work, write_log
from warehouse import Warehouse, WarehouseConfig, read_solution, register_table, submit_model
from warehouse.maintenance.compact_table import compact_table
from warehouse.maintenance.small_fragments import MergePolicy
from warehouse.reading import reader

HOURS = 12


def load_zeros() -> Score:
    def zeros(table: pa.Table) -> np.ndarray[Any, np.dtype[Any]]:
        return np.zeros(table.num_rows, np.float32)

    return zeros


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
