"""What reads a column, and the files that hold its values, by each command that adds or removes some."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import evict_component, model, work_together, write_log, write_partition
from transforms.errors import UnknownColumn
from transforms.expressions.model import Model
from warehouse import (
    Warehouse,
    collect_garbage,
    lease_tasks,
    overlay_columns,
    read_solution,
    register_table,
    retire_model,
    submit_model,
)
from warehouse.errors import UnknownTable
from warehouse.eviction.restore import restore_evicted
from warehouse.search.column_use import ColumnModel, HoldingFile, column_use, sizes_by_kind


def files(warehouse: Warehouse, column: str, table: str = "log") -> dict[str, int]:
    return {kind: count for kind, (count, _) in sizes_by_kind(column_use(warehouse, table, column).files).items()}


@pytest.fixture
def ready(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    submit_model(warehouse, model("shop", inputs=3))
    while work_together(warehouse):
        pass


@pytest.mark.usefixtures("ready")
def test_the_models_that_read_a_column(warehouse: Warehouse) -> None:
    query = column_use(warehouse, "log", "query")
    assert query.models == (
        ColumnModel("ctr", 1, True, ("input_0", "input_1"), False),
        ColumnModel("shop", 1, True, ("input_0", "input_1"), False),
    )
    assert (query.type, query.components, query.roles, query.queued_tasks, query.failed_tasks) == (
        "string",
        2,
        (),
        0,
        0,
    )
    label = column_use(warehouse, "log", "clicked")
    assert label.models == (ColumnModel("ctr", 1, True, (), True), ColumnModel("shop", 1, True, (), True))
    assert label.components == 0
    retire_model(warehouse, "shop")
    submit_model(warehouse, model("ctr", inputs=3))
    assert [(one.name, one.version, one.is_live) for one in column_use(warehouse, "log", "query").models] == [
        ("ctr", 2, True), ("ctr", 1, False), ("shop", 1, False)]  # fmt: skip


@pytest.mark.usefixtures("ready")
def test_names_that_are_not_there_have_the_nearest(warehouse: Warehouse) -> None:
    with pytest.raises(UnknownColumn) as caught:
        column_use(warehouse, "log", "qurey")
    assert (caught.value.value, "query" in caught.value.allowed) == ("qurey", True)
    with pytest.raises(UnknownTable):
        column_use(warehouse, "lug", "query")


@pytest.mark.usefixtures("ready")
def test_files_hold_values_from_the_commit_until_gc(warehouse: Warehouse) -> None:
    assert files(warehouse, "query") == {"files of the table": 3, "memos": 3}
    assert files(warehouse, "clicked") == {"files of the table": 3}, "no memo reads the label"
    fingerprints = [one.fingerprint for one in read_solution(warehouse, "ctr").inputs[:2]]
    first = evict_component(warehouse, fingerprints[0])
    assert files(warehouse, "query") == {"files of the table": 3, "memos": 3}, "others are in the same files"
    evict_component(warehouse, fingerprints[1])
    title = next(one.fingerprint for one in read_solution(warehouse, "shop").inputs if one.name == "input_2")
    evict_component(warehouse, title)
    assert files(warehouse, "query") == {"files of the table": 3, "unreferenced memos": 3}
    assert first.eviction is not None
    restore_evicted(warehouse, first.eviction)
    assert files(warehouse, "query") == {"files of the table": 3, "memos": 3}
    evict_component(warehouse, fingerprints[0])
    collect_garbage(warehouse, dry_run=False)
    assert files(warehouse, "query") == {"files of the table": 3}
    assert files(warehouse, "price") == {"files of the table": 3}


@pytest.mark.usefixtures("ready")
def test_a_file_in_which_only_evicted_memos_hold_values_is_named(warehouse: Warehouse) -> None:
    for one in read_solution(warehouse, "ctr").inputs[:2]:
        evict_component(warehouse, one.fingerprint)
    held = column_use(warehouse, "log", "query").files
    assert {one.kind for one in held} == {"files of the table", "memos"}, (
        "title's memos keep the files, with the bytes of the evicted ones"
    )


def test_overlays_unfinished_tasks_and_equal_data_of_another_table(
    warehouse: Warehouse, log: Path, tmp_path: Path
) -> None:
    submit_model(warehouse, model(inputs=1))
    assert column_use(warehouse, "log", "query").queued_tasks == 3
    assert column_use(warehouse, "log", "title").queued_tasks == 0
    lease_tasks(warehouse, "worker", limit=1)
    assert column_use(warehouse, "log", "query").queued_tasks == 3
    for hour in range(3):
        write_partition(tmp_path / "new", hour, pa.table({"title": [f"new {k}" for k in range(20)]}))
    overlay_columns(warehouse, "log", str(tmp_path / "new"))
    assert files(warehouse, "title")["overlays"] == 3
    assert "overlays" not in files(warehouse, "query")
    write_log(tmp_path / "copy")
    register_table(warehouse, "copy", str(tmp_path / "copy"))
    other = Model("other", client="ads", label="clicked", table="copy")
    other.input("tokens", hr.text("query").unigrams().hash_buckets(100))
    submit_model(warehouse, other)
    while work_together(warehouse):
        pass
    assert {one.name for one in column_use(warehouse, "copy", "query").models} == {"other"}
    memos = [one for one in column_use(warehouse, "copy", "query").files if one.kind == "memos"]
    assert memos
    assert {one.path.split("/")[1] for one in memos} <= {"log", "copy"}
    assert all(isinstance(one, HoldingFile) and one.size_bytes > 0 for one in memos)
