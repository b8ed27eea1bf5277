"""Submitting: checks, queued and shared work, and the effects of new data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import event, func, select

import transforms.expressions.expression as hr
from tests.warehouse.scenes import Clock, events, evict_component, model, work, write_partition
from transforms.errors import InputError, TypeMismatch, UnknownColumn
from transforms.expressions.model import Model
from warehouse import (
    Submission,
    Warehouse,
    explain_model,
    lease_tasks,
    queue_depths,
    queue_missing,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.errors import NameTaken, UnknownModel, UnknownTable


def counts(found: Submission) -> tuple[int, int, int, int]:
    return found.hits, found.misses, found.queued, found.shared


def rows_of(warehouse: Warehouse) -> dict[str, int]:
    with warehouse.catalog.read() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(getattr(schema, name))).scalar() or 0
            for name in ("models", "model_inputs", "components", "memos", "tasks", "waits", "submissions")
        }


@pytest.mark.usefixtures("log")
def test_a_first_model_queues_everything_but_raw_columns(warehouse: Warehouse) -> None:
    found = submit_model(warehouse, model())
    assert (found.version, found.unchanged, counts(found)) == (1, False, (0, 6, 6, 0))
    assert {one.reason_code for one in explain_model(warehouse, "ctr") if one.input != "price"} == {"never_seen"}
    assert {(one.reason_code, one.hit) for one in explain_model(warehouse, "ctr") if one.input == "price"} == {
        ("raw", True)
    }
    solution = read_solution(warehouse, "ctr")
    assert solution.count("compute") == 6
    assert solution.count("raw") == 3


@pytest.mark.usefixtures("log")
def test_a_second_client_shares_what_is_queued_and_hits_what_is_ready(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "search", inputs=2))
    shared = submit_model(warehouse, model("two", "ads", inputs=3))
    assert counts(shared) == (0, 9, 3, 6)
    assert {one.reason_code for one in explain_model(warehouse, "two") if one.input == "input_0"} == {"pending"}
    assert work(warehouse) == 9
    hits = submit_model(warehouse, model("three", "ads", inputs=4))
    assert counts(hits) == (9, 3, 3, 0)
    assert read_solution(warehouse, "three").count("load") == 9


@pytest.mark.usefixtures("log")
def test_the_same_component_under_two_names_is_one_memo(warehouse: Warehouse) -> None:
    twice = model(inputs=1)
    twice.input("again", hr.text("query").unigrams().hash_buckets(100))
    found = submit_model(warehouse, twice)
    assert counts(found) == (0, 6, 3, 3)
    assert rows_of(warehouse)["memos"] == 3
    work(warehouse)
    assert counts(submit_model(warehouse, twice)) == (6, 0, 0, 0)


@pytest.mark.usefixtures("log")
def test_submitting_again_is_free(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    before = rows_of(warehouse)
    again = submit_model(warehouse, model())
    assert (again.version, again.unchanged, again.queued) == (1, True, 0)
    assert rows_of(warehouse) == {**before, "submissions": before["submissions"] + 1}


@pytest.mark.usefixtures("log")
def test_a_new_priority_is_no_new_version(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(priority=1))
    again = submit_model(warehouse, model(priority=9))
    assert again.unchanged
    assert lease_tasks(warehouse, "w", limit=1)[0].priority == 9


@pytest.mark.usefixtures("log")
def test_a_new_version_no_longer_waits_for_what_it_dropped(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=3))
    found = submit_model(warehouse, model(inputs=1))
    assert (found.version, found.unchanged, found.queued, found.shared) == (2, False, 0, 3)
    assert queue_depths(warehouse)[0].queued == 3
    assert work(warehouse) == 3, "nobody waits for the dropped inputs, so nobody computes them"
    assert read_solution(warehouse, "ctr", version=1).count("compute") == 6
    assert submit_model(warehouse, model(inputs=3)).version == 3
    assert work(warehouse) == 6


def test_new_data_is_queued_for_the_same_version(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    write_partition(log, 5, events(20, seed=5))
    register_table(warehouse, "log", str(log))
    again = submit_model(warehouse, model())
    assert (again.version, again.unchanged, counts(again)) == (1, True, (6, 2, 2, 0))
    assert work(warehouse) == 2


def test_queue_missing_finds_new_data_for_every_live_model(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("one", inputs=1))
    submit_model(warehouse, model("two", inputs=2))
    work(warehouse)
    assert queue_missing(warehouse) == 0
    write_partition(log, 5, events(20, seed=5))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse, "one") == 1
    assert queue_missing(warehouse) == 1, "one of the two of model two is queued already"
    assert queue_missing(warehouse) == 0
    assert work(warehouse) == 2
    assert read_solution(warehouse, "two").count("compute") == 0
    with pytest.raises(UnknownModel):
        queue_missing(warehouse, "three")


def test_queue_missing_leaves_evicted_memos_alone(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint, why="space")
    write_partition(log, 5, events(20, seed=5))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse) == 1
    assert submit_model(warehouse, model(inputs=1)).queued == 3


def test_replaced_data_is_not_computed(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    write_partition(log, 0, events(20, seed=77))
    register_table(warehouse, "log", str(log))
    queue_missing(warehouse)
    assert queue_depths(warehouse)[0].queued == 3
    assert work(warehouse) == 3
    assert read_solution(warehouse, "ctr").count("compute") == 0


def test_a_moved_file_is_computed_where_it_is_now(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    part = log / "date=2026-01-01/hour=00/part.parquet"
    part.rename(part.with_name("renamed.parquet"))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse) == 0
    assert work(warehouse) == 3


@pytest.mark.usefixtures("log")
def test_the_same_bytes_in_two_tables_are_computed_once(warehouse: Warehouse, tmp_path: Path) -> None:
    for hour in (0, 1):
        write_partition(tmp_path / "copy", hour + 4, events(20, seed=hour))
    register_table(warehouse, "copy", str(tmp_path / "copy"))
    submit_model(warehouse, model("one"))
    found = submit_model(warehouse, model("two"), table="copy")
    assert counts(found) == (0, 4, 0, 4)
    assert work(warehouse) == 6
    assert read_solution(warehouse, "two").count("load") == 4


def test_a_task_moves_with_its_memo_to_another_table(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    """The only copy that is left of what waits is in another table, and another hour, than it was queued for."""
    submit_model(warehouse, model())
    for hour in range(3):
        write_partition(tmp_path / "other", 5 + hour, events(seed=hour))
        write_partition(log, hour, events(seed=50 + hour))
    register_table(warehouse, "log", str(log))
    register_table(warehouse, "other", str(tmp_path / "other"))
    submit_model(warehouse, model("copied"), table="other")
    tasks = lease_tasks(warehouse, "worker", limit=100)
    assert {(task.table, task.partition[-2:]) for task in tasks if "/other/" in task.fragment.path} == {
        ("other", "05"), ("other", "06"), ("other", "07")
    }  # fmt: skip


def test_a_changed_label_invalidates_nothing(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    write_partition(log, 0, events(20, seed=0, clicked=pa.array([True] * 20)))
    register_table(warehouse, "log", str(log))
    assert counts(submit_model(warehouse, model())) == (6, 0, 0, 0)


@pytest.mark.usefixtures("log")
def test_an_unknown_column_names_the_nearest(warehouse: Warehouse) -> None:
    wrong = model()
    wrong.input("typo", hr.text("qurey").unigrams().hash_buckets(9))
    with pytest.raises(UnknownColumn) as caught:
        submit_model(warehouse, wrong)
    assert caught.value.value == "qurey"
    assert caught.value.allowed.split(", ")[0] == "query"
    assert caught.value.where == "model ctr, input typo"
    assert sum(rows_of(warehouse).values()) == 0


@pytest.mark.usefixtures("log")
def test_wrong_types_name_column_and_both_types(warehouse: Warehouse) -> None:
    wrong = model()
    wrong.input("number", hr.int64("title").hash_buckets(9))
    with pytest.raises(TypeMismatch) as caught:
        submit_model(warehouse, wrong)
    assert caught.value.where == "model ctr, input number"
    assert (caught.value.value, caught.value.allowed) == ("stored string", "declared Dense[int64]")
    labelled = Model("m", client="c", label="title", table="log")
    labelled.input("x", hr.text("title").length())
    with pytest.raises(TypeMismatch, match="label"):
        submit_model(warehouse, labelled)
    labelled = Model("m", client="c", label="clickd", table="log")
    labelled.input("x", hr.text("title").length())
    with pytest.raises(UnknownColumn) as unknown:
        submit_model(warehouse, labelled)
    assert "clicked" in unknown.value.allowed
    assert sum(rows_of(warehouse).values()) == 0


@pytest.mark.usefixtures("log")
def test_other_refusals(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    with pytest.raises(NameTaken) as caught:
        submit_model(warehouse, model(client="thief"))
    assert caught.value.allowed == "search"
    with pytest.raises(UnknownTable):
        submit_model(warehouse, model("new"), table="lug")
    with pytest.raises(InputError, match="at least one input"):
        submit_model(warehouse, Model("m", client="c", label="clicked", table="log"))
    nowhere = Model("m", client="c", label="clicked")
    nowhere.input("x", hr.text("title").length())
    with pytest.raises(InputError, match="must name a table"):
        submit_model(warehouse, nowhere)


def test_a_submission_costs_few_statements(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    """Statements must not grow with the fragments: counted, not timed."""
    for hour in range(3, 23):
        write_partition(log, hour, events(3, seed=hour))
    register_table(warehouse, "log", str(log))
    statements: list[str] = []
    event.listen(warehouse.catalog._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    submit_model(warehouse, model(inputs=5))
    assert 0 < len(statements) < 40, statements
