"""Joined columns follow what both tables hold: new hours, late rows, corrections and deletions; values that stay equal make nothing new."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select

import headrace as hr
from tests.support.statements import asked
from tests.warehouse.joins.scenes import clicks, counted, events, written
from tests.warehouse.scenes import work
from warehouse import Warehouse, queue_missing, read_solution, register_table, submit_model
from warehouse.catalog import schema
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns
from warehouse.errors import NotJoined
from warehouse.joins.refresh import JoinWorker
from warehouse.matching.explain import explain_model
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.tables.raw import read_raw

CLICKS = hr.table("clicks").by("id", equals=hr.int64("user"))


def model(*inputs: hr.Expr, name: str = "ctr") -> hr.Model:
    found = hr.Model(name, client="ads", label="clicked", table="log")
    for k, one in enumerate(inputs or (CLICKS.count().log1p(), CLICKS.latest(hr.text("country")).hash_buckets(10))):
        found.input(f"x{k}", one)
    return found


def refresh(warehouse: Warehouse) -> list[tuple[int, int]]:
    """Compute all joined columns; the fragments and the changed ones of each step."""
    worker, found = JoinWorker(warehouse, "w"), []
    while (step := worker.step()) is not None:
        assert not step.failed
        found.append((step.fragments, step.changed_fragments))
    return found


def memoize(warehouse: Warehouse) -> int:
    queue_missing(warehouse)
    return work(warehouse)


def column_of(warehouse: Warehouse, name: str, table: str = "log") -> pa.Table:
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, table)
    return pa.concat_tables(
        [read_raw(warehouse.storage, one.fragment, [*("at", "user"), name]) for one in placed],
        promote_options="default",
    )


def other_rows(warehouse: Warehouse) -> pa.Table:
    from warehouse.tables.overlays import live_mask

    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, "clicks")
    parts = []
    for one in placed:
        part = read_raw(warehouse.storage, one.fragment, ["id", "time"])
        mask = live_mask(warehouse.storage, one.fragment)
        parts.append(part if mask is None else part.filter(mask))
    return pa.concat_tables(parts)


def check_counts(warehouse: Warehouse, expression: hr.Expr, window_secs: float | None = None) -> None:
    name = expression.node.name
    found = column_of(warehouse, name)
    assert found[name].to_pylist() == counted(found, other_rows(warehouse), window_secs)


def test_a_joined_column_is_computed_before_it_is_read(warehouse, folders):
    count = CLICKS.count(window="1h")
    found = submit_model(warehouse, model(count.log1p()))
    assert (found.queued, found.unjoined) == (0, 3)
    assert {one.reason_code for one in explain_model(warehouse, "ctr")} == {"not_joined"}
    with pytest.raises(NotJoined, match="3 of 3 fragments"):
        read_solution(warehouse, "ctr")
    assert refresh(warehouse) == [(3, 3)]
    check_counts(warehouse, count, 3_600)
    memoize(warehouse)
    assert read_solution(warehouse, "ctr").table_version == 2
    assert refresh(warehouse) == []


def test_a_new_hour_of_each_table_computes_what_sees_it(warehouse, folders):
    count = CLICKS.count()
    submit_model(warehouse, model(count.log1p()))
    refresh(warehouse)
    written(folders.clicks, 3, clicks(3))
    register_table(warehouse, "clicks", str(folders.clicks))
    assert refresh(warehouse) == [], "no event is later than the new hour"
    written(folders.log, 3, events(3))
    register_table(warehouse, "log", str(folders.log))
    assert refresh(warehouse) == [(1, 1)]
    check_counts(warehouse, count)


def test_late_rows_change_what_sees_them_and_nothing_above_equal_values(warehouse, folders):
    count = CLICKS.count(window="30m")
    submit_model(warehouse, model(count.log1p()))
    refresh(warehouse)
    memoize(warehouse)
    with warehouse.catalog.read() as connection:
        version = get_table(connection, "log").version
    # Rows of a user that no event has.
    late = clicks(1, 12)
    late["id"] = pa.array([77] * 12, pa.int64())
    written(folders.clicks, 1, late, "late.parquet")
    register_table(warehouse, "clicks", str(folders.clicks))
    assert refresh(warehouse) == [(2, 0)], "two hours see the rows, and have the same values"
    with warehouse.catalog.read() as connection:
        assert get_table(connection, "log").version == version
    assert all(one.hit for one in explain_model(warehouse, "ctr"))
    written(folders.clicks, 1, clicks(1, 12, seed=900), "later.parquet")
    register_table(warehouse, "clicks", str(folders.clicks))
    assert refresh(warehouse) == [(2, 2)]
    check_counts(warehouse, count, 1_800)
    reasons = [one.reason for one in explain_model(warehouse, "ctr") if not one.hit]
    assert len(reasons) == 2
    assert "12 new rows of clicks changed" in reasons[0]


def test_deleted_and_corrected_rows_leave_joined_columns(warehouse, folders):
    count = CLICKS.count()
    submit_model(warehouse, model(count.log1p(), CLICKS.sum(hr.float64("paid"))))
    refresh(warehouse)
    delete_rows(warehouse, "clicks", where=[("id", "2")])
    assert refresh(warehouse) == [(3, 3)]
    check_counts(warehouse, count)
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, "log")
    before = [one.fragment.digests[count.node.name] for one in placed]
    paid = CLICKS.sum(hr.float64("paid")).node.name
    sums = [one.fragment.digests[paid] for one in placed]
    fixed = {**clicks(0), "paid": pa.array([1.0] * 30)}
    keys = folders.clicks.parent / "fixed.parquet"
    pq.write_table(pa.table(fixed).drop_columns(["country"]).slice(0, 8), keys)
    fix_columns(warehouse, "clicks", str(keys), why="wrong price", on=("time", "id"), columns=("paid",))
    assert refresh(warehouse) == [(3, 3)]
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, "log")
    assert [one.fragment.digests[count.node.name] for one in placed] == before, "a count reads no price"
    assert [one.fragment.digests[paid] for one in placed] != sums


def test_a_second_model_shares_columns_and_a_retired_one_needs_none(warehouse, folders):
    submit_model(warehouse, model(CLICKS.count().log1p()))
    refresh(warehouse)
    submit_model(warehouse, model(CLICKS.count().log1p(), CLICKS.mean(hr.float64("paid")), name="other"))
    assert refresh(warehouse) == [(3, 3)]
    with warehouse.catalog.read() as connection:
        views = connection.execute(select(func.count()).select_from(schema.joined_views)).scalar_one()
    assert views == 6, "the count was not computed again"


def test_a_warehouse_without_joined_columns_is_asked_little(warehouse, folders):
    """So that workers of one that joins nothing do not pay for looking."""
    plain = hr.Model("plain", client="ads", label="clicked", table="log")
    plain.input("user", hr.int64("user").hash_buckets(10))
    submit_model(warehouse, plain)
    worker = JoinWorker(warehouse, "w")
    with asked(warehouse) as statements:
        assert worker.step() is None
    assert len(statements) <= 3
