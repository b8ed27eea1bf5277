from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.warehouse.scenes import Clock, model, pretended, work
from transforms.errors import InputError
from warehouse import (
    Warehouse,
    commit_memos,
    evict_component,
    explain_model,
    lease_tasks,
    read_fragment,
    read_solution,
    submit_model,
    sweep_orphans,
    write_memo_file,
)
from warehouse.errors import UnknownComponent

pytestmark = pytest.mark.usefixtures("log")


def memo_files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "home/memos").rglob("*") if path.is_file())


def test_a_dry_run_says_the_same_and_does_nothing(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model("one"))
    submit_model(warehouse, model("two", inputs=1))
    work(warehouse)
    solution = read_solution(warehouse, "one")
    fingerprint = solution.inputs[0].fingerprint
    planned = evict_component(warehouse, fingerprint, why="space", dry_run=True)
    assert (planned.dry_run, planned.memos, planned.rows, planned.models) == (True, 3, 60, ("one", "two"))
    assert planned.bytes == sum((tmp_path / "home" / file).stat().st_size for file in planned.files) > 0
    assert len(memo_files(tmp_path)) == 6
    assert read_solution(warehouse, "one") == solution
    done = evict_component(warehouse, fingerprint, why="space")
    assert (done.memos, done.rows, done.bytes, done.files) == (
        planned.memos,
        planned.rows,
        planned.bytes,
        planned.files,
    )
    assert len(memo_files(tmp_path)) == 3
    assert evict_component(warehouse, fingerprint, why="space").memos == 0


def test_a_model_whose_memos_are_gone_still_reads(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    before = read_solution(warehouse, "ctr")
    fragment = before.partitions[0].fragments[0]
    table = read_fragment(warehouse.storage, before, fragment)
    evict_component(warehouse, before.inputs[0].fingerprint, why="space")
    after = read_solution(warehouse, "ctr")
    assert after.count("compute") == 3
    assert read_fragment(warehouse.storage, after, after.partitions[0].fragments[0]).equals(table)
    assert read_fragment(warehouse.storage, before, fragment).equals(table), "a solution made before the eviction"


def test_a_file_that_others_need_stays(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model())
    tasks = lease_tasks(warehouse, "w", limit=100)
    write_memo_file(warehouse.storage, "memos/all.memo", {"c": pa.array(range(20))})
    written = pretended("memos/all.memo")
    assert all(commit_memos(warehouse, [(task, written) for task in tasks]))
    first, second = (item.fingerprint for item in read_solution(warehouse, "ctr").inputs[:2])
    assert evict_component(warehouse, first, why="space").files == ()
    assert len(memo_files(tmp_path)) == 1
    assert evict_component(warehouse, second, why="space").files == ("memos/all.memo",)
    assert memo_files(tmp_path) == []


def test_queued_and_running_tasks_are_left_alone(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=1))
    lease_tasks(warehouse, "w", limit=1)
    assert evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint, why="x").memos == 0
    assert {one.state for one in explain_model(warehouse, "ctr")} == {"", "RUNNING", "PENDING"}


def test_refusals(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    with pytest.raises(UnknownComponent):
        evict_component(warehouse, "f" * 64, why="space")
    with pytest.raises(InputError, match="says why"):
        evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint, why=" ")


def test_sweeping_removes_what_nobody_knows(warehouse: Warehouse, tmp_path: Path, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    known = memo_files(tmp_path)
    orphan = tmp_path / "home/memos/log/orphan.memo"
    unfinished = tmp_path / "home/memos/log/.x.memo.1-2-3.tmp"
    orphan.write_bytes(b"1")
    unfinished.write_bytes(b"2")
    clock.now = orphan.stat().st_mtime + 50
    assert sweep_orphans(warehouse, older_than_secs=60) == ()
    clock.advance(60)
    assert sorted(sweep_orphans(warehouse, older_than_secs=60)) == sorted([str(orphan), str(unfinished)])
    assert memo_files(tmp_path) == known
