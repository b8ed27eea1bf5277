"""Each row of "what you have, what to type" in docs/importing.md, on a small export that the named program wrote or spells so."""

from __future__ import annotations

import bz2
import gzip
import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "importing.md"
START = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
ROWS = 240
#: Times of all exports: two days, a row a minute.
TIMES = [START + timedelta(minutes=at) for at in range(ROWS)]
Types = dict[str, str]
MOMENT = "timestamp[us, tz=UTC]"


def documented() -> dict[str, list[str]]:
    """The commands of each row of the table, by what one has."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## What you have, what to type\n")
    rows = re.findall(r"^\| (?!what you have|---)(.+?) \| (.+?) \|$", rest.partition("\n## ")[0], re.MULTILINE)
    return {have: re.findall(r"`(headrace [^`]+)`", commands) for have, commands in rows}


def rows(**columns: Callable[[int], object]) -> list[dict[str, object]]:
    return [{name: make(at) for name, make in columns.items()} for at in range(ROWS)]


def arrow(unit: str = "us") -> pa.Table:
    """Clicks with a time, an id, a text, a label and a list."""
    return pa.table({
        "time": pa.array(TIMES, pa.timestamp(unit, "UTC")), "user": pa.array(range(ROWS)),
        "query": pa.array([f"word {at % 7}" for at in range(ROWS)]), "clicked": pa.array([at % 5 == 0 for at in range(ROWS)]),
        "tags": pa.array([[f"t{at % 3}"] * (at % 3) for at in range(ROWS)]),
    })  # fmt: skip


def lines(folder: Path, name: str, text: str, compress: Callable[[bytes], bytes] = bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(compress(text.encode()))


def json_lines(found: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in found)


def cells(found: list[dict[str, object]], delimiter: str = ",", *, header: bool = True) -> str:
    texts = [delimiter.join(str(value) for value in row.values()) for row in found]
    return "".join(f"{line}\n" for line in ([delimiter.join(found[0]), *texts] if header else texts))


def ga4(folder: Path) -> Types:
    found = rows(event_date=lambda at: f"{TIMES[at]:%Y%m%d}", event_timestamp=lambda at: str(int(TIMES[at].timestamp() * 1e6)),
                 event_name=lambda at: ("page_view", "purchase")[at % 2], user_pseudo_id=lambda at: f"{10**9 + at}.{17 * 10**8 + at}",
                 ecommerce=lambda at: {"transaction_id": str(at), "purchase_revenue": at / 4},
                 event_params=lambda at: [{"key": "session", "value": {"int_value": str(at)}}])  # fmt: skip
    lines(folder / "ga4", "events-000000000000.json.gz", json_lines(found), gzip.compress)
    return {"event_timestamp": MOMENT, "event_name": "string", "user_pseudo_id": "string"}


def bigquery(folder: Path) -> Types:
    table = arrow().rename_columns(["created_at", "user", "query", "clicked", "tags"])
    table = table.append_column("updated_at", table.column("created_at"))
    for part in range(2):
        (folder / "orders").mkdir(exist_ok=True)
        pq.write_table(table.slice(part * 120, 120), folder / "orders" / f"orders-00000000000{part}.parquet")
    return {"created_at": MOMENT, "updated_at": MOMENT, "user": "int64"}


def by_days(folder: Path, table: pa.Table, levels: Callable[[datetime], str]) -> None:
    """Files of Spark: one of each level, and those that mark the end of the job."""
    times = table.column("time").to_pylist()
    for level in {levels(time): None for time in times}:
        place = folder / level
        place.mkdir(parents=True)
        mask = pa.array([levels(time) == level for time in times])
        pq.write_table(table.filter(mask), place / "part-00000-0d1e.c000.snappy.parquet")
        (place / ".part-00000-0d1e.c000.snappy.parquet.crc").write_bytes(b"crc\0")
    (folder / "_SUCCESS").touch()


def spark_days(folder: Path) -> Types:
    by_days(folder / "clicks", arrow(), lambda time: f"date={time:%Y-%m-%d}")
    return {"time": MOMENT, "tags": "list<element: string>"}


def spark_countries(folder: Path) -> Types:
    by_days(folder / "clicks", arrow(), lambda time: f"country={('DE', 'C%C3%B4te')[time.minute % 2]}/dt={time:%Y%m%d}")
    return {"time": MOMENT, "country": "string"}


def spark_csv(folder: Path) -> Types:
    found = rows(
        time=lambda at: f"{TIMES[at]:%Y-%m-%dT%H:%M:%S.000Z}", user=lambda at: at, query=lambda at: f'"say \\"{at}\\""'
    )
    lines(folder / "export", "part-00000-0d1e-c000.csv", cells(found))
    lines(folder / "export", "_SUCCESS", "")
    return {"time": MOMENT, "user": "int64", "query": "string"}


def pandas_parquet(folder: Path) -> Types:
    arrow("ns").to_pandas().to_parquet(folder / "frame.parquet")
    return {"time": MOMENT, "user": "int64", "clicked": "bool"}


def pandas_csv(folder: Path) -> Types:
    arrow("ns").to_pandas().drop(columns="tags").to_csv(folder / "frame.csv")
    return {"time": MOMENT, "user": "int64", "clicked": "bool"}


def polars_parquet(folder: Path) -> Types:
    import polars as pl

    pl.from_arrow(arrow("ms")).write_parquet(folder / "rows.parquet")  # type: ignore[union-attr]
    return {"time": MOMENT, "user": "int64", "query": "large_string"}


def polars_json(folder: Path) -> Types:
    import polars as pl

    pl.from_arrow(arrow()).write_ndjson(folder / "rows.ndjson")  # type: ignore[union-attr]
    return {"time": MOMENT, "user": "int64", "clicked": "bool", "tags": "list<element: string not null>"}


def duckdb_parquet(folder: Path) -> Types:
    import duckdb

    clicks = arrow()  # noqa: F841 - read by its name
    duckdb.sql(f"""COPY (SELECT *, year(time) AS year, month(time) AS month, day(time) AS day FROM clicks)
                   TO '{folder}/visits' (FORMAT parquet, PARTITION_BY (year, month, day))""")
    return {"user": "int64", "query": "string"}


def duckdb_csv(folder: Path) -> Types:
    import duckdb

    clicks = arrow().drop_columns("tags")  # noqa: F841 - read by its name
    duckdb.sql(f"COPY clicks TO '{folder}/visits.csv.zst' (HEADER, COMPRESSION zstd)")
    return {"time": MOMENT, "user": "int64", "clicked": "bool"}


def criteo(folder: Path) -> Types:
    found = [
        [at % 5 // 4, *(at * k % 90 for k in range(1, 14)), *(f"{at * k % 9973:08x}" for k in range(1, 27))]
        for at in range(ROWS)
    ]
    lines(folder, "train.txt", "".join("\t".join(map(str, row)) + "\n" for row in found))
    return {"column_1": "bool", "column_2": "int64", "column_40": "string"}


def avazu(folder: Path) -> Types:
    found = rows(id=lambda at: 10**19 + at, click=lambda at: at % 6 // 5, hour=lambda at: f"{TIMES[at]:%y%m%d%H}",
                 C1=lambda _: 1005, site_id=lambda at: f"{at % 97:08x}")  # fmt: skip
    lines(folder, "train.gz", cells(found), gzip.compress)
    return {"id": "string", "click": "bool", "hour": MOMENT, "C1": "int64", "site_id": "string"}


def kafka(folder: Path) -> Types:
    found = rows(
        ts=lambda at: int(TIMES[at].timestamp() * 1000), user=lambda at: {"id": at}, query=lambda at: f"w{at % 9}"
    )
    for at, row in enumerate(found):
        place = (
            folder
            / "topics"
            / "clicks"
            / f"year={TIMES[at]:%Y}"
            / f"month={TIMES[at]:%m}"
            / f"day={TIMES[at]:%d}"
            / f"hour={TIMES[at]:%H}"
        )
        place.mkdir(parents=True, exist_ok=True)
        with (place / "clicks+0+0000000000.json").open("a") as file:
            file.write(json_lines([row]))
    return {"ts": MOMENT, "query": "string"}


def snowflake(folder: Path) -> Types:
    found = rows(TIME=lambda at: f"{TIMES[at]:%Y-%m-%d %H:%M:%S.000 Z}", USER_ID=lambda at: "\\N" if at % 9 == 0 else at,
                 QUERY=lambda at: f'"word, {at}"')  # fmt: skip
    lines(folder / "unload", "data_0_0_0.csv.gz", cells(found), gzip.compress)
    return {"TIME": MOMENT, "USER_ID": "int64", "QUERY": "string"}


def redshift(folder: Path) -> Types:
    found = rows(at=lambda at: f"{TIMES[at]:%Y-%m-%d %H:%M:%S}", user=lambda at: at, query=lambda at: f"word {at % 7}")
    lines(folder / "unload", "0000_part_00.bz2", cells(found, "|", header=False), bz2.compress)
    return {"column_1": MOMENT, "column_2": "int64", "column_3": "string"}


def delta(folder: Path) -> Types:
    from deltalake import write_deltalake

    write_deltalake(folder / "events", arrow())
    return {"time": MOMENT, "user": "int64"}


def iceberg(folder: Path) -> Types:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("ads")
    catalog.create_table("ads.events", arrow().schema).append(arrow())
    Path(catalog.load_table("ads.events").location().removeprefix("file://")).rename(folder / "events")
    return {"time": MOMENT, "user": "int64"}


EXPORTS: dict[str, Callable[[Path], Types]] = {
    "GA4 events, from BigQuery as JSON": ga4,
    "a table of BigQuery, as Parquet": bigquery,
    'Spark, Parquet, `partitionBy("date")`': spark_days,
    'Spark, Parquet, `partitionBy("country", "dt")`': spark_countries,
    "Spark, CSV": spark_csv,
    "pandas, `to_parquet`": pandas_parquet,
    "pandas, `to_csv`": pandas_csv,
    "Polars, `write_parquet`": polars_parquet,
    "Polars, `write_ndjson`": polars_json,
    "DuckDB, Parquet, `PARTITION_BY (year, month, day)`": duckdb_parquet,
    "DuckDB, CSV": duckdb_csv,
    "Criteo's display ads: no times, no header": criteo,
    "Avazu's clicks: hours as `14102100`": avazu,
    "Kafka Connect, JSON by the hour": kafka,
    "Snowflake, `COPY INTO`, CSV": snowflake,
    "Redshift, `UNLOAD`, delimited by `\\|`, no header": redshift,
    "a Delta table": delta,
    "an Iceberg table": iceberg,
}


def test_each_row_of_the_page_is_tested():
    assert list(documented()) == list(EXPORTS)


@pytest.mark.parametrize("have", EXPORTS)
def test_what_the_page_says_to_type(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, have: str) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    types = EXPORTS[have](folder)
    monkeypatch.chdir(folder)
    commands = [shlex.split(command)[1:] for command in documented()[have]]
    assert commands
    for words in commands:
        cli(*words)
    name = commands[-1][2]
    shown = cli("table", "show", name, "--json").json
    found = {column["name"]: column["arrow_type"] for column in shown["columns"]}
    assert {column: found.get(column) for column in types} == types
    assert sum(part["rows"] for part in shown["partitions"]) == ROWS
