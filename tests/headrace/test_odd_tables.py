"""Parquet with types that no model reads, and with invalid times."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HOUR = datetime.datetime(2017, 7, 2, 7, tzinfo=datetime.UTC)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "log/date=2017-07-02/hour=07"
    root.mkdir(parents=True)
    times = [HOUR + datetime.timedelta(minutes=i) for i in range(10)]
    rows = pa.table({"time": times, "clicked": [i % 2 for i in range(10)],
                     "geo": [{"country": "cn", "city": "x"}] * 10, "spent": pa.array(range(10), pa.duration("s"))})  # fmt: skip
    pq.write_table(rows, root / "a.parquet")
    return tmp_path / "log"


def test_columns_that_no_model_reads_are_named_with_their_cast(cli, folder, tmp_path):
    added = cli("table", "add", "log", folder, "--time-column", "time")
    assert (
        "no model can read geo, struct<country: string, city: string>: a nested object is no single value" in added.out
    )
    assert "no model can read spent, duration[ms]" in added.out or "no model can read spent, duration[s]" in added.out
    assert ".cast(pa.int64())" in added.out
    shown = cli("table", "show", "log")
    assert "no model can read spent: a span of time is no moment. Store its count of units" in shown.out
    columns = {one["name"]: one["unreadable"] for one in cli("table", "show", "log", "--json").json["columns"]}
    assert [name for name, why in columns.items() if why] == ["geo", "spent"]
    assert [one["name"] for one in cli("table", "add", "log", folder, "--json").json["unreadable"]] == ["geo", "spent"]
    (tmp_path / "model.py").write_text(
        'import headrace as hr\nm = hr.Model("m", client="c", label="clicked", table="log")\n'
        'm.input("geo", hr.text("geo").lower())\n'
    )
    assert "geo.country AS geo_country" in cli("model", "submit", tmp_path / "model.py", status=2).err


def test_one_sentinel_year_is_counted_and_named_or_refused(cli, folder):
    rows = pq.read_table(folder / "date=2017-07-02/hour=07/a.parquet", partitioning=None).slice(0, 3)
    times = [*rows.column("time").to_pylist()[:2], datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)]
    pq.write_table(rows.set_column(0, "time", pa.array(times)), folder / "date=2017-07-02/hour=07/b.parquet")
    error = cli("table", "add", "log", folder, "--time-column", "time", "--outside-times", "refuse", status=3).err
    assert "b.parquet, row 2, column time" in error
    assert "9999-12-31T00:00:00+00:00" in error
    assert "--outside-times keep" in error
    assert cli("table", "ls", "--json").json["tables"] == []
    kept = cli("table", "add", "log", folder, "--time-column", "time")
    assert "13 rows" in kept.out
    assert "events with a time outside their partition: 1; the first is " in kept.out
    assert "b.parquet, row 2, column time: 9999-12-31T00:00:00+00:00" in " ".join(kept.out.split())
    assert "refuse, keep" in cli("table", "add", "log", folder, "--outside-times", "drop", status=2).err
