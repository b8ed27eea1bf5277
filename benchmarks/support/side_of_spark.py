"""Aggregates over windows by plain Spark SQL, as sides of ``benchmarks.spark_joins``; runs in the environment ``.pyspark``.

    python -m benchmarks.support.side_of_spark FOLDER THREADS

The folder has ``events.parquet`` (key, time, event) and ``rows.parquet`` (key, time, value). Prints the seconds until Spark has answered its first query. Each line of the input
is the name of a form: Spark reads both files and writes ``FORM.parquet`` (event, and count, sum, mean and last of each window), and the seconds are printed.

Forms:

* ``ranges``: each event is joined to the rows of its key in the longest window, and the pairs are grouped by event.
* ``frames``: events and rows are one table, with a ``RANGE`` frame for each window.
* ``hops``: windows begin at full hours. Rows are aggregated by hour, the hours of a window are merged for each hour that has events, and the rows of an event's own
  hour are joined. These are the steps that Chronon's ``SawtoothAggregator`` has, whose last hop is one of five minutes; but this is not Chronon.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

HOUR_MICROS = 3_600 * 10**6
DAY_MICROS = 24 * HOUR_MICROS
WINDOWS = {"1d": DAY_MICROS, "7d": 7 * DAY_MICROS}
LONGEST = max(WINDOWS.values())


def columns_of(pattern: str) -> str:
    """The pattern for each window, with its name and microseconds."""
    return ",\n  ".join(pattern.format(name=name, micros=micros) for name, micros in WINDOWS.items())


RANGES = f"""
select e.event, {
    columns_of('''
  count_if(r.at >= e.at - {micros}) as count_{name},
  coalesce(sum(r.value) filter (where r.at >= e.at - {micros}), 0) as sum_{name},
  avg(r.value) filter (where r.at >= e.at - {micros}) as mean_{name},
  max_by(r.value, r.at) filter (where r.at >= e.at - {micros}) as last_{name}''')
}
from events e left join rows r on e.key = r.key and r.at < e.at and r.at >= e.at - {LONGEST}
group by e.event
"""

FRAMES = f"""
select * except (key, at, value) from (
  select *, {
    columns_of('''
    count(value) over w{name} as count_{name},
    coalesce(sum(value) over w{name}, 0) as sum_{name},
    avg(value) over w{name} as mean_{name},
    last_value(value) ignore nulls over w{name} as last_{name}''')
}
  from (select key, at, event, cast(null as double) as value from events union all select key, at, null as event, value from rows)
  window {columns_of("w{name} as (partition by key order by at range between {micros} preceding and 1 preceding)")}
) where event is not null
"""

HOPS = f"""
with hops as (
  select key, hour, count(*) as rows, sum(value) as total, max_by(value, at) as value, max(at) as at from rows group by key, hour
), tails as (
  select e.key, e.hour, {
    columns_of('''
    sum(h.rows) filter (where h.hour >= e.hour - {micros}) as rows_{name},
    sum(h.total) filter (where h.hour >= e.hour - {micros}) as total_{name},
    max_by(h.value, h.at) filter (where h.hour >= e.hour - {micros}) as value_{name}''')
}
  from (select distinct key, hour from events) e
  left join hops h on e.key = h.key and h.hour < e.hour and h.hour >= e.hour - {LONGEST}
  group by e.key, e.hour
), heads as (
  select e.event, e.key, e.hour, count(r.at) as rows, sum(r.value) as total, max_by(r.value, r.at) as value
  from events e left join rows r on e.key = r.key and e.hour = r.hour and r.at < e.at
  group by e.event, e.key, e.hour
)
select h.event, {
    columns_of('''
  h.rows + coalesce(rows_{name}, 0) as count_{name},
  coalesce(h.total, 0) + coalesce(total_{name}, 0) as sum_{name},
  (coalesce(h.total, 0) + coalesce(total_{name}, 0)) / nullif(h.rows + coalesce(rows_{name}, 0), 0) as mean_{name},
  coalesce(h.value, value_{name}) as last_{name}''')
}
from heads h join tails t on h.key = t.key and h.hour = t.hour
"""

FORMS = {"ranges": RANGES, "frames": FRAMES, "hops": HOPS}


def started(threads: int) -> SparkSession:
    """A Spark in this machine's memory, which has answered a query."""
    spark: SparkSession = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.driver.memory", "8g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 4 * threads)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sql("select 1").collect()
    return spark


def main(folder: str, threads: int) -> None:
    """Answer lines."""
    begun = time.perf_counter()
    spark = started(threads)
    for name, last in (("events", "event"), ("rows", "cast(value as double) as value")):
        read = spark.read.parquet(f"{folder}/{name}.parquet")
        micros = "unix_micros(time)"
        read.selectExpr("key", f"{micros} as at", f"{micros} - {micros} % {HOUR_MICROS} as hour", last).createOrReplaceTempView(name)  # fmt: skip
    print(json.dumps({"secs": time.perf_counter() - begun}), flush=True)
    for line in sys.stdin:
        form = line.strip()
        begun = time.perf_counter()
        spark.sql(FORMS[form]).write.mode("overwrite").parquet(f"{folder}/{form}.parquet")
        print(json.dumps({"secs": time.perf_counter() - begun}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
