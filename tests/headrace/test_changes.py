"""Changes of a table from the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MODEL = """
import headrace as hr
m = hr.Model("m", client="c", label="clicked", table="log")
m.input("price", hr.float32("price").fill_null(0.0).log1p())
m.input("words", hr.text("query").unigrams().hash_buckets(100))
"""


def hour_of(log: Path, hour: int) -> pa.Table:
    (path,) = (log / "date=2026-03-02" / f"hour={hour:02d}").glob("*.parquet")
    return pq.ParquetFile(path).read()


@pytest.fixture
def table(cli, small_log, tmp_path):
    cli("table", "add", "log", small_log, "--time-column", "time")
    (tmp_path / "model.py").write_text(MODEL)
    cli("model", "submit", tmp_path / "model.py")
    return small_log


def test_a_table_that_changes(cli, table, tmp_path):
    rows = hour_of(table, 1)
    late = rows.slice(0, 3).set_column(0, "event_id", pa.array([10**12 + i for i in range(3)]))
    pq.write_table(late, tmp_path / "late.parquet")
    ids = rows.column("event_id").to_pylist()
    pq.write_table(
        pa.table({"event_id": ids[:4], "spam": pa.array([0.5] * 4, pa.float32())}), tmp_path / "spam.parquet"
    )
    pq.write_table(pa.table({"event_id": ids[:2], "price": pa.array([7, 8], pa.float32())}), tmp_path / "fix.parquet")

    dry = cli("table", "append", "log", tmp_path / "late.parquet", "--dry-run")
    assert "would append 3 rows" in dry.out
    assert "nothing was changed" in dry.out
    assert cli("table", "append", "log", tmp_path / "late.parquet", "--json").json["version"] == 2
    error = cli("table", "append", "log", tmp_path / "late.parquet", status=2).err
    assert "must not be in the table yet" in error

    overlaid = cli("table", "overlay", "log", tmp_path / "spam.parquet", "--on", "event_id").out
    assert "overlaid spam of 4 rows" in overlaid
    assert "new columns: spam" in overlaid
    assert "nothing must be computed" in overlaid
    fixed = cli("table", "fix", "log", tmp_path / "fix.parquet", "--on", "event_id", "--why", "cents", "--json").json
    assert [one["columns"] for one in fixed["recompute"]] == [["price"]]
    deleted = cli("table", "delete", "log", "--where", f"event_id={ids[0]}", "--why", "asked for", "--json").json
    assert (deleted["rows"], deleted["version"], deleted["recompute"]) == (1, 5, [])
    assert "stays at version 5" in cli("table", "delete", "log", "--where", f"event_id={ids[0]}").out

    shown = cli("table", "show", "log", "--json").json
    assert shown["columns"][-1] == {"name": "spam", "arrow_type": "float", "overlay_only": True, "unreadable": ""}
    assert [part["deleted_rows"] for part in shown["partitions"]] == [0, 1, 0, 0]
    assert [part["overlaid"] for part in shown["partitions"]] == [[], ["price", "spam"], [], []]
    assert "float, only by overlay" in cli("table", "show", "log").out
    versions = cli("table", "history", "log", "--json").json["versions"]
    assert [one["kind"] for one in versions] == ["register", "append", "overlay", "fix", "delete"]
    assert [one["why"] for one in versions] == ["", "", "", "cents", "asked for"]
    assert "asked for" in cli("table", "history", "log").out


def test_what_a_rewritten_file_loses_is_said(cli, table, tmp_path):
    rows = hour_of(table, 0)
    cli("table", "delete", "log", "--where", f"event_id={rows.column('event_id')[0]}")
    (path,) = (table / "date=2026-03-02/hour=00").glob("*.parquet")
    pq.write_table(rows.slice(1), path)
    again = cli("table", "add", "log", table).out
    assert "not applied any more" in again
    assert "1 deleted events" in again


def test_bad_input(cli, table):
    for words, status, text in (
        (["delete", "log", "--where", "event_id"], 2, "a condition must be COLUMN=VALUE"),
        (["delete", "log", "--where", "event_id=x"], 2, "a value must have its column"),
        (["delete", "log"], 2, "must be chosen by conditions or by keys"),
        (["delete", "lag", "--where", "event_id=1"], 4, "no such table"),
        (["overlay", "log", "nothing.parquet", "--on", "event_id"], 2, "no such file"),
        (["overlay", "log", "nothing", "--start", "yesterday"], 2, "a time must be ISO 8601"),
        (["append", "log", "nothing.parquet"], 2, "no such file"),
        (["history", "lag"], 4, "no such table"),
    ):
        assert text in cli("table", *words, status=status).err, words
    assert cli("table", "ls", "--json").json["tables"][0]["version"] == 1


def test_texts_of_one_row_and_of_no_row(cli, table, tmp_path):
    rows = hour_of(table, 1)
    pq.write_table(rows.slice(0, 1), tmp_path / "late.parquet")
    assert (
        "appended 1 row in 1 fragment of 1 partition;" in cli("table", "append", "log", tmp_path / "late.parquet").out
    )
    assert "no event matches" in cli("table", "delete", "log", "--where", "event_id=-5").out
    at = rows.column("time")[0].as_py().isoformat().removesuffix("+00:00")
    assert "would delete" in cli("table", "delete", "log", "--where", f"time={at}", "--dry-run").out
    assert "ISO 8601" in cli("table", "delete", "log", "--where", "time=noon", status=2).err


@pytest.mark.medium
def test_explain_counts_omitted_rows_and_finds_no_nearer_component(cli, table, tmp_path):
    other = MODEL.replace('"m"', '"other"').replace("buckets(100)", "buckets(90)")
    (tmp_path / "other.py").write_text(other)
    cli("model", "submit", tmp_path / "other.py", "--policy", "none")
    cli("work", "--until-idle")
    before = cli("model", "explain", "m", "--json").json
    pq.write_table(hour_of(table, 1).slice(0, 3), tmp_path / "late.parquet")
    cli("table", "append", "log", tmp_path / "late.parquet")
    explained = cli("model", "explain", "m", "--misses", "--json").json
    assert (explained["hits"], explained["misses"]) == (before["hits"], 2)
    assert len(explained["decisions"]) == 2
    assert explained["nearest"] == []
    assert [one["input"] for one in cli("model", "explain", "other", "--json").json["nearest"]] == ["words"]


def test_a_new_home_has_no_hit_rate(cli):
    assert cli("status", "--json").json["hit_rate"] is None
    assert "0 requests, 0 computations: hit rate -" in cli("status").out
