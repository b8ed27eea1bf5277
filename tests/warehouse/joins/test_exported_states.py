"""States of a warehouse answer what its joined columns are, across exports, deltas and damage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.online_states import online
from tests.warehouse.joins.scenes import HOUR_SECS, START_SECS, Folders, clicks, write_tables, written
from transforms.errors import Busy, InputError, NotFound
from transforms.joins.evaluation import joined_columns
from transforms.online.joined_table import JoinedTable
from warehouse import Warehouse, register_table, submit_model
from warehouse.changes.deletion import delete_rows
from warehouse.errors import StatesDamaged
from warehouse.joins.exported_states import export_states, model_joins
from warehouse.joins.time_ranges import as_times
from warehouse.states.folder import link_names, locked_folder, read_states
from warehouse.tables.manifests import current_fragments
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw

CLICKS = hr.table("clicks", available_after="1m").by("id", equals=hr.int64("user"))
PAID = hr.float64("paid")
COLUMNS = (
    CLICKS.count(window="2h"), CLICKS.sum(PAID, window="30m"), CLICKS.latest(hr.text("country")), CLICKS.mean(PAID),
    CLICKS.where(PAID > 5).max(PAID), CLICKS.first(PAID), CLICKS.ratio(PAID > 3, window="1h", prior=(1, 5)),
)  # fmt: skip


def model() -> hr.Model:
    found = hr.Model("ctr", client="ads", label="clicked", table="log")
    for k, one in enumerate(COLUMNS):
        found.input(f"x{k}", one.fill_null(0) if k != 2 else one.hash_buckets(10))
    return found


@pytest.fixture
def folders(tmp_path: Path, warehouse: Warehouse) -> Folders:
    made = write_tables(tmp_path)
    register_table(warehouse, "log", str(made.log), time_column="at")
    register_table(warehouse, "clicks", str(made.clicks), time_column="time")
    submit_model(warehouse, model())
    return made


def hour(number: float) -> datetime:
    return datetime.fromtimestamp(START_SECS + number * HOUR_SECS, UTC)


def rows_of(warehouse: Warehouse) -> pa.Table:
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, "clicks")
    parts = []
    for one in placed:
        part = read_raw(warehouse.storage, one.fragment, ["id", "time", "paid", "country"])
        live = live_mask(warehouse.storage, one.fragment)
        parts.append(part if live is None else part.filter(live))
    return pa.concat_tables(parts)


def check_answers(warehouse: Warehouse, folder: Path, now: datetime) -> None:
    """Each user's answers are those of an event at ``now``, over all rows of the warehouse."""
    with warehouse.catalog.read() as connection:
        joins = model_joins(connection, "ctr")
    states = online(folder)
    users = list(range(7))
    asked = pa.table({"user": pa.array(users, pa.int64()), "at": pa.array([now] * 7, pa.timestamp("us", "UTC"))})
    rows = rows_of(warehouse)
    rows = rows.drop_columns(["time"]).append_column("time", as_times(rows["time"]))
    expected = joined_columns(joins.definitions, asked.append_column("t", as_times(asked["at"])), "t", rows, "time")
    found = states.features(asked, now)
    assert found.column_names == sorted(found.column_names, key=list(joins.definitions).index)
    for name, values in expected.items():
        assert found[name].combine_chunks().equals(values), name
        assert [states.features({"user": one}, now)[name] for one in users] == values.to_pylist()


def test_deltas_follow_the_tables(warehouse, folders, tmp_path):
    folder = tmp_path / "states"
    warehouse.clock = lambda: START_SECS + 100 * HOUR_SECS
    first = export_states(warehouse, "ctr", None, folder)
    assert (first.is_new, first.link.name, first.rows_read) == (True, "000000-full", 90)
    assert first.link.since_micros == max(as_times(rows_of(warehouse)["time"]).cast(pa.int64()).to_pylist())
    check_answers(warehouse, folder, hour(3))
    assert not export_states(warehouse, "ctr", None, folder).is_new
    written(folders.clicks, 3, clicks(3))
    register_table(warehouse, "clicks", str(folders.clicks))
    second = export_states(warehouse, "ctr", None, folder)
    assert second.link.name == "000001-delta"
    (table,) = second.link.tables
    assert table.added > 0
    assert table.removed == 0, "means over all time need every row"
    check_answers(warehouse, folder, hour(4))
    delete_rows(warehouse, "clicks", where=[("id", "2")])
    (table,) = export_states(warehouse, "ctr", None, folder).link.tables
    assert table.added == 0
    assert table.removed > 0
    check_answers(warehouse, folder, hour(4.5))
    assert link_names(folder) == ["000000-full", "000001-delta", "000002-delta"]
    full = export_states(warehouse, "ctr", None, folder, full=True)
    assert (full.link.name, link_names(folder)) == ("000003-full", ["000003-full"])
    check_answers(warehouse, folder, hour(5))


def test_rows_that_no_later_event_sees_are_left_out(warehouse, folders, tmp_path):
    narrow = hr.Model("narrow", client="ads", label="clicked", table="log")
    narrow.input("a", CLICKS.count(window="10m").log1p())
    narrow.input("b", CLICKS.latest(hr.text("country")).hash_buckets(10))
    submit_model(warehouse, narrow)
    link = export_states(warehouse, "narrow", None, tmp_path / "narrow", since=hour(3)).link
    assert link.tables[0].rows_after < 20
    later = export_states(warehouse, "narrow", None, tmp_path / "narrow", since=hour(5)).link
    assert (later.name, later.tables[0].rows_after) == ("000001-delta", 5), "the latest row of each user"
    assert later.tables[0].added == 0
    with pytest.raises(InputError, match="not be earlier"):
        online(tmp_path / "narrow").features({"user": 1}, hour(4.9))
    assert export_states(warehouse, "narrow", None, tmp_path / "narrow", since=hour(3)).link.name == "000002-full"


def test_another_version_of_the_model_writes_a_full_link(warehouse, folders, tmp_path):
    folder = tmp_path / "states"
    export_states(warehouse, "ctr", None, folder)
    other = model()
    other.input("more", CLICKS.min(PAID).fill_null(0))
    submit_model(warehouse, other)
    assert export_states(warehouse, "ctr", None, folder).link.name == "000001-full"
    assert len(online(folder).columns) == len(COLUMNS) + 1
    assert export_states(warehouse, "ctr", 1, folder).link.name == "000002-full"


def test_pushed_rows_count_once_after_a_refresh(warehouse, folders, tmp_path):
    folder = tmp_path / "states"
    export_states(warehouse, "ctr", None, folder, since=hour(3))
    states = online(folder)
    new = clicks(3)
    table = pa.table(new)
    states.push("clicks", table.slice(0, 20))
    states.push("clicks", table.slice(20).to_pylist())
    states.push("clicks", {"id": 1, "time": hour(3.5), "paid": 1.0, "country": "de"})
    before = states.features({"user": 1}, hour(4))
    written(folders.clicks, 3, new)
    register_table(warehouse, "clicks", str(folders.clicks))
    assert states.refresh() is False
    export_states(warehouse, "ctr", None, folder, since=hour(3.2))
    assert states.refresh() is True
    assert states.features({"user": 1}, hour(4)) == before
    fresh = online(folder)
    fresh.push("clicks", {"id": 1, "time": hour(3.5), "paid": 1.0, "country": "de"})
    for user in range(6):
        assert states.features({"user": user}, hour(4)) == fresh.features({"user": user}, hour(4))


def test_pushed_rows_that_no_event_sees_leave_memory(warehouse, folders, tmp_path):
    narrow = hr.Model("narrow", client="ads", label="clicked", table="log")
    narrow.input("a", CLICKS.count(window="10m").log1p())
    submit_model(warehouse, narrow)
    export_states(warehouse, "narrow", None, tmp_path / "narrow", since=hour(3))
    states = online(tmp_path / "narrow", lateness=timedelta(0), clock=lambda: hour(400).timestamp())
    for k in range(60):
        moments = [hour(4 + k + each / 1000) for each in range(500)]
        states.push("clicks", pa.table({"id": [1] * 500, "time": pa.array(moments, pa.timestamp("us", "UTC"))}))
    assert sum(len(one.time) for one in states._pushed["clicks"].blocks) < 15_000
    assert states.features({"user": 1}, hour(64)) == dict.fromkeys(states.columns, 0)


def test_refusals(warehouse, folders, tmp_path):
    plain = hr.Model("plain", client="ads", label="clicked", table="log")
    plain.input("user", hr.int64("user"))
    submit_model(warehouse, plain)
    with pytest.raises(InputError, match="must have joined columns"):
        export_states(warehouse, "plain", None, tmp_path / "none")
    with pytest.raises(NotFound, match="full link"):
        online(tmp_path / "none")
    with locked_folder(tmp_path / "busy"), pytest.raises(Busy, match="one writer"):
        export_states(warehouse, "ctr", None, tmp_path / "busy")


def test_a_damaged_link_is_found_and_a_full_one_repairs(warehouse, folders, tmp_path):
    folder = tmp_path / "states"
    export_states(warehouse, "ctr", None, folder)
    for path in sorted((folder / "000000-full").iterdir()):
        before = path.read_bytes()
        for damaged in (
            before[1:] if before else b"y",
            before + b"x",
            bytes([before[0] ^ 1]) + before[1:] if before else b"zz",
        ):
            path.write_bytes(damaged)
            with pytest.raises(StatesDamaged):
                read_states(folder)
        path.write_bytes(before)
    (folder / "000000-full" / "manifest.json").unlink()
    with pytest.raises(StatesDamaged):
        online(folder)
    assert export_states(warehouse, "ctr", None, folder, full=True).link.name == "000001-full"
    check_answers(warehouse, folder, hour(3))
    assert isinstance(read_states(folder).link.joined_tables()[0], JoinedTable)
