"""Five synthetic logs of public kinds, imported and compared with plain Python."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.ingest.job import ImportConfig, import_logs
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogSchema
from pipelines.runners.runner import RunnerOptions
from warehouse import Warehouse, WarehouseConfig, register_table

LOGS = Path(__file__).parents[2] / "data" / "logs"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
ONE_THREAD = RunnerOptions(workers=1)
Rows = list[dict[str, Any]]


def imported(folder: Path, schema: LogSchema, *files: str) -> tuple[ImportReport, Rows]:
    """The report of an import, and the table's rows in time order; the table is registered."""
    folder.mkdir(exist_ok=True)
    config = ImportConfig(files, schema, str(folder / "table"), str(folder / "rejects"))
    report = import_logs(config, ONE_THREAD, clock=lambda: NOW)
    warehouse = Warehouse.open(WarehouseConfig(str(folder / "home")))
    registered = register_table(warehouse, "log", config.output, time_column=config.time_column)
    parts = [pq.read_table(path) for path in sorted((folder / "table").rglob("*.parquet"))]
    rows = pa.concat_tables(parts).to_pylist()
    assert registered.rows == len(rows)
    return report, sorted(rows, key=lambda row: row[config.time_column])


def home_search() -> Iterator[dict[str, Any]]:
    text = (LOGS / "home_search.csv").read_bytes().decode("cp1252")
    for place, row in enumerate(csv.DictReader(text.splitlines(keepends=True))):
        minutes = timedelta(minutes=6 * place)
        yield {**row, "id": int(row["id"]), "relevance": pa.scalar(float(row["relevance"]), pa.float32()).as_py(),
               "time": datetime(2026, 1, 1, tzinfo=UTC) + minutes}  # fmt: skip


def coupons() -> Iterator[dict[str, Any]]:
    lines = (LOGS / "coupons.csv").read_text("utf-8-sig").splitlines()
    for row in csv.DictReader(lines, delimiter=";"):
        day, clock = row["view_time"].split()
        if not day.startswith("2011"):
            continue
        hour, minute = clock.split(":")
        local = datetime.fromisoformat(day).replace(hour=int(hour), minute=int(minute), tzinfo=ZoneInfo("Asia/Tokyo"))
        discount = float(row["discount"].replace(",", ".")) if row["discount"] else None
        yield {**row, "view_time": local.astimezone(UTC), "price": int(row["price"].replace(",", "")),
               "discount": discount, "purchased": row["purchased"] == "1"}  # fmt: skip


def app_installs() -> Iterator[dict[str, Any]]:
    for line in (LOGS / "app_installs.tsv").read_text().splitlines():
        time, campaign, device, apps, seen, wifi, installed = line.split("\t")
        whole, _, part = time.partition(".")
        yield {
            "time": moment(int(whole) * 1_000_000 + int((part + "000000")[:6])),
            "campaign": int(campaign),
            "device": int(device, 16),
            "apps": [int(app) for app in apps.split("|") if app],
            "seen": [moment(int(one) * 1_000_000) for one in seen.split("|") if one],
            "wifi": None if wifi == "NULL" else wifi == "1",
            "installed": installed == "1",
        }


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def web_search() -> Iterator[dict[str, Any]]:
    for line in (LOGS / "web_search_20260214.txt").read_bytes().decode("gb18030").splitlines():
        clock, user, query, rank, clicks, url = line.split("\t")
        yield {"clock": clock, "user": user, "query": query, "rank": int(rank), "clicks": int(clicks), "url": url,
               "day": datetime(2026, 2, 13, 16, tzinfo=UTC)}  # fmt: skip


def news_clicks() -> Iterator[dict[str, Any]]:
    for line in (LOGS / "news_clicks.jsonl").read_text().splitlines():
        row = json.loads(line)
        geo = row["user"].get("geo") or {}
        entities = json.dumps(row["entities"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        yield {
            "time": moment(row["event"]["at"] * 1000), "kind": row["event"]["kind"], "user_id": row["user"]["id"],
            "country": geo.get("country"), "city": geo.get("city"), "articles": row["articles"],
            "read_at": [datetime.fromisoformat(one) for one in row["read_at"]], "clicked": bool(row["clicked"]),
            "entities": entities, "time_spent": row["time_spent"],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "file", "expected", "rejected"),
    [
        ("home_search", "home_search.csv", home_search, 0),
        ("coupons", "coupons.csv", coupons, 1),
        ("app_installs", "app_installs.tsv", app_installs, 0),
        ("web_search", "web_search_20260214.txt", web_search, 0),
        ("news_clicks", "news_clicks.jsonl", news_clicks, 0),
    ],
)
def test_a_log_comes_in_value_by_value(
    tmp_path: Path, schema: str, file: str, expected: Callable[[], Iterator[dict[str, Any]]], rejected: int
) -> None:
    log_schema = LogSchema.from_file(str(LOGS / f"{schema}.json"))
    report, rows = imported(tmp_path, log_schema, str(LOGS / file))
    time = report_time(log_schema)
    assert report.rejected == rejected
    assert rows == sorted(expected(), key=lambda row: row[time])


def report_time(schema: LogSchema) -> str:
    assert schema.time is not None
    return schema.time.column


def test_digits_below_a_microsecond_are_counted(tmp_path: Path) -> None:
    schema = LogSchema.from_file(str(LOGS / "app_installs.json"))
    report, _ = imported(tmp_path, schema, str(LOGS / "app_installs.tsv"))
    times = [line.split("\t")[0] for line in (LOGS / "app_installs.tsv").read_text().splitlines()]
    finer = sum(not time.endswith("000") for time in times if "." in time)
    assert report.counts == {"time: times rounded down to microseconds": finer}


def test_a_sentinel_year_is_rejected_with_the_rule(tmp_path: Path) -> None:
    schema = LogSchema.from_file(str(LOGS / "coupons.json"))
    imported(tmp_path, schema, str(LOGS / "coupons.csv"))
    (reject,) = (json.loads(line) for line in (tmp_path / "rejects" / "coupons.csv.jsonl").read_text().splitlines())
    assert (reject["line"], reject["reason"]["column"]) == (21, "view_time")
    assert reject["reason"]["value"] == "9999-12-31 0:00"
    assert reject["reason"]["expected"].startswith("from 1970-01-01T00:00:00Z until 2027-11-02T00:00:00Z")


SENTINELS = ["0001-01-01", "0001-01-01T00:00:00Z", "1900-01-01", "1969-12-31T23:59:59.999999Z", "2027-11-02",
             "2262-04-12", "9999-12-31", "9999-12-31T23:59:59.999999Z"]  # fmt: skip
DAYS = {"format": "csv", "columns": [{"name": "time", "type": "timestamp"}, {"name": "n", "type": "int64"}]}


@pytest.mark.parametrize("partition_by", ["hour", "day"])
def test_no_sentinel_year_keeps_a_table_from_being_registered(tmp_path: Path, partition_by: str) -> None:
    good = [f"2026-01-01T{hour:02d}:00Z" for hour in range(24)] * 8
    log = tmp_path / "log.csv"
    log.write_text("".join(f"{time},{place}\n" for place, time in enumerate(good + SENTINELS)))
    schema = LogSchema.from_document({**DAYS, "time": {"column": "time"}, "partition_by": partition_by})
    report, rows = imported(tmp_path, schema, str(log))
    assert (report.rejected, len(rows)) == (len(SENTINELS), len(good))


def test_the_widest_range_that_a_schema_can_set_is_registered(tmp_path: Path) -> None:
    times = ["0001-01-02", "1677-01-01", "1969-12-31", "2262-04-13", "9999-12-30T23:59:59.999999Z"]
    log = tmp_path / "log.csv"
    log.write_text("".join(f"{time},0\n" for time in times))
    time = {"column": "time", "from": "0001-01-02", "until": "9999-12-31"}
    report, rows = imported(tmp_path, LogSchema.from_document({**DAYS, "time": time}), str(log))
    assert (report.rejected, [row["time"].year for row in rows]) == (0, [1, 1677, 1969, 2262, 9999])


def test_generated_times_continue_after_the_last_import(tmp_path: Path) -> None:
    columns = [{"name": "n", "type": "int64", "required": True}]
    clock = {"row_order": {"start": "2026-01-01", "rows_per_hour": 2}}
    schema = LogSchema.from_document({"format": "csv", "header": True, "columns": columns, "time": clock})
    texts = {"b.csv": "n\n" + "2\n" * 30 + "x\n3\n", "a.csv": "n\n0\n1\n", "c.csv": "n\n4\n"}
    paths = [tmp_path / name for name in texts]
    for path in paths:
        path.write_text(texts[path.name])
    _, once = imported(tmp_path / "once", schema, *map(str, paths))
    imported(tmp_path / "twice", schema, *map(str, paths[:2]))
    _, both = imported(tmp_path / "twice", schema, *map(str, paths))
    places = [(row["time"] - datetime(2026, 1, 1, tzinfo=UTC)) / timedelta(minutes=30) for row in both]
    assert both == once
    assert places == [*range(32), 33, 34]  # the bad row keeps its place
    assert [row["n"] for row in both] == [0, 1, *[2] * 30, 3, 4]
