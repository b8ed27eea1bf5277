"""From two tables to online answers, and back to the warehouse: export states, hr.online, check skew."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.headrace.test_commands import check_golden
from tests.warehouse.joins.scenes import HOUR_SECS, START_SECS, clicks, write_tables, written

MODEL = """
import headrace as hr

clicks = hr.table("clicks", available_after="1m").by("id", equals=hr.int64("user"))
model = hr.Model("ctr", client="ads", label="clicked", table="log")
model.input("recent", clicks.count(window="1h").log1p())
model.input("paid", clicks.sum(hr.float64("paid"), window="2h").log1p())
model.input("country", clicks.latest(hr.text("country")).hash_buckets(10))
model.input("countries", clicks.last(3, hr.text("country")).hash_buckets(10))
"""


@pytest.fixture
def folders(cli, tmp_path):
    made = write_tables(tmp_path)
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    cli("table", "add", "log", made.log, "--time-column", "at")
    cli("table", "add", "clicks", made.clicks, "--time-column", "time")
    cli("model", "submit", tmp_path / "model.py")
    return made


def logged(folder: Path, moments: int = 20) -> pa.Table:
    """What a server logs that answers for one user after the other, a minute apart, while clicks are pushed as they come."""
    states = hr.online(folder)
    new = pa.table(clicks(3)).sort_by("time")
    times = new["time"].cast(pa.int64()).to_pylist()
    pushed, found = 0, []
    for k in range(moments):
        now = datetime.fromtimestamp(START_SECS + 3 * HOUR_SECS + k * 180, UTC)
        while pushed < len(times) and times[pushed] < now.timestamp() * 1e6:
            states.push("clicks", new.slice(pushed, 1).to_pylist())
            pushed += 1
        user = k % 6
        found.append({"user": user, "at": now, **states.features({"user": user}, now)})
    return pa.Table.from_pylist(found)


def test_answers_are_those_of_the_warehouse(cli, folders, tmp_path):
    states = tmp_path / "states"
    check_golden("export_states", cli("export", "states", "ctr", "--out", states, "--since", "2026-01-01T03:00").out)
    check_golden(
        "export_states_nothing_new", cli("export", "states", "ctr", "--out", states, "--since", "2026-01-01T03:00").out
    )
    table = logged(states)
    pq.write_table(table, tmp_path / "logged.parquet")
    written(folders.clicks, 3, clicks(3))
    cli("table", "add", "clicks", folders.clicks)
    check_golden("check_skew_equal", cli("check", "skew", tmp_path / "logged.parquet", "ctr").out)
    check_golden(
        "export_states_delta", cli("export", "states", "ctr", "--out", states, "--since", "2026-01-01T04:00").out
    )
    found = cli("export", "states", "ctr@1", "--out", states, "--full", "--json").json
    assert (found["link"], found["is_new"], found["version"]) == ("000002-full", True, 1)

    names = {name.split(".")[1].split("#")[0]: name for name in table.column_names if name[0] == "@"}
    counts = table[names["count"]].to_numpy() + np.where(np.arange(20) % 3 == 0, 2, 0)
    sums = [None if k == 4 else value for k, value in enumerate(table[names["sum"]].to_pylist())]
    lists = [one if k < 18 else one[1:] for k, one in enumerate(table[names["last"]].to_pylist())]
    for name, values in (("count", counts), ("sum", pa.array(sums)), ("last", pa.array(lists))):
        table = table.set_column(table.column_names.index(names[name]), names[name], pa.array(values))
    (tmp_path / "logs").mkdir()
    pq.write_table(table.drop_columns([names["latest"]]), tmp_path / "logs" / "a.parquet")
    check_golden("check_skew_different", cli("check", "skew", tmp_path / "logs", "ctr", status=1).out)
    document = cli("check", "skew", tmp_path / "logs", "ctr", "--json", status=1).json
    figures = {
        one["column"]: (one["equal"], one["missing"], one["extra"], one["different"], one["largest_difference"])
        for one in document["columns"]
    }
    assert figures == {
        names["count"]: (13, 0, 0, 7, 2.0),
        names["sum"]: (19, 1, 0, 0, None),
        names["last"]: (18, 0, 0, 2, None),
    }
    assert not document["equal"]
    assert len(document["unlogged"]) == 1


def test_a_log_without_what_is_compared_is_refused(cli, folders, tmp_path):
    pq.write_table(pa.table({"user": [1], "at": pa.array([0], pa.timestamp("us"))}), tmp_path / "none.parquet")
    assert "no joined column" in cli("check", "skew", tmp_path / "none.parquet", "ctr", status=2).err
    assert "Parquet file" in cli("check", "skew", tmp_path / "absent.parquet", "ctr", status=3).err
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    assert "'user, at'" in cli("check", "skew", tmp_path / "other.parquet", "ctr", status=2).err
    assert "local folder" in cli("export", "states", "ctr", "--out", "gs://bucket/x", status=2).err
