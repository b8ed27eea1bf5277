"""Parquet files of any layout become partitions of their event time."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.ingest.job import ImportConfig, import_logs
from pipelines.parsing.parquet import event_times, parquet_log
from tests.headrace.conftest import cli as cli
from tests.support.mutations import mutated
from transforms.errors import HeadraceError, InputError, TypeMismatch, UnknownColumn
from warehouse.errors import CorruptFile, SchemaDrift

MARCH = datetime(2026, 3, 2, 7, 50, tzinfo=UTC)
#: The years 1970 to 2199.
CENTURIES = (0, 7_258_118_400_000_000)
MARCH_US = 1_772_437_800_000_000


def written(path: Path, times: pa.Array, **columns: list) -> str:
    table = pa.table({"time": times, **{name: pa.array(values) for name, values in columns.items()}})
    pq.write_table(table, path)
    return str(path)


def test_files_become_partitions_and_columns_keep_their_types(tmp_path):
    for number in range(2):
        table = pa.table({
            "id": pa.array([number * 3 + n for n in range(3)], pa.uint16()),
            "time": pa.array([MARCH.replace(hour=9 - 2 * n, tzinfo=None) for n in range(3)], pa.timestamp("ns")),
            "topics": pa.array([["a"], [], None]),
            "store": pa.array(["play", "web", "play"]).dictionary_encode(),
        })  # fmt: skip
        pq.write_table(table, tmp_path / f"export-{number}.parquet")
    files = tuple(str(tmp_path / f"export-{number}.parquet") for number in range(2))
    config = ImportConfig(
        files, parquet_log(files, "time", partition_by="hour"), str(tmp_path / "out"), str(tmp_path / "rejects")
    )
    report = import_logs(config)
    assert (report.rows, report.rejected, len(report.partitions)) == (6, 0, 3)
    (part,) = (tmp_path / "out" / "date=2026-03-02" / "hour=07").glob("*.parquet")
    rows = pq.read_table(part, partitioning=None)
    assert [str(field.type) for field in rows.schema] == [
        "uint16", "timestamp[us, tz=UTC]", "list<element: string>", "dictionary<values=string, indices=int32, ordered=0>"]  # fmt: skip
    assert rows["id"].to_pylist() == [1, 4]
    assert import_logs(config).rows == 0, "the same files again change nothing"


def test_a_sentinel_year_and_a_null_go_to_the_reject_file(tmp_path):
    times = pa.array([MARCH, datetime(9999, 12, 31, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)])
    file = written(tmp_path / "log.parquet", times, query=["a", "b", "c", "d"])
    config = ImportConfig((file,), parquet_log([file], "time"), str(tmp_path / "out"), str(tmp_path / "rejects"), 0.8)
    report = import_logs(config)
    assert (report.rows, report.rejected) == (1, 3)
    rejects = [json.loads(line) for line in Path(report.rejects[0]).read_text(encoding="utf-8").splitlines()]
    assert [(one["line"], one["reason"]["what"]) for one in rejects] == [
        (2, "a time is out of range"), (3, "a required value is missing"), (4, "a time is out of range")]  # fmt: skip
    assert "9999-12-31" in rejects[0]["reason"]["value"]
    assert "1970" in rejects[0]["reason"]["expected"]


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (pa.array([MARCH], pa.timestamp("s", "UTC")), None),
        (pa.array([MARCH.replace(tzinfo=None)], pa.timestamp("ms")), None),
        (pa.array([MARCH_US * 1000 + 999]).cast(pa.timestamp("ns", "Europe/Paris")), None),
        (pa.array([MARCH_US // 10**6], pa.uint32()), "s"),
        (pa.array([MARCH_US // 10**3]), "ms"),
        (pa.array([MARCH_US], pa.uint64()), "us"),
        (pa.array([MARCH_US * 1000 + 1]), "ns"),
    ],
)
def test_every_way_to_store_a_time(times, unit):
    found, missing, outside = event_times(times, unit, CENTURIES)
    assert (found.tolist(), missing.tolist(), outside.tolist()) == ([MARCH_US], [False], [False])


def test_days_are_their_midnight():
    for stored in (pa.date32(), pa.date64()):
        found, _, _ = event_times(pa.array([date(2026, 3, 2)], stored), None, CENTURIES)
        assert found.tolist() == [MARCH_US - 7 * 3_600_000_000 - 50 * 60_000_000]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.sampled_from(["s", "ms", "us", "ns"]))
def test_times_are_what_python_makes_of_them_or_flagged(counts, unit):
    found, missing, outside = event_times(pa.array(counts, pa.int64()), unit, CENTURIES)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for count, us, is_missing, is_outside in zip(counts, found.tolist(), missing, outside, strict=True):
        inside = count is not None and 0 <= count // per_second < 7_258_118_400
        assert (is_missing, is_outside) == (count is None, count is not None and not inside)
        assert us == (count * 10**6 // per_second if inside else 0)


@pytest.mark.parametrize("name", ["", "time"])
def test_files_may_store_their_times_in_several_types(tmp_path, name):
    stored = {
        "seconds": pa.array([MARCH], pa.timestamp("s", "UTC")),
        "no zone": pa.array([MARCH.replace(tzinfo=None)], pa.timestamp("ns")),
        "none": pa.nulls(1),
        "days": pa.array([date(2026, 3, 2)], pa.date32()),
        "other zone": pa.array([MARCH], pa.timestamp("ms", "Europe/Paris")),
    }
    files = [written(tmp_path / f"{key}.parquet", times) for key, times in stored.items()]
    log = parquet_log(files, name, partition_by="day")
    assert log.arrow_schema.field("time").type == pa.timestamp("us", tz="UTC")
    blocks = [block for file in files for block in log.blocks(file)]
    times = [block.table["time"].cast(pa.int64()).to_pylist() for block in blocks]
    assert times == [[MARCH_US], [MARCH_US], [], [MARCH_US - 7 * 3_600_000_000 - 50 * 60_000_000], [MARCH_US]]
    assert [len(block.rejects) for block in blocks] == [0, 0, 1, 0, 0]


def test_what_cannot_be_an_import_is_refused(tmp_path):
    text = written(tmp_path / "text.parquet", pa.array(["now"]))
    number = written(tmp_path / "number.parquet", pa.array([1]))
    time = written(tmp_path / "time.parquet", pa.array([MARCH]))
    more = written(tmp_path / "more.parquet", pa.array([MARCH]), more=[1])
    other = written(tmp_path / "other.parquet", pa.array([MARCH]), more=["1"])
    (tmp_path / "not.parquet").write_bytes(b"time,query\n")
    with pytest.raises(UnknownColumn, match="time column"):
        parquet_log([time], "tme")
    with pytest.raises(TypeMismatch, match="must hold timestamps"):
        parquet_log([text], "time")
    with pytest.raises(InputError, match="must have a unit"):
        parquet_log([number], "time")
    with pytest.raises(InputError, match="integers"):
        parquet_log([time], "time", unit="ms")
    with pytest.raises(SchemaDrift, match="a column of another type"):
        parquet_log([time, more, other], "time")
    with pytest.raises(SchemaDrift, match="a column of another type"):
        parquet_log([time, number], "time")
    with pytest.raises(CorruptFile, match="not a complete Parquet file"):
        parquet_log([str(tmp_path / "not.parquet")], "time")


def test_damaged_files_are_one_error_or_rows(tmp_path):
    file = Path(written(tmp_path / "log.parquet", pa.array([MARCH] * 50), query=["shoes"] * 50, n=list(range(50))))
    content, draw = file.read_bytes(), random.Random(7)
    outcomes = set()
    for _ in range(400):
        file.write_bytes(mutated(content, draw))
        try:
            rows = sum(block.table.num_rows for block in parquet_log([str(file)], "time").blocks(str(file)))
            outcomes.add("rows" if rows else "none")
        except HeadraceError:
            outcomes.add("error")
    assert outcomes >= {"rows", "error"}


def test_without_options_the_only_timestamp_is_the_time_and_a_long_log_is_cut_into_days(tmp_path):
    short = written(tmp_path / "short.parquet", pa.array([MARCH, MARCH.replace(day=9)]), n=[1, 2])
    long = written(
        tmp_path / "long.parquet",
        pa.array([MARCH, MARCH.replace(day=29), datetime(9999, 1, 1, tzinfo=UTC)]),
        n=[1, 2, 3],
    )
    many = written(tmp_path / "many.parquet", pa.array([MARCH, MARCH.replace(hour=8)] * 1000))
    assert [parquet_log([one]).partition_by for one in (short, long, many)] == ["day", "day", "hour"]
    assert parquet_log([long], partition_by="hour").partition_by == "hour"
    two = written(tmp_path / "two.parquet", pa.array([MARCH]), other=[MARCH])
    with pytest.raises(InputError, match="one column of event times"):
        parquet_log([two])


@pytest.mark.slow
def test_parquet_is_imported_by_command(cli, tmp_path):
    written(tmp_path / "a.parquet", pa.array([MARCH, MARCH.replace(hour=9)]), query=["shoes", "hats"])
    (tmp_path / "b.csv").write_text("time,query\n", encoding="utf-8")
    done = cli("table", "import", "log", tmp_path / "a.parquet", "--partition-by", "hour", "--json").json
    assert (done["rows"], done["partitions"], done["rejected"]) == (2, 2, 0)
    assert "nothing new" in cli("table", "import", "log", tmp_path / "a.parquet").out
    error = cli("table", "import", "log", tmp_path / "a.parquet", tmp_path / "b.csv", status=2).err
    assert "all Parquet or all text" in error
    error = cli("table", "import", "log", tmp_path / "b.csv", "--time-column", "time", status=2).err
    assert "needs Parquet files" in error
    error = cli("table", "import", "log", tmp_path / "a.parquet", "--partition-by", "week", status=2).err
    assert "hour, day" in error
