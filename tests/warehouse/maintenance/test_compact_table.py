"""Merging small fragments: what is carried over, equal reads, changes of merged data, and killed processes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.changes import scenes
from tests.warehouse.scenes import FREE_READS, Clock, events, model, start, work, work_together, write_partition
from transforms.errors import DataError
from warehouse import (
    ReadSolution,
    Warehouse,
    WarehouseConfig,
    append_rows,
    collect_garbage,
    damage_recorder,
    delete_rows,
    explain_model,
    fix_columns,
    lease_tasks,
    overlay_columns,
    pinned_solution,
    queue_missing,
    read_fragment,
    read_solution,
    register_table,
    retire_model,
    submit_model,
    verify_warehouse,
    write_memo_file,
)
from warehouse.catalog import schema
from warehouse.changes.drop_table import drop_table
from warehouse.files.digests import table_digests
from warehouse.files.memo_format.directory import Directory
from warehouse.files.memo_format.reading import read_directory, read_first
from warehouse.maintenance.compact_table import compact_table
from warehouse.maintenance.small_fragments import MergePolicy, Piece, choose_merges
from warehouse.memos.memos import evict_memos
from warehouse.tables.manifests import current_fragments, current_units
from warehouse.tables.table import Fragment

START = datetime(2026, 1, 1, tzinfo=UTC)


def fail(*damage: object) -> None:
    pytest.fail(f"damaged: {damage}")


def tables(warehouse: Warehouse, solution: ReadSolution) -> list[pa.Table]:
    return [read_fragment(warehouse.storage, solution, one, on_damage=fail) for one in solution.fragments]


def count_memos(warehouse: Warehouse) -> dict[str, int]:
    with warehouse.catalog.read() as connection:
        of = schema.memos.c
        counted = connection.execute(select(of.state, func.count()).group_by(of.state))
        return {row[0]: row[1] for row in counted}


def unit_count(warehouse: Warehouse, table: str = "log") -> int:
    with warehouse.catalog.read() as connection:
        return len(current_units(connection, table))


@pytest.fixture
def ready(warehouse: Warehouse, log: Path) -> Warehouse:
    """The table ``log`` with a model of five components whose memos are ready."""
    submit_model(warehouse, model(inputs=5))
    work_together(warehouse)
    return warehouse


def test_memos_are_joined_and_nothing_is_computed(ready: Warehouse) -> None:
    expected = tables(ready, read_solution(ready, "ctr"))
    planned = compact_table(ready, "log", dry_run=True)
    assert (planned.fragments, planned.fragments_after, planned.merged, planned.memos) == (3, 1, 1, 15)
    assert (unit_count(ready), count_memos(ready)) == (3, {"READY": 15})
    done = compact_table(ready, "log")
    assert (done.memos, done.memos_after, done.incomplete, done.queued, done.waiting) == (15, 5, 0, 0, 0)
    assert (unit_count(ready), count_memos(ready)) == (1, {"READY": 5})
    solution = read_solution(ready, "ctr")
    assert solution.count("load") == 15
    assert len({fragment.files for fragment in solution.fragments}) == 1
    assert [one.window.first_row for one in solution.fragments if one.window] == [0, 20, 40]
    assert tables(ready, solution) == expected
    again = submit_model(ready, model(inputs=5))
    assert (again.hits, again.misses) == (5, 0)
    assert queue_missing(ready) == 0
    assert lease_tasks(ready, "worker") == ()
    assert verify_warehouse(ready, recompute=5).findings == ()
    assert compact_table(ready, "log").merged == 0
    assert collect_garbage(ready, dry_run=False).by_kind()["unreferenced memos"][0] == 3
    assert tables(ready, read_solution(ready, "ctr")) == expected
    assert ReadSolution.from_document(solution.to_document()) == solution


def test_joined_memos_have_the_bytes_of_computed_ones(ready: Warehouse, tmp_path: Path, clock: Clock) -> None:
    compact_table(ready, "log")
    config = WarehouseConfig(str(tmp_path / "other"), read_threads=1, rates=FREE_READS)
    with Warehouse.open(config, clock) as other:
        register_table(other, "log", str(tmp_path / "log"))
        compact_table(other, "log")
        submit_model(other, model(inputs=5))
        assert work_together(other) == 5
        assert column_checksums(ready) == column_checksums(other)


def column_checksums(warehouse: Warehouse) -> dict[str, str]:
    """The checksum of the stored bytes of every column of the first fragment's memo file."""
    (file,) = read_solution(warehouse, "ctr").partitions[0].fragments[0].files
    with warehouse.storage.open_input(file.path) as source:
        directory = Directory.from_bytes(read_directory(source, read_first(source)))
    return {name: directory.checksum_of(name) for name in directory.columns}


def test_a_new_component_is_computed_once_for_a_merged_fragment(ready: Warehouse) -> None:
    compact_table(ready, "log")
    found = submit_model(ready, model("other", inputs=2, buckets=7))
    assert (found.queued, work_together(ready)) == (2, 2)
    merged = tables(ready, read_solution(ready, "other"))
    for fragment, table in zip(read_solution(ready, "other").fragments, merged, strict=True):
        computed = read_fragment(ready.storage, _without_files(read_solution(ready, "other")), fragment)
        assert table == computed
    assert {one.rows for one in explain_model(ready, "other")} == {60}


def _without_files(solution: ReadSolution) -> ReadSolution:
    document = solution.to_document()
    for plan in document["plans"]:
        plan["actions"] = ["raw" if action == "raw" else "compute" for action in plan["actions"]]
        plan["loads"] = {}
    return ReadSolution.from_document(document)


def test_queued_memos_are_queued_for_the_merged_fragment(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=2))
    done = compact_table(warehouse, "log")
    assert (done.merged, done.memos, done.queued) == (1, 0, 2)
    assert count_memos(warehouse) == {"PENDING": 2}
    assert work(warehouse) == 2
    assert read_solution(warehouse, "ctr").count("load") == 6


def test_a_group_with_running_tasks_is_left(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=2))
    held = lease_tasks(warehouse, "worker", limit=1)
    assert compact_table(warehouse, "log").waiting == 1
    assert work(warehouse, "another") == 5, "one is held"
    assert compact_table(warehouse, "log", dry_run=True).waiting == 1
    assert (len(held), unit_count(warehouse)) == (1, 3)


def run_while_writing(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let the next compaction run ``action`` after it wrote its first file."""

    def write(*args: Any) -> Any:
        written = write_memo_file(*args)
        monkeypatch.undo()
        action()
        return written

    monkeypatch.setattr("warehouse.maintenance.compact_table.write_memo_file", write)


def test_memos_that_are_computed_meanwhile_are_kept(ready: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_model(ready, model("other", inputs=2, buckets=7))
    run_while_writing(monkeypatch, lambda: work(ready))
    done = compact_table(ready, "log")
    assert (done.merged, done.changed, done.queued, unit_count(ready)) == (0, 1, 0, 3)
    assert count_memos(ready) == {"READY": 21}
    again = compact_table(ready, "log")
    assert (again.memos, again.memos_after, again.queued) == (21, 7, 0)
    assert verify_warehouse(ready, recompute=7).findings == ()


def test_a_model_that_is_retired_meanwhile_changes_no_memo(
    ready: Warehouse, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_partition(log, 3, events(20, seed=3))
    register_table(ready, "log", str(log))
    assert submit_model(ready, model(inputs=5)).queued == 5, "the model waits for its components"
    run_while_writing(monkeypatch, lambda: retire_model(ready, "ctr"))
    assert compact_table(ready, "log", MergePolicy(most_rows=60)).memos_after == 5
    assert submit_model(ready, model(inputs=5)).hits == 5


def test_memos_of_equal_data_in_another_table_stay(ready: Warehouse, tmp_path: Path) -> None:
    register_table(ready, "copy", str(tmp_path / "log"))
    other = model("copied", inputs=5)
    assert submit_model(ready, other, table="copy").hits == 15
    compact_table(ready, "log")
    assert count_memos(ready) == {"READY": 20}
    assert submit_model(ready, other, table="copy").hits == 15
    assert compact_table(ready, "copy").memos_after == 5, "equal content: the memos are those of the other table"
    assert count_memos(ready) == {"READY": 5}
    assert submit_model(ready, other, table="copy").hits == 5
    assert verify_warehouse(ready).findings == ()


def unread_column_differs(tmp_path: Path) -> str:
    """The folder of a log with the events of the table ``log``, and other values in a column that no component reads."""
    root = tmp_path / "other"
    for hour in range(3):
        write_partition(root, hour, events(20, seed=hour, clicked=pa.array([hour == 1] * 20)))
    return str(root)


def test_memos_that_another_table_shares_stay(ready: Warehouse, tmp_path: Path) -> None:
    register_table(ready, "other", unread_column_differs(tmp_path))
    assert submit_model(ready, model("shared", inputs=5), table="other").hits == 15
    expected = tables(ready, read_solution(ready, "shared"))
    assert compact_table(ready, "log").queued == 0
    assert count_memos(ready) == {"READY": 20}
    assert (queue_missing(ready), read_solution(ready, "shared").count("load")) == (0, 15)
    assert tables(ready, read_solution(ready, "shared")) == expected
    found = verify_warehouse(ready, recompute=20)
    assert (found.findings, found.recomputed) == ((), 20), "each memo is of a current fragment"


@pytest.mark.medium
def test_queued_memos_that_another_table_shares_stay(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    submit_model(warehouse, model(inputs=5))
    register_table(warehouse, "other", unread_column_differs(tmp_path))
    assert submit_model(warehouse, model("shared", inputs=5), table="other").shared == 15
    assert compact_table(warehouse, "log").queued == 5
    retire_model(warehouse, "ctr")
    assert work(warehouse) == 15
    assert read_solution(warehouse, "shared").count("load") == 15
    assert verify_warehouse(warehouse, recompute=20).findings == ()


@pytest.mark.parametrize("is_ready", [True, False])
def test_memos_that_an_overlaid_table_shares_stay(
    warehouse: Warehouse, log: Path, tmp_path: Path, is_ready: bool
) -> None:
    submit_model(warehouse, model(inputs=5))
    assert work_together(warehouse) == 15 if is_ready else True
    register_table(warehouse, "other", unread_column_differs(tmp_path))
    titles = [title for hour in range(3) for title in events(20, hour)["title"].to_pylist()]
    prices = [price for hour in range(3) for price in events(20, hour)["price"].to_pylist()]
    by_title = {title: price for title, price in zip(titles, prices, strict=True) if titles.count(title) == 1}
    values = {"title": list(by_title), "price": pa.array(list(by_title.values()), pa.float32())}
    assert by_title
    overlay_columns(warehouse, "other", scenes.save(tmp_path / "prices.parquet", values), on=["title"])
    submit_model(warehouse, model("shared", inputs=5), table="other")
    compact_table(warehouse, "log")
    assert work(warehouse) == (0 if is_ready else 20)
    assert read_solution(warehouse, "shared").count("load") == 15
    assert verify_warehouse(warehouse, recompute=20).findings == ()


def test_memos_that_a_fragment_outside_the_group_shares_stay(warehouse: Warehouse, log: Path) -> None:
    write_partition(log, 2, events(20, seed=0, clicked=pa.array([True] * 20)))
    register_table(warehouse, "log", str(log))
    assert submit_model(warehouse, model(inputs=5)).queued == 10
    assert work_together(warehouse) == 10
    assert compact_table(warehouse, "log", MergePolicy(most_rows=40)).queued == 0
    assert count_memos(warehouse) == {"READY": 10}
    assert read_solution(warehouse, "ctr").count("load") == 15
    assert verify_warehouse(warehouse, recompute=20).findings == ()


def test_late_rows_are_a_fragment_of_their_own(ready: Warehouse, tmp_path: Path) -> None:
    compact_table(ready, "log")
    append_rows(
        ready, "log", [scenes.save(tmp_path / "late.parquet", events(4, 9))], partition="date=2026-01-01/hour=01"
    )
    found = submit_model(ready, model(inputs=5))
    assert (found.hits, found.queued) == (5, 5)
    assert unit_count(ready) == 2
    assert [len(partition.fragments) for partition in read_solution(ready, "ctr").partitions] == [1, 2, 1]
    work(ready)
    assert compact_table(ready, "log").merged == 0, "few late rows are not worth writing the others again"
    assert compact_table(ready, "log", MergePolicy(least_share=0.01)).memos == 10
    assert (unit_count(ready), verify_warehouse(ready, recompute=5).findings) == (1, ())


def test_an_overlay_computes_only_what_reads_its_column(ready: Warehouse, tmp_path: Path) -> None:
    compact_table(ready, "log")
    values = pa.table({"title": ["red h1 red"], "price": pa.array([9.0], pa.float32())})
    path = scenes.save(
        tmp_path / "values.parquet",
        values.select(["price"]).append_column("title", [[events(20, 1)["title"][3].as_py()]]),
    )
    change = overlay_columns(ready, "log", path, on=["title"])
    assert {one.columns for one in change.recompute} == {("price",)}
    assert [one.memos for one in change.recompute] == [1]
    found = submit_model(ready, model(inputs=5))
    assert (found.hits, found.queued, unit_count(ready)) == (4, 1, 1)
    work(ready)
    assert verify_warehouse(ready, recompute=5).findings == ()
    assert read_solution(ready, "ctr").count("load") == 15


def test_a_rewritten_file_ends_its_merge(ready: Warehouse, log: Path) -> None:
    compact_table(ready, "log")
    write_partition(log, 1, events(11, 5))
    register_table(ready, "log", str(log))
    assert unit_count(ready) == 3
    assert submit_model(ready, model(inputs=5)).queued == 15
    work(ready)
    assert verify_warehouse(ready, recompute=9).findings == ()
    assert compact_table(ready, "log").memos == 15


def test_memos_of_an_earlier_equal_merge_are_of_the_new_one(ready: Warehouse, log: Path) -> None:
    policy = MergePolicy(most_rows=40)
    compact_table(ready, "log", policy)
    write_partition(log, 1, events(11, 5))
    register_table(ready, "log", str(log))
    write_partition(log, 1, events(20, seed=1))
    register_table(ready, "log", str(log))
    assert submit_model(ready, model(inputs=5)).queued == 10, "the merge ended"
    assert work_together(ready) == 10
    assert compact_table(ready, "log", policy).memos_after == 5
    assert count_memos(ready) == {"READY": 10}
    assert verify_warehouse(ready, recompute=20).recomputed == 10


def test_queued_memos_of_an_equal_merge_are_joined(ready: Warehouse, tmp_path: Path) -> None:
    register_table(ready, "other", unread_column_differs(tmp_path))
    compact_table(ready, "other")
    assert submit_model(ready, model("shared", inputs=5), table="other").queued == 5
    assert compact_table(ready, "log").memos_after == 5
    assert (queue_missing(ready), work(ready), count_memos(ready)) == (0, 0, {"READY": 5})
    assert read_solution(ready, "shared").count("load") == 15
    assert verify_warehouse(ready, recompute=20).findings == ()


def test_files_read_again_keep_their_merge(ready: Warehouse, log: Path, tmp_path: Path) -> None:
    compact_table(ready, "log")
    moved = tmp_path / "moved"
    log.rename(moved)
    register_table(ready, "log", str(moved))
    assert (unit_count(ready), submit_model(ready, model(inputs=5)).hits) == (1, 5)
    assert work(ready) == 0
    assert len(tables(ready, read_solution(ready, "ctr"))) == 3


def test_a_pinned_reader_and_older_versions_read_the_same(ready: Warehouse, tmp_path: Path) -> None:
    with pinned_solution(ready, "ctr", holder="job") as solution:
        expected = tables(ready, solution)
        compact_table(ready, "log")
        collect_garbage(ready, dry_run=False)
        assert tables(ready, solution) == expected
    delete_rows(ready, "log", where=[("title", events(20, 1)["title"][3].as_py())])
    assert tables(ready, read_solution(ready, "ctr", table_version=1)) == expected
    assert sum(map(len, tables(ready, read_solution(ready, "ctr")))) < 60


def test_a_damaged_merged_memo_is_computed_and_queued(ready: Warehouse) -> None:
    expected = tables(ready, read_solution(ready, "ctr"))
    compact_table(ready, "log")
    solution = read_solution(ready, "ctr")
    (Path(ready.config.home) / solution.partitions[0].fragments[0].files[0].path).write_bytes(b"x")
    record = damage_recorder(ready)
    read = [read_fragment(ready.storage, solution, one, on_damage=record) for one in solution.fragments]
    assert (read, count_memos(ready)) == (expected, {"PENDING": 5})
    assert work(ready) == 5
    assert tables(ready, read_solution(ready, "ctr")) == expected


def test_a_damaged_part_is_computed_before_its_group_is_merged(ready: Warehouse) -> None:
    expected = tables(ready, read_solution(ready, "ctr"))
    (Path(ready.config.home) / read_solution(ready, "ctr").partitions[1].fragments[0].files[0].path).write_bytes(b"x")
    done = compact_table(ready, "log")
    assert (len(done.damaged), done.waiting, done.changed, done.merged) == (5, 1, 0, 0)
    assert count_memos(ready) == {"READY": 10, "PENDING": 5}
    assert count_files(ready) == 3, "nothing was written in vain"
    assert compact_table(ready, "log").waiting == 1
    assert work(ready) == 5
    assert compact_table(ready, "log").memos_after == 5
    assert tables(ready, read_solution(ready, "ctr")) == expected


def count_files(warehouse: Warehouse) -> int:
    """The number of memo files in the home."""
    return sum(one.is_file() for one in (Path(warehouse.config.home) / "memos").rglob("*"))


def test_a_damaged_part_that_no_model_reads_is_no_reason_to_lose_the_others(ready: Warehouse) -> None:
    path = read_solution(ready, "ctr").partitions[1].fragments[0].files[0].path
    retire_model(ready, "ctr")
    (Path(ready.config.home) / path).write_bytes(b"x")
    done = compact_table(ready, "log")
    assert (len(done.damaged), done.incomplete, done.waiting, done.changed, done.merged) == (5, 1, 0, 0, 0)
    assert count_memos(ready) == {"READY": 10, "EVICTED": 5}


def evict_some(warehouse: Warehouse, fingerprint: str, most: int) -> None:
    """Evict the first ``most`` ready memos of a component."""
    of = schema.memos.c
    with warehouse.catalog.read() as connection:
        query = select(of.memo_key, of.file).where(of.fingerprint == fingerprint, of.state == "READY")
        chosen = connection.execute(query.order_by(of.fragment).limit(most)).all()
    memos, files = {row.memo_key: fingerprint for row in chosen}, {row.file: {fingerprint} for row in chosen}
    warehouse.catalog.run(lambda connection: evict_memos(connection, memos, files, "space", warehouse.clock()))


def first_component(warehouse: Warehouse) -> str:
    return next(item.fingerprint for item in read_solution(warehouse, "ctr").inputs if item.name == "input_0")


def test_a_group_with_some_evicted_memos_of_a_component_is_left(ready: Warehouse) -> None:
    evict_some(ready, first_component(ready), 1)
    assert queue_missing(ready) == 0
    assert compact_table(ready, "log", dry_run=True).incomplete == 1
    done = compact_table(ready, "log")
    assert (done.merged, done.incomplete, done.changed, done.queued) == (0, 1, 0, 0)
    assert count_memos(ready) == {"READY": 14, "EVICTED": 1}
    assert submit_model(ready, model(inputs=5)).queued == 1
    assert work(ready) == 1
    assert compact_table(ready, "log").memos_after == 5


def test_a_component_whose_memos_were_evicted_stays_evicted(ready: Warehouse) -> None:
    evict_some(ready, first_component(ready), 3)
    done = compact_table(ready, "log")
    assert (done.merged, done.memos, done.memos_after, done.queued) == (1, 12, 4, 0)
    assert count_memos(ready) == {"READY": 4, "EVICTED": 4}
    assert (queue_missing(ready), work(ready)) == (0, 0)
    with ready.catalog.read() as connection:
        of = schema.memos.c
        reasons = connection.execute(select(of.evicted_why).where(of.state == "EVICTED")).scalars().all()
    assert reasons == ["space"] * 4
    assert submit_model(ready, model(inputs=5)).queued == 1
    assert work(ready) == 1
    assert read_solution(ready, "ctr").count("load") == 15
    assert verify_warehouse(ready, recompute=5).findings == ()


def test_a_group_with_a_missing_memo_is_left_until_it_is_computed(ready: Warehouse, log: Path) -> None:
    write_partition(log, 3, events(20, seed=3))
    register_table(ready, "log", str(log))
    done = compact_table(ready, "log")
    assert (done.merged, done.incomplete, done.queued) == (0, 1, 5)
    assert count_memos(ready) == {"READY": 15, "PENDING": 5}
    assert compact_table(ready, "log").waiting == 1
    assert work(ready) == 5
    assert compact_table(ready, "log").memos == 20


def test_a_dropped_table_has_no_merges(ready: Warehouse) -> None:
    compact_table(ready, "log")
    assert drop_table(ready, "log", force=True).memos == 5
    assert count_memos(ready) == {"EVICTED": 5}
    with ready.catalog.read() as connection:
        assert connection.execute(select(func.count()).select_from(schema.merged_fragments)).scalar() == 0


def test_only_old_partitions_are_merged(ready: Warehouse) -> None:
    at = (START + timedelta(hours=2)).timestamp()
    assert compact_table(ready, "log", ended_before=at).parts == 2
    assert compact_table(ready, "log", ended_before=at).parts == 0
    assert compact_table(ready, "log").parts == 2


def test_a_work_item_keeps_the_members(ready: Warehouse) -> None:
    compact_table(ready, "log")
    submit_model(ready, model("other", inputs=2, buckets=7))
    fragment = lease_tasks(ready, "worker")[0].fragment
    assert [member.rows for member in fragment.members] == [20, 20, 20]
    document = fragment.to_document()
    assert Fragment.from_document(document) == fragment
    for broken in (document["members"][:1], [*document["members"], document["members"][0]]):
        with pytest.raises(DataError):
            Fragment.from_document({**document, "members": broken})


def test_a_window_lies_inside_the_files(ready: Warehouse) -> None:
    compact_table(ready, "log")
    document = read_solution(ready, "ctr").to_document()
    window = document["partitions"][1]["fragments"][0]["window"]
    assert window == {"first_row": 20, "rows": 60}
    for broken in ({"first_row": 41}, {"rows": 39}, {"first_row": -1}, {"rows": "60"}, {"more": 1}):
        document["partitions"][1]["fragments"][0]["window"] = {**window, **broken}
        with pytest.raises(DataError, match="window"):
            ReadSolution.from_document(document)


_KILLED = """
import os, signal, sys
from tests.warehouse.scenes import FREE_READS
from warehouse import Warehouse, WarehouseConfig
from warehouse.maintenance import compact_table
from warehouse.maintenance.small_fragments import MergePolicy
home, point = sys.argv[1:]

def killing(name, *, after, call=1):
    original, calls = getattr(compact_table, name), []
    def replacement(*args, **options):
        calls.append(1)
        result = original(*args, **options) if after or len(calls) < call else None
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(compact_table, name, replacement)

{"file": lambda: killing("write_memo_file", after=True),
 "merge": lambda: killing("write_merges", after=True),
 "memos": lambda: killing("_enter_memos", after=True),
 "parts": lambda: killing("_remove_parts", after=True),
 "group": lambda: killing("_merge", after=True),
 "second file": lambda: killing("write_memo_file", after=True, call=2),
 "matching": lambda: killing("queue_missing", after=False)}[point]()
with Warehouse.open(WarehouseConfig(home, read_threads=1, rates=FREE_READS)) as warehouse:
    compact_table.compact_table(warehouse, "log", MergePolicy(most_rows=40))
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["file", "merge", "memos", "parts", "group", "second file", "matching"])
def test_killed(warehouse: Warehouse, log: Path, clock: Clock, point: str) -> None:
    if warehouse.config.catalog_url:
        pytest.skip("the child opens a catalog in the home")
    write_partition(log, 3, events(20, 3))
    register_table(warehouse, "log", str(log))
    submit_model(warehouse, model(inputs=5))
    work_together(warehouse)
    expected = tables(warehouse, read_solution(warehouse, "ctr"))
    process = start(_KILLED, warehouse.config.home, point)
    assert process.wait(PATIENCE_SECS) == -signal.SIGKILL, process.stderr and process.stderr.read()
    assert tables(warehouse, read_solution(warehouse, "ctr")) == expected
    assert verify_warehouse(warehouse).findings == ()
    assert unit_count(warehouse) == {"group": 3, "second file": 3, "matching": 2}.get(point, 4)
    compact_table(warehouse, "log", MergePolicy(most_rows=40))
    assert (unit_count(warehouse), count_memos(warehouse)) == (2, {"READY": 10})
    assert submit_model(warehouse, model(inputs=5)).hits == 10
    clock.now = 4e9
    collect_garbage(warehouse, dry_run=False)
    assert count_files(warehouse) == 2
    assert tables(warehouse, read_solution(warehouse, "ctr")) == expected
    assert verify_warehouse(warehouse, recompute=10).findings == ()


Step = Callable[[Warehouse, Path, int], object]


def _append(warehouse: Warehouse, folder: Path, number: int) -> object:
    late = scenes.events(number % scenes.HOURS, 2, 1000 + 10 * number)
    return append_rows(warehouse, "log", [scenes.save(folder / f"late-{number}.parquet", late)])


def _overlay(warehouse: Warehouse, folder: Path, number: int) -> object:
    ids = [100 * (number % scenes.HOURS), 2]
    values = {"event_id": sorted(set(ids)), "spam": pa.array([number % 2 == 0] * len(set(ids)))}
    return overlay_columns(warehouse, "log", scenes.save(folder / f"spam-{number}.parquet", values), on=["event_id"])


def _fix(warehouse: Warehouse, folder: Path, number: int) -> object:
    values = {"event_id": [100 * (number % scenes.HOURS) + 1], "price": pa.array([number + 0.5], pa.float32())}
    path = scenes.save(folder / f"price-{number}.parquet", values)
    return fix_columns(warehouse, "log", path, on=["event_id"], why="wrong")


def _delete(warehouse: Warehouse, folder: Path, number: int) -> object:
    return delete_rows(warehouse, "log", where=[("event_id", str(100 * (number % scenes.HOURS) + number % 5))])


def _rewrite(warehouse: Warehouse, folder: Path, number: int) -> object:
    hour = number % scenes.HOURS
    path = folder / "log" / "date=2026-01-01" / f"hour={hour:02d}" / "part.parquet"
    scenes.save(path, scenes.events(hour, 4 + number % 3, 100 * hour))
    return register_table(warehouse, "log", str(folder / "log"))


_STEPS: dict[str, Step] = {
    "append": _append, "overlay": _overlay, "fix": _fix, "delete": _delete, "rewrite": _rewrite,
    "work": lambda warehouse, _folder, _number: work(warehouse),
    "submit": lambda warehouse, _folder, _number: submit_model(warehouse, _model()),
    "compact": lambda warehouse, _folder, number: compact_table(
        warehouse, "log", MergePolicy(most_rows=8 + 6 * (number % 5), least_share=0.01)) and None,
}  # fmt: skip


def _model() -> Any:
    import transforms.expressions.expression as hr
    from transforms.expressions.model import Model

    made = Model("m", client="c", label="clicked", table="log")
    query = hr.text("query")
    made.input("words", query.unigrams().hash_buckets(50))
    made.input("price", hr.float32("price").fill_null(0.0).log1p())
    made.input("both", hr.cross(query, hr.timestamp("time").hour_of_day(), buckets=30))
    made.input("raw", hr.float32("price"))
    return made


@pytest.fixture
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], list[tuple[Warehouse, Path]]]]:
    opened: list[Warehouse] = []

    def make() -> list[tuple[Warehouse, Path]]:
        made = []
        for _ in range(2):
            folder = tmp_path_factory.mktemp("twin")
            warehouse = Warehouse.open(
                WarehouseConfig(str(folder / "home"), read_threads=1, fragment_rows=4, rates=FREE_READS), Clock()
            )
            opened.append(warehouse)
            scenes.write_log(folder / "log")
            register_table(warehouse, "log", str(folder / "log"), time_column="time")
            submit_model(warehouse, _model())
            made.append((warehouse, folder))
        return made

    yield make
    for warehouse in opened:
        warehouse.close()


def _rows(warehouse: Warehouse, first: int, last: int, version: int | None = None) -> list[Any]:
    """The digest of the values of every column of every fragment; the bytes of a null are no value."""
    span = [START + timedelta(hours=hour) for hour in (first, last)]
    solution = read_solution(warehouse, "m", start=span[0], end=span[1], table_version=version)
    read = [read_fragment(warehouse.storage, solution, one, rows=True) for one in solution.fragments]
    return [(table.schema, table.num_rows, table_digests(table)) for table in read]


@pytest.mark.slow
@settings(max_examples=scaled(10))
@example(steps=[("compact", 3), ("overlay", 9), ("work", 0)], span=[1, 2])  # the column is new, and in one member only
@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(_STEPS)), st.integers(0, 9)), min_size=2, max_size=8),
    span=st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted),
)
def test_every_range_reads_the_same_rows(
    twins: Callable[[], list[tuple[Warehouse, Path]]], steps: list[tuple[str, int]], span: list[int]
) -> None:
    """A warehouse that merges fragments reads what one that merges none reads, byte for byte, at every version."""
    pair = twins()
    for position, (name, drawn) in enumerate([*steps, ("compact", 0), ("submit", 0), ("work", 0), ("compact", 4)]):
        for which, (warehouse, folder) in enumerate(pair):
            if name != "compact" or which == 0:
                _STEPS[name](warehouse, folder, 10 * position + drawn if name == "append" else drawn)
        for first, last in ((0, 3), tuple(span)):
            assert _rows(pair[0][0], first, last) == _rows(pair[1][0], first, last)
    for version in range(1, scenes.version(pair[0][0]) + 1):
        if not any(name == "rewrite" for name, _ in steps):  # versions before a rewritten file cannot be read
            assert _rows(pair[0][0], 0, 3, version) == _rows(pair[1][0], 0, 3, version)
    assert verify_warehouse(pair[0][0], recompute=20).findings == ()
    assert submit_model(pair[0][0], _model()).queued == 0
    with pair[0][0].catalog.read() as connection:
        assert len(current_units(connection, "log")) <= len(current_fragments(connection, "log"))


def test_a_merged_fragment_takes_up_the_day_of_its_last_member() -> None:
    hours = [START + timedelta(hours=hour) for hour in (20, 24, 25)]
    many = [Piece(row, start, start + timedelta(hours=1), 60_000) for row, start in enumerate(hours)]
    assert choose_merges(many, MergePolicy()) == (tuple(many),)
    first = Piece(0, hours[0], many[1].end, 120_000)
    assert choose_merges([first, many[2]], MergePolicy()) == ((first, many[2]),), "of the day of its last member"
    tomorrow = Piece(3, hours[1] + timedelta(days=1), hours[2] + timedelta(days=1), 60_000)
    assert choose_merges([first, tomorrow], MergePolicy()) == ()


def test_a_merged_unit_ends_with_its_last_member(ready: Warehouse) -> None:
    compact_table(ready, "log", MergePolicy(most_rows=40))
    with ready.catalog.read() as connection:
        merged, single = current_units(connection, "log")
    assert (merged.start, merged.end) == (START, START + timedelta(hours=2))
    assert (merged.last_partition, single.last_partition) == ("date=2026-01-01/hour=01", "")
    first, second = explain_model(ready, "ctr")[:2]
    assert (first.partition, first.last_partition) == ("date=2026-01-01/hour=00", "date=2026-01-01/hour=01")
    assert (second.partition, second.last_partition) == ("date=2026-01-01/hour=02", "")
    assert compact_table(ready, "log", ended_before=(START + timedelta(hours=1)).timestamp()).fragments == 2


_pieces = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400_000)), max_size=40)


@given(_pieces, st.integers(2, 1_500_000))
def test_merges_repeated_find_nothing(drawn: list[tuple[int, int]], most_rows: int) -> None:
    at = START
    pieces = []
    for row, (hours, rows) in enumerate(drawn):
        at += timedelta(hours=hours)
        pieces.append(Piece(row, at, at + timedelta(hours=1), rows))
    policy = MergePolicy(most_rows=most_rows)
    groups = choose_merges(pieces, policy)
    assert all(len(group) >= 2 and sum(piece.rows for piece in group) <= most_rows for group in groups)
    merged = {piece.row: group for group in groups for piece in group}
    assert len(merged) == sum(map(len, groups))
    after = [
        piece if piece.row not in merged
        else Piece(piece.row, piece.start, merged[piece.row][-1].end, sum(one.rows for one in merged[piece.row]))
        for piece in pieces if piece.row not in merged or merged[piece.row][0] is piece
    ]  # fmt: skip
    assert choose_merges(after, policy) == ()
