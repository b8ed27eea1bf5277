"""Point-in-time joins by Polars and DuckDB, each in its fastest form: rows strictly before an event, in windows of microseconds.

Tables are Arrow tables or paths of Parquet files, in the order of ``time``; events have ``key``, ``time`` and ``event`` (their place), rows ``key``, ``time`` and ``value``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

Source: TypeAlias = "pa.Table | Path"


def as_table(source: Source, columns: Sequence[str]) -> pa.Table:
    """Some columns of a source."""
    return source if isinstance(source, pa.Table) else pq.read_table(source, columns=list(columns))


def polars_latest(events: Source, rows: Source) -> pa.Table:
    """The latest value of each event by ``join_asof``."""
    import polars as pl

    def frame(source: Source) -> Any:
        whole = pl.from_arrow(source) if isinstance(source, pa.Table) else pl.read_parquet(source)
        return whole.set_sorted("time")  # type: ignore[union-attr]

    found = frame(events).join_asof(frame(rows), on="time", by="key", allow_exact_matches=False, check_sortedness=False)
    return found.select("event", "value").to_arrow()


def duckdb_latest(events: Source, rows: Source, threads: int) -> pa.Table:
    """The latest value of each event by an ``ASOF`` join."""
    return _duckdb("select event, value from events e asof left join rows r on e.key = r.key and e.time > r.time", events, rows, threads)  # fmt: skip


def duckdb_windows(events: Source, rows: Source, windows_secs: Sequence[int], aggregates: Mapping[str, str], threads: int) -> pa.Table:  # fmt: skip
    """Aggregates, such as ``count(value)``, of the rows of each event in windows, by ``RANGE`` frames over events and rows."""
    columns = ", ".join(
        f"{aggregate} over (partition by key order by time range between interval '{secs} seconds' preceding "
        f"and interval '1 microsecond' preceding) as {name}_{secs}"
        for secs in windows_secs
        for name, aggregate in aggregates.items()
    )
    both = "select key, time, event, null as value from events union all by name select key, time, null as event, value from rows"
    return _duckdb(f"select * exclude (key, time, value) from (select *, {columns} from ({both})) where event is not null", events, rows, threads)  # fmt: skip


def _duckdb(query: str, events: Source, rows: Source, threads: int) -> pa.Table:
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    for name, source in (("events", events), ("rows", rows)):
        if isinstance(source, pa.Table):
            connection.register(name, source)
        else:
            connection.execute(f"create view {name} as select * from read_parquet('{source}')")
    return connection.sql(query).to_arrow_table()
