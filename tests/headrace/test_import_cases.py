"""Logs as people have them, from ``table infer`` to the imported table."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.headrace.test_commands import check_golden

START = datetime(2026, 3, 1, tzinfo=UTC)


def rows(count: int, distance: timedelta, form: str, turns: int) -> list[str]:
    """Rows of a time, a user and a label; times repeat after ``turns`` rows."""
    return [f"{START + at % turns * distance:{form}},u{at % 50},{int(at % 5 == 0)}" for at in range(count)]


def csv_of(lines: list[str], header: str = "event_time,user,clicked") -> bytes:
    return "".join(f"{line}\n" for line in [header, *lines]).encode()


def daily(form: str) -> bytes:
    """2,000 rows of 14 days, one of them without a time."""
    lines = rows(2_000, timedelta(days=1), form, 14)
    return csv_of([*lines[:37], f"unknown,{lines[37].partition(',')[2]}", *lines[38:]])


def imported(cli: Any, tmp_path: Path, log: Path, *options: object) -> tuple[Any, pa.Table, list[dict[str, Any]]]:
    """The inferred schema, the imported table, and the rejected rows."""
    schema = tmp_path / "schema.json"
    found = cli("table", "infer", log, "--output", schema, *options, "--json").json
    done = cli("table", "import", "log", log, "--schema", schema, "--json").json
    files = sorted((tmp_path / "home/tables/log").rglob("*.parquet"))
    table = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)
    rejected = [json.loads(line) for path in (tmp_path / "home/rejects/log").glob("*") for line in path.open()]
    assert (
        (table.num_rows, len(rejected))
        == (done["rows"], done["rejected"])
        == (found["rows"] - found["rejected"], found["rejected"])
    )
    return found, table, rejected


def hours(table: pa.Table, column: str) -> set[str]:
    return {f"{time:%Y-%m-%dT%H}" for time in table.column(column).to_pylist()}


@pytest.mark.parametrize(("form", "entry"), [("%Y-%m-%d", "iso8601"), ("%d.%m.%Y", "%d.%m.%Y")])
def test_one_bad_day_among_many_rows_costs_its_row_only(cli, tmp_path, form, entry):
    (tmp_path / "daily.csv").write_bytes(daily(form))
    found, table, rejected = imported(cli, tmp_path, tmp_path / "daily.csv")
    time = found["schema"]["time"]
    assert (time["column"], time.get("unit") or time.get("format")) == ("event_time", entry)
    assert found["unsure"][0] == "1 of 2,000 rows is rejected: no plausible time (such as 'unknown')"
    assert table.num_rows == 1_999
    assert hours(table, "event_time") == {f"{START + timedelta(days=day):%Y-%m-%dT%H}" for day in range(14)}
    assert [(one["line"], one["reason"]["column"], one["reason"]["value"]) for one in rejected] == [
        (39, "event_time", "unknown")
    ]


@pytest.mark.parametrize(("column", "form"), [("ts", "%Y%m%d%H"), ("hour", "%y%m%d%H"), ("when", "%Y%m%d%H%M")])
def test_times_of_digits_are_times(cli, tmp_path, column, form):
    log = tmp_path / "hours.csv"
    log.write_bytes(csv_of(rows(2_000, timedelta(hours=1), form, 24), f"{column},user,clicked"))
    found, table, rejected = imported(cli, tmp_path, log)
    assert (found["schema"]["time"]["format"], rejected) == (form, [])
    assert hours(table, column) == {f"2026-03-01T{hour:02d}" for hour in range(24)}


def test_seconds_over_decades_are_times(cli, tmp_path):
    days = [datetime(1975, 1, 1, tzinfo=UTC) + timedelta(days=at) for at in range(0, 18_000, 600)]
    log = tmp_path / "decades.csv"
    log.write_bytes(
        csv_of([f"{int(day.timestamp())},u{at},{at % 2}" for at, day in enumerate(days)], "created,user,clicked")
    )
    found, table, _ = imported(cli, tmp_path, log)
    assert (found["schema"]["time"], found["schema"]["partition_by"]) == ({"column": "created", "unit": "s"}, "day")
    assert sorted(table.column("created").to_pylist()) == days


def test_infer_warns_of_more_days_than_a_table_should_have(cli, tmp_path):
    days = [datetime(1971, 1, 1, tzinfo=UTC) + timedelta(days=at) for at in range(0, 18_000, 60)]
    log = tmp_path / "decades.csv"
    log.write_bytes(csv_of([f"{day:%Y-%m-%d},u{at},{at % 2}" for at, day in enumerate(days)]))
    unsure = cli("table", "infer", log, "--output", tmp_path / "schema.json", "--json").json["unsure"]
    (warning,) = [one for one in unsure if "partitions" in one]
    assert warning.startswith("up to 17,940 partitions, one for each day with events: above 10,000")


def test_a_delimiter_after_the_last_cell_is_no_column(cli, tmp_path):
    log = tmp_path / "trailing.csv"
    log.write_bytes(csv_of([f"{row}," for row in rows(200, timedelta(hours=1), "%Y-%m-%d %H:%M:%S", 48)]))
    found, table, _ = imported(cli, tmp_path, log)
    assert found["schema"]["trailing_delimiter"] is True
    assert (table.num_rows, table.column_names) == (200, ["event_time", "user", "clicked"])


@pytest.mark.parametrize("name", ["log.csv.GZ", "log", "log.txt"])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_a_compressed_log_may_have_any_name(cli, tmp_path, name, compress):
    content = csv_of(rows(200, timedelta(hours=1), "%Y-%m-%d %H:%M:%S", 48))
    (tmp_path / name).write_bytes(compress(content))
    _, table, _ = imported(cli, tmp_path, tmp_path / name)
    assert table.num_rows == 200


def bigquery_rows() -> Iterator[dict[str, object]]:
    """An export of events as BigQuery writes it: every INT64 and every NUMERIC in quotes."""
    for at in range(60):
        micros = 1_772_409_605_123_456 + at * 60_000_000
        yield {"event_date": "20260302", "event_timestamp": str(micros), "event_name": "view", "session": str(2**53 + 1 + at),
               "value": f"{at}.25", "ratio": at / 4, "user": {"country": "DE", "first_touch": str(micros - 10**9)},
               "items": [str(at), str(at + 1)], "zip": f"0{at:04d}"}  # fmt: skip


def test_numbers_in_quotes_are_numbers_and_infer_says_so(cli, tmp_path):
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in bigquery_rows()))
    found, table, rejected = imported(cli, tmp_path, log)
    first = table.sort_by("event_timestamp").to_pylist()[0]
    assert (first["event_timestamp"].isoformat(), first["session"]) == (
        "2026-03-02T00:00:05.123456+00:00",
        9007199254740993,
    )
    assert (first["value"], first["items"], first["zip"], first["user_country"]) == (0.25, [0, 1], "00000", "DE")
    assert first["user_first_touch"] == 1_772_408_605_123_456
    assert rejected == []
    quoted = {row["name"] for row in found["columns"] if any("in quotes" in sentence for sentence in row["unsure"])}
    assert quoted == {"session", "value", "items", "user_first_touch"}
    assert found["schema"]["time"] == {"column": "event_timestamp", "unit": "us"}


def test_mostly_times_are_named_and_the_choice_is_the_users(cli, tmp_path):
    lines = rows(1_000, timedelta(hours=1), "%Y-%m-%d %H:%M:%S", 300)
    lines = ["n/a or so" + line[19:] if at % 20 == 0 else line for at, line in enumerate(lines)]
    log = tmp_path / "mostly.csv"
    log.write_bytes(csv_of(lines))
    error = cli("table", "infer", log, "--output", tmp_path / "no.json", status=2).err
    assert "event_time: 95.0% of the rows are times as ISO 8601 (such as 'n/a or so')" in error
    assert "--time-column event_time rejects 50 of the 1,000 sampled rows; --row-order makes times up" in error
    assert not (tmp_path / "no.json").exists()
    made_up = cli("table", "infer", log, "--output", "-", "--row-order", "--json").json
    assert "row_order" in made_up["schema"]["time"]
    assert "the log holds times, which are not the event time: event_time" in made_up["unsure"]
    both = cli("table", "infer", log, "--output", "-", "--row-order", "--time-column", "event_time", status=2).err
    assert "a log must have one event time" in both
    assert (
        "must be one of the log's" in cli("table", "infer", log, "--output", "-", "--time-column", "evnt", status=2).err
    )
    assert (
        "must hold plausible times"
        in cli("table", "infer", log, "--output", "-", "--time-column", "user", status=2).err
    )
    shown = cli("table", "infer", log, "--output", tmp_path / "schema.json", "--time-column", "event_time").out
    assert "5% of the sampled rows are rejected: import with --max-reject-share 0.08" in shown
    done = cli(
        "table", "import", "log", log, "--schema", tmp_path / "schema.json", "--max-reject-share", "0.08", "--json"
    ).json
    assert (done["rows"], done["rejected"]) == (950, 50)


def test_no_time_is_made_up_unasked(cli, tmp_path):
    log = tmp_path / "search.csv"
    log.write_bytes(csv_of([f"{at},word {at % 7}" for at in range(90)], "id,query"))
    error = cli("table", "infer", log, "--output", "-", status=2).err
    assert "got no column of times" in error
    assert "with --row-order times are made up from the order of rows" in error
    assert "row_order" in cli("table", "infer", log, "--output", "-", "--row-order").out


@pytest.mark.parametrize(("yes", "no", "expression"), [
    ("yes", "no", 'hr.text("bought") == "yes"'), ("Y", "N", 'hr.text("bought") == "Y"'), ("true", "false", "\"bought\""),
    ("2", "1", 'hr.int64("bought") == 2'),
])  # fmt: skip
def test_two_answers_are_a_label_with_the_expression_to_write(cli, tmp_path, yes, no, expression):
    lines = [f"{START + at * timedelta(hours=1):%Y-%m-%d %H:%M},u{at % 9},{yes if at % 3 else no}" for at in range(90)]
    (tmp_path / "log.csv").write_bytes(csv_of(lines, "time,user,bought"))
    shown = cli("table", "infer", tmp_path / "log.csv", "--output", tmp_path / "schema.json").out
    assert f"may be a label  label={expression}" in shown
    assert f"// candidates for a model's label: {expression}" in (tmp_path / "schema.json").read_text()
    cli("table", "import", "log", tmp_path / "log.csv", "--schema", tmp_path / "schema.json")
    model = f'import headrace as hr\n\nm = hr.Model("m", client="c", label={expression}, table="log")\nm.input("u", hr.text("user"))\n'
    (tmp_path / "model.py").write_text(model)
    cli("model", "check", tmp_path / "model.py")


def test_true_and_false_in_quotes_are_a_label_too(cli, tmp_path):
    lines = [
        {"time": f"{START + at * timedelta(hours=1):%Y-%m-%dT%H:%MZ}", "won": ("True", "False", "false")[at % 3]}
        for at in range(60)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found, _, _ = imported(cli, tmp_path, tmp_path / "log.jsonl")
    assert {row["name"]: row["label"] for row in found["columns"]} == {
        "time": "",
        "won": 'hr.text("won").lower() == "true"',
    }


SHAPES = {
    "escapes": b'# exported by hand\n#\nevent_time,user,note\n2026-03-01 00:00,u1,"a \\"good\\" one"\n2026-03-01 01:00,u2,"x, y"\n',
    "blank first lines": b'\n,,\nevent_time,user,note\n2026-03-01 00:00,u1,"a ""good"" one"\n2026-03-01 01:00,u2,"x, y"\n',
    "a spreadsheet's": b'sep=;\r\nevent_time;user;note\r\n2026-03-01 00:00;u1;"a ""good"" one"\r\n2026-03-01 01:00;u2;x, y\r\n',
    "names in a comment": b'#Fields: event_time\tuser\tnote\n2026-03-01 00:00\tu1\ta "good" one\n2026-03-01 01:00\tu2\tx, y\n',
    "a name after the last": b'event_time,user,note,\n2026-03-01 00:00,u1,"a ""good"" one",\n2026-03-01 01:00,u2,"x, y",\n',
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_of_any_shape_is_the_same_table(cli, tmp_path, shape):
    (tmp_path / "log").write_bytes(SHAPES[shape])
    _, table, _ = imported(cli, tmp_path, tmp_path / "log")
    assert table.column_names == ["event_time", "user", "note"]
    assert table.select(["user", "note"]).to_pylist() == [
        {"user": "u1", "note": 'a "good" one'},
        {"user": "u2", "note": "x, y"},
    ]


def test_rows_wider_than_the_header_are_one_error_with_both_widths(cli, tmp_path):
    (tmp_path / "log.csv").write_bytes(csv_of([f"{row},x" for row in rows(50, timedelta(hours=1), "%Y-%m-%d %H", 48)]))
    error = cli("table", "infer", tmp_path / "log.csv", "--output", "-", status=2).err
    assert "the rows must have as many cells as the header" in error
    assert "4 cells in most rows, 3 names in the header" in error


def test_the_screen_and_the_schema_file(cli, tmp_path):
    answers = {0: "yes", 1: "no"}
    lines = [f"{row}," for row in rows(400, timedelta(minutes=7), "%Y-%m-%d %H:%M", 400)]
    lines = [f"{line[:-2]}{answers[at % 2]},{'NULL' if at % 4 else at / 8}," for at, line in enumerate(lines)]
    lines[5] = "later" + lines[5][16:]
    (tmp_path / "log.csv").write_bytes(b"# exported by hand\n" + csv_of(lines, "seen_at,user,bought,price"))
    shown = cli("table", "infer", tmp_path / "log.csv", "--output", tmp_path / "schema.json").out
    check_golden("table_infer", shown.replace(str(tmp_path), "DIR"))
    check_golden("table_infer_file", (tmp_path / "schema.json").read_text().replace(str(tmp_path), "DIR"))
    lines = [f"soon{line[16:]}" if at % 9 == 0 else line for at, line in enumerate(lines)]
    (tmp_path / "log.csv").write_bytes(csv_of(lines, "seen_at,user,bought,price"))
    error = cli("table", "infer", tmp_path / "log.csv", "--output", "-", status=2).err
    check_golden("table_infer_unclear", error.replace(str(tmp_path), "DIR"))


def test_a_printed_schema_file_has_lines_of_any_length(cli, tmp_path):
    names = [f"is_clicked_by_a_user_of_the_kind_{at}" for at in range(8)]
    lines = [f"{START + at * timedelta(hours=1):%Y-%m-%d %H:%M}," + ",".join("01"[at % 2] * 8) for at in range(60)]
    (tmp_path / "log.csv").write_bytes(csv_of(lines, ",".join(["time", *names])))
    printed = cli("table", "infer", tmp_path / "log.csv", "--output", "-").out
    assert max(map(len, printed.splitlines())) > 150
    (tmp_path / "schema.json").write_text(printed)
    cli("table", "import", "log", tmp_path / "log.csv", "--schema", tmp_path / "schema.json")


def shared_case(shared_data: Path, name: str) -> Path:
    path = shared_data.parent / "cases" / "imports" / name
    if not path.exists():
        pytest.skip("no cases of imports beside this checkout")
    return path


@pytest.mark.parametrize(
    ("name", "column", "form", "count", "first_and_last"),
    [
        ("2_daily.csv", "event_time", "iso8601", 1_999, ("2026-03-01T00", "2026-03-14T00")),
        ("2_german.csv", "event_time", "%d.%m.%Y", 1_999, ("2026-03-01T00", "2026-03-14T00")),
        ("7_hours.csv", "ts", "%Y%m%d%H", 2_000, ("2026-03-01T00", "2026-03-01T23")),
        ("7_yymmddhh.csv", "hour", "%y%m%d%H", 2_000, ("2026-03-01T00", "2026-03-01T23")),
        ("8_trailing_comma.csv", "time", "iso8601", 200, ("2026-03-01T00", "2026-03-02T08")),
    ],
)
def test_a_reported_log_is_its_right_table(cli, tmp_path, shared_data, name, column, form, count, first_and_last):
    found, table, rejected = imported(cli, tmp_path, shared_case(shared_data, name))
    time = found["schema"]["time"]
    assert (time["column"], time.get("unit") or time.get("format"), table.num_rows) == (column, form, count)
    assert [one["line"] for one in rejected] == [39] * (count == 1_999)
    found_hours = sorted(hours(table, column))
    assert (found_hours[0], found_hours[-1]) == first_and_last
    assert len(found_hours) == {"2_": 14, "7_": 24, "8_": 18}[name[:2]]
    assert len(table.column_names) == 3


@pytest.mark.parametrize("name", ["9_upper.csv.GZ", "9_no_suffix.csv"])
def test_a_reported_gzip_log_is_read_by_its_first_bytes(cli, tmp_path, shared_data, name):
    log, schema = shared_case(shared_data, name), shared_case(shared_data, "9_schema.json")
    done = cli("table", "import", "log", log, "--schema", schema, "--json").json
    assert (done["rows"], done["rejected"]) == (200, 0)
    assert cli("table", "infer", log, "--output", "-", "--json").json["rows"] == 200
